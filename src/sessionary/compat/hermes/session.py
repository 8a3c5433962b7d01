"""The session module that Hermes programs import; `SessionStore` keeps nothing of its own."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sessionary.actions.sessions import edit, routing
from sessionary.clock import Moment
from sessionary.compat.hermes import rows
from sessionary.compat.hermes.config import GatewayConfig, HomeChannel, Platform, SessionResetPolicy
from sessionary.compat.hermes.context import (
    SessionContext,
    build_session_context,
    build_session_context_prompt,
)
from sessionary.compat.hermes.rows import KEPT, Json
from sessionary.compat.hermes.source import (
    SessionEntry,
    SessionSource,
    build_session_key,
    entry_of,
    is_shared_multi_user_session,
    print_key,
    to_source,
)
from sessionary.compat.hermes.state import SessionDB
from sessionary.model.reset import ResetPolicy, ResetReason
from sessionary.model.session import EndReason, SessionHead
from sessionary.model.source import Isolation, SessionKey, Source, key_for
from sessionary.store.database import Tx
from sessionary.store.tables import sessions

__all__ = [
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
    "is_shared_multi_user_session",
]
RESTART = "restart_timeout"
SUSPENDED = "suspended"
PRUNED = "pruned"
_AUTOMATIC = frozenset({*ResetReason, SUSPENDED})
_PAGE = 500
EntryFields = dict[str, Any]


class SessionStore:
    """Which session each conversation is on, in the same database as `SessionDB()`.

    `sessions_dir` is taken and not used: there are no files beside the database.
    """

    def __init__(
        self,
        sessions_dir: str | os.PathLike[str] | None,
        config: GatewayConfig,
        has_active_processes_fn: Callable[[str], bool] | None = None,
        *,
        db: SessionDB | None = None,
    ) -> None:
        self.sessions_dir = sessions_dir
        self.config = config
        self._is_busy = has_active_processes_fn or (lambda _: False)
        self._db = SessionDB() if db is None else db
        self._store = self._db._store
        # Only to be faster: a key that is not here is looked for in the store.
        self._keys: dict[str, SessionKey] = {}

    def get_or_create_session(self, source: SessionSource, force_new: bool = False) -> SessionEntry:
        """Return the entry of a source's conversation: existing, new, or reset."""
        place = to_source(source)
        key = key_for(place, profile=self._store.profile, isolation=self._isolation())
        name = print_key(key)
        call = GatewayMessage(place, self._policy(source, name), force_new=force_new)
        entry = self._store.write(_get_or_create, key, call, moment=self._store.moment())
        self._keys[name] = key
        entry.origin = source
        return entry

    def update_session(
        self, session_key: str, last_prompt_tokens: int | None = None, **counts: Any
    ) -> None:
        """Note that a session was used, the length of its last prompt, and its counts so far."""
        now = self._store.moment().now.timestamp()
        known = {"touched_at": now, "is_fresh_reset": False}
        if last_prompt_tokens is not None:
            known["last_prompt_tokens"] = last_prompt_tokens
        entry = self._note(session_key, lambda before: before | known)
        given = {name: value for name, value in counts.items() if value is not None}
        if entry is not None and given:
            self._db.update_token_counts(entry.session_id, **given)

    def reset_session(
        self, session_key: str, display_name: str | None = None
    ) -> SessionEntry | None:
        """End a key's session and open its next."""
        key = self._key(session_key)
        if key is None:
            return None
        moment = self._store.moment()
        return self._store.write(_reset, key, display_name=display_name, moment=moment)

    def switch_session(self, session_key: str, target_session_id: str) -> SessionEntry | None:
        """Point a key at another session; the old one ends, the target goes on."""
        key = self._key(session_key)
        if key is None:
            return None
        moment = self._store.moment()
        return self._store.write(_switch, key, target_session_id, moment=moment)

    def list_sessions(self, active_minutes: float | None = None) -> list[SessionEntry]:
        """The entries, the last active first."""
        found = self._store.read(_list_entries, profile=self._store.profile)
        since = None if active_minutes is None else self._ago(minutes=active_minutes)
        return [entry for _, entry in found if since is None or entry.updated_at >= since]

    def has_any_sessions(self) -> bool:
        """Return whether there is more than the one session that a first message has just opened."""
        return self._db.session_count() > 1

    def append_to_transcript(
        self, session_id: str, message: Mapping[str, Any], skip_db: bool = False
    ) -> None:
        """Append a message; with `skip_db` it is already stored, and nothing is done."""
        if not skip_db:
            self._db.ensure_session(session_id)
            self._db.append_messages_batch(session_id, [message])

    def rewrite_transcript(self, session_id: str, messages: Sequence[Mapping[str, Any]]) -> None:
        self._db.ensure_session(session_id)
        self._db.replace_messages(session_id, messages)

    def load_transcript(self, session_id: str) -> list[Json]:
        """A session's messages; none for an unknown id."""
        return self._db.get_messages_as_conversation(session_id)

    def suspend_session(self, session_key: str) -> bool:
        """Let the next message start a new session; return whether the key is known."""
        found = self._note(session_key, lambda known: known | {"suspended": True})
        return found is not None

    def mark_resume_pending(self, session_key: str, reason: str = RESTART) -> bool:
        """Let the next message continue after a restart, unless the session is suspended."""
        now = self._store.moment().now.timestamp()
        marked = {"resume_pending": True, "resume_reason": reason, "last_resume_marked_at": now}
        found = self._note(
            session_key, lambda known: None if known.get("suspended") else known | marked
        )
        return found is not None

    def clear_resume_pending(self, session_key: str) -> bool:
        """Remove the mark of `mark_resume_pending`; return whether it was there."""
        cleared = {"resume_pending": False, "resume_reason": None, "last_resume_marked_at": None}
        found = self._note(
            session_key, lambda known: known | cleared if known.get("resume_pending") else None
        )
        return found is not None

    def suspend_recently_active(self, max_age_seconds: float = 120) -> int:
        """Suspend the sessions that may have been running when the gateway died; return how many."""
        now = self._store.moment().now
        profile = self._store.profile
        return self._store.write(_suspend_recent, profile=profile, seconds=max_age_seconds, now=now)

    def prune_old_entries(self, max_age_days: float) -> int:
        """Unbind keys that were not used for this many days (0 or less: none); return how many."""
        if max_age_days <= 0:
            return 0
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

    def _isolation(self) -> Isolation:
        return Isolation(self.config.group_sessions_per_user, self.config.thread_sessions_per_user)

    def _policy(self, source: SessionSource, name: str) -> ResetPolicy:
        if self._is_busy(name):
            return ResetPolicy()  # something still runs for it: no reset now
        chosen = self.config.get_reset_policy(source.platform, source.chat_type)
        return chosen.to_policy(self._store.zone)

    def _note(
        self, session_key: str, change: Callable[[EntryFields], EntryFields | None]
    ) -> SessionEntry | None:
        key = self._key(session_key)
        return None if key is None else self._store.write(_change_entry, key, change)

    def _key(self, session_key: str) -> SessionKey | None:
        if session_key not in self._keys:
            found = self._store.read(_find_key, session_key, profile=self._store.profile)
            if found is None:
                return None
            self._keys[session_key] = found
        return self._keys[session_key]

    def _ago(self, *, minutes: float) -> datetime:
        return self._store.moment().now - timedelta(minutes=minutes)


