"""The engine: its loops, each supervised by itself, and how they stop."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from sessionary.engine.context import EngineContext
from sessionary.engine.intake import Intake, Received, SubmissionResult
from sessionary.engine.outbox import Outbox, PlatformServices, TurnStatusDisplay
from sessionary.engine.ports import Adapter, Sender
from sessionary.engine.scheduler import Scheduler
from sessionary.engine.sweeper import Sweeper
from sessionary.engine.turn.compaction import Compactor
from sessionary.engine.turn.loop import TurnLoop
from sessionary.errors import NotAllowed, RetryLater
from sessionary.model.message import Message
from sessionary.model.push import PLATFORM as PUSH
from sessionary.model.source import SessionKey, Source

STOP_SECONDS = 7.0
# The part of it that compactions have left once they are cancelled.
LAST_SECONDS = 1.0
CLOSE_SECONDS = 1.0
# Most servers notify no browser, and what this process asks is sent at once: so much less often it looks for more.
PUSH_POLLS = 5
# A loop that ran this long before it failed is restarted without a longer pause.
HEALTHY_SECONDS = 120.0
log = logging.getLogger(__name__)


class Engine:
    """Runs intake, turns, outbox, sweeps and schedules; several may run on one database."""

    def __init__(self, context: EngineContext) -> None:
        self.context = context
        self.compactor = Compactor(context)
        self._outbox = Outbox(context, context.adapters)
        # It has a loop of its own: a delivery to a chat must not cost a look at those to browsers.
        self._push = (
            None
            if context.push is None
            else Outbox(
                context,
                {PUSH: context.push},
                poll_seconds=context.settings.poll_seconds * PUSH_POLLS,
            )
        )
        self.scheduler = Scheduler(context)
        self.turns = TurnLoop(context, self._outbox, self.scheduler.resume)
        self.intake = Intake(context, self.turns, self.compactor)
        self.sweeper = Sweeper(context, self.turns.take_over)
        self.turn_status = TurnStatusDisplay(context)
        self.states: dict[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(
        self, *, only: Collection[SessionKey] | None = None, hands_over: bool = False
    ) -> None:
        """Start all loops; with `only` those that answering some conversations needs.

        These are read in each round: more may be added. Their turns end with this process, unless it `hands_over`.
        """
        self.turns.only = only
        self.turns.hands_over = hands_over
        loops: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("turns", self.turns.run),
            ("outbox", self._outbox.run),
            ("sweeper", self.sweeper.run),
        ]
        if self._push is not None:
            loops.append(("push", self._push.run))
        if only is None:
            loops.append(("scheduler", self.scheduler.run))
        if self.turn_status.is_wanted:
            loops.append(("showing", self.turn_status.run))
        loops += [
            (f"channel {name}", self._channel_loop(adapter))
            for name, adapter in self.context.adapters.items()
        ]
        self._tasks = [asyncio.create_task(self._supervise(name, run)) for name, run in loops]

    async def stop(self) -> None:
        """Stop the intake, let running turns end or be interrupted, then close what sends."""
        for task in self._tasks:
            task.cancel()
        until = time.monotonic() + STOP_SECONDS
        ending: list[asyncio.Task[Any]] = [*self._tasks, *self.compactor.running]
        if ending:
            await asyncio.wait(ending, timeout=STOP_SECONDS - LAST_SECONDS)
        for compaction in self.compactor.running:
            compaction.cancel()  # the person who asked for it is told that it was not done
        await _wait_for(ending, seconds=max(0.0, until - time.monotonic()))
        await self.turns.finish(seconds=max(0.0, until - time.monotonic()))
        await self._outbox.finish(seconds=max(0.0, until - time.monotonic()))
        if self._push is not None:
            await self._push.finish(seconds=max(0.0, until - time.monotonic()))
        senders: list[Sender] = [*self.context.adapters.values()]
        if self.context.push is not None:
            senders.append(self.context.push)
        closing = [asyncio.create_task(each.close()) for each in senders]
        await _wait_for(closing, seconds=CLOSE_SECONDS)

    async def receive(
        self,
        source: Source,
        message: Message,
        *,
        idempotency_key: str | None = None,
        files: Sequence[bytes] = (),
    ) -> Received:
        """Store a message, with the bytes of its attachments; durable when this returns."""
        return await self.intake.receive(
            source, message, idempotency_key=idempotency_key, files=files
        )

    def run_submitted(self, result: SubmissionResult) -> None:
        """After the commit of a submission: run the turn that began with it, or its compaction."""
        if result.received.compaction is not None:
            self.compactor.start(result.received.compaction)
        self.turns.run_started(result.key, result.start)
        self.turns.wake()

    def _channel_loop(self, adapter: Adapter) -> Callable[[], Awaitable[None]]:
        adapter.attach(PlatformServices(self.context, adapter.platform))
        return lambda: adapter.run(self.intake)

    async def _supervise(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Restart a loop that fails, with growing pauses; one whose credentials are refused stays stopped."""
        pause = 1.0
        while True:
            self.states[name] = "running"
            began = time.monotonic()
            error = await _run_to_end(run)
            if time.monotonic() - began > HEALTHY_SECONDS:
                pause = 1.0
            match error:
                case None:
                    self.states[name] = "ended"
                    return
                case NotAllowed():
                    self.states[name] = f"stopped: {error}"
                    log.error("%s is stopped: %s", name, error)
                    return
                case RetryLater():
                    self.states[name] = f"waiting: {error}"
                    await asyncio.sleep(min(error.after, 300))
                case _:
                    self.states[name] = f"failed: {type(error).__name__}: {error}"
                    log.error(
                        "%s failed; it is started again in %.0f s", name, pause, exc_info=error
                    )
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, 60)


async def _wait_for(tasks: Sequence["asyncio.Task[Any]"], *, seconds: float) -> None:
    """Wait for tasks up to a limit; log those that failed or are late."""
    if not tasks:
        return
    done, late = await asyncio.wait(tasks, timeout=seconds)
    for task in done:
        if not task.cancelled() and task.exception() is not None:
            log.warning("something failed while stopping", exc_info=task.exception())
    if late:
        log.warning("%d tasks did not end within %.0f s; they are left", len(late), seconds)


async def _run_to_end(run: Callable[[], Awaitable[None]]) -> BaseException | None:
    """Run a loop; return the error it ended with, or None."""
    task = asyncio.ensure_future(run())
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
    if task.cancelled():
        return RuntimeError("it was cancelled from within")
    return task.exception()
