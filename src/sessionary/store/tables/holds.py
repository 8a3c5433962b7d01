"""The table of holds: reasons not to reset a session."""

from datetime import datetime

from sessionary.clock import from_micros, to_micros
from sessionary.store.database import Tx


def put(tx: Tx, session_no: int, name: str, *, expires_at: datetime) -> None:
    """Write a hold; the same name again gets another end."""
    tx.run("insert_hold", no=session_no, name=name, expires_at=to_micros(expires_at))


def delete(tx: Tx, session_no: int, name: str) -> None:
    """Remove a hold."""
    tx.run("delete_hold", no=session_no, name=name)


def delete_expired(tx: Tx, session_no: int, *, now: datetime) -> None:
    """Remove the holds of a session that are over."""
    tx.run("delete_expired_holds", no=session_no, now=to_micros(now))


def is_held(tx: Tx, session_no: int, *, now: datetime) -> bool:
    """Return whether a hold keeps a session from being reset now."""
    return tx.one("is_held", no=session_no, now=to_micros(now)) is not None


def of_session(tx: Tx, session_no: int) -> list[tuple[str, datetime]]:
    """Return the names and ends of a session's holds, expired ones too."""
    return [(name, from_micros(at)) for name, at in tx.all("holds_of_session", no=session_no)]
