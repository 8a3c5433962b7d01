"""Keeping a lease alive, and noticing when it is lost or when someone wants the turn to stop."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from sessionary.actions import turns
from sessionary.engine.context import EngineContext
from sessionary.errors import RetryLater, StoreUnavailable, TurnLost
from sessionary.model.turn import Lease
from sessionary.store.database import Tx

CHECKPOINT_SECONDS = 1.0


@asynccontextmanager
async def kept(
    context: EngineContext,
    lease: Lease,
    work: "asyncio.Task[None]",
    settle: Callable[[], Awaitable[None]],
) -> AsyncIterator["LeaseHeartbeat"]:
    """Renew a lease while work runs; cancel the work when it is lost or a stop is asked for.

    `settle` is called at least every second: it makes durable what was said until then.
    """
    heartbeat = LeaseHeartbeat(context, lease, work, settle)
    try:
        yield heartbeat
    finally:
        await heartbeat.close()


class LeaseHeartbeat:
    """Looks around at least every second; renews every third of the lease."""

    def __init__(
        self,
        context: EngineContext,
        lease: Lease,
        work: "asyncio.Task[None]",
        settle: Callable[[], Awaitable[None]],
    ) -> None:
        self._context = context
        self._lease = lease
        self._work = work
        self._settle = settle
        self._event = asyncio.Event()
        self._closing = False
        settings = context.settings
        pause = min(settings.lease_seconds / 3, max(settings.poll_seconds, 0.01))
        self._pause = min(pause, CHECKPOINT_SECONDS)
        # Many a turn is over before the first look is due.
        self._timer = asyncio.get_running_loop().call_later(self._pause, self._begin)
        self._task: asyncio.Task[None] | None = None
        self._renewed = time.monotonic(), context.clock.now()
        self.lost = False
        self.stop: str | None = None
        self.error: BaseException | None = None

    def look(self) -> None:
        """Look around now: someone may want the turn to stop."""
        self._begin()
        self._event.set()

    async def close(self) -> None:
        """There is nothing to keep any more."""
        self._timer.cancel()
        self._closing = True
        self._event.set()
        if self._task is not None:
            # Never cancelled: a write that is under way must not overtake the end of the turn.
            await asyncio.gather(self._task, return_exceptions=True)

    def ask_to_stop(self, reason: str) -> None:
        """Stop the work, as if someone had asked for it in the store."""
        self.stop = self.stop or reason
        self._work.cancel()

    def _begin(self) -> None:
        self._timer.cancel()
        if self._task is None and not self._closing:
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._ended)

    async def _run(self) -> None:
        """Go on until closed, or until there is nothing left to keep."""
        while not self._closing:
            self._event.clear()
            # While the store does not answer the lease may run out; the next renewal says so.
            with suppress(RetryLater, StoreUnavailable):
                await self._look_around()
            if self.lost or self.stop is not None:
                self._work.cancel()
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause):
                    await self._event.wait()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """What could not be kept cannot go on."""
        if not task.cancelled() and task.exception() is not None:
            self.error = task.exception()
            self._work.cancel()

    async def _look_around(self) -> None:
        try:
            await self._renew()
        except TurnLost:
            self.lost = True

    async def _renew(self) -> None:
        await self._settle()
        store, seconds = self._context.store, self._context.settings.lease_seconds
        if self._is_renewal_due(seconds / 3):
            asked = await store.write(_renew, self._lease, seconds=seconds, context=self._context)
            self._renewed = time.monotonic(), self._context.clock.now()
        else:
            asked = await store.read(turns.stop_asked, self._lease)
        # Someone in this process may have asked meanwhile; that must not be forgotten.
        self.stop = self.stop or asked

    def _is_renewal_due(self, seconds: float) -> bool:
        # By both clocks: others judge by the wall clock, and that may have been set forward.
        moment, at = self._renewed
        return (
            time.monotonic() - moment >= seconds
            or abs((self._context.clock.now() - at).total_seconds()) >= seconds
        )


def _renew(tx: Tx, lease: Lease, *, seconds: float, context: EngineContext) -> str | None:
    turns.renew(tx, lease, seconds=seconds, now=context.clock.now())
    return turns.stop_asked(tx, lease)
