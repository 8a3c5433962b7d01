"""The session module that Hermes programs import; `SessionStore` keeps nothing of its own."""

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs

from sessionary.actions.sessions import edit, routing
from sessionary.clock import Moment
from sessionary.compat.hermes import rows
from sessionary.compat.hermes import sessions as hermes_sessions
from sessionary.compat.hermes.config import (
    GatewayConfig,
    HomeChannel,
    Platform,
    SessionResetPolicy,
    to_reset_policy,
)
from sessionary.compat.hermes.context import (
    SessionContext,
    build_session_context,
    build_session_context_prompt,
)
from sessionary.compat.hermes.rows import COSTS, FURTHER, KEPT, TOKENS, Json
from sessionary.compat.hermes.source import (
    KEPT_OF_ENTRY,
    SessionEntry,
    SessionSource,
    active_at,
    build_session_key,
    canonical_whatsapp_identifier,
    entry_of,
    expand_whatsapp_aliases,
    is_shared_multi_user_session,
    normalize_whatsapp_identifier,
    print_key,
    source_of,
    to_keyed_source,
    to_source,
)
from sessionary.compat.hermes.state import SessionDB
from sessionary.compat.hermes.store import (
    Awaiting,
    awaited,
    log_unknown,
    recorded,
    takes_any_keyword,
)
from sessionary.model.redact import Redactor
from sessionary.model.reset import ResetPolicy
from sessionary.model.session import EndReason, SessionFolder, SessionHead
from sessionary.model.source import Isolation, SessionKey, Source, key_for
from sessionary.store.database import Tx
from sessionary.store.tables import meta, sessions

__all__ = [
    "AsyncSessionStore",
    "GatewayConfig",
    "HomeChannel",
    "Platform",
    "SessionContext",
    "SessionEntry",
    "SessionResetPolicy",
    "SessionSource",
    "SessionStore",
    "build_session_context",
    "build_session_context_prompt",
    "build_session_key",
    "canonical_whatsapp_identifier",
    "expand_whatsapp_aliases",
    "is_shared_multi_user_session",
    "normalize_whatsapp_identifier",
]
RESTART = "restart_timeout"
INTERRUPTED = "restart_interrupted"
SUSPENDED = "suspended"
RESET = "session_reset"
SWITCH = "session_switch"
PRUNED = "pruned"
# Reasons of our own: a session that ended so is over; one that the program ended stays its key's.
_OVER = frozenset({*EndReason, RESET, SWITCH, PRUNED})
# What `update_session` calls by other names than the table of sessions does.
_COUNTS = {"provider": "billing_provider", "base_url": "billing_base_url"}
_TOTALS = frozenset({*TOKENS, *COSTS, "cost_status", "model", *_COUNTS.values()})
# The fields of an entry that a program may assign.
_ASSIGNED = frozenset({*KEPT_OF_ENTRY, "session_id", "total_tokens"})
_PAGE = 500
EntryFields = dict[str, Any]


