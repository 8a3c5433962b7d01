"""Why a session takes no change, said in the same words everywhere."""

from hansard.errors import Conflict, TurnLost
from hansard.model.session import SessionHead
from hansard.model.turn import Lease


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
