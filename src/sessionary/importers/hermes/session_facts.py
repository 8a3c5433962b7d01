"""The fields and usage of a Hermes conversation."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sessionary.formats import coerce
from sessionary.importers.base import databases
from sessionary.importers.base.content import call_usage, first_time
from sessionary.importers.base.events import Json
from sessionary.importers.hermes import state, web_sessions
from sessionary.importers.hermes.gateway import source_of
from sessionary.importers.hermes.home import HermesHome
from sessionary.importers.hermes.state import Chain, SessionRow, last_of
from sessionary.model.title import numbered_base
from sessionary.model.usage import CostStatus, Usage
from sessionary.store.sqlite.external_file import ExternalDatabase

_CRON_ID = re.compile(r"\Acron_(.+?)_\d{8}.*\Z|\Acron_(.+)_[^_]*\Z")
# Columns that are read elsewhere, or are sums over the log.
_KNOWN_COLUMNS = frozenset(
    {
        *("source", "user_id", "model", "model_config", "system_prompt", "parent_session_id"),
        *("started_at", "ended_at", "end_reason", "message_count", "tool_call_count"),
        *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"),
        *("reasoning_tokens", "billing_provider", "billing_base_url", "billing_mode"),
        *("estimated_cost_usd", "actual_cost_usd", "cost_status", "cost_source", "pricing_version"),
        *("title", "api_call_count", "archived", "pinned", "cwd", "git_branch", "git_repo_root"),
        *("origin_json", "origin"),
    }
)


class HermesFacts:
    """The rows, the index entry and the web files of one conversation."""

    def __init__(
        self,
        home: HermesHome,
        chain: Chain,
        webs: Sequence[Json],
        database: ExternalDatabase | None,
    ) -> None:
        self._home = home
        self._chain = chain
        self._webs = webs
        self._database = database

    def fields(self) -> dict[str, Any]:
        """Return the fields of the session."""
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
            fields |= web_sessions.fields_of(web, self._home.projects)
        extra = self._extra()
        fields["extra"] = {"hermes": extra} if extra else {}
        return {name: value for name, value in fields.items() if value}

    def _title(self) -> str | None:
        titles = [t for row in self._chain.rows if (t := coerce.name(row.facts.get("title")))]
        if titles:
            base, _ = numbered_base(titles[-1])
            return base if base in titles else titles[-1]
        cron = _CRON_ID.match(self._chain.id)
        return None if cron is None else self._home.jobs.get(cron[1] or cron[2])

    def _prompt(self) -> str | None:
        """Return the system prompt; newer versions store it in a table of its own, by hash."""
        row = self._chain.rows[-1]
        if row.id in self._home.exported:
            return state.exported_prompt(*self._home.exported[row.id])
        if self._database is None or not row.facts:
            return None
        found = state.prompt_of(self._database, row)
        digest = last_of(self._chain.rows, "system_prompt_hash")
        return self._prompt_apart(self._database, digest) if found is None and digest else found

    def _prompt_apart(self, database: ExternalDatabase, digest: object) -> str | None:
        columns = database.columns("system_prompts")
        text = next((c for c in ("content", "prompt", "system_prompt", "text") if c in columns), "")
        key = next((c for c in ("hash", "prompt_hash", "id") if c in columns), None)
        if key is None:
            return None
        where = (key, digest)
        return coerce.name(databases.value(database, "system_prompts", text, where=where))

    def entry(self) -> Json:
        """Return the latest entry in the gateway's index."""
        entries = self._home.index.entries
        return next((entries[r.id] for r in reversed(self._chain.rows) if r.id in entries), {})

    def _extra(self) -> Json:
        extra: Json = {}
        for row in self._chain.rows:
            facts = row.facts.items()
            extra |= {
                n: v
                for n, v in facts
                if n not in _KNOWN_COLUMNS and v not in (0, "", b"") and _plain(v)
            }
        for web in self._webs:
            extra |= web_sessions.extra_of(web)
        if len(self._chain.rows) > 1:
            extra["segments"] = [row.id for row in self._chain.rows]
        return extra


def _plain(value: object) -> bool:
    return isinstance(value, str | int | float)


def _workspace(rows: Sequence[SessionRow]) -> Json | None:
    path = coerce.name(last_of(rows, "cwd"))
    if path is None:
        return None
    more = {
        "branch": coerce.name(last_of(rows, "git_branch")),
        "repository": coerce.name(last_of(rows, "git_repo_root")),
    }
    return {"path": path} | {name: value for name, value in more.items() if value}


TABLE = "session_model_usage"
_COLUMNS = (
    *("model", "billing_provider", "billing_base_url", "billing_mode", "task", "input_tokens"),
    *("output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens"),
    *("estimated_cost_usd", "actual_cost_usd", "cost_status", "cost_source", "first_seen"),
)


def of_rows(database: ExternalDatabase, rows: Sequence[SessionRow]) -> list[Usage]:
    """Return the usage of a conversation from the database."""
    found: list[Usage] = []
    for row in rows:
        by_model = [
            dict(zip(_COLUMNS, values, strict=True))
            for values in database.rows(TABLE, _COLUMNS, where=("session_id", row.id))
        ]
        if not by_model:
            by_model = [row.facts]
        for facts in by_model:
            found += of_facts(row.id, {"started_at": row.facts.get("started_at"), **facts})
    return found


def of_facts(session_id: str, facts: Json) -> tuple[Usage, ...]:
    """Return the usage of one row, if anything was counted."""
    named = [facts.get(n) for n in ("model", "billing_provider", "billing_mode", "task")]
    id = ":".join([session_id, *(each for each in named if isinstance(each, str) and each)])
    dollars, is_reported = _cost(facts)
    made = call_usage(
        "hermes",
        id,
        model=coerce.name(facts.get("model")),
        provider=coerce.name(facts.get("billing_provider")),
        at=first_time(facts.get("first_seen"), facts.get("started_at")),
        dollars=dollars,
        is_reported=is_reported,
        input=facts.get("input_tokens"),
        output=facts.get("output_tokens"),
        cache_read=facts.get("cache_read_tokens"),
        cache_write=facts.get("cache_write_tokens"),
        reasoning=facts.get("reasoning_tokens"),
    )
    return tuple(_billed(used, facts) for used in made)


def _billed(used: Usage, facts: Json) -> Usage:
    """Return the call with its billing; calls included in a subscription cost nothing."""
    more: dict[str, Any] = {
        "base_url": coerce.name(facts.get("billing_base_url")),
        "billing_mode": coerce.name(facts.get("billing_mode")),
        "task": coerce.name(facts.get("task")),
    }
    if facts.get("cost_status") == "included" and used.cost_microusd is None:
        more |= {"cost_microusd": 0, "cost_status": CostStatus.INCLUDED, "price_source": "hermes"}
    return replace(used, **more)


def _cost(facts: Json) -> tuple[object, bool]:
    """Return the cost in dollars, and whether it was billed."""
    actual = facts.get("actual_cost_usd")
    if isinstance(actual, int | float) and actual > 0:
        return actual, True
    return facts.get("estimated_cost_usd", facts.get("estimated_cost")), False