@dataclass(frozen=True, slots=True)
class GatewayMessage:
    """An inbound message: its source, the reset policy, and whether it starts a new session."""

    source: Source
    policy: ResetPolicy
    force_new: bool = False


def _get_or_create(
    tx: Tx, key: SessionKey, call: GatewayMessage, *, moment: Moment
) -> SessionEntry:
    """Find the key's session or open one, by our reset rules; the call counts as activity."""
    head = routing.lock_and_get_current(tx, key)
    policy = call.policy
    if head is not None and head.is_open:
        known = rows.kept_fields(tx, head).get("entry", {})
        if call.force_new or known.get("suspended"):
            reason = EndReason.NEW if call.force_new else SUSPENDED
            routing.end_session(tx, head, reason=reason, moment=moment)
            head = sessions.get_by_no(tx, head.no)
        elif known.get("resume_pending"):
            policy = ResetPolicy()
        else:
            head = replace(head, last_active_at=_last_call(head, known))
    route = routing.resolve_route(tx, key, head, call.source, policy=policy, moment=moment)
    now = moment.now.timestamp()
    entry = _save_entry(tx, key, route.session_no, lambda known: known | {"touched_at": now})
    entry.updated_at = moment.now
    if route.opened and route.reason in _AUTOMATIC:
        entry.was_auto_reset = True
        entry.auto_reset_reason = str(route.reason)
        entry.reset_had_activity = route.had_activity
    return entry


