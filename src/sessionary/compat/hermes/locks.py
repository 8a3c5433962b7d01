"""Compression locks that expire, handoffs that one process claims, and the key-value notes of programs."""

import math
from collections.abc import Mapping
from datetime import datetime, timedelta

from sessionary.actions.sessions import holds, log
from sessionary.clock import Moment
from sessionary.compat.hermes import rows
from sessionary.compat.hermes.rows import HANDOFF, Json
from sessionary.errors import NotFound
from sessionary.model import codec
from sessionary.model.session import SessionHead
from sessionary.store.database import Tx
from sessionary.store.tables import meta, sessions

NOTE = "hermes/note/"
LAST_PRUNE = "last_auto_prune"
MAX_ERROR = 500
_LOCK = "hermes/compression/"
_LONGEST_LOCK = timedelta(days=3650)


def acquire(
    tx: Tx, id: str | None, holder: str, *, seconds: float, profile: str, moment: Moment
) -> bool:
    """Take the compression lock. It is one of our holds, so the session is not reset meanwhile.

    An id without a session has none to hold: its lock is a note of its own.
    """
    if not id:
        return False
    sessions.lock_key(tx, f"{_LOCK}{id}", profile=profile)
    head = _locked(tx, id, profile=profile)
    if holder_of(tx, id, profile=profile, now=moment.now) not in (None, holder):
        return False
    until = moment.now + min(timedelta(seconds=max(0.0, min(seconds, 1e9))), _LONGEST_LOCK)
    if head is None:
        facts = {"holder": str(holder), "until": until.timestamp()}
        meta.put(tx, _lock_note(id), codec.encode(facts))
        return True
    for name, _ in _locks(tx, head):
        sessions.delete_hold(tx, head.no, name)
    holds.hold(tx, id, f"{_LOCK}{holder}", profile=profile, until=until)
    return True


def release(tx: Tx, id: str | None, holder: str, *, profile: str) -> None:
    """Release the compression lock; only its holder can."""
    if not id:
        return
    if _noted_lock(tx, id).get("holder") == holder:
        meta.put(tx, _lock_note(id), codec.encode({}))
    if _locked(tx, id, profile=profile) is not None:
        holds.release(tx, id, f"{_LOCK}{holder}", profile=profile)


def holder_of(tx: Tx, id: str | None, *, profile: str, now: datetime) -> str | None:
    """The holder of the compression lock, or None."""
    if not id:
        return None
    noted = _noted_lock(tx, id)
    if noted.get("until", 0.0) > now.timestamp():
        return str(noted["holder"])
    head = rows.find_session(tx, id, profile=profile)
    living = (name for name, until in _locks(tx, head) if until > now) if head else iter(())
    found = next(living, None)
    return None if found is None else found.removeprefix(_LOCK)


def request_handoff(tx: Tx, id: str | None, platform: str, *, profile: str) -> bool:
    """Request a handoff, unless one is pending or running."""
    if not id or _locked(tx, id, profile=profile) is None:
        return False
    if rows.handoff(tx, id)["state"] in ("pending", "running"):
        return False
    rows.set_handoff(tx, id, {"state": "pending", "platform": platform, "error": None})
    return True


def handoff(tx: Tx, id: str | None, *, profile: str) -> Json | None:
    """The state of a session's handoff; None if there was none."""
    if not id or rows.find_session(tx, id, profile=profile) is None:
        return None
    found = rows.handoff(tx, id)
    return None if found["state"] is None else found


def move_handoff(
    tx: Tx,
    id: str | None,
    *,
    to: str,
    since: str | None,
    profile: str,
    error: str | None = None,
) -> bool:
    """Change the state of a handoff, from one state or from any; return whether it changed."""
    if not id or _locked(tx, id, profile=profile) is None:
        return False
    found = rows.handoff(tx, id)
    if since is not None and found["state"] != since:
        return False
    rows.set_handoff(
        tx, id, found | {"state": to, "error": None if error is None else error[:MAX_ERROR]}
    )
    return True


def pending_handoffs(tx: Tx, *, profile: str) -> list[Json]:
    """The sessions with a pending handoff, oldest first."""
    names = [
        name
        for name, text in meta.starting_with(tx, HANDOFF)
        if codec.decode(text).get("state") == "pending"
    ]
    heads = (rows.find_session(tx, name.removeprefix(HANDOFF), profile=profile) for name in names)
    found = [rows.session_row(tx, head) for head in heads if head is not None]
    return sorted(found, key=lambda row: float(row["started_at"]))


def note(tx: Tx, key: str | None) -> str | None:
    """A program's value under a key."""
    return None if key is None else meta.get(tx, f"{NOTE}{codec.storable_text(key)}")


def set_note(tx: Tx, key: str, value: str) -> None:
    """Store a program's value under a key."""
    meta.put(tx, f"{NOTE}{codec.storable_text(key)}", codec.storable_text(str(value)))


def routing_entries(tx: Tx, scope: str) -> dict[str, str]:
    """The entries of a gateway's own index of conversations, by key."""
    beginning = _routing(scope)
    found = meta.starting_with(tx, beginning)
    return {name.removeprefix(beginning): text for name, text in found if text}


def put_routing_entries(tx: Tx, scope: str, entries: Mapping[str, str], *, replaces: bool) -> None:
    """Store entries of a gateway's own index; with `replaces` all others go. An empty text removes one."""
    if replaces:
        entries = dict.fromkeys(routing_entries(tx, scope), "") | dict(entries)
    for key, text in entries.items():
        meta.put(tx, f"{_routing(scope)}{codec.storable_text(key)}", codec.storable_text(text))


def _routing(scope: str) -> str:
    # The length comes first: no scope's names begin like another's.
    return f"hermes/routing/{len(scope)}:{codec.storable_text(scope)}:"


def claim_interval(tx: Tx, *, hours: float, moment: Moment) -> bool:
    """Claim the regular pruning if the interval is over."""
    sessions.lock_key(tx, LAST_PRUNE, profile="")
    now = moment.now.timestamp()
    last = _seconds(note(tx, LAST_PRUNE))
    if last is not None and now - last < hours * 3600:
        return False
    set_note(tx, LAST_PRUNE, repr(now))
    return True


def _seconds(text: str | None) -> float | None:
    """The time in a marker; None for one that holds something else."""
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def _lock_note(id: str) -> str:
    return f"{_LOCK}{codec.storable_text(id)}"


def _noted_lock(tx: Tx, id: str) -> Json:
    text = meta.get(tx, _lock_note(id))
    return {} if text is None else dict(codec.decode(text))


def _locked(tx: Tx, id: str, *, profile: str) -> SessionHead | None:
    try:
        return log.lock_session(tx, id, profile=profile)
    except NotFound:
        return None


def _locks(tx: Tx, head: SessionHead) -> list[tuple[str, datetime]]:
    found = sessions.holds_of_session(tx, head.no)
    return [(name, until) for name, until in found if name.startswith(_LOCK)]
