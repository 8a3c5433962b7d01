"""The feed: one row per change, read by the index and by live views."""

from dataclasses import dataclass
from typing import Literal

from sessionary.store.database import Tx

PAGE = 500


@dataclass(frozen=True, slots=True)
class FeedChange:
    """One row of the feed. A purged session has no profile to show any more."""

    position: int
    session_no: int
    seq: int
    what: str
    session_id: str | None
    profile: str | None


def insert(
    tx: Tx, session_no: int, what: Literal["entry", "head", "turn"], *, seq: int = 0
) -> None:
    """Note that an entry, the head or a turn of a session is new."""
    tx.run("insert_feed", session_no=session_no, seq=seq, what=what)


def last_position(tx: Tx) -> int:
    """Return where the feed ends now."""
    row = tx.one("last_position")
    return 0 if row is None else int(row[0])


def read(tx: Tx, after: int, *, limit: int = PAGE) -> list[FeedChange]:
    """Return what changed after a position, in every profile; the caller shows only its own."""
    return [FeedChange(*row) for row in tx.all("read_feed", after=after, limit=limit)]
