"""`SessionDB`: the state module that Hermes programs import, over a Sessionary store."""

import glob
import logging
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, overload

from sessionary import config
from sessionary.actions.retention import purge
from sessionary.actions.sessions import read, titles
from sessionary.compat.hermes import locks, queries, rows, search, sessions, topics
from sessionary.compat.hermes.queries import ListOptions, RowFilter
from sessionary.compat.hermes.rows import Json
from sessionary.compat.hermes.search import SearchFilter
from sessionary.compat.hermes.store import (
    Awaiting,
    HermesStore,
    awaited,
    database_of,
    default_database,
    log_unknown,
    recorded,
    takes_any_keyword,
)
from sessionary.errors import BadInput, SessionaryError
from sessionary.model.session import SessionHead
from sessionary.model.terminal import one_line
from sessionary.model.title import MAX_TITLE, clean_title
from sessionary.store.database import Tx
from sessionary.store.tables import sessions as session_table

DEFAULT_DB_PATH = config.default_home() / config.DATABASE
# The schema of Hermes that the rows here have; our own is not seen through this interface.
SCHEMA_VERSION = 14
_AT_HOME = DEFAULT_DB_PATH
_ANY_ROLE = ("user", "assistant")
_OF_COUNTS = frozenset(
    {*rows.TOKENS, *rows.COSTS, *rows.PRICING, *rows.BILLING, "model", "api_call_count"}
)
_NOT_OF_MESSAGE = frozenset({"self", "session_id", "further"})
_RECENT_PREVIEW = 80
_NO_WAL = ("locking protocol", "not authorized")
_ROW_FILTERS = frozenset(each.name for each in fields(RowFilter))
_logger = logging.getLogger(__name__)
_init_errors: deque[str] = deque(maxlen=1)
_wal_fallback_warned_paths: set[str] = set()
T = TypeVar("T")


def get_last_init_error() -> str | None:
    """Return why the last database could not be opened, or None."""
    return _init_errors[-1] if _init_errors else None


def format_session_db_unavailable(prefix: str = "Session database not available") -> str:
    """Return a sentence for the user, with the cause when one is known."""
    cause = get_last_init_error()
    if not cause:
        return f"{prefix}."
    is_network = any(each in cause.lower() for each in _NO_WAL)
    hint = " (is the file on a network file system such as NFS?)" if is_network else ""
    return f"{prefix}: {cause}{hint}."


def apply_wal_with_fallback(conn: sqlite3.Connection, *, db_label: str = "state.db") -> str:
    """Let a program's own connection write ahead, or keep a rollback journal where that cannot work.

    Returns `wal` or `delete`. A database that is in WAL mode already is never changed back.
    """
    if _journal_mode(conn) == "wal":
        return "wal"
    try:
        conn.execute("PRAGMA journal_mode=WAL")
    except sqlite3.OperationalError as error:
        if not any(each in str(error).lower() for each in _NO_WAL) or _journal_mode(conn) == "wal":
            raise
        if db_label not in _wal_fallback_warned_paths:
            _wal_fallback_warned_paths.add(db_label)
            _logger.warning(
                "%s: this file system cannot write ahead (%s); a rollback journal is used, "
                "with fewer readers at a time.",
                db_label,
                error,
            )
        conn.execute("PRAGMA journal_mode=DELETE")
        return "delete"
    return "wal"


def _journal_mode(conn: sqlite3.Connection) -> str | None:
    try:
        row = conn.execute("PRAGMA journal_mode").fetchone()
    except sqlite3.OperationalError:
        return None  # the caller tries to set it, and learns why
    return None if not row else str(row[0]).lower()