@takes_any_keyword
class SessionStore:
    """Which session each conversation is on, in the same database as `SessionDB()`.

    `sessions_dir` is taken and not used: there are no files beside the database. Fields of an entry that the program
    changes are stored with the next call for its key, or by `_save()`.
    """

    def __init__(
        self,
        sessions_dir: str | os.PathLike[str] | None,
        config: GatewayConfig,
        has_active_processes_fn: Callable[[str], bool] | None = None,
        on_auto_reset: Callable[[SessionEntry], object] | None = None,
        *,
        db: SessionDB | None = None,
        **further: object,
    ) -> None:
        ignored = {} if on_auto_reset is None else {"on_auto_reset": on_auto_reset}
        log_unknown("SessionStore", further | ignored, kept=False)
        self.sessions_dir = sessions_dir
        self.config = config
        self._is_busy = has_active_processes_fn or (lambda _: False)
        self._db = SessionDB() if db is None else db
        self._store = self._db._store
        self._redactor = self._store.read(_get_redactor)
        # Only to be faster: a key that is not here is looked for in the store.
        self._keys: dict[str, SessionKey] = {}
        # The entries that the program has, each with a copy of what is stored of it.
        self._given: dict[str, list[tuple[weakref.ref[SessionEntry], SessionEntry]]] = {}
        self._lock = threading.RLock()

    @recorded
    def get_or_create_session(
        self, /, source: SessionSource, force_new: bool = False, **further: object
    ) -> SessionEntry:
        """Return the entry of a source's conversation: existing, new, or reset."""
        log_unknown("SessionStore.get_or_create_session", further, kept=False)
        keyed = to_keyed_source(source)
        key = key_for(keyed, profile=self._store.profile, isolation=self._isolation())
        name = print_key(key)
        self._keys[name] = key
        self._save_key(name)
        policy = self._policy(source.platform, source.chat_type, name)
        call = GatewayMessage(to_source(source), policy, force_new=force_new)
        entry = self._store.write(
            _get_or_create, key, call, redactor=self._redactor, moment=self._store.moment()
        )
        entry.origin, entry.platform = source, source.platform
        return self._give(entry)

    @recorded
    def update_session(
        self, /, session_key: str, last_prompt_tokens: int | None = None, **counts: Any
    ) -> None:
        """Note that a session was used and the length of its last prompt; set its totals so far, where given."""
        named = {_COUNTS.get(name, name): value for name, value in counts.items()}
        totals = {name: value for name, value in named.items() if name in _TOTALS}
        further = {name: value for name, value in named.items() if name not in _TOTALS}
        log_unknown("SessionStore.update_session", further)
        known = {name: rows.jsonable(value) for name, value in further.items()}
        now = self._store.moment().now.timestamp()

        def used(before: EntryFields) -> EntryFields:
            after = before | {"touched_at": now, "is_backdated": False}
            if last_prompt_tokens is not None:
                after["last_prompt_tokens"] = last_prompt_tokens
            return after | {FURTHER: before.get(FURTHER, {}) | known} if known else after

        entry = self._note(session_key, used)
        given = {name: value for name, value in totals.items() if value is not None}
        if entry is not None and given:
            moment = self._store.moment()
            profile = self._store.profile
            self._store.write(_set_totals, entry.session_id, given, profile=profile, moment=moment)

    @recorded
    def reset_session(
        self, session_key: str, display_name: str | None = None
    ) -> SessionEntry | None:
        """End a key's session and open its next."""
        key = self._key(session_key)
        if key is None:
            return None
        self._save_key(session_key)
        found = self._store.write(
            _reset,
            key,
            display_name=display_name,
            redactor=self._redactor,
            moment=self._store.moment(),
        )
        return None if found is None else self._give(found)

    @recorded
    def switch_session(self, session_key: str, target_session_id: str) -> SessionEntry | None:
        """Point a key at another session, which is opened if there is none; the old one ends, the target goes on."""
        key = self._key(session_key)
        if key is None or not target_session_id:
            return None
        self._save_key(session_key)
        found = self._store.write(
            _switch, key, target_session_id, redactor=self._redactor, moment=self._store.moment()
        )
        return None if found is None else self._give(found)

    def list_sessions(self, active_minutes: float | None = None) -> list[SessionEntry]:
        """The entries, the last active first."""
        since = None if active_minutes is None else self._ago(minutes=active_minutes)
        self._save()
        found = self._store.read(_list_bound, profile=self._store.profile)
        return [
            self._give(each.entry(self._redactor))
            for each in found
            if since is None or each.active_at >= since
        ]

    def has_any_sessions(self) -> bool:
        """Return whether there is more than the one session that a first message has just opened."""
        return self._db.session_count() > 1

    @recorded
    def append_to_transcript(
        self, session_id: str, message: Mapping[str, Any], skip_db: bool = False
    ) -> None:
        """Append a message; with `skip_db` it is already stored, and nothing is done."""
        if not skip_db:
            self._db.ensure_session(session_id)
            self._db.append_messages_batch(session_id, [message])

    @recorded
    def rewrite_transcript(self, session_id: str, messages: Sequence[Mapping[str, Any]]) -> None:
        """Replace all messages of a session, in one transaction."""
        self._db.ensure_session(session_id)
        self._db.replace_messages(session_id, messages)

    def load_transcript(self, session_id: str) -> list[Json]:
        """A session's messages; none for an unknown id."""
        return self._db.get_messages_as_conversation(session_id)

    def get_transcript_path(self, session_id: str) -> Path:
        """Where Hermes had the messages of a session in a file; here there is none."""
        return Path(self.sessions_dir or "") / f"{session_id}.jsonl"

    @recorded
    def suspend_session(self, session_key: str) -> bool:
        """Let the next message start a new session; return whether the key is known."""
        found = self._note(session_key, lambda known: known | {"suspended": True})
        return found is not None

    @recorded
    def mark_resume_pending(self, session_key: str, reason: str = RESTART) -> bool:
        """Let the next message continue after a restart, unless the session is suspended."""
        marked = _pending(reason, self._store.moment().now)
        found = self._note(
            session_key, lambda known: None if known.get("suspended") else known | marked
        )
        return found is not None

    @recorded
    def clear_resume_pending(self, session_key: str) -> bool:
        """Remove the mark of `mark_resume_pending`; return whether it was there."""
        cleared = {"resume_pending": False, "resume_reason": None, "last_resume_marked_at": None}
        found = self._note(
            session_key, lambda known: known | cleared if known.get("resume_pending") else None
        )
        return found is not None

    @recorded
    def suspend_recently_active(self, max_age_seconds: float = 120) -> int:
        """Let sessions that may have run when the gateway died go on with the next message; return how many."""
        self._save()
        now = self._store.moment().now
        profile = self._store.profile
        return self._store.write(_mark_recent, profile=profile, seconds=max_age_seconds, now=now)

    @recorded
    def prune_old_entries(self, max_age_days: float | None) -> int:
        """Unbind keys that were not used for this many days (0 or less: none); return how many."""
        if max_age_days is None or max_age_days <= 0:
            return 0
        self._save()
        pruned = self._store.write(
            _prune,
            profile=self._store.profile,
            before=self._ago(minutes=max_age_days * 24 * 60),
            keeps=self._is_busy,
            moment=self._store.moment(),
        )
        self._keys.clear()
        return pruned

    def close(self) -> None:
        self._db.close()

    def _keep_unknown(self, session_id: object, further: Mapping[str, object]) -> None:
        self._db._keep_unknown(session_id, further)

    # What gateways call although it is not public

    @property
    def _entries(self) -> dict[str, SessionEntry]:
        return {entry.session_key: entry for entry in self.list_sessions()}

    def _ensure_loaded(self) -> None:
        """Do nothing: entries are read when they are asked for."""

    _ensure_loaded_locked = _ensure_loaded

    def _save(self) -> None:
        """Store what the program has changed in the entries that it has."""
        for name in list(self._given):
            self._save_key(name)

    def _generate_session_key(self, source: SessionSource) -> str:
        keyed = to_keyed_source(source)
        return print_key(key_for(keyed, isolation=self._isolation()))

    def _should_reset(self, entry: SessionEntry, source: SessionSource) -> str | None:
        """Why the next message of a source would begin a new session: `idle` or `daily`."""
        name = self._generate_session_key(source)
        return self._due(entry, self._policy(source.platform, source.chat_type, name))

    def _is_session_expired(self, entry: SessionEntry) -> bool:
        policy = self._policy(entry.platform, entry.chat_type, entry.session_key)
        return self._due(entry, policy) is not None

    def _due(self, entry: SessionEntry, policy: ResetPolicy) -> str | None:
        last = entry.updated_at.astimezone(UTC)
        reason = policy.due(last_active=last, now=self._store.moment().now)
        return None if reason is None else str(reason)

    def _isolation(self) -> Isolation:
        return Isolation(
            getattr(self.config, "group_sessions_per_user", True),
            getattr(self.config, "thread_sessions_per_user", False),
        )

    def _policy(self, platform: Platform | None, chat_type: str, name: str) -> ResetPolicy:
        if self._is_busy(name):
            return ResetPolicy()  # something still runs for it: no reset now
        chosen = self.config.get_reset_policy(platform=platform, session_type=chat_type)
        return to_reset_policy(chosen, self._store.zone)

    def _note(
        self, session_key: str, change: Callable[[EntryFields], EntryFields | None]
    ) -> SessionEntry | None:
        key = self._key(session_key)
        if key is None:
            return None
        self._save_key(session_key)
        return self._store.write(_change_entry, key, change, redactor=self._redactor)

    def _key(self, session_key: str) -> SessionKey | None:
        if session_key not in self._keys:
            found = self._store.read(_find_key, session_key, profile=self._store.profile)
            if found is None:
                return None
            self._keys[session_key] = found
        return self._keys[session_key]

    def _ago(self, *, minutes: float) -> datetime:
        return self._store.moment().now - timedelta(minutes=minutes)

    def _give(self, entry: SessionEntry) -> SessionEntry:
        with self._lock:
            living = self._given.setdefault(entry.session_key, [])
            living.append((weakref.ref(entry), replace(entry)))
        return entry

    def _save_key(self, name: str) -> None:
        """Store what the program has changed in its entries of one key."""
        with self._lock:
            living = [pair for pair in self._given.pop(name, ()) if pair[0]() is not None]
            if living:
                self._given[name] = living
            for place, (reference, stored) in enumerate(living):
                entry = reference()
                changed = {} if entry is None else _changes(stored, entry)
                if entry is not None and changed:
                    key = self._key(name)
                    if key is not None:
                        moment = self._store.moment()
                        self._store.write(_apply_changes, key, changed, moment=moment)
                    living[place] = (reference, replace(entry))


