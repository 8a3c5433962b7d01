"""The table of named values that belong to no session; and the server's time."""

from datetime import datetime

from sessionary.clock import from_micros
from sessionary.errors import Damaged
from sessionary.store.database import REMEDY, Tx

# Sorts after every character that a name may have.
_BEYOND = "\U0010ffff"
REDACTION_SALT = "redaction_salt"
# The private key that signs notifications of browsers; it is made when it is first needed.
PUSH_KEY = "push_key"


def get(tx: Tx, name: str) -> str | None:
    """Return the value under a name, or None."""
    row = tx.one("get_meta", name=name)
    return None if row is None else str(row[0])


def put(tx: Tx, name: str, value: str) -> None:
    """Store a value under a name, instead of what was there."""
    tx.run("set_meta", name=name, value=value)


def put_once(tx: Tx, name: str, value: str) -> str:
    """Store a value under a name unless there is one; return the one that is there."""
    tx.run("set_meta_once", name=name, value=value)
    kept = get(tx, name)
    assert kept is not None
    return kept


def starting_with(tx: Tx, prefix: str) -> list[tuple[str, str]]:
    """Return the names that begin so, in order, with their values."""
    rows = tx.all("meta_from", first=prefix, beyond=prefix + _BEYOND)
    return [(name, value) for name, value in rows]


def redaction_salt(tx: Tx) -> str:
    """Return the salt with which this store hides people's ids (see `model.redact`)."""
    salt = get(tx, REDACTION_SALT)
    if salt is None:
        raise Damaged(f"The store has no salt for hiding ids: it is damaged. {REMEDY}")
    return salt


def server_time(tx: Tx) -> datetime | None:
    """Return what time the database server has; None on SQLite, which has no server."""
    row = tx.one("server_time")
    return None if row is None or row[0] is None else from_micros(row[0])
