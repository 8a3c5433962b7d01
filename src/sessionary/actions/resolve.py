"""From what a person typed to one session (rule D-4)."""

import re

from sessionary.actions import refusals, titles
from sessionary.errors import Ambiguous, BadInput, NotFound
from sessionary.model import codec
from sessionary.model.session import SessionHead
from sessionary.model.title import matches_continuation
from sessionary.store.database import Tx
from sessionary.store.tables import sessions

_SHOWN = 6
_ID_LIKE = re.compile(r"[A-Za-z0-9_-]+")


def resolve(tx: Tx, ref: str, *, profile: str) -> SessionHead:
    """An exact id; a unique prefix of one; an exact title; a title's latest numbered continuation."""
    if not ref.strip():
        raise BadInput("Name a session: its id, the beginning of its id, or its title.")
    ref = codec.storable_text(ref)
    head = sessions.get(tx, ref, profile=profile)
    if head is not None:
        return head
    found = _by_beginning(tx, ref, profile=profile) or _by_title(tx, ref, profile=profile)
    head = None if found is None else sessions.get(tx, found, profile=profile)
    if head is None:
        is_purged = tx.one("purged_at", id=ref, profile=profile) is not None
        raise refusals.missing(tx, ref, profile=profile) if is_purged else not_called(ref)
    return head


def not_called(ref: str) -> NotFound:
    """Say that there is no such session; whoever may not see one is told the same."""
    return NotFound(
        f"No session is called {ref!r}, by id or by title. Lists and searches show ids."
    )


def _by_beginning(tx: Tx, ref: str, *, profile: str) -> str | None:
    return by_prefix(tx, ref, profile=profile) if _ID_LIKE.fullmatch(ref) else None


def by_prefix(tx: Tx, text: str, *, profile: str) -> str | None:
    """The only id that begins so; None when there is none, and several are refused."""
    ref = codec.storable_text(text)
    rows = tx.all(
        "ids_by_prefix", profile=profile, first=ref, beyond=ref + "\U0010ffff", limit=_SHOWN
    )
    if len(rows) > 1:
        names = [f"{id} ({title})" if title else id for id, title in rows]
        more = "" if len(rows) < _SHOWN else " and more"
        raise Ambiguous(
            f"{ref!r} is the beginning of several ids: {', '.join(names)}{more}.",
            [r[0] for r in rows],
        )
    return rows[0][0] if rows else None


def _by_title(tx: Tx, ref: str, *, profile: str) -> str | None:
    exact = tx.one("id_by_title", profile=profile, title=ref)
    if exact is not None:
        return str(exact[0])
    numbered = [
        (number, title)
        for title in titles.highest(tx, ref, profile=profile)
        if (number := matches_continuation(ref, title)) is not None
    ]
    latest = tx.one("id_by_title", profile=profile, title=max(numbered)[1]) if numbered else None
    return None if latest is None else str(latest[0])
