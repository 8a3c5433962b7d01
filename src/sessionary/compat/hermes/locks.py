"""Compression locks that expire, handoffs that one process claims, and the key-value notes of programs."""

from datetime import datetime, timedelta

from sessionary.actions.sessions import holds, log
from sessionary.clock import Moment
from sessionary.compat.hermes import rows
from sessionary.compat.hermes.rows import Json
from sessionary.errors import NotFound
from sessionary.model import codec
from sessionary.model.session import SessionHead
from sessionary.store.database import Tx
from sessionary.store.tables import meta, sessions

NOTE = "hermes/note/"
HANDOFF = "hermes/handoff/"
LAST_PRUNE = "last_auto_prune"
_LOCK = "hermes/compression/"


def acquire(tx: Tx, id: str, holder: str, *, seconds: float, profile: str, moment: Moment) -> bool:
    """Take the compression lock. It is one of our holds, so the session is not reset meanwhile."""
    head = _locked(tx, id, profile=profile)
    if head is None or holder_of(tx, head, now=moment.now) not in (None, holder):
        return False
    for name, _ in _locks(tx, head):
        sessions.delete_hold(tx, head.no, name)
    until = moment.now + timedelta(seconds=seconds)
    holds.hold(tx, id, f"{_LOCK}{holder}", profile=profile, until=until)
    return True


def release(tx: Tx, id: str, holder: str, *, profile: str) -> None:
    """Release the compression lock; only its holder can."""
    if _locked(tx, id, profile=profile) is not None:
        holds.release(tx, id, f"{_LOCK}{holder}", profile=profile)


def holder_of(tx: Tx, head: SessionHead, *, now: datetime) -> str | None:
    """The holder of the compression lock, or None."""
    living = (name for name, until in _locks(tx, head) if until > now)
    found = next(living, None)
    return None if found is None else found.removeprefix(_LOCK)


def request_handoff(tx: Tx, id: str, platform: str, *, profile: str) -> bool:
    """Request a handoff, unless one is pending or running."""
    if _locked(tx, id, profile=profile) is None:
        return False
    found = handoff(tx, id)
    if found is not None and found["state"] in ("pending", "running"):
        return False
    _put(tx, id, {"state": "pending", "platform": platform, "error": None})
    return True


def handoff(tx: Tx, id: str) -> Json | None:
    """The state of a session's handoff."""
    text = meta.get(tx, f"{HANDOFF}{codec.storable_text(id)}")
    return None if text is None else dict(codec.decode(text))


def move_handoff(
    tx: Tx, id: str, *, to: str, since: str | None, profile: str, error: str | None = None
) -> bool:
    """Change the state of a handoff, from one state or from any; return whether it changed."""
    if _locked(tx, id, profile=profile) is None:
        return False
    found = handoff(tx, id)
    if found is None or (since is not None and found["state"] != since):
        return False
    _put(tx, id, found | {"state": to, "error": error})
    return True


def pending_handoffs(tx: Tx, *, profile: str) -> list[Json]:
    """The sessions with a pending handoff, oldest first."""
    found = []
    for name, text in meta.starting_with(tx, HANDOFF):
        state = codec.decode(text)
        head = rows.find_session(tx, name.removeprefix(HANDOFF), profile=profile)
        if head is not None and state["state"] == "pending":
            facts = {f"handoff_{key}": value for key, value in state.items()}
            found.append(rows.session_row(tx, head) | facts)
    return sorted(found, key=lambda row: float(row["started_at"]))


def note(tx: Tx, key: str) -> str | None:
    """A program's value under a key."""
    return meta.get(tx, f"{NOTE}{codec.storable_text(key)}")


def set_note(tx: Tx, key: str, value: str) -> None:
    """Store a program's value under a key."""
    meta.put(tx, f"{NOTE}{codec.storable_text(key)}", codec.storable_text(str(value)))


def claim_interval(tx: Tx, *, hours: float, moment: Moment) -> bool:
    """Claim the regular pruning if the interval is over."""
    sessions.lock_key(tx, LAST_PRUNE, profile="")
    last = note(tx, LAST_PRUNE)
    now = moment.now.timestamp()
    if last is not None and now - float(last) < hours * 3600:
        return False
    set_note(tx, LAST_PRUNE, repr(now))
    return True


def _locked(tx: Tx, id: str, *, profile: str) -> SessionHead | None:
    try:
        return log.lock_session(tx, id, profile=profile)
    except NotFound:
        return None


def _locks(tx: Tx, head: SessionHead) -> list[tuple[str, datetime]]:
    found = sessions.holds_of_session(tx, head.no)
    return [(name, until) for name, until in found if name.startswith(_LOCK)]


def _put(tx: Tx, id: str, state: Json) -> None:
    meta.put(tx, f"{HANDOFF}{codec.storable_text(id)}", codec.encode(state))