def _change_entry(
    tx: Tx, key: SessionKey, change: Callable[[EntryFields], EntryFields | None]
) -> SessionEntry | None:
    """Change the stored fields of a key's entry; None if there is none, or nothing to change."""
    head = routing.lock_and_get_current(tx, key)
    if head is None:
        return None
    known = dict(rows.kept_fields(tx, head).get("entry", {}))
    wanted = change(known)
    return None if wanted is None else _save_entry(tx, key, head.no, lambda _: wanted)


def _reset(
    tx: Tx, key: SessionKey, *, display_name: str | None, moment: Moment
) -> SessionEntry | None:
    """End the key's session and open the next one; None if it has none."""
    head = routing.lock_and_get_current(tx, key)
    if head is None:
        return None
    if head.is_open:
        routing.reset(tx, key, moment=moment)
    head = sessions.get_by_no(tx, head.no)
    route = routing.resolve_route(tx, key, head, head.source, policy=ResetPolicy(), moment=moment)
    known: EntryFields = {"is_fresh_reset": True, "touched_at": moment.now.timestamp()}
    if display_name is not None:
        known["display_name"] = display_name
    return _save_entry(tx, key, route.session_no, lambda _: known)


def _switch(tx: Tx, key: SessionKey, target_id: str, *, moment: Moment) -> SessionEntry | None:
    """Point a key at another session; None when the key or the session is not known."""
    target = rows.find_session(tx, target_id, profile=key.profile)
    head = routing.lock_and_get_current(tx, key)
    if head is None or target is None:
        return None
    if head.no != target.no or not head.is_open:
        routing.switch(tx, key, target, moment=moment)
    now = moment.now.timestamp()
    return _save_entry(tx, key, target.no, lambda known: known | {"touched_at": now})


def _list_entries(tx: Tx, *, profile: str) -> list[tuple[SessionKey, SessionEntry]]:
    """Every key of a profile with its entry, the last active first."""
    found = [
        (key, entry_of(head, print_key(key), rows.kept_fields(tx, head)))
        for key, head in _bound_sessions(tx, profile=profile)
    ]
    return sorted(found, key=lambda pair: pair[1].updated_at, reverse=True)


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


def _suspend_recent(tx: Tx, *, profile: str, seconds: float, now: datetime) -> int:
    """Suspend sessions that were active in the last `seconds`; return how many."""
    since = now - timedelta(seconds=seconds)
    count = 0
    for key, entry in _list_entries(tx, profile=profile):
        if entry.updated_at >= since and not (entry.suspended or entry.resume_pending):
            _change_entry(tx, key, lambda known: known | {"suspended": True})
            count += 1
    return count


def _prune(
    tx: Tx, *, profile: str, before: datetime, keeps: Callable[[str], bool], moment: Moment
) -> int:
    """Unbind keys without activity since `before` and end their sessions; return how many."""
    count = 0
    for key, entry in _list_entries(tx, profile=profile):
        if entry.updated_at >= before or entry.suspended or keeps(entry.session_key):
            continue
        head = routing.lock_and_get_current(tx, key)
        if head is None or head.running:
            continue
        if head.is_open:
            routing.end_session(tx, head, reason=PRUNED, moment=moment)
        sessions.delete_binding(tx, str(key), profile=profile)
        count += 1
    return count


def _last_call(head: SessionHead, known: Mapping[str, Any]) -> datetime:
    """The latest activity: a stored message, or a call of the gateway whose message is not stored yet."""
    touched = known.get("touched_at")
    if touched is None:
        return head.last_active_at
    return max(head.last_active_at, datetime.fromtimestamp(touched, head.last_active_at.tzinfo))


def _save_entry(
    tx: Tx, key: SessionKey, no: int, change: Callable[[EntryFields], Mapping[str, Any]]
) -> SessionEntry:
    head = sessions.get_by_no(tx, no)

    def changed(kept: Json) -> Json:
        return kept | {"entry": dict(change(dict(kept.get("entry", {}))))}

    kept = edit.update_extra(tx, head, KEPT, changed)
    return entry_of(head, print_key(key), kept)
