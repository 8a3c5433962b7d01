"""The table of bindings: which session a key is on, and the title wanted for its next one."""

from dataclasses import dataclass
from datetime import datetime

from sessionary.clock import from_micros, to_micros
from sessionary.store.database import Tx

# Sorts after every character that a key is printed with.
BEYOND = "\x7f"


@dataclass(frozen=True, slots=True)
class BindingRow:
    """A key, and the number of the session it is on."""

    key: str
    session_no: int
    bound_at: datetime


def session_of(tx: Tx, key: str, *, profile: str) -> int | None:
    """Return the number of the session that a key is on, or None."""
    row = tx.one("get_binding", profile=profile, key=key)
    return None if row is None else int(row[0])


def bind(tx: Tx, key: str, session_no: int, *, profile: str, at: datetime) -> None:
    """Make a session the key's current one."""
    tx.run("set_binding", profile=profile, key=key, session_no=session_no, at=to_micros(at))


def page(
    tx: Tx, *, profile: str, after: str, limit: int, without: str | None = None
) -> list[BindingRow]:
    """Return the bindings of a profile by key, perhaps without the keys that begin with `without`."""
    rows = tx.all(
        "list_bindings",
        profile=profile,
        after=after,
        named=without or "",
        beyond="" if without is None else without + BEYOND,
        limit=limit,
    )
    return [BindingRow(key, no, from_micros(at)) for key, no, at in rows]


def keys_from(tx: Tx, beginning: str, *, profile: str) -> list[str]:
    """Return the bound keys that begin so, in order."""
    rows = tx.all("bindings_between", profile=profile, first=beginning, beyond=beginning + BEYOND)
    return [key for key, _ in rows]


def has_keys_below(tx: Tx, key: str, *, profile: str) -> bool:
    """Return whether a key that continues this one behind a slash is bound."""
    # `0` is the character right after the slash.
    return bool(page_between(tx, profile=profile, after=f"{key}/", beyond=f"{key}0", limit=1))


def latest_keys(tx: Tx, beginning: str, *, profile: str, limit: int) -> list[str]:
    """Return the bound keys that begin so, those with the latest activity first."""
    rows = tx.all(
        "latest_bindings", profile=profile, first=beginning, beyond=beginning + BEYOND, limit=limit
    )
    return [key for (key,) in rows]


def page_between(
    tx: Tx, *, profile: str, after: str, beyond: str, limit: int
) -> list[tuple[str, int]]:
    """Return keys between two, in order, with the numbers of their sessions."""
    rows = tx.all("bindings_from", profile=profile, after=after, beyond=beyond, limit=limit)
    return [(key, no) for key, no in rows]


def open_session(tx: Tx, key: str, *, profile: str) -> tuple[int, str] | None:
    """Return number and id of the session that a key is on, while it is open."""
    row = tx.one("open_thread", profile=profile, key=key)
    return None if row is None else (row[0], row[1])


def keys_of_session(tx: Tx, session_no: int) -> list[str]:
    """Return every key that is on a session."""
    return [key for (key,) in tx.all("keys_of_session", session_no=session_no)]


def delete(tx: Tx, key: str, *, profile: str) -> None:
    """Remove a binding; its session stays."""
    tx.run("delete_binding", profile=profile, key=key)


def rename(tx: Tx, old: str, new: str, *, profile: str) -> bool:
    """Give a binding another key; say whether there was one."""
    return bool(tx.run("rename_binding", profile=profile, old=old, new=new))


def set_next_title(tx: Tx, key: str, title: str, *, profile: str) -> None:
    """Note the title that a person wants for the key's next session."""
    tx.run("set_next_title", profile=profile, key=key, title=title)


def take_next_title(tx: Tx, key: str, *, profile: str) -> str | None:
    """Remove and return the title wanted for the key's next session."""
    row = tx.one("take_next_title", profile=profile, key=key)
    return None if row is None else str(row[0])