class AsyncSessionStore(Awaiting[SessionStore]):
    """The methods of `SessionStore` to await, over one that is open or the arguments of a new one."""

    def __init__(
        self,
        store: SessionStore | str | os.PathLike[str] | None,
        config: GatewayConfig | None = None,
        has_active_processes_fn: Callable[[str], bool] | None = None,
        *,
        db: SessionDB | None = None,
    ) -> None:
        if not isinstance(store, SessionStore):
            store = SessionStore(store, config or GatewayConfig(), has_active_processes_fn, db=db)
        super().__init__(store)
        self.config = store.config
        self.sessions_dir = store.sessions_dir

    get_or_create_session = awaited(SessionStore.get_or_create_session)
    update_session = awaited(SessionStore.update_session)
    reset_session = awaited(SessionStore.reset_session)
    switch_session = awaited(SessionStore.switch_session)
    list_sessions = awaited(SessionStore.list_sessions)
    has_any_sessions = awaited(SessionStore.has_any_sessions)
    append_to_transcript = awaited(SessionStore.append_to_transcript)
    rewrite_transcript = awaited(SessionStore.rewrite_transcript)
    load_transcript = awaited(SessionStore.load_transcript)
    get_transcript_path = awaited(SessionStore.get_transcript_path)
    suspend_session = awaited(SessionStore.suspend_session)
    mark_resume_pending = awaited(SessionStore.mark_resume_pending)
    clear_resume_pending = awaited(SessionStore.clear_resume_pending)
    suspend_recently_active = awaited(SessionStore.suspend_recently_active)
    prune_old_entries = awaited(SessionStore.prune_old_entries)
    close = awaited(SessionStore.close)


