"""Why a session takes no change, said in the same words everywhere."""

from sessionary.clock import from_micros
from sessionary.errors import Conflict, NotFound, Purged, TurnLost
from sessionary.model import codec
from sessionary.model.session import SessionHead
from sessionary.model.turn import Lease
from sessionary.store.database import Tx


def missing(tx: Tx, session_id: str, *, profile: str) -> NotFound:
    """Nothing by that id in this profile; a purged session is said to be gone for good."""
    row = tx.one("purged_at", id=codec.storable_text(session_id), profile=profile)
    if row is None:
        return NotFound(f"There is no session {session_id}.")
    day = from_micros(row[0]).date()
    return Purged(f"Session {session_id} was purged on {day}; it is gone for good.")


def read_only(session_id: str) -> Conflict:
    """What another tool recorded is not changed here."""
    return Conflict(
        f"Session {session_id} is read-only; nothing was changed. Continue in a copy: fork it."
    )


def running(session_id: str) -> Conflict:
    """Someone speaks."""
    return Conflict(
        f"A turn is running in session {session_id}; nothing was changed. Wait for it, or stop it."
    )


def ended(head: SessionHead) -> Conflict:
    """It is over."""
    return Conflict(
        f"Session {head.id} has ended ({head.end_reason}); nothing was changed. Reopen it first."
    )


def lost(lease: Lease) -> TurnLost:
    """Someone else may speak now, or nobody."""
    return TurnLost(
        f"Turn {lease.turn_id} no longer speaks for session {lease.session_id}; "
        "nothing was written."
    )
