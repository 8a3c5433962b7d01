"""`SessionDB`: the state module that Hermes programs import, over a Sessionary store."""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from sessionary import config
from sessionary.actions.retention import purge
from sessionary.actions.sessions import titles
from sessionary.compat.hermes import locks, queries, rows, search, sessions
from sessionary.compat.hermes.queries import ListOptions
from sessionary.compat.hermes.rows import Json
from sessionary.compat.hermes.search import SearchFilter
from sessionary.compat.hermes.store import HermesStore, database_of, default_database
from sessionary.errors import BadInput
from sessionary.model.session import SessionHead
from sessionary.model.terminal import one_line
from sessionary.model.title import MAX_TITLE, clean_title
from sessionary.store import migrations
from sessionary.store.database import Tx
from sessionary.store.tables import sessions as session_table

DEFAULT_DB_PATH = config.default_home() / config.DATABASE
SCHEMA_VERSION = len(migrations.known("sqlite"))
_AT_HOME = DEFAULT_DB_PATH
_ANY_ROLE = ("user", "assistant")
T = TypeVar("T")
P = ParamSpec("P")


class SessionDB:
    """Sessions and messages as Hermes programs know them. Any thread may call; each call is one transaction."""

    def __init__(self, db_path: str | os.PathLike[str] | None = None) -> None:
        if db_path is None and DEFAULT_DB_PATH == _AT_HOME:
            database = default_database()
        else:
            database = database_of(DEFAULT_DB_PATH if db_path is None else db_path)
        self.db_path = Path(DEFAULT_DB_PATH if db_path is None else db_path)
        self._store = HermesStore(database)
        self._profile = self._store.profile

    # Sessions

    def create_session(
        self,
        session_id: str,
        source: str,
        model: str | None = None,
        model_config: Mapping[str, Any] | None = None,
        system_prompt: str | None = None,
        user_id: str | None = None,
        parent_session_id: str | None = None,
    ) -> str:
        """Create a session and return its id; an existing one stays as it is."""
        given = dict(locals())
        self._write(sessions.create, session_id, source, given, timed=True)
        return session_id

    def ensure_session(
        self, session_id: str, source: str = "unknown", model: str | None = None
    ) -> str:
        return self.create_session(session_id, source, model=model)

    def end_session(self, session_id: str, end_reason: str) -> None:
        """Close a session; the first reason wins."""
        self._write(sessions.end, session_id, end_reason, timed=True)

    def reopen_session(self, session_id: str) -> None:
        self._write(sessions.reopen, session_id)

    def update_system_prompt(self, session_id: str, system_prompt: str) -> None:
        self._write(sessions.set_prompt, session_id, system_prompt)

    def update_token_counts(
        self,
        session_id: str,
        input_tokens: int = 0,
        output_tokens: int = 0,
        model: str | None = None,
        cache_read_tokens: int = 0,
        cache_write_tokens: int = 0,
        reasoning_tokens: int = 0,
        estimated_cost_usd: float | None = None,
        actual_cost_usd: float | None = None,
        cost_status: str | None = None,
        cost_source: str | None = None,
        pricing_version: str | None = None,
        billing_provider: str | None = None,
        billing_base_url: str | None = None,
        billing_mode: str | None = None,
        api_call_count: int = 0,
        absolute: bool = False,
    ) -> None:
        """Add to the counts, or with `absolute` set them."""
        given = dict(locals())
        self._write(sessions.count_usage, session_id, given, absolute=absolute, timed=True)

    def get_session(self, session_id: str) -> Json | None:
        return self._about(session_id, rows.session_row)

    def resolve_session_id(self, session_id_or_prefix: str) -> str | None:
        """Return the id itself, or the only one with this prefix."""
        found: str | None = self._read(sessions.find_by_prefix, session_id_or_prefix)
        return found

    def delete_session(self, session_id: str, sessions_dir: Path | None = None) -> bool:
        """Delete a session for good and return whether it existed; its children stay."""
        return bool(self._write(sessions.delete, session_id, timed=True))

    def prune_sessions(
        self,
        older_than_days: float = 90,
        source: str | None = None,
        sessions_dir: Path | None = None,
    ) -> int:
        """Delete sessions that ended at least this many days ago; return how many."""
        before = self._store.moment().now - timedelta(days=older_than_days)
        found = list(
            purge.find_prunable(
                self._store.store,
                profile=self._profile,
                before=before,
                platform=source,
                with_subagents=False,
            )
        )
        gone = (
            self._write(
                purge.prune, each.session_id, before=before, timed=True, with_subagents=False
            )
            for each in found
        )
        return sum(purged is not None for purged in gone)

    # Titles

    @staticmethod
    def sanitize_title(title: str | None) -> str | None:
        """Return the title as it is stored, or None for an empty one."""
        try:
            return clean_title(title or "")
        except BadInput as error:
            length = len(one_line(title or ""))
            raise ValueError(f"Title too long ({length} chars, max {MAX_TITLE})") from error

    def set_session_title(self, session_id: str, title: str | None) -> bool:
        """Set the title, or remove it with an empty one; return whether the session exists."""
        wanted = self.sanitize_title(title)
        return bool(self._write(sessions.rename, session_id, wanted))

    def get_session_title(self, session_id: str) -> str | None:
        return self._about(session_id, lambda _, head: head.title)

    def get_session_by_title(self, title: str) -> Json | None:
        found = self._read(sessions.find_by_title, title)
        return None if found is None else self.get_session(found)

    def resolve_session_by_title(self, title: str) -> str | None:
        """Return the session with this title, or its latest numbered continuation."""
        found: str | None = self._read(sessions.find_latest_by_title, title)
        return found

    def get_next_title_in_lineage(self, base_title: str) -> str:
        """Return the next free numbered title."""
        return str(self._read(titles.next_title, base_title))

    # Lists

    def list_sessions_rich(
        self,
        source: str | None = None,
        exclude_sources: Sequence[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        include_children: bool = False,
        project_compression_tips: bool = True,
        order_by_last_active: bool = False,
    ) -> list[Json]:
        """Rows with `preview` and `last_active`; a compressed chain is one row."""
        tips = project_compression_tips and not include_children
        wanted = ListOptions(source, exclude_sources, include_children, tips, order_by_last_active)

        def listed(tx: Tx, *, profile: str) -> list[Json]:
            page = queries.list_heads(tx, wanted, profile=profile, limit=limit, offset=offset)
            return [queries.rich_row(tx, head, tips=tips) for head in page]

        return list(self._read(listed))

    def search_sessions(
        self, source: str | None = None, limit: int = 20, offset: int = 0
    ) -> list[Json]:
        """Return rows, the newest started first."""
        wanted = ListOptions(source, children=True)

        def listed(tx: Tx, *, profile: str) -> list[Json]:
            page = queries.list_heads(tx, wanted, profile=profile, limit=limit, offset=offset)
            return [rows.session_row(tx, head) for head in page]

        return list(self._read(listed))

    def session_count(self, source: str | None = None) -> int:
        return int(self._read(session_table.count, platform=source))

    def message_count(self, session_id: str | None = None) -> int:
        if session_id is None:
            return int(self._read(session_table.count_messages))
        return self._about(session_id, lambda _, head: head.message_count) or 0

    def export_session(self, session_id: str) -> Json | None:
        return self._about(session_id, _exported)

    def export_all(self, source: str | None = None) -> list[Json]:
        found: list[Json] = []
        while page := self.search_sessions(source, limit=queries.PAGE, offset=len(found)):
            found += [row | {"messages": self.get_messages(row["id"])} for row in page]
        return found

    # Messages

    def append_message(
        self,
        session_id: str,
        role: str,
        content: Any = None,
        tool_name: str | None = None,
        tool_calls: Any = None,
        tool_call_id: str | None = None,
        token_count: int | None = None,
        finish_reason: str | None = None,
        reasoning: str | None = None,
        reasoning_content: str | None = None,
        reasoning_details: Any = None,
        codex_reasoning_items: Any = None,
        codex_message_items: Any = None,
        platform_message_id: str | None = None,
        observed: bool = False,
    ) -> int:
        given = dict(locals())
        return self.append_messages_batch(session_id, [given])[0]

    def append_messages_batch(
        self, session_id: str, rows: Sequence[Mapping[str, Any]]
    ) -> list[int]:
        """Append messages, all or none, and return their numbers."""
        return list(self._write(sessions.append, session_id, list(rows), timed=True))

    def replace_messages(self, session_id: str, messages: Sequence[Mapping[str, Any]]) -> None:
        self._write(sessions.rewrite, session_id, list(messages), timed=True)

    def clear_messages(self, session_id: str) -> None:
        self._write(sessions.clear, session_id, timed=True)

    def get_messages(self, session_id: str) -> list[Json]:
        """A session's messages as rows, in order; none for an unknown id."""
        return self._about(session_id, rows.message_rows) or []

    def get_messages_as_conversation(
        self, session_id: str, include_ancestors: bool = False
    ) -> list[Json]:
        def told(tx: Tx, head: SessionHead) -> list[Json]:
            return sessions.conversation(tx, head, with_ancestors=include_ancestors)

        return self._about(session_id, told) or []

    def get_messages_around(self, session_id: str, around_message_id: int, window: int = 5) -> Json:
        def seen(tx: Tx, *, profile: str) -> Json:
            head = rows.find_session(tx, session_id, profile=profile)
            return queries.messages_around(tx, head, around_message_id, window=window)

        return dict(self._read(seen))

    def get_anchored_view(
        self,
        session_id: str,
        around_message_id: int,
        window: int = 5,
        bookend: int = 3,
        keep_roles: Sequence[str] | None = _ANY_ROLE,
    ) -> Json:
        """The messages around one, and the session's first and last outside of that window."""

        def seen(tx: Tx, *, profile: str) -> Json:
            head = rows.find_session(tx, session_id, profile=profile)
            return queries.anchored_view(
                tx, head, around_message_id, window=window, bookend=bookend, roles=keep_roles
            )

        return dict(self._read(seen))

    def search_messages(
        self,
        query: str,
        source_filter: Sequence[str] | None = None,
        exclude_sources: Sequence[str] | None = None,
        role_filter: Sequence[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        sort: str | None = None,
    ) -> list[Json]:
        """Return the messages that match, each with its context."""
        scope = SearchFilter(source_filter, exclude_sources, role_filter)
        return search.search_messages(
            self._store, query, scope, limit=limit, offset=offset, sort=sort
        )

    # Chains, locks, handoffs, notes

    def resolve_resume_session_id(self, session_id: str) -> str:
        """Return the session that continues this one."""
        return self.get_compression_tip(session_id) or session_id

    def get_compression_tip(self, session_id: str) -> str | None:
        """The newest continuation that has messages; the session itself when there is none."""
        return self._about(session_id, lambda tx, head: sessions.tip(tx, head).id)

    def try_acquire_compression_lock(
        self, session_id: str, holder: str, ttl_seconds: float = 300.0
    ) -> bool:
        """Take the compression lock of a session, until it is released or expires."""
        return bool(self._write(locks.acquire, session_id, holder, seconds=ttl_seconds, timed=True))

    def release_compression_lock(self, session_id: str, holder: str) -> None:
        self._write(locks.release, session_id, holder)

    def get_compression_lock_holder(self, session_id: str) -> str | None:
        now = self._store.moment().now
        return self._about(session_id, lambda tx, head: locks.holder_of(tx, head, now=now))

    def request_handoff(self, session_id: str, platform: str) -> bool:
        """Ask for a session to be continued on another platform."""
        return bool(self._write(locks.request_handoff, session_id, platform))

    def get_handoff_state(self, session_id: str) -> Json | None:
        return self._store.read(locks.handoff, session_id)

    def list_pending_handoffs(self) -> list[Json]:
        return list(self._read(locks.pending_handoffs))

    def claim_handoff(self, session_id: str) -> bool:
        """Claim a pending handoff; only one caller succeeds."""
        return bool(self._write(locks.move_handoff, session_id, to="running", since="pending"))

    def complete_handoff(self, session_id: str) -> None:
        self._write(locks.move_handoff, session_id, to="completed", since=None)

    def fail_handoff(self, session_id: str, error: str) -> None:
        self._write(locks.move_handoff, session_id, to="failed", since=None, error=error)

    def get_meta(self, key: str) -> str | None:
        return self._store.read(locks.note, key)

    def set_meta(self, key: str, value: str) -> None:
        self._store.write(locks.set_note, key, value)

    def vacuum(self) -> None:
        self._store.store.shrink()

    def maybe_auto_prune_and_vacuum(
        self,
        retention_days: float = 90,
        min_interval_hours: float = 24,
        vacuum: bool = True,
        sessions_dir: Path | None = None,
    ) -> Json:
        """Prune and shrink, at most once in an interval across all processes."""
        moment = self._store.moment()
        if not self._store.write(locks.claim_interval, hours=min_interval_hours, moment=moment):
            return {"skipped": True, "pruned": 0, "vacuumed": False}
        pruned = self.prune_sessions(retention_days)
        if vacuum and pruned:
            self.vacuum()
        return {"skipped": False, "pruned": pruned, "vacuumed": bool(vacuum and pruned)}

    def close(self) -> None:
        self._store.close()

    def _read(self, action: Any, *args: Any, **kwargs: Any) -> Any:
        return self._store.read(action, *args, profile=self._profile, **kwargs)

    def _write(self, action: Any, *args: Any, timed: bool = False, **kwargs: Any) -> Any:
        if timed:
            kwargs["moment"] = self._store.moment()
        return self._store.write(action, *args, profile=self._profile, **kwargs)

    def _about(self, session_id: str, told: Callable[[Tx, SessionHead], T]) -> T | None:
        """Read something about a session; None if it does not exist."""

        def asked(tx: Tx) -> T | None:
            head = rows.find_session(tx, session_id, profile=self._profile)
            return None if head is None else told(tx, head)

        return self._store.read(asked)


def _exported(tx: Tx, head: SessionHead) -> Json:
    return rows.session_row(tx, head) | {"messages": rows.message_rows(tx, head)}