@takes_any_keyword
class SessionDB:
    """Sessions and messages as Hermes programs know them. Any thread may call; each call is one transaction.

    Keywords that later versions pass and this one does not know are kept with the row that is written, and logged
    once; a call that only reads ignores them.
    """

    MAX_TITLE_LENGTH = MAX_TITLE

    def __init__(self, db_path: str | os.PathLike[str] | None = None, **further: object) -> None:
        log_unknown("SessionDB", further, kept=False)
        self.db_path = Path(DEFAULT_DB_PATH if db_path is None else db_path)
        try:
            if db_path is None and DEFAULT_DB_PATH == _AT_HOME:
                database = default_database()
            else:
                database = database_of(DEFAULT_DB_PATH if db_path is None else db_path)
            self._store = HermesStore(database)
        except Exception as error:
            _init_errors.append(f"{type(error).__name__}: {error}")
            raise
        self._profile = self._store.profile

    # Sessions

    @recorded
    def create_session(
        self,
        /,
        session_id: str,
        source: str,
        model: str | None = None,
        model_config: Mapping[str, Any] | None = None,
        system_prompt: str | None = None,
        user_id: str | None = None,
        parent_session_id: str | None = None,
        **further: object,
    ) -> str:
        """Create a session and return its id; an existing one stays as it is."""
        log_unknown("SessionDB.create_session", further)
        given = {
            "model": model,
            "model_config": model_config,
            "system_prompt": system_prompt,
            "user_id": user_id,
            "parent_session_id": parent_session_id,
        }
        self._write(sessions.create, session_id, source, further | given, timed=True)
        return session_id

    @recorded
    def ensure_session(
        self,
        /,
        session_id: str,
        source: str = "unknown",
        model: str | None = None,
        **further: object,
    ) -> str:
        """Create a session of which little is known, if it does not exist."""
        given = further | {"model": model}
        self._write(sessions.create, session_id, source, given, timed=True)
        return session_id

    @recorded
    def end_session(self, session_id: str, end_reason: str) -> None:
        """Close a session; the first reason wins."""
        self._write(sessions.end, session_id, end_reason, timed=True)

    @recorded
    def reopen_session(self, session_id: str) -> None:
        self._write(sessions.reopen, session_id)

    @recorded
    def update_system_prompt(self, session_id: str, system_prompt: str) -> None:
        self._write(sessions.set_prompt, session_id, system_prompt)

    @recorded
    def update_token_counts(
        self,
        /,
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
        **further: object,
    ) -> None:
        """Add to the counts, or with `absolute` set them."""
        log_unknown("SessionDB.update_token_counts", further)
        given = {name: value for name, value in locals().items() if name in _OF_COUNTS}
        self._write(sessions.count_usage, session_id, given, further, absolute=absolute, timed=True)

    @recorded
    def set_token_counts(self, /, session_id: str, *args: Any, **counts: Any) -> None:
        """Set the counts: `update_token_counts` with `absolute`."""
        self.update_token_counts(session_id, *args, **counts | {"absolute": True})

    def get_session(self, session_id: str) -> Json | None:
        return self._about(session_id, rows.session_row)

    def resolve_session_id(self, session_id_or_prefix: str) -> str | None:
        """Return the id itself, or the only one with this prefix."""
        found: str | None = self._read(sessions.find_by_prefix, session_id_or_prefix)
        return found

    @recorded
    def delete_session(
        self,
        /,
        session_id: str,
        sessions_dir: str | os.PathLike[str] | None = None,
        **further: object,
    ) -> bool:
        """Delete a session for good, with its files in `sessions_dir`; return whether it existed. Its children stay."""
        log_unknown("SessionDB.delete_session", further, kept=False)
        existed = bool(self._write(sessions.delete, session_id, timed=True))
        if existed:
            _remove_files(sessions_dir, [session_id])
        return existed

    @recorded
    def prune_sessions(
        self,
        /,
        older_than_days: float | None = 90,
        source: str | None = None,
        sessions_dir: str | os.PathLike[str] | None = None,
        **filters: object,
    ) -> int:
        """Delete sessions that ended at least this many days ago; return how many.

        A filter of a later version is not known here, so nothing is deleted when one is given.
        """
        if filters or older_than_days is None:
            log_unknown("SessionDB.prune_sessions", filters, kept=False)
            _logger.error("SessionDB.prune_sessions deleted nothing: it only knows an age in days.")
            return 0
        before = self._store.moment().now - timedelta(days=older_than_days)
        found = purge.find_prunable(
            self._store.store,
            profile=self._profile,
            before=before,
            platform=source,
            with_subagents=False,
        )
        ids = [
            each.session_id
            for each in list(found)
            if self._write(
                purge.prune, each.session_id, before=before, timed=True, with_subagents=False
            )
            is not None
        ]
        _remove_files(sessions_dir, ids)
        return len(ids)

    @recorded
    def prune_empty_ghost_sessions(self, sessions_dir: str | os.PathLike[str] | None = None) -> int:
        """Delete terminal sessions that ended over a day ago without a message or a title; return how many."""
        ids = self._write(sessions.delete_ghosts, timed=True)
        _remove_files(sessions_dir, ids)
        return len(ids)

    @recorded
    def finalize_orphaned_compression_sessions(self) -> int:
        """End continuations of over a week ago that no model was called for; return how many."""
        return int(self._write(sessions.end_orphans, timed=True))

    # Titles

    @staticmethod
    def sanitize_title(title: str | None) -> str | None:
        """Return the title as it is stored, or None for an empty one."""
        try:
            return clean_title(title or "")
        except BadInput as error:
            length = len(one_line(title or ""))
            raise ValueError(f"Title too long ({length} chars, max {MAX_TITLE})") from error

    @recorded
    def set_session_title(self, session_id: str, title: str | None) -> bool:
        """Set the title, or remove it with an empty one; return whether the session exists."""
        wanted = self.sanitize_title(title)
        return bool(self._write(sessions.rename, session_id, wanted))

    def get_session_title(self, session_id: str) -> str | None:
        return self._about(session_id, lambda _, head: head.title)

    def get_session_by_title(self, title: str | None) -> Json | None:
        found = self._read(sessions.find_by_title, title)
        return None if found is None else self.get_session(found)

    def resolve_session_by_title(self, title: str | None) -> str | None:
        """Return the session with this title, or its latest numbered continuation."""
        found: str | None = self._read(sessions.find_latest_by_title, title)
        return found

    def get_next_title_in_lineage(self, base_title: str | None) -> str:
        """Return the next free numbered title."""
        return str(self._read(titles.next_title, base_title)) if base_title else ""

    # Lists

    def list_sessions_rich(
        self,
        /,
        source: str | None = None,
        exclude_sources: Sequence[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        include_children: bool = False,
        project_compression_tips: bool = True,
        order_by_last_active: bool = False,
        **filters: Any,
    ) -> list[Json]:
        """Rows with `preview` and `last_active`; a compressed chain is one row.

        Of the filters of later versions these count: `sources`, `cwd_prefix`, `min_message_count`,
        `include_archived`, `archived_only`, `id_query`, `search_query`, `session_key`.
        """
        tips = project_compression_tips and not include_children
        wanted = ListOptions(source, exclude_sources, include_children, tips, order_by_last_active)
        only = _row_filter("SessionDB.list_sessions_rich", filters)
        return list(self._read(queries.rich_rows, wanted, only, limit=limit, offset=offset))

    def search_sessions(
        self, /, source: str | None = None, limit: int = 20, offset: int = 0, **further: object
    ) -> list[Json]:
        """Return rows with `last_active`, the last active first."""
        log_unknown("SessionDB.search_sessions", further, kept=False)
        wanted = ListOptions(source, children=True, by_activity=True)

        def listed(tx: Tx, *, profile: str) -> list[Json]:
            page = queries.list_heads(tx, wanted, profile=profile, limit=limit, offset=offset)
            return [
                rows.session_row(tx, head) | {"last_active": head.last_active_at.timestamp()}
                for head in page
            ]

        return list(self._read(listed))

    def session_count(
        self,
        /,
        source: str | None = None,
        *,
        exclude_children: bool = False,
        exclude_sources: Sequence[str] | None = None,
        **filters: Any,
    ) -> int:
        only = _row_filter("SessionDB.session_count", filters)
        if only == RowFilter() and not exclude_children and not exclude_sources:
            return int(self._read(session_table.count, platform=source))
        wanted = ListOptions(source, exclude_sources, not exclude_children, tips=False)
        return int(self._read(queries.count_rows, wanted, only))

    def message_count(self, session_id: str | None = None) -> int:
        if not session_id:
            return int(self._read(session_table.count_messages))
        return self._about(session_id, lambda _, head: head.message_count) or 0

    def export_session(self, session_id: str) -> Json | None:
        return self._about(session_id, _exported)

    def export_all(self, source: str | None = None) -> list[Json]:
        def exported(tx: Tx, *, profile: str) -> list[Json]:
            heads = sessions.all_heads(tx, profile=profile, platform=source, by_activity=True)
            return [_exported(tx, head) for head in heads]

        return list(self._read(exported))

    # Messages

    @recorded
    def append_message(
        self,
        /,
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
        **further: object,
    ) -> int:
        """Append a message and return its number; `timestamp` is its time, if it is not now."""
        log_unknown("SessionDB.append_message", further, known=("timestamp",))
        given = {name: value for name, value in locals().items() if name not in _NOT_OF_MESSAGE}
        numbers = self._write(sessions.append, session_id, [further | given], timed=True)
        return int(numbers[0])

    @overload
    def append_messages_batch(
        self, /, session_id: str, rows: Sequence[Mapping[str, Any]]
    ) -> list[int]: ...

    @overload
    def append_messages_batch(
        self, /, session_id: str, *, messages: Sequence[Mapping[str, Any]], **further: object
    ) -> int: ...

    @recorded
    def append_messages_batch(
        self,
        /,
        session_id: str,
        rows: Sequence[Mapping[str, Any]] | None = None,
        *,
        messages: Sequence[Mapping[str, Any]] | None = None,
        **further: object,
    ) -> list[int] | int:
        """Append messages, all or none, and return their numbers.

        How many there are, if they came as `messages`: so later versions call it.
        """
        log_unknown("SessionDB.append_messages_batch", further)
        given = [further | dict(each) for each in (rows if messages is None else messages) or ()]
        numbers = list(self._write(sessions.append, session_id, given, timed=True))
        return numbers if messages is None else len(numbers)

    @recorded
    def replace_messages(
        self, /, session_id: str, messages: Iterable[Mapping[str, Any]], **further: object
    ) -> None:
        """Retract all messages of a session and append these, in one transaction."""
        log_unknown("SessionDB.replace_messages", further, known=("active_only",))
        self._write(sessions.rewrite, session_id, list(messages), timed=True)

    @recorded
    def clear_messages(self, session_id: str) -> None:
        self._write(sessions.clear, session_id, timed=True)

    def get_messages(
        self,
        /,
        session_id: str,
        include_inactive: bool = False,
        limit: int | None = None,
        offset: int = 0,
        latest: bool = False,
        after_id: int | None = None,
        **further: object,
    ) -> list[Json]:
        """A session's messages as rows, in order; none for an unknown id.

        `include_inactive` shows the retracted ones too, `latest` takes the last `limit`, `after_id` those behind it.
        """
        log_unknown("SessionDB.get_messages", further, kept=False)

        def told(tx: Tx, head: SessionHead) -> list[Json]:
            found = rows.message_rows(tx, head, with_retracted=include_inactive)
            if after_id is not None:
                found = [row for row in found if row["id"] > after_id]
            if limit is None or limit < 0:
                return found[max(0, offset) :]
            if latest:
                found = found[: len(found) - max(0, offset)]
                return found[max(0, len(found) - limit) :]
            return list(islice(found, max(0, offset), max(0, offset) + limit))

        return self._about(session_id, told) or []

    def get_messages_as_conversation(
        self,
        /,
        session_id: str,
        include_ancestors: bool = False,
        *,
        include_inactive: bool = False,
        include_row_ids: bool = False,
        **further: object,
    ) -> list[Json]:
        """A session's messages as a model reads them; `include_row_ids` adds each number as `_row_id`."""
        log_unknown("SessionDB.get_messages_as_conversation", further, kept=False)

        def told(tx: Tx, head: SessionHead) -> list[Json]:
            return sessions.conversation(
                tx,
                head,
                with_ancestors=include_ancestors,
                with_retracted=include_inactive,
                with_numbers=include_row_ids,
            )

        return self._about(session_id, told) or []

    def count_conversation_rounds(self, session_id: str, since: int = 0) -> int:
        """How many rounds there are after a message: user messages, then at least one of the assistant."""
        return self._about(session_id, lambda tx, head: _rounds(tx, head, since)) or 0

    def get_messages_around(
        self, session_id: str, around_message_id: int | None, window: int = 5
    ) -> Json:
        def seen(tx: Tx, *, profile: str) -> Json:
            head = rows.find_session(tx, session_id, profile=profile)
            return queries.messages_around(tx, head, around_message_id, window=window)

        return dict(self._read(seen))

    def get_anchored_view(
        self,
        session_id: str,
        around_message_id: int | None,
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
        /,
        query: str | None,
        source_filter: Sequence[str] | None = None,
        exclude_sources: Sequence[str] | None = None,
        role_filter: Sequence[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        sort: str | None = None,
        **further: object,
    ) -> list[Json]:
        """Return the messages that match, each with its context."""
        log_unknown("SessionDB.search_messages", further, kept=False)
        scope = SearchFilter(source_filter, exclude_sources, role_filter)
        return search.search_messages(
            self._store, query, scope, limit=limit, offset=offset, sort=sort
        )

    # Chains, locks, handoffs, notes

    def resolve_resume_session_id(self, session_id: str) -> str:
        """Return the session that continues this one."""
        return self._about(session_id, lambda tx, head: sessions.resume_target(tx, head).id) or (
            session_id
        )

    def get_compression_tip(self, session_id: str) -> str | None:
        """The newest continuation that has messages; the session itself when there is none."""
        return self._about(session_id, lambda tx, head: sessions.tip(tx, head).id) or session_id

    @recorded
    def try_acquire_compression_lock(
        self, session_id: str, holder: str, ttl_seconds: float = 300.0
    ) -> bool:
        """Take the compression lock of a session, until it is released or expires."""
        return bool(self._write(locks.acquire, session_id, holder, seconds=ttl_seconds, timed=True))

    @recorded
    def release_compression_lock(self, session_id: str, holder: str) -> None:
        self._write(locks.release, session_id, holder)

    def get_compression_lock_holder(self, session_id: str) -> str | None:
        now = self._store.moment().now
        found: str | None = self._read(locks.holder_of, session_id, now=now)
        return found

    @recorded
    def request_handoff(self, session_id: str, platform: str) -> bool:
        """Ask for a session to be continued on another platform."""
        return bool(self._write(locks.request_handoff, session_id, platform))

    def get_handoff_state(self, session_id: str) -> Json | None:
        """The `state`, `platform` and `error` of a session's handoff; None if there was none."""
        found: Json | None = self._read(locks.handoff, session_id)
        return found

    def list_pending_handoffs(self) -> list[Json]:
        return list(self._read(locks.pending_handoffs))

    @recorded
    def claim_handoff(self, session_id: str) -> bool:
        """Claim a pending handoff; only one caller succeeds."""
        return bool(self._write(locks.move_handoff, session_id, to="running", since="pending"))

    @recorded
    def complete_handoff(self, session_id: str) -> None:
        self._write(locks.move_handoff, session_id, to="completed", since=None)

    @recorded
    def fail_handoff(self, session_id: str, error: str) -> None:
        self._write(locks.move_handoff, session_id, to="failed", since=None, error=error)

    def get_meta(self, key: str) -> str | None:
        return self._store.read(locks.note, key)

    @recorded
    def set_meta(self, key: str, value: str) -> None:
        self._store.write(locks.set_note, key, value)

    def vacuum(self) -> None:
        self._store.store.shrink()

    def maybe_auto_prune_and_vacuum(
        self,
        /,
        retention_days: float = 90,
        min_interval_hours: float = 24,
        vacuum: bool = True,
        sessions_dir: str | os.PathLike[str] | None = None,
        **further: object,
    ) -> Json:
        """Prune and shrink, at most once in an interval across all processes; a failure is logged and in `error`."""
        log_unknown("SessionDB.maybe_auto_prune_and_vacuum", further, kept=False)
        done: Json = {"skipped": False, "pruned": 0, "vacuumed": False}
        moment = self._store.moment()
        try:
            if not self._store.write(locks.claim_interval, hours=min_interval_hours, moment=moment):
                return done | {"skipped": True}
            done["pruned"] = self.prune_sessions(retention_days, sessions_dir=sessions_dir)
            if vacuum and done["pruned"]:
                self.vacuum()
                done["vacuumed"] = True
        except SessionaryError as error:
            _logger.warning("The regular pruning failed: %s", error)
            done["error"] = str(error)
        return done

    # Telegram topics

    def apply_telegram_topic_migration(self) -> None:
        """Do nothing: there are no tables to make."""

    @recorded
    def enable_telegram_topic_mode(
        self,
        /,
        *,
        chat_id: str,
        user_id: str,
        has_topics_enabled: bool | None = None,
        allows_users_to_create_topics: bool | None = None,
        **further: object,
    ) -> None:
        """Let a private chat have a session for each topic."""
        log_unknown("SessionDB.enable_telegram_topic_mode", further)
        facts = {name: rows.jsonable(value) for name, value in further.items()} | {
            "has_topics_enabled": has_topics_enabled,
            "allows_users_to_create_topics": allows_users_to_create_topics,
        }
        self._store.write(
            topics.enable, str(chat_id), str(user_id), facts, moment=self._store.moment()
        )

    @recorded
    def disable_telegram_topic_mode(self, *, chat_id: str, clear_bindings: bool = True) -> None:
        self._store.write(topics.disable, str(chat_id), clears=clear_bindings)

    def is_telegram_topic_mode_enabled(self, *, chat_id: str, user_id: str) -> bool:
        return self._store.read(topics.is_enabled, str(chat_id), str(user_id))

    @recorded
    def bind_telegram_topic(
        self,
        *,
        chat_id: str,
        thread_id: str,
        user_id: str,
        session_key: str,
        session_id: str,
        managed_mode: str = "auto",
    ) -> None:
        """Bind a topic to a session; raises ValueError if the session is bound to another one."""
        binding = {
            "chat_id": str(chat_id),
            "thread_id": str(thread_id),
            "user_id": str(user_id),
            "session_key": str(session_key),
            "session_id": str(session_id),
            "managed_mode": managed_mode,
        }
        self._write(topics.bind, binding, timed=True)

    def get_telegram_topic_binding(self, *, chat_id: str, thread_id: str) -> Json | None:
        found: Json | None = self._read(topics.of_topic, str(chat_id), str(thread_id))
        return found

    def get_telegram_topic_binding_by_session(self, *, session_id: str) -> Json | None:
        found: Json | None = self._read(topics.of_session, session_id)
        return found

    def list_telegram_topic_bindings_for_chat(self, *, chat_id: str) -> list[Json]:
        """The bindings of a chat, the last changed first."""
        return list(self._read(topics.of_chat, str(chat_id)))

    def is_telegram_session_linked_to_topic(self, *, session_id: str) -> bool:
        return self.get_telegram_topic_binding_by_session(session_id=session_id) is not None

    def list_unlinked_telegram_sessions_for_user(
        self, *, chat_id: str, user_id: str, limit: int = 10
    ) -> list[Json]:
        """A person's Telegram sessions without a topic, the last active first, with preview and last activity."""

        def listed(tx: Tx, *, profile: str) -> list[Json]:
            heads = topics.unlinked(tx, str(user_id), limit=limit, profile=profile)
            return [queries.rich_row(tx, head, tips=False) for head in heads]

        return list(self._read(listed))

    @recorded
    def delete_telegram_topic_binding(self, *, chat_id: str, thread_id: str) -> None:
        self._store.write(topics.unbind, str(chat_id), str(thread_id))

    # What versions after 0.15 record

    @recorded
    def update_session_cwd(self, /, session_id: str, cwd: str, **further: object) -> None:
        """Keep the folder that a session works in, and its branch and repository."""
        self._write(sessions.keep, session_id, further | {"cwd": cwd})

    @recorded
    def record_gateway_session_peer(self, /, session_id: str, **facts: object) -> None:
        """Keep where a gateway has a session: chat, thread, key, origin."""
        self._write(sessions.keep, session_id, facts)

    @recorded
    def set_expiry_finalized(self, session_id: str, finalized: bool = True) -> None:
        self._write(sessions.keep, session_id, {"expiry_finalized": finalized})

    @recorded
    def update_session_meta(
        self, session_id: str, model_config_json: str, model: str | None = None
    ) -> None:
        """Replace the model's configuration, and the model if one is given."""
        change = {"model_config": model_config_json}
        self._write(sessions.change_kept, session_id, lambda kept: kept | change, model=model)

    @recorded
    def update_session_model(self, session_id: str, model: str) -> None:
        self._write(sessions.change_kept, session_id, lambda kept: kept, model=model)

    @recorded
    def update_session_billing_route(
        self,
        session_id: str,
        *,
        provider: str | None,
        base_url: str | None,
        billing_mode: str | None = None,
    ) -> None:
        """Replace the billing fields, which `update_token_counts` only sets once."""
        change = dict(zip(rows.BILLING, (provider, base_url, billing_mode), strict=True))
        self._write(sessions.change_kept, session_id, lambda kept: kept | change)

    @recorded
    def record_auxiliary_usage(self, /, session_id: str, task: str, **usage: object) -> None:
        """Keep the usage of a call beside the conversation; the session's own counts stay."""
        call = {"task": task} | {name: rows.jsonable(value) for name, value in usage.items()}
        self._write(
            sessions.change_kept,
            session_id,
            lambda kept: kept | {"auxiliary_usage": [*kept.get("auxiliary_usage", ()), call]},
        )

    @recorded
    def set_auto_title_if_empty(self, session_id: str, title: str | None) -> bool:
        """Set a title unless there is one; return whether it was set."""
        wanted = self.sanitize_title(title)
        return bool(self._write(sessions.rename, session_id, wanted, only_if_empty=True))

    @recorded
    def set_session_archived(self, session_id: str, archived: bool) -> bool:
        """Move a session and its compressed chain into the archive, or out of it; return whether it exists."""
        return bool(self._write(sessions.archive, session_id, archived=archived))

    @recorded
    def archive_and_compact(
        self, session_id: str, compacted_messages: Iterable[Mapping[str, Any]]
    ) -> int:
        """Retract all messages and append these; return how many were appended."""
        given = list(compacted_messages)
        self._write(sessions.rewrite, session_id, given, timed=True)
        return len(given)

    @recorded
    def rewind_to_message(self, session_id: str, target_message_id: int) -> Json:
        """Retract a message and all behind it."""
        target = self.get_messages_around(session_id, target_message_id, window=1)
        rows_before = target["window"][: target["messages_before"]]
        if not target["window"]:
            raise ValueError(f"Session {session_id} has no message {target_message_id}")
        seq = queries.seq_of(target_message_id)
        return {
            "rewound_count": self._write(sessions.rewind, session_id, seq, timed=True),
            "target_message": target["window"][len(rows_before)],
            "new_head_id": rows_before[-1]["id"] if rows_before else None,
        }

    def list_recent_user_messages(
        self, session_id: str, limit: int = 20, include_inactive: bool = False
    ) -> list[Json]:
        """The number, time and beginning of the last user messages, newest first."""
        found = self.get_messages(session_id, include_inactive=include_inactive)
        users = [row for row in reversed(found) if row["role"] == "user"]
        return [
            {
                "id": row["id"],
                "timestamp": row["timestamp"],
                "preview": one_line(search.text_of(row["content"]))[:_RECENT_PREVIEW],
            }
            for row in users[: max(0, limit)]
        ]

    @recorded
    def set_latest_user_api_content(self, session_id: str, content: Any, api_content: str) -> int:
        """Keep what was really sent of the newest user message; return whether it is that message's content."""
        found = [row for row in self.get_messages(session_id) if row["role"] == "user"]
        if not found or found[-1]["content"] != content:
            return 0
        sent = {str(found[-1]["id"]): api_content}
        self._write(
            sessions.change_kept,
            session_id,
            lambda kept: kept | {"api_content": kept.get("api_content", {}) | sent},
        )
        return 1

    def has_platform_message_id(self, session_id: str, platform_message_id: str) -> bool:
        rows_of_session = self.get_messages(session_id)
        return any(row["platform_message_id"] == platform_message_id for row in rows_of_session)

    @recorded
    def refresh_compression_lock(
        self, session_id: str, holder: str, ttl_seconds: float = 300.0
    ) -> bool:
        """Extend a compression lock that one has; return whether one had it."""
        return self.get_compression_lock_holder(session_id) == holder and (
            self.try_acquire_compression_lock(session_id, holder, ttl_seconds)
        )

    @recorded
    def record_compression_failure_cooldown(
        self, session_id: str, cooldown_until: float, error: str | None = None
    ) -> None:
        """Keep until when a compression that failed is not tried again."""
        facts = {"cooldown_until": float(cooldown_until), "error": error}
        self._write(sessions.keep, session_id, {"compression_failure": facts})

    def get_compression_failure_cooldown(self, session_id: str) -> Json | None:
        """The cooldown that has not passed, with the seconds that remain; None if there is none."""
        facts = self._kept(session_id).get("compression_failure") or {}
        remaining = float(facts.get("cooldown_until", 0)) - self._store.moment().now.timestamp()
        return facts | {"remaining_seconds": remaining} if remaining > 0 else None

    @recorded
    def clear_compression_failure_cooldown(self, session_id: str) -> None:
        self._write(sessions.keep, session_id, {"compression_failure": {}})

    def get_compression_fallback_streak(self, session_id: str) -> int:
        return int(self._kept(session_id).get("compression_fallback_streak", 0))

    @recorded
    def set_compression_fallback_streak(self, session_id: str, streak: int) -> None:
        self._write(sessions.keep, session_id, {"compression_fallback_streak": int(streak)})

    @recorded
    def promote_to_session_reset(self, session_id: str, reason: str = "session_reset") -> bool:
        """End a session that is open; return whether it was."""
        was_open = self._about(session_id, lambda _, head: head.is_open) or False
        self._write(sessions.end, session_id, reason, timed=True)
        return was_open

    @recorded
    def save_gateway_routing_entry(
        self, session_key: str, entry_json: str, *, scope: str = ""
    ) -> None:
        """Store one entry of a gateway's own index of conversations."""
        entries = {session_key: entry_json}
        self._store.write(locks.put_routing_entries, scope, entries, replaces=False)

    @recorded
    def replace_gateway_routing_entries(
        self, entries: Mapping[str, str], *, scope: str = ""
    ) -> None:
        self._store.write(locks.put_routing_entries, scope, entries, replaces=True)

    def load_gateway_routing_entries(self, *, scope: str = "") -> dict[str, str]:
        return self._store.read(locks.routing_entries, scope)

    @recorded
    def delete_gateway_routing_entries(
        self, session_keys: Iterable[str], *, scope: str = ""
    ) -> None:
        entries = dict.fromkeys(session_keys, "")
        self._store.write(locks.put_routing_entries, scope, entries, replaces=False)

    def close(self) -> None:
        self._store.close()

    def _read(self, action: Any, *args: Any, **kwargs: Any) -> Any:
        return self._store.read(action, *args, profile=self._profile, **kwargs)

    def _write(self, action: Any, *args: Any, timed: bool = False, **kwargs: Any) -> Any:
        if timed:
            kwargs["moment"] = self._store.moment()
        return self._store.write(action, *args, profile=self._profile, **kwargs)

    def _keep_unknown(self, session_id: object, further: Mapping[str, object]) -> None:
        self._write(sessions.keep, session_id, further)

    def _kept(self, session_id: str) -> Json:
        """The further values that are kept with a session."""
        found = self._about(session_id, rows.kept_fields) or {}
        return dict(found.get(rows.FURTHER, {}))

    def _about(self, session_id: str | None, told: Callable[[Tx, SessionHead], T]) -> T | None:
        """Read something about a session; None if it does not exist."""

        def asked(tx: Tx) -> T | None:
            head = rows.find_session(tx, session_id, profile=self._profile)
            return None if head is None else told(tx, head)

        return self._store.read(asked)


def _exported(tx: Tx, head: SessionHead) -> Json:
    return rows.session_row(tx, head) | {"messages": rows.message_rows(tx, head)}


def _rounds(tx: Tx, head: SessionHead, since: int) -> int:
    return read.count_rounds(tx, head.id, profile=head.profile, since=queries.seq_of(since))


def _row_filter(call: str, given: Mapping[str, Any]) -> RowFilter:
    known = {name: value for name, value in given.items() if name in _ROW_FILTERS}
    further = {name: value for name, value in given.items() if name not in known}
    log_unknown(call, further, kept=False)
    return RowFilter(**known)


def _remove_files(folder: str | os.PathLike[str] | None, ids: Iterable[str]) -> None:
    """Delete the files that Hermes wrote for these sessions, where there are some."""
    if folder is None:
        return
    for id in ids:
        if os.path.basename(id) != id:
            continue  # such an id would lead out of the folder
        names = [f"{id}.jsonl", f"{id}.json", f"session_{id}.json"]
        dumps = Path(folder).glob(f"request_dump_{glob.escape(id)}_*.json")
        for path in [*(Path(folder) / name for name in names), *dumps]:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                _logger.warning("The file %s of a deleted session was left: %s", path, error)


class AsyncSessionDB(Awaiting[SessionDB]):
    """The methods of `SessionDB` to await, over one that is open or a path to open."""

    MAX_TITLE_LENGTH = MAX_TITLE
    sanitize_title = staticmethod(SessionDB.sanitize_title)

    def __init__(self, db: SessionDB | str | os.PathLike[str] | None = None) -> None:
        super().__init__(db if isinstance(db, SessionDB) else SessionDB(db))
        self.db_path = self.sync.db_path

    create_session = awaited(SessionDB.create_session)
    ensure_session = awaited(SessionDB.ensure_session)
    end_session = awaited(SessionDB.end_session)
    reopen_session = awaited(SessionDB.reopen_session)
    update_system_prompt = awaited(SessionDB.update_system_prompt)
    update_token_counts = awaited(SessionDB.update_token_counts)
    set_token_counts = awaited(SessionDB.set_token_counts)
    get_session = awaited(SessionDB.get_session)
    resolve_session_id = awaited(SessionDB.resolve_session_id)
    delete_session = awaited(SessionDB.delete_session)
    prune_sessions = awaited(SessionDB.prune_sessions)
    prune_empty_ghost_sessions = awaited(SessionDB.prune_empty_ghost_sessions)
    finalize_orphaned_compression_sessions = awaited(
        SessionDB.finalize_orphaned_compression_sessions
    )
    set_session_title = awaited(SessionDB.set_session_title)
    get_session_title = awaited(SessionDB.get_session_title)
    get_session_by_title = awaited(SessionDB.get_session_by_title)
    resolve_session_by_title = awaited(SessionDB.resolve_session_by_title)
    get_next_title_in_lineage = awaited(SessionDB.get_next_title_in_lineage)
    list_sessions_rich = awaited(SessionDB.list_sessions_rich)
    search_sessions = awaited(SessionDB.search_sessions)
    session_count = awaited(SessionDB.session_count)
    message_count = awaited(SessionDB.message_count)
    export_session = awaited(SessionDB.export_session)
    export_all = awaited(SessionDB.export_all)
    append_message = awaited(SessionDB.append_message)
    append_messages_batch = awaited(SessionDB.append_messages_batch)
    replace_messages = awaited(SessionDB.replace_messages)
    clear_messages = awaited(SessionDB.clear_messages)
    get_messages = awaited(SessionDB.get_messages)
    get_messages_as_conversation = awaited(SessionDB.get_messages_as_conversation)
    count_conversation_rounds = awaited(SessionDB.count_conversation_rounds)
    get_messages_around = awaited(SessionDB.get_messages_around)
    get_anchored_view = awaited(SessionDB.get_anchored_view)
    search_messages = awaited(SessionDB.search_messages)
    resolve_resume_session_id = awaited(SessionDB.resolve_resume_session_id)
    get_compression_tip = awaited(SessionDB.get_compression_tip)
    try_acquire_compression_lock = awaited(SessionDB.try_acquire_compression_lock)
    release_compression_lock = awaited(SessionDB.release_compression_lock)
    get_compression_lock_holder = awaited(SessionDB.get_compression_lock_holder)
    request_handoff = awaited(SessionDB.request_handoff)
    get_handoff_state = awaited(SessionDB.get_handoff_state)
    list_pending_handoffs = awaited(SessionDB.list_pending_handoffs)
    claim_handoff = awaited(SessionDB.claim_handoff)
    complete_handoff = awaited(SessionDB.complete_handoff)
    fail_handoff = awaited(SessionDB.fail_handoff)
    get_meta = awaited(SessionDB.get_meta)
    set_meta = awaited(SessionDB.set_meta)
    vacuum = awaited(SessionDB.vacuum)
    maybe_auto_prune_and_vacuum = awaited(SessionDB.maybe_auto_prune_and_vacuum)
    apply_telegram_topic_migration = awaited(SessionDB.apply_telegram_topic_migration)
    enable_telegram_topic_mode = awaited(SessionDB.enable_telegram_topic_mode)
    disable_telegram_topic_mode = awaited(SessionDB.disable_telegram_topic_mode)
    is_telegram_topic_mode_enabled = awaited(SessionDB.is_telegram_topic_mode_enabled)
    bind_telegram_topic = awaited(SessionDB.bind_telegram_topic)
    get_telegram_topic_binding = awaited(SessionDB.get_telegram_topic_binding)
    get_telegram_topic_binding_by_session = awaited(SessionDB.get_telegram_topic_binding_by_session)
    list_telegram_topic_bindings_for_chat = awaited(SessionDB.list_telegram_topic_bindings_for_chat)
    is_telegram_session_linked_to_topic = awaited(SessionDB.is_telegram_session_linked_to_topic)
    list_unlinked_telegram_sessions_for_user = awaited(
        SessionDB.list_unlinked_telegram_sessions_for_user
    )
    delete_telegram_topic_binding = awaited(SessionDB.delete_telegram_topic_binding)
    update_session_cwd = awaited(SessionDB.update_session_cwd)
    record_gateway_session_peer = awaited(SessionDB.record_gateway_session_peer)
    set_expiry_finalized = awaited(SessionDB.set_expiry_finalized)
    update_session_meta = awaited(SessionDB.update_session_meta)
    update_session_model = awaited(SessionDB.update_session_model)
    update_session_billing_route = awaited(SessionDB.update_session_billing_route)
    record_auxiliary_usage = awaited(SessionDB.record_auxiliary_usage)
    set_auto_title_if_empty = awaited(SessionDB.set_auto_title_if_empty)
    set_session_archived = awaited(SessionDB.set_session_archived)
    archive_and_compact = awaited(SessionDB.archive_and_compact)
    rewind_to_message = awaited(SessionDB.rewind_to_message)
    list_recent_user_messages = awaited(SessionDB.list_recent_user_messages)
    set_latest_user_api_content = awaited(SessionDB.set_latest_user_api_content)
    has_platform_message_id = awaited(SessionDB.has_platform_message_id)
    refresh_compression_lock = awaited(SessionDB.refresh_compression_lock)
    record_compression_failure_cooldown = awaited(SessionDB.record_compression_failure_cooldown)
    get_compression_failure_cooldown = awaited(SessionDB.get_compression_failure_cooldown)
    clear_compression_failure_cooldown = awaited(SessionDB.clear_compression_failure_cooldown)
    get_compression_fallback_streak = awaited(SessionDB.get_compression_fallback_streak)
    set_compression_fallback_streak = awaited(SessionDB.set_compression_fallback_streak)
    promote_to_session_reset = awaited(SessionDB.promote_to_session_reset)
    save_gateway_routing_entry = awaited(SessionDB.save_gateway_routing_entry)
    replace_gateway_routing_entries = awaited(SessionDB.replace_gateway_routing_entries)
    load_gateway_routing_entries = awaited(SessionDB.load_gateway_routing_entries)
    delete_gateway_routing_entries = awaited(SessionDB.delete_gateway_routing_entries)
    close = awaited(SessionDB.close)
