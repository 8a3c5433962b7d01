"""The engine: all loops together, supervised one by one, stopped in order."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sessionary.engine.asking import Accepted
from sessionary.engine.commands import FollowUp
from sessionary.engine.compaction import Compactor
from sessionary.engine.context import EngineContext
from sessionary.engine.desk import PlatformServices
from sessionary.engine.entrance import Entrance
from sessionary.engine.intake import Intake, Received
from sessionary.engine.loop import TurnLoop
from sessionary.engine.outbox import Outbox
from sessionary.engine.ports import Adapter
from sessionary.engine.scheduler import Scheduler
from sessionary.engine.showing import Showing
from sessionary.engine.sweeper import Sweeper
from sessionary.errors import NotAllowed, RetryLater
from sessionary.model.entry import Message
from sessionary.model.key import SessionKey
from sessionary.model.source import Source

STOP_SECONDS = 7.0
LAST_SECONDS = 1.0
CLOSE_SECONDS = 1.0
LONG_ENOUGH_SECONDS = 120.0
log = logging.getLogger("sessionary.engine")


class Engine:
    """Runs intake, turns, outbox, sweeps and schedules; several may run on one database."""

    def __init__(self, context: EngineContext) -> None:
        self.context = context
        self.compactor = Compactor(context)
        self.turns = TurnLoop(context, self.compactor)
        self.intake = Intake(context, self.turns)
        self.scheduler = Scheduler(context)
        self.sweeper = Sweeper(context)
        self.showing = Showing(context)
        self.states: dict[str, str] = {}
        self._outbox = Outbox(context)
        self._tasks: list[asyncio.Task[None]] = []
        self._follow_ups: set[asyncio.Task[None]] = set()

    async def start(self, *, only: SessionKey | None = None) -> None:
        """Begin all loops; with `only` those that it takes to answer one conversation."""
        self.turns.only = only
        loops: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("turns", self.turns.run),
            ("outbox", self._outbox.run),
            ("sweeper", self.sweeper.run),
        ]
        if only is None:
            loops.append(("scheduler", self.scheduler.run))
        if self.showing.is_wanted:
            loops.append(("showing", self.showing.run))
        loops += [
            (f"channel {name}", self._channel(adapter))
            for name, adapter in self.context.adapters.items()
        ]
        self._tasks = [asyncio.create_task(self._supervise(name, run)) for name, run in loops]

    async def stop(self) -> None:
        """Stop intake, finish or park turns, let go of channels and agents."""
        for task in self._tasks:
            task.cancel()
        until = time.monotonic() + STOP_SECONDS
        ending = [*self._tasks, *self._follow_ups]
        if ending:
            await asyncio.wait(ending, timeout=STOP_SECONDS - LAST_SECONDS)
        for task in self._follow_ups:
            task.cancel()  # whoever asked for it is told that it was not done
        rest = max(0.0, until - time.monotonic())
        await _within(rest, ending)
        await self.turns.finish(seconds=max(0.0, until - time.monotonic()))
        closing = [adapter.close() for adapter in self.context.adapters.values()]
        await _within(CLOSE_SECONDS, [asyncio.create_task(each) for each in closing])

    async def receive(
        self,
        source: Source,
        said: Message,
        *,
        idempotency_key: str | None = None,
        files: Sequence[bytes] = (),
    ) -> Received:
        """Take a message in, with the bytes of its attachments; durable when this returns."""
        received = await self.intake.receive(
            source, said, idempotency_key=idempotency_key, files=files
        )
        self._follow_up(received)
        return received

    def carry_on(self, accepted: Accepted) -> None:
        """Do what follows once a message is accepted: run its turn, or its command."""
        self._follow_up(accepted.received)
        self.turns.take(accepted.key, accepted.beginning)
        self.turns.wake()

    def _follow_up(self, received: Received) -> None:
        if received.follow_up is not None:
            task = asyncio.create_task(self._follow(received.follow_up))
            self._follow_ups.add(task)
            task.add_done_callback(self._followed)

    def _followed(self, task: "asyncio.Task[None]") -> None:
        self._follow_ups.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("what a command began was not finished", exc_info=task.exception())

    async def _follow(self, follow_up: FollowUp) -> None:
        if follow_up.kind == "compact":
            await self.compactor.compact(
                follow_up.session_id, focus=follow_up.text, tell=follow_up.source
            )

    def _channel(self, adapter: Adapter) -> Callable[[], Awaitable[None]]:
        receive = Entrance(self.context, self.receive)
        attach = getattr(adapter, "attach", None)
        if attach is not None:
            attach(PlatformServices(self.context, adapter.platform))
        return lambda: adapter.run(receive)

    async def _supervise(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a loop again when it fails, later each time; a refused key parks it visibly."""
        pause = 1.0
        while True:
            self.states[name] = "running"
            began = time.monotonic()
            error = await _outcome(run)
            if time.monotonic() - began > LONG_ENOUGH_SECONDS:
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


async def _within(seconds: float, tasks: Sequence["asyncio.Task[Any]"]) -> None:
    """Wait until they have ended, but no longer than that; tell what failed."""
    if not tasks:
        return
    done, late = await asyncio.wait(tasks, timeout=seconds)
    for task in done:
        if not task.cancelled() and task.exception() is not None:
            log.warning("something failed while stopping", exc_info=task.exception())
    if late:
        log.warning("%d tasks did not end within %.0f s; they are left", len(late), seconds)


async def _outcome(run: Callable[[], Awaitable[None]]) -> BaseException | None:
    """Run a loop to its end; the error it ended with, or None. Other loops go on."""
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
