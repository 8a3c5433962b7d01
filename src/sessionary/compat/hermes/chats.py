"""What a gateway does with the session that a key is on, each in one transaction."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sessionary.actions.sessions import edit, routing
from sessionary.clock import Moment
from sessionary.compat.hermes import rows
from sessionary.compat.hermes.entry import SessionEntry, entry_of
from sessionary.compat.hermes.messages import Json
from sessionary.compat.hermes.rows import KEPT
from sessionary.compat.hermes.source import printed
from sessionary.model.key import SessionKey
from sessionary.model.reset import ResetPolicy, ResetReason
from sessionary.model.session import EndReason, SessionHead
from sessionary.model.source import Source
from sessionary.store.database import Tx
from sessionary.store.tables import sessions

SUSPENDED = "suspended"
PRUNED = "pruned"
_AUTOMATIC = frozenset({*ResetReason, SUSPENDED})
_PAGE = 500
Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """A message that came: from where, under which rule, and whether it shall begin anew."""

    source: Source
    policy: ResetPolicy
    anew: bool = False


def arrive(tx: Tx, key: SessionKey, call: Call, *, moment: Moment) -> SessionEntry:
    """Find the key's session or open one, by the rules of the house; a call counts as activity."""
    head = routing.lock_and_get_current(tx, key)
    policy = call.policy
    if head is not None and head.is_open:
        known = rows.kept_of(tx, head).get("entry", {})
        if call.anew or known.get("suspended"):
            reason = EndReason.NEW if call.anew else SUSPENDED
            routing.end(tx, head, reason=reason, moment=moment)
            head = sessions.get_by_no(tx, head.no)
        elif known.get("resume_pending"):
            policy = ResetPolicy()
        else:
            head = replace(head, last_active_at=_last_call(head, known))
    route = routing.resolve_route(tx, key, head, call.source, policy=policy, moment=moment)
    now = moment.now.timestamp()
    entry = _noted(tx, key, route.session_no, lambda known: known | {"touched_at": now})
    entry.updated_at = moment.now
    if route.opened and route.reason in _AUTOMATIC:
        entry.was_auto_reset = True
        entry.auto_reset_reason = str(route.reason)
        entry.reset_had_activity = route.had_activity
    return entry


def note(tx: Tx, key: SessionKey, change: Callable[[Facts], Facts | None]) -> SessionEntry | None:
    """Change what is known of a key's entry; None when there is none, or nothing to change."""
    head = routing.lock_and_get_current(tx, key)
    if head is None:
        return None
    known = dict(rows.kept_of(tx, head).get("entry", {}))
    wanted = change(known)
    return None if wanted is None else _noted(tx, key, head.no, lambda _: wanted)


def begin_anew(
    tx: Tx, key: SessionKey, *, display_name: str | None, moment: Moment
) -> SessionEntry | None:
    """End the key's session and open its next; None for a key that has none."""
    head = routing.lock_and_get_current(tx, key)
    if head is None:
        return None
    if head.is_open:
        routing.reset(tx, key, moment=moment)
    head = sessions.get_by_no(tx, head.no)
    route = routing.resolve_route(tx, key, head, head.source, policy=ResetPolicy(), moment=moment)
    known: Facts = {"is_fresh_reset": True, "touched_at": moment.now.timestamp()}
    if display_name is not None:
        known["display_name"] = display_name
    return _noted(tx, key, route.session_no, lambda _: known)


def switch(tx: Tx, key: SessionKey, target_id: str, *, moment: Moment) -> SessionEntry | None:
    """Point a key at another session; None when the key or the session is not known."""
    target = rows.find(tx, target_id, profile=key.profile)
    head = routing.lock_and_get_current(tx, key)
    if head is None or target is None:
        return None
    if head.no != target.no or not head.is_open:
        routing.switch(tx, key, target, moment=moment)
    now = moment.now.timestamp()
    return _noted(tx, key, target.no, lambda known: known | {"touched_at": now})


def entries_of(tx: Tx, *, profile: str) -> list[tuple[SessionKey, SessionEntry]]:
    """Every key of a profile with its entry, the last active first."""
    found = [
        (key, entry_of(head, printed(key), rows.kept_of(tx, head)))
        for key, head in _bound(tx, profile=profile)
    ]
    return sorted(found, key=lambda pair: pair[1].updated_at, reverse=True)


def _bound(tx: Tx, *, profile: str) -> Iterator[tuple[SessionKey, SessionHead]]:
    cursor: str | None = None
    while True:
        page = routing.list_bindings(
            tx, profile=profile, limit=_PAGE, cursor=cursor, chats_only=True
        )
        yield from ((SessionKey.parse(each.key), each.session) for each in page.items)
        cursor = page.next
        if cursor is None:
            return


def find_key(tx: Tx, text: str, *, profile: str) -> SessionKey | None:
    """The key that prints so; where several do, the one that was last active."""
    found = [
        (key, head.last_active_at)
        for key, head in _bound(tx, profile=profile)
        if printed(key) == text
    ]
    return max(found, key=lambda pair: pair[1])[0] if found else None


def suspend_recent(tx: Tx, *, profile: str, seconds: float, now: datetime) -> int:
    """Mark the sessions that may have been at work when a gateway died; how many."""
    since = now - timedelta(seconds=seconds)
    count = 0
    for key, entry in entries_of(tx, profile=profile):
        if entry.updated_at >= since and not (entry.suspended or entry.resume_pending):
            note(tx, key, lambda known: known | {"suspended": True})
            count += 1
    return count


def prune(
    tx: Tx, *, profile: str, before: datetime, keeps: Callable[[str], bool], moment: Moment
) -> int:
    """Let go of keys that nobody used for long; their sessions stay, ended. How many."""
    count = 0
    for key, entry in entries_of(tx, profile=profile):
        if entry.updated_at >= before or entry.suspended or keeps(entry.session_key):
            continue
        head = routing.lock_and_get_current(tx, key)
        if head is None or head.running:
            continue
        if head.is_open:
            routing.end(tx, head, reason=PRUNED, moment=moment)
        tx.run("delete_binding", profile=profile, key=str(key))
        count += 1
    return count


def _last_call(head: SessionHead, known: Mapping[str, Any]) -> datetime:
    """The house counts words; a gateway's call is one whose words come later."""
    touched = known.get("touched_at")
    if touched is None:
        return head.last_active_at
    return max(head.last_active_at, datetime.fromtimestamp(touched, head.last_active_at.tzinfo))


def _noted(
    tx: Tx, key: SessionKey, no: int, change: Callable[[Facts], Mapping[str, Any]]
) -> SessionEntry:
    head = sessions.get_by_no(tx, no)

    def changed(kept: Json) -> Json:
        return kept | {"entry": dict(change(dict(kept.get("entry", {}))))}

    kept = edit.revise(tx, head, KEPT, changed)
    return entry_of(head, printed(key), kept)