@dataclass(frozen=True, slots=True)
class GatewayMessage:
    """An inbound message: its source, the reset policy, and whether it starts a new session."""

    source: Source
    policy: ResetPolicy
    force_new: bool = False


class BoundSession(NamedTuple):
    """A key, the session it is on, and what is kept of its entry."""

    key: SessionKey
    head: SessionHead
    kept: Mapping[str, Any]

    @property
    def known(self) -> EntryFields:
        return dict(self.kept.get("entry", {}))

    @property
    def active_at(self) -> datetime:
        return active_at(self.head, self.known)

    def entry(self, redactor: Redactor) -> SessionEntry:
        return entry_of(self.head, print_key(self.key), self.kept, redactor)


def _get_redactor(tx: Tx) -> Redactor:
    return Redactor(meta.redaction_salt(tx))


def _get_or_create(
    tx: Tx, key: SessionKey, call: GatewayMessage, *, redactor: Redactor, moment: Moment
) -> SessionEntry:
    """Find the key's session or open one, by our reset rules; the call counts as activity."""
    touched: EntryFields = {"touched_at": moment.now.timestamp(), "is_backdated": False}
    head = _follow_compression(tx, key, moment=moment)
    reason: str | None = None
    had_activity = False
    if head is not None and not _is_over(head):
        known = rows.kept_fields(tx, head).get("entry", {})
        if known.get("suspended"):
            reason = SUSPENDED
        elif not known.get("resume_pending") and not call.force_new:
            current = structs.replace(head, last_active_at=active_at(head, known))
            reason = routing.get_reset_reason(tx, current, policy=call.policy, moment=moment)
        if reason is None and not call.force_new:
            return _save_entry(tx, key, head.no, lambda known: known | touched, redactor=redactor)
        had_activity = bool(head.message_count or known.get("total_tokens") or _tokens(head))
        routing.end_session(tx, head, reason=RESET, moment=moment)
        head = sessions.get_by_no(tx, head.no)
    route = routing.resolve_route(tx, key, head, call.source, policy=ResetPolicy(), moment=moment)
    if reason is not None and not call.force_new:
        touched |= {
            "was_auto_reset": True,
            "auto_reset_reason": str(reason),
            "reset_had_activity": had_activity,
        }
    return _save_entry(tx, key, route.session_no, lambda known: known | touched, redactor=redactor)


