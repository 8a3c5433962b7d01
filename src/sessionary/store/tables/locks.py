"""Locks that last until the transaction ends. SQLite has one writer, and mostly skips them."""

from sessionary.model import json_codec
from sessionary.store.database import Tx


def lock_key(tx: Tx, key: str, *, profile: str) -> None:
    """Lock a name of a profile: a session key, a budget, an id that is about to be used.

    It comes before what depends on it is read: PostgreSQL lets two readers see nothing, and each write.
    """
    tx.one("lock_key", profile=profile, key=key)


def lock_session(tx: Tx, id: str, *, profile: str) -> int | None:
    """Lock a session's row; its number, or None when the profile has no such session."""
    row = tx.one("lock_session", id=json_codec.storable_text(id), profile=profile)
    return None if row is None else int(row[0])


def lock_session_no(tx: Tx, no: int) -> None:
    """Lock the row of a session that is known to be there, purged or not."""
    tx.one("lock_session_no", no=no)
