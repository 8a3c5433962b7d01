"""Reading the feed on from a position, so that nothing is passed over."""

import time
from collections.abc import Callable, Iterable, Sequence

from sessionary.store.database import Store, Tx
from sessionary.store.tables import entries
from sessionary.store.tables.entries import FeedChange

HOLE_SECONDS = 10.0
FAR_BEHIND = 5000


class FeedReader:
    """Gives each change until it is marked as sent.

    `position` is what a client may resume from: it stays below every change that was not sent yet.
    PostgreSQL numbers changes before they are committed: a lower number may appear later. A
    number that is missing is a hole, looked at again for a while; `position` stays below it too, so
    that whoever resumes there misses nothing and sees a few changes twice.
    """

    def __init__(
        self, store: Store, position: int, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._monotonic = monotonic
        self._last = position
        self._holes: dict[int, float] = {}
        self._unsent: dict[int, FeedChange] = {}  # by position, in order

    @property
    def position(self) -> int:
        """Up to here everything was sent."""
        return min(next(iter(self._unsent), self._last + 1), self._below_holes + 1) - 1

    @property
    def _below_holes(self) -> int:
        return min(self._holes, default=self._last + 1) - 1

    async def is_out_of_range(self) -> bool:
        """Whether the position is not of this feed, or so far back that a fresh look is cheaper."""
        last = await self._store.read(entries.last_position)
        return self._last > last or last - self._last > FAR_BEHIND

    async def jump(self) -> None:
        """Go to the end of the feed."""
        self._last = await self._store.read(entries.last_position)
        self._holes.clear()
        self._unsent.clear()

    async def unsent(self) -> list[FeedChange]:
        """The changes that were not sent yet, in order; the feed is read on when all were sent."""
        if not self._unsent:
            found = await self._store.read(_read, self._last, self._ranges_of_holes())
            fresh = [each for each in found if each.position > self._last]
            late = [each for each in found if each.position in self._holes]
            self._forget_holes(late)
            for each in fresh:
                for missing in range(self._last + 1, each.position):
                    self._holes[missing] = self._monotonic()
                self._last = each.position
            self._unsent = {each.position: each for each in [*late, *fresh]}
        return list(self._unsent.values())

    def mark_sent(self, changes: Iterable[FeedChange]) -> None:
        """These changes need not be given again: they were sent, or nobody here wants them."""
        for each in changes:
            del self._unsent[each.position]

    def _ranges_of_holes(self) -> list[tuple[int, int]]:
        """The first and the last number of each row of holes."""
        ranges: list[tuple[int, int]] = []
        for hole in sorted(self._holes):
            if ranges and ranges[-1][1] == hole - 1:
                ranges[-1] = (ranges[-1][0], hole)
            else:
                ranges.append((hole, hole))
        return ranges

    def _forget_holes(self, late: list[FeedChange]) -> None:
        for each in late:
            del self._holes[each.position]
        # A number whose transaction was rolled back never comes.
        now = self._monotonic()
        for missing in [hole for hole, at in self._holes.items() if now - at > HOLE_SECONDS]:
            del self._holes[missing]


def _read(tx: Tx, last: int, holes: Sequence[tuple[int, int]]) -> list[FeedChange]:
    """What has come at the holes, in order, and then what comes after the last number.

    Each is looked up by itself: a page that begins at the oldest hole might end before the others.
    """
    found: list[FeedChange] = []
    for first, end in holes:
        there = entries.read_feed(tx, first - 1, limit=end - first + 1)
        found += [each for each in there if each.position <= end]
    return found + entries.read_feed(tx, last)