def _is_over(head: SessionHead) -> bool:
    """Whether a key needs a new session. One that the program itself ended stays its key's, as in Hermes."""
    if head.read_only or head.folder in (SessionFolder.TRASH, SessionFolder.GONE):
        return True
    return not head.is_open and head.end_reason in _OVER


def _tokens(head: SessionHead) -> int:
    return sum(getattr(head.usage, name) for name in TOKENS)


def _follow_compression(tx: Tx, key: SessionKey, *, moment: Moment) -> SessionHead | None:
    """The key's session; if the program compressed it, its newest continuation, which becomes the key's."""
    head = routing.lock_and_get_current(tx, key)
    if head is None or head.end_reason != hermes_sessions.COMPRESSION:
        return head
    *_, newest = hermes_sessions.continuations(tx, head)
    return head if newest.no == head.no else _move(tx, key, head, newest, moment=moment)


def _move(
    tx: Tx, key: SessionKey, head: SessionHead, target: SessionHead, *, moment: Moment
) -> SessionHead:
    """Bind a key to another session with the entry that it has; neither session ends."""
    target = routing.lock_and_reload(tx, target.no)
    if target.is_open:
        routing.release_key(tx, key, except_session=target.no)
        sessions.set_key(tx, target.no, str(key))
    routing.bind(tx, key, target.no, moment=moment)
    known = rows.kept_fields(tx, head).get("entry", {})
    known |= {"origin": source_of(head, known).to_json()}
    edit.update_extra(tx, target, KEPT, lambda kept: kept | {"entry": known})
    return sessions.get_by_no(tx, target.no)


