"""What Hermes knows of a conversation besides what was said."""

import re
from collections.abc import Sequence
from typing import Any

from sessionary.formats import shape
from sessionary.importers import hermes_export, hermes_state, hermes_web
from sessionary.importers.base import Json
from sessionary.importers.hermes_gateway import source_of
from sessionary.importers.hermes_home import Home
from sessionary.importers.hermes_state import Chain, Row, last_of
from sessionary.model.title import numbered_base
from sessionary.store.sqlite.foreign import ForeignDatabase

_CRON_ID = re.compile(r"\Acron_(.+?)_\d{8}.*\Z|\Acron_(.+)_[^_]*\Z")
# Columns that are told in other ways, or are sums of the log.
_TOLD = frozenset(
    {
        "source",
        "user_id",
        "model",
        "model_config",
        "system_prompt",
        "parent_session_id",
        "started_at",
        "ended_at",
        "end_reason",
        "message_count",
        "tool_call_count",
        "input_tokens",
        "output_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "reasoning_tokens",
        "billing_provider",
        "billing_base_url",
        "billing_mode",
        "estimated_cost_usd",
        "actual_cost_usd",
        "cost_status",
        "cost_source",
        "pricing_version",
        "title",
        "api_call_count",
        "archived",
        "pinned",
        "cwd",
        "git_branch",
        "git_repo_root",
        "origin_json",
        "origin",
    }
)


class Known:
    """The rows, the index entry and the web files of one conversation."""

    def __init__(
        self,
        home: Home,
        chain: Chain,
        webs: Sequence[Json],
        database: ForeignDatabase | None,
    ) -> None:
        self._home = home
        self._chain = chain
        self._webs = webs
        self._database = database

    def fields(self) -> dict[str, Any]:
        """The fields of the session's line."""
        rows = self._chain.rows
        entry = self.entry()
        fields: dict[str, Any] = {
            "title": self._title(),
            "source": source_of(rows[-1].facts, entry),
            "model": last_of(rows, "model"),
            "settings": rows[-1].settings,
            "system_prompt": self._prompt(),
            "workspace": _workspace(rows),
            "pinned": bool(last_of(rows, "pinned")),
            "archived": bool(last_of(rows, "archived") or last_of(rows, "hidden")),
            "ended_at": rows[-1].ended,
            "end_reason": rows[-1].end_reason,
        }
        for web in self._webs:
            fields |= hermes_web.fields_of(web, self._home.projects)
        kept = self._kept()
        fields["extra"] = {"hermes": kept} if kept else {}
        return {name: value for name, value in fields.items() if value}

    def _title(self) -> str | None:
        titles = [t for row in self._chain.rows if (t := shape.name(row.facts.get("title")))]
        if titles:
            base, _ = numbered_base(titles[-1])
            return base if base in titles else titles[-1]
        cron = _CRON_ID.match(self._chain.id)
        return None if cron is None else self._home.jobs.get(cron[1] or cron[2])

    def _prompt(self) -> str | None:
        """What the model was told; newer versions keep it apart, by its hash."""
        row = self._chain.rows[-1]
        if row.id in self._home.exported:
            return hermes_export.prompt_of(*self._home.exported[row.id])
        if self._database is None or not row.facts:
            return None
        found = hermes_state.prompt_of(self._database, row)
        digest = last_of(self._chain.rows, "system_prompt_hash")
        return self._prompt_apart(self._database, digest) if found is None and digest else found

    def _prompt_apart(self, database: ForeignDatabase, digest: object) -> str | None:
        columns = database.columns("system_prompts")
        text = next((c for c in ("content", "prompt", "system_prompt", "text") if c in columns), "")
        key = next((c for c in ("hash", "prompt_hash", "id") if c in columns), None)
        if key is None:
            return None
        rows = database.rows("system_prompts", [text], where=(key, digest))
        return next((shape.name(row[0]) for row in rows), None)

    def entry(self) -> Json:
        """What the gateway's index says of it, the latest."""
        entries = self._home.index.entries
        return next((entries[r.id] for r in reversed(self._chain.rows) if r.id in entries), {})

    def _kept(self) -> Json:
        kept: Json = {}
        for row in self._chain.rows:
            facts = row.facts.items()
            kept |= {
                n: v for n, v in facts if n not in _TOLD and v not in (0, "", b"") and _plain(v)
            }
        for web in self._webs:
            kept |= hermes_web.kept_of(web)
        if len(self._chain.rows) > 1:
            kept["segments"] = [row.id for row in self._chain.rows]
        return kept


def _plain(value: object) -> bool:
    return isinstance(value, str | int | float)


def _workspace(rows: Sequence[Row]) -> Json | None:
    path = shape.name(last_of(rows, "cwd"))
    if path is None:
        return None
    more = {
        "branch": shape.name(last_of(rows, "git_branch")),
        "repository": shape.name(last_of(rows, "git_repo_root")),
    }
    return {"path": path} | {name: value for name, value in more.items() if value}
