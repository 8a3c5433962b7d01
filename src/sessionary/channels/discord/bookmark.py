"""How far Discord was read. It offers nothing twice to a bot that was away: we ask for it."""

import time
from collections import OrderedDict

from sessionary.engine.ports import DeliveryServices

# It is kept in the store now and then: what is read twice is recognised by its id.
KEEP_SECONDS = 30.0
# Messages of different channels may overtake each other by so much: a minute, in Discord's ids.
OVERLAP = 60_000 << 22
_MOST_TAKEN = 5000


class Bookmark:
    """The id of the latest message that was taken in. Discord's ids grow with time, everywhere."""

    def __init__(self) -> None:
        self.desk: DeliveryServices | None = None
        self._latest = 0
        self._at = 0
        self._kept = 0
        self._kept_at = float("-inf")
        self._taken: OrderedDict[str, None] = OrderedDict()

    def has_taken(self, id: str) -> bool:
        """Whether a message was taken in lately by this process."""
        return id in self._taken

    async def begin(self) -> int | None:
        """After which id to read again; None for who has never read."""
        if self._at == 0 and self.desk is not None:
            kept = await self.desk.place()
            self._at = self._kept = int(kept) if kept is not None and kept.isdigit() else 0
        return max(0, self._at - OVERLAP) if self._at else None

    def note(self, id: str) -> None:
        """This message was taken in."""
        self._taken[id] = None
        if len(self._taken) > _MOST_TAKEN:
            self._taken.popitem(last=False)
        self._latest = max(self._latest, int(id))

    async def move(self) -> None:
        """All up to the latest that was noted were taken in."""
        self._at = max(self._at, self._latest)
        if time.monotonic() - self._kept_at >= KEEP_SECONDS:
            await self.keep()

    async def keep(self) -> None:
        """Put it into the store."""
        if self.desk is not None and self._at != self._kept:
            await self.desk.keep_place(str(self._at))
            self._kept, self._kept_at = self._at, time.monotonic()
