"""What changed, in order: read on from the last position that was seen."""

from dataclasses import dataclass

from sessionary.store.database import Tx

PAGE = 500


@dataclass(frozen=True, slots=True)
class FeedChange:
    """One line of the feed. A purged session has no profile to show any more."""

    position: int
    session_no: int
    seq: int
    what: str
    session_id: str | None
    profile: str | None


def last_position(tx: Tx) -> int:
    """Where the feed ends now."""
    row = tx.one("last_position")
    return 0 if row is None else int(row[0])


def read_on(tx: Tx, after: int, *, limit: int = PAGE) -> list[FeedChange]:
    """What changed after a position, of every profile; the caller shows only its own."""
    return [FeedChange(*row) for row in tx.all("read_feed", after=after, limit=limit)]
