"""The loop for what is due by time: dead turns, expired sessions, finalizers, the trash."""

import asyncio
import importlib
import inspect
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from sessionary.actions import files, schedules, sweep
from sessionary.clock import Moment
from sessionary.engine import notices, questions, scheduler
from sessionary.engine.context import EngineContext
from sessionary.engine.outbox import CLAIM_FACTOR
from sessionary.errors import BadInput, RetryLater, StoreUnavailable
from sessionary.processes import has_ended
from sessionary.store.database import Tx
from sessionary.store.tables.sessions import EndedSession

FINALIZER_SECONDS = 60.0
CHECK_CLOCK_SECONDS = 60.0
log = logging.getLogger(__name__)
T = TypeVar("T")


class Sweeper:
    """Finds dead turns, ends expired sessions and runs their finalizers, empties the trash."""

    def __init__(
        self, context: EngineContext, take_over: Callable[[Iterable[str]], Awaitable[None]]
    ) -> None:
        """`take_over` continues turns whose process died, or interrupts them."""
        self._context = context
        self._take_over = take_over
        # Turns whose lease has run out, and since when we know it.
        self._suspects: dict[str, float] = {}
        self._is_first = True
        self._seen_at: datetime | None = None
        self._check_clock_at = 0.0
        self._finalizing: asyncio.Task[None] | None = None
        self._finalizer = (
            None if context.settings.finalizer is None else load(context.settings.finalizer)
        )

    async def run(self) -> None:
        """Sweep until cancelled; a finalizer that is interrupted then runs again after the next start."""
        try:
            await self._sweep_for_ever()
        finally:
            if self._finalizing is not None:
                self._finalizing.cancel()
                await asyncio.gather(self._finalizing, return_exceptions=True)

    async def _sweep_for_ever(self) -> None:
        while True:
            try:
                await self.sweep()
            except (RetryLater, StoreUnavailable) as error:
                log.warning("the sweep could not be done: %s", error)
            self._begin_finalizing()
            pause = self._context.settings.sweep_seconds
            if self._suspects:
                pause = min(pause, self._context.settings.confirm_seconds)
            await asyncio.sleep(pause)

    def _begin_finalizing(self) -> None:
        """Run finalizers beside the sweep: a slow one must not delay the interruption of dead turns."""
        if self._finalizing is None:
            self._finalizing = asyncio.create_task(self.finalize())
            self._finalizing.add_done_callback(self._finalized)

    def _finalized(self, task: "asyncio.Task[None]") -> None:
        self._finalizing = None
        if not task.cancelled() and task.exception() is not None:
            log.warning("the finalizers could not be run: %s", task.exception())

    async def _follow_clock(self) -> None:
        """Shorten leases that a clock ahead of ours has set: at start, after ours went back, and each minute.

        Not in every sweep: a write that waits while the clock jumps ahead would shorten new leases by its old time.
        """
        now, checked_at = self._context.clock.now(), time.monotonic()
        went_back = self._seen_at is not None and now < self._seen_at
        self._seen_at = now
        if not went_back and checked_at < self._check_clock_at:
            return
        settings = self._context.settings
        await self._context.store.write(
            sweep.shorten_overlong_waits,
            now=now,
            lease_seconds=settings.lease_seconds,
            send_seconds=settings.send_seconds * CLAIM_FACTOR,
        )
        self._check_clock_at = checked_at + CHECK_CLOCK_SECONDS

    async def sweep(self) -> None:
        """Do everything that is due now, once."""
        context = self._context
        await self._follow_clock()
        await self._expire_leases_of_ended()
        dead = await self._dead_turns()
        if dead:
            await self._take_over(sorted(dead))
        await self._handle_due_questions()
        await context.store.write(fail_dead_runs, moment=context.moment())
        await context.store.write(
            sweep.end_expired_sessions, context.policies, moment=context.moment()
        )
        await context.store.write(sweep.empty_trash, moment=context.moment())
        await context.store.write(files.delete_old_uploads, moment=context.moment())

    async def _handle_due_questions(self) -> None:
        """Remind people of questions, and let those expire whose time is over."""
        context = self._context
        for id in await context.store.read(questions.list_due, context=context, limit=sweep.BATCH):
            await context.store.write(
                questions.handle_due, id, context=context, moment=context.moment()
            )

    async def _expire_leases_of_ended(self) -> None:
        """End the leases of processes of this machine that have ended: after a crash, work goes on at once."""
        store = self._context.store
        # Not in every sweep: it looks at everything that waits to be sent.
        holders = await store.read(sweep.list_holders, senders=self._is_first)
        self._is_first = False
        ended = [holder for holder in holders if has_ended(holder)]
        if ended:
            expired = await store.write(sweep.expire_leases_of, ended)
            # These are certain: no clock is involved.
            self._suspects |= dict.fromkeys(expired, -math.inf)

    async def _dead_turns(self) -> frozenset[str]:
        """Return the turns whose lease stayed expired for `confirm_seconds`.

        The wall clock may have been set forward; a process that is alive renews at once then.
        """
        now, enough = time.monotonic(), self._context.settings.confirm_seconds
        expired = await self._context.store.read(
            sweep.list_expired_turns,
            profile=self._context.profile,
            now=self._context.clock.now(),
        )
        self._suspects = {id: self._suspects.get(id, now) for id in expired}
        return frozenset(id for id, since in self._suspects.items() if now - since >= enough)

    async def finalize(self) -> None:
        """Run the finalizer for each session that has ended, one after the other."""
        store = self._context.store
        for ended in await store.read(sweep.list_to_finalize):
            moment = self._context.moment()
            error = await self._run_finalizer(ended)
            if error is None:
                await store.write(sweep.mark_finalized, ended, moment=moment)
            else:
                log.warning("finalizing %s failed (try %d): %s", ended.id, ended.tries + 1, error)
                await store.write(sweep.mark_finalize_failed, ended, error=error, moment=moment)

    async def _run_finalizer(self, ended: EndedSession) -> str | None:
        """Run the finalizer for one session; return the error as text, or None."""
        if self._finalizer is None:
            return None
        try:
            async with asyncio.timeout(FINALIZER_SECONDS):
                call = partial(self._finalizer, ended.id, ended.reason)
                await (call() if inspect.iscoroutinefunction(self._finalizer) else _in_thread(call))
        except Exception as error:  # a finalizer is foreign code: three tries, then it is given up
            return f"{type(error).__name__}: {error}"[:500]
        return None


def fail_dead_runs(tx: Tx, *, moment: Moment) -> None:
    """End the scheduled runs whose process died, and notify their people."""
    for due in schedules.fail_dead_runs(tx, now=moment.now):
        log.warning("a run of schedule %s died with its process", due.schedule.name)
        scheduler.notify(
            tx, due, notices.run_failed(due.schedule.name, schedules.DIED), moment=moment
        )


def load(name: str) -> Callable[..., Any]:
    """Import the function that `module:function` names."""
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput(
            f"There is no function {name!r}: write module:function ({error})."
        ) from error
    if not callable(found):
        raise BadInput(f"{name!r} is not a function.")
    made: Callable[..., Any] = found
    return made


async def _in_thread(call: Callable[[], T]) -> T:
    """Run a call in a daemon thread, which cannot delay the exit of the process as an executor's thread does."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def work() -> None:
        value: T | None = None
        error: BaseException | None = None
        try:
            value = call()
        except BaseException as failure:
            # Raised again in the event loop.
            error = failure
        # The loop may be closed already; then nobody waits for the result.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, future, value, error)

    threading.Thread(target=work, name="sessionary-finalizer", daemon=True).start()
    return await future


def _settle(future: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