def _change_entry(
    tx: Tx,
    key: SessionKey,
    change: Callable[[EntryFields], EntryFields | None],
    *,
    redactor: Redactor,
) -> SessionEntry | None:
    """Change the stored fields of a key's entry; None if there is none, or nothing to change."""
    head = routing.lock_and_get_current(tx, key)
    if head is None:
        return None
    known = dict(rows.kept_fields(tx, head).get("entry", {}))
    wanted = change(known)
    if wanted is None:
        return None
    return _save_entry(tx, key, head.no, lambda _: wanted, redactor=redactor)


def _changes(stored: SessionEntry, entry: SessionEntry) -> EntryFields:
    """What a program changed in an entry, as its session keeps it."""
    changed = {
        each.name: getattr(entry, each.name)
        for each in fields(entry)
        if getattr(entry, each.name) != getattr(stored, each.name)
    }
    kept = {name: value for name, value in changed.items() if name in _ASSIGNED}
    if "updated_at" in changed:
        kept |= {"touched_at": entry.updated_at.timestamp(), "is_backdated": True}
    if "last_resume_marked_at" in changed:
        marked = entry.last_resume_marked_at
        kept["last_resume_marked_at"] = None if marked is None else marked.timestamp()
    return kept


def _apply_changes(tx: Tx, key: SessionKey, changed: EntryFields, *, moment: Moment) -> None:
    """Store what a program assigned to an entry; another session's id binds the key to that session."""
    head = routing.lock_and_get_current(tx, key)
    if head is None:
        return
    new_id = changed.get("session_id")
    if new_id is not None and new_id != head.id:
        target = _open_like(tx, new_id, head, moment=moment)
        head = _move(tx, key, head, target, moment=moment)
    known = {name: value for name, value in changed.items() if name != "session_id"}
    if known:
        edit.update_extra(
            tx, head, KEPT, lambda kept: kept | {"entry": kept.get("entry", {}) | known}
        )


def _open_like(tx: Tx, id: str, head: SessionHead, *, moment: Moment) -> SessionHead:
    """The session with this id, opened for the same person if there is none."""
    given = {"user_id": head.source.user_id}
    platform = head.source.platform
    return hermes_sessions.create(tx, id, platform, given, profile=head.profile, moment=moment)


def _set_totals(
    tx: Tx, id: str, totals: Mapping[str, Any], *, profile: str, moment: Moment
) -> None:
    """Set some counts of a session; the others stay."""
    head = rows.find_session(tx, id, profile=profile)
    row = {} if head is None else rows.session_row(tx, head)
    given = {name: row.get(name) for name in (*TOKENS, *COSTS, "api_call_count")} | dict(totals)
    hermes_sessions.count_usage(tx, id, given, {}, absolute=True, profile=profile, moment=moment)


def _reset(
    tx: Tx,
    key: SessionKey,
    *,
    display_name: str | None,
    redactor: Redactor,
    moment: Moment,
) -> SessionEntry | None:
    """End the key's session and open the next one; None if it has none."""
    head = routing.lock_and_get_current(tx, key)
    if head is None:
        return None
    before = rows.kept_fields(tx, head).get("entry", {})
    if head.is_open:
        routing.reset(tx, key, moment=moment, reason=RESET)
    head = sessions.get_by_no(tx, head.no)
    source = source_of(head, before)
    route = routing.resolve_route(tx, key, head, source, policy=ResetPolicy(), moment=moment)
    known: EntryFields = {"is_fresh_reset": True, "touched_at": moment.now.timestamp()}
    shown = before.get("display_name") if display_name is None else display_name
    if shown is not None:
        known["display_name"] = shown
    return _save_entry(tx, key, route.session_no, lambda _: known, redactor=redactor)


