"""Keeping a lease alive, and noticing when it is lost or when someone wants the turn to stop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hansard.actions import turns
from hansard.engine.parts import Parts
from hansard.errors import RetryLater, StoreUnavailable, TurnLost
from hansard.model.turn import Lease
from hansard.store.database import Tx


class Stopped(Exception):
    """Someone asked this turn to stop."""


@asynccontextmanager
async def kept(parts: Parts, lease: Lease, work: "asyncio.Task[None]") -> AsyncIterator["Keeper"]:
    """Renew a lease while work runs; cancel the work when it is lost or a stop is asked for."""
    keeper = Keeper(parts, lease, work)
    task = asyncio.create_task(keeper.run())
    try:
        yield keeper
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Keeper:
    """Renews every third of the lease; looks for a stop more often."""

    def __init__(self, parts: Parts, lease: Lease, work: "asyncio.Task[None]") -> None:
        self._parts = parts
        self._lease = lease
        self._work = work
        self.lost = False
        self.stop: str | None = None

    async def run(self) -> None:
        """Go on until cancelled, or until there is nothing left to keep."""
        seconds = self._parts.settings.lease_seconds
        pause = min(seconds / 3, max(self._parts.settings.poll_seconds, 0.05))
        while True:
            await asyncio.sleep(pause)
            try:
                self.stop = await self._parts.store.write(
                    _renew, self._lease, seconds=seconds, parts=self._parts
                )
            except TurnLost:
                self.lost = True
            except (RetryLater, StoreUnavailable):
                continue  # the lease may run out; then the next renewal says so
            if self.lost or self.stop is not None:
                self._work.cancel()
                return


def _renew(tx: Tx, lease: Lease, *, seconds: float, parts: Parts) -> str | None:
    turns.renew(tx, lease, seconds=seconds, now=parts.clock.now())
    return turns.stop_asked(tx, lease)
