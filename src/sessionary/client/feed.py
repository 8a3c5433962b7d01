"""Reading a page of the feed with what a subscriber wants to know of each change."""

import logging
from dataclasses import dataclass, replace
from typing import Literal

from sessionary.actions.feed import FeedProgress
from sessionary.actions.sessions import read
from sessionary.client.values import Change
from sessionary.errors import Damaged, NotFound
from sessionary.model.message import Entry
from sessionary.model.session import Segment, SessionHead
from sessionary.store.database import Tx
from sessionary.store.tables import entries
from sessionary.store.tables.entries import FeedChange, last_position

__all__ = ["POLL_SECONDS", "FeedStep", "last_position", "read_steps"]
# How often the feed is read for changes of other processes; those of this one are noticed at once.
POLL_SECONDS = 1.0
_KINDS: dict[str, Literal["entry", "head", "turn"]] = {
    "entry": "entry",
    "head": "head",
    "turn": "turn",
}
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FeedStep:
    """A row of the feed, and the change that a subscriber is given; None if it is not for them."""

    feed: FeedChange
    change: Change | None

    def at(self, position: int) -> Change:
        """Return the change with the position to resume from."""
        assert self.change is not None
        return replace(self.change, position=position)


def read_steps(
    tx: Tx, progress: FeedProgress, *, profile: str, session_id: str | None
) -> list[FeedStep]:
    """Return the next rows of the feed, each with the change that it means for this subscriber."""
    heads: dict[str, SessionHead | None] = {}
    steps = []
    for row in progress.read(tx):
        change = None
        if (
            row.profile == profile
            and row.session_id is not None
            and row.what in _KINDS
            and session_id in (None, row.session_id)
        ):
            if row.session_id not in heads:
                heads[row.session_id] = _head(tx, row.session_id, profile=profile)
            entry = _entry(tx, row, row.session_id) if row.what == "entry" else None
            change = Change(
                row.position, _KINDS[row.what], row.session_id, heads[row.session_id], entry
            )
        steps.append(FeedStep(row, change))
    return steps


def _head(tx: Tx, id: str, *, profile: str) -> SessionHead | None:
    try:
        return read.get_head(tx, id, profile=profile)
    except NotFound:
        return None  # purged meanwhile


def _entry(tx: Tx, row: FeedChange, id: str) -> Entry | None:
    try:
        found = entries.read(tx, Segment(row.session_no, id, row.seq, row.seq))
    except NotFound:
        return None  # purged meanwhile
    except Damaged as error:
        # One unreadable entry must not hold up those after it.
        log.warning("A subscription skips an entry: %s", error)
        return None
    return found[0] if found else None