def _switch(
    tx: Tx, key: SessionKey, target_id: str, *, redactor: Redactor, moment: Moment
) -> SessionEntry | None:
    """Point a key at another session; None when the key is not known."""
    head = routing.lock_and_get_current(tx, key)
    if head is None:
        return None
    target = _open_like(tx, target_id, head, moment=moment)
    if head.no != target.no or not head.is_open:
        routing.switch(tx, key, target, moment=moment, reason=SWITCH)
    known = rows.kept_fields(tx, head).get("entry", {})
    entry: EntryFields = {"touched_at": moment.now.timestamp(), "is_backdated": False}
    if head.no != target.no:
        entry["origin"] = source_of(head, known).to_json()
    if "display_name" in known:
        entry["display_name"] = known["display_name"]
    return _save_entry(tx, key, target.no, lambda own: own | entry, redactor=redactor)


def _list_bound(tx: Tx, *, profile: str) -> list[BoundSession]:
    """Every key of a profile with its session, the last active first."""
    found = [
        BoundSession(key, head, rows.kept_fields(tx, head))
        for key, head in _bound_sessions(tx, profile=profile)
    ]
    return sorted(found, key=lambda each: each.active_at, reverse=True)


def _bound_sessions(tx: Tx, *, profile: str) -> Iterator[tuple[SessionKey, SessionHead]]:
    cursor: str | None = None
    while True:
        page = routing.list_bindings(
            tx, profile=profile, limit=_PAGE, cursor=cursor, chats_only=True
        )
        yield from ((SessionKey.parse(each.key), each.session) for each in page.items)
        cursor = page.next
        if cursor is None:
            return


def _find_key(tx: Tx, text: str, *, profile: str) -> SessionKey | None:
    """Find the key with this printed form; of several, the one with the latest activity."""
    found = [
        (key, head.last_active_at)
        for key, head in _bound_sessions(tx, profile=profile)
        if print_key(key) == text
    ]
    return max(found, key=lambda pair: pair[1])[0] if found else None


def _mark_recent(tx: Tx, *, profile: str, seconds: float, now: datetime) -> int:
    """Let sessions that were active in the last `seconds` go on with the next message; return how many."""
    since = now - timedelta(seconds=seconds)
    marked = _pending(INTERRUPTED, now)
    count = 0
    for each in _list_bound(tx, profile=profile):
        known = each.known
        if each.active_at >= since and not (known.get("suspended") or known.get("resume_pending")):
            edit.update_extra(
                tx, each.head, KEPT, lambda kept: kept | {"entry": kept.get("entry", {}) | marked}
            )
            count += 1
    return count


def _pending(reason: str, now: datetime) -> EntryFields:
    return {
        "resume_pending": True,
        "resume_reason": reason,
        "last_resume_marked_at": now.timestamp(),
    }


def _prune(
    tx: Tx, *, profile: str, before: datetime, keeps: Callable[[str], bool], moment: Moment
) -> int:
    """Unbind keys without activity since `before` and end their sessions; return how many."""
    count = 0
    for each in _list_bound(tx, profile=profile):
        key, known = each.key, each.known
        if each.active_at >= before or known.get("suspended") or keeps(print_key(key)):
            continue
        head = routing.lock_and_get_current(tx, key)
        if head is None or head.running:
            continue
        if head.is_open:
            routing.end_session(tx, head, reason=PRUNED, moment=moment)
        sessions.delete_binding(tx, str(key), profile=profile)
        count += 1
    return count


def _save_entry(
    tx: Tx,
    key: SessionKey,
    no: int,
    change: Callable[[EntryFields], Mapping[str, Any]],
    *,
    redactor: Redactor,
) -> SessionEntry:
    head = sessions.get_by_no(tx, no)

    def changed(kept: Json) -> Json:
        return kept | {"entry": dict(change(dict(kept.get("entry", {}))))}

    kept = edit.update_extra(tx, head, KEPT, changed)
    return entry_of(head, print_key(key), kept, redactor)
