"""Reading the feed of changes in order, although PostgreSQL may show a lower number after a higher one."""

import time
from collections.abc import Callable, Iterable, Sequence

from sessionary.store.database import Tx
from sessionary.store.tables import entries
from sessionary.store.tables.entries import FeedChange

HOLE_SECONDS = 10.0
# How many transactions may be open at once, generously.
MOST_HOLES = 10_000


class FeedProgress:
    """How far a reader has come in the feed: what it was given, and what may still come late.

    `position` is what a reader may resume from: it stays below every change that was not handled yet.
    PostgreSQL numbers changes before they are committed: a lower number may appear later. A
    number that is missing is a hole, looked at again for a while; `position` stays below it too, so
    that a reader that resumes there misses nothing and sees a few changes twice.
    """

    def __init__(self, position: int, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._last = position
        self._holes: dict[int, float] = {}
        self._pending: dict[int, FeedChange] = {}  # by position, in order

    @property
    def position(self) -> int:
        """Up to here everything was handled."""
        below_holes = min(self._holes, default=self._last + 1)
        return min(next(iter(self._pending), self._last + 1), below_holes) - 1

    @property
    def last(self) -> int:
        """The highest position that was read."""
        return self._last

    @property
    def pending(self) -> list[FeedChange]:
        """The changes that were read and not handled yet, in order."""
        return list(self._pending.values())

    def jump(self, position: int) -> None:
        """Go on from another position, and forget what is pending."""
        self._last = position
        self._holes.clear()
        self._pending.clear()

    def read(self, tx: Tx) -> list[FeedChange]:
        """Return what has come at the holes, in order, and then what comes after the last number.

        Each is looked up by itself: a page that begins at the oldest hole might end before the others.
        """
        return read_changes(tx, self._last, self._ranges_of_holes())

    def add(self, found: Sequence[FeedChange]) -> None:
        """Take in what `read` returned."""
        fresh = [each for each in found if each.position > self._last]
        late = [each for each in found if each.position in self._holes]
        self._forget_holes(late)
        for each in fresh:
            # A larger gap is no transaction that is still open: those rows were deleted.
            for missing in range(max(self._last + 1, each.position - MOST_HOLES), each.position):
                self._holes[missing] = self._monotonic()
            self._last = each.position
        self._pending.update({each.position: each for each in [*late, *fresh]})

    def mark_handled(self, changes: Iterable[FeedChange]) -> None:
        """Mark changes as done: they were given out, or nobody here wants them."""
        for each in changes:
            del self._pending[each.position]

    def _ranges_of_holes(self) -> list[tuple[int, int]]:
        """The first and the last number of each row of holes."""
        ranges: list[tuple[int, int]] = []
        for hole in sorted(self._holes):
            if ranges and ranges[-1][1] == hole - 1:
                ranges[-1] = (ranges[-1][0], hole)
            else:
                ranges.append((hole, hole))
        return ranges

    def _forget_holes(self, late: Sequence[FeedChange]) -> None:
        for each in late:
            del self._holes[each.position]
        # A number whose transaction was rolled back never comes.
        now = self._monotonic()
        for missing in [hole for hole, at in self._holes.items() if now - at > HOLE_SECONDS]:
            del self._holes[missing]


def read_changes(tx: Tx, last: int, holes: Sequence[tuple[int, int]]) -> list[FeedChange]:
    """Return the changes at these holes, and then a page of those after the last number."""
    found: list[FeedChange] = []
    for first, end in holes:
        there = entries.read_feed(tx, first - 1, limit=end - first + 1)
        found += [each for each in there if each.position <= end]
    return found + entries.read_feed(tx, last)
