"""The heartbeat of a turn's lease."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from sessionary.actions import turns
from sessionary.engine.context import EngineContext
from sessionary.errors import RetryLater, StoreUnavailable, TurnLost
from sessionary.model.turn import Lease
from sessionary.store.database import Tx

CHECKPOINT_SECONDS = 1.0
log = logging.getLogger(__name__)


class LeaseHeartbeat:
    """Renews a lease while `work` runs, and cancels it when the lease is lost or a stop is requested.

    At least every second it calls `checkpoint`, which makes durable what the agent has said, and reads whether a stop
    was requested; it renews after each third of the lease. Use it as an asynchronous context manager.
    """

    def __init__(
        self,
        context: EngineContext,
        lease: Lease,
        work: "asyncio.Task[None]",
        checkpoint: Callable[[], Awaitable[None]],
    ) -> None:
        self._context = context
        self._lease = lease
        self._work = work
        self._checkpoint = checkpoint
        self._event = asyncio.Event()
        self._closing = False
        settings = context.settings
        pause = min(settings.lease_seconds / 3, max(settings.poll_seconds, 0.01))
        self._pause = min(pause, CHECKPOINT_SECONDS)
        # Many turns are over before the first check is due.
        self._timer = asyncio.get_running_loop().call_later(self._pause, self._start)
        self._task: asyncio.Task[None] | None = None
        self._renewed = time.monotonic(), context.clock.now()
        self.lost = False
        self.stop: str | None = None
        self.error: BaseException | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close()

    def check_now(self) -> None:
        """Check now whether a stop was requested."""
        self._start()
        self._event.set()

    async def _close(self) -> None:
        self._timer.cancel()
        self._closing = True
        self._event.set()
        if self._task is not None:
            # Never cancelled: a write that is under way must not overtake the end of the turn.
            await asyncio.gather(self._task, return_exceptions=True)

    def request_stop(self, reason: str) -> None:
        """Cancel the work, as if the stop had been requested in the store."""
        self.stop = self.stop or reason
        self._work.cancel()

    def _start(self) -> None:
        self._timer.cancel()
        if self._task is None and not self._closing:
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._ended)

    async def _run(self) -> None:
        """Check and renew until closed, or until the work is cancelled."""
        while not self._closing:
            self._event.clear()
            try:
                await self._check()
            except TurnLost:
                log.warning("turn %s has lost its lease", self._lease.turn_id)
                self.lost = True
            except (RetryLater, StoreUnavailable) as error:
                # The lease may run out meanwhile; the next renewal says so.
                log.warning("turn %s cannot renew its lease: %s", self._lease.turn_id, error)
            if self.lost or self.stop is not None:
                self._work.cancel()
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause):
                    await self._event.wait()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Cancel the work if the heartbeat itself failed: nothing renews its lease any more."""
        if not task.cancelled() and task.exception() is not None:
            self.error = task.exception()
            self._work.cancel()

    async def _check(self) -> None:
        await self._checkpoint()
        store, seconds = self._context.store, self._context.settings.lease_seconds
        if self._is_renewal_due(seconds / 3):
            stop = await store.write(_renew, self._lease, seconds=seconds, context=self._context)
            self._renewed = time.monotonic(), self._context.clock.now()
        else:
            stop = await store.read(turns.stop_asked, self._lease)
        # A stop that this process requested meanwhile stays.
        self.stop = self.stop or stop

    def _is_renewal_due(self, seconds: float) -> bool:
        # By both clocks: other processes judge by the wall clock, which may have been set forward.
        started, at = self._renewed
        return (
            time.monotonic() - started >= seconds
            or abs((self._context.clock.now() - at).total_seconds()) >= seconds
        )


def _renew(tx: Tx, lease: Lease, *, seconds: float, context: EngineContext) -> str | None:
    turns.renew(tx, lease, seconds=seconds, now=context.clock.now())
    return turns.stop_asked(tx, lease)
