"""Prune: purge what ended long ago, a session at a time; first say what would go."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from sessionary.actions import purge
from sessionary.actions.sessions import lock_session
from sessionary.clock import Moment
from sessionary.errors import NotFound
from sessionary.store.database import Store, Tx

PAGE = 200


@dataclass(frozen=True, slots=True)
class Prunable:
    """A session that may go, and what it holds of its own."""

    session_id: str
    entries: int
    size: int


def look(
    store: Store, *, profile: str, before: datetime, platform: str | None = None
) -> Iterator[Prunable]:
    """The sessions that ended before a time; open and pinned ones are never among them."""
    after = 0
    while page := store.read(
        _page, profile=profile, before=before, platform=platform, after=after
    ).result():
        for no, found in page:
            after = no
            yield found


def prune_one(
    tx: Tx, session_id: str, *, profile: str, before: datetime, moment: Moment
) -> purge.Purged | None:
    """Purge a session if it is still over since before that time; it may have been reopened."""
    try:
        head = lock_session(tx, session_id, profile=profile)
    except NotFound:
        return None
    if head.ended_at is None or head.ended_at >= before or head.pinned or head.running:
        return None
    return purge.purge(tx, session_id, profile=profile, moment=moment)


def _page(
    tx: Tx, *, profile: str, before: datetime, platform: str | None, after: int
) -> list[tuple[int, Prunable]]:
    rows = purge.prunable(
        tx, profile=profile, before=before, platform=platform, limit=PAGE, after=after
    )
    return [(no, Prunable(name, *purge.size(tx, no))) for no, name in rows]
