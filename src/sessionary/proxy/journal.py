"""The journal: makes each exchange durable before its last bytes are released, and shows where that failed.

An exchange is a row from when its request is complete until it is in the log, so that a process that is killed loses
nothing that a client saw complete. When the database is slow or away, traffic goes on: finished exchanges wait in
memory for a while, later ones are not kept, and a note in the record says from when to when.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from sessionary.clock import Clock
from sessionary.errors import RetryLater, SessionaryError, StoreUnavailable
from sessionary.proxy.copy import KEPT_BYTES, ExchangeCopy
from sessionary.store.database import Store
from sessionary.store.tables import exchanges
from sessionary.store.tables.exchanges import StoredExchange

# How long a process is believed to run that does not say so, and how often one says it.
LEASE = timedelta(seconds=60)
HEARTBEAT_SECONDS = 15.0
# A request that is answered sooner is written once, with its response.
BEGIN_SECONDS = 0.02
# What waits in memory while the database is away.
MOST_WAITING = 5_000
MOST_WAITING_BYTES = 128 * 1024 * 1024
# Many that pass at once end together, and the next begin at once.
_QUIET_SECONDS = 0.01
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
log = logging.getLogger(__name__)


class RecordingGap(Struct, frozen=True):
    """A time in which exchanges passed that were not durable when their clients saw them.

    `late` of them were recorded afterwards, `lost` were not. `until` is None as long as it lasts.
    """

    since: datetime
    reason: str
    until: datetime | None = None
    late: int = 0
    lost: int = 0

    @property
    def text(self) -> str:
        """What people read about it in the record."""
        until = "now" if self.until is None else self.until.isoformat(timespec="seconds")
        return (
            f"From {self.since.isoformat(timespec='seconds')} to {until} the proxy could not record "
            f"what passed ({self.reason}). {_counted(self.lost)} not in the record; "
            f"{_counted(self.late)} recorded afterwards."
        )


def _counted(number: int) -> str:
    return "1 exchange was" if number == 1 else f"{number:,} exchanges were"


class JournalStatus(Struct, frozen=True):
    """What passes now and passed since the start, and how recording is doing."""

    passing: int = 0
    passed: int = 0
    durable: int = 0
    late: int = 0
    lost: int = 0
    waiting: int = 0
    gap: RecordingGap | None = None


class Journal:
    """Writes the exchanges of one process to the store."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        holder: str,
        hold_seconds: float,
        on_durable: Callable[[], None],
        on_gap: Callable[[RecordingGap], None],
    ) -> None:
        """`on_durable` is called when an exchange can be recorded, `on_gap` when a gap begins, and when it ends."""
        self._store = store
        self._clock = clock
        self._holder = holder
        self._hold_seconds = hold_seconds
        self._on_durable = on_durable
        self._on_gap = on_gap
        self._waiting_to_begin: dict[str, asyncio.TimerHandle] = {}
        self._begun: dict[str, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._waiting_bytes = 0
        self._is_away = False
        self._is_closed = False
        self._gap: RecordingGap | None = None
        self._busy_at = 0.0
        self.status = JournalStatus()

    def begin(self, copy: ExchangeCopy) -> None:
        """Make a request durable while it is forwarded, if it is not answered at once."""
        self.status = replace(self.status, passing=self.status.passing + 1)
        self._busy_at = time.monotonic()
        if not self._is_away:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(BEGIN_SECONDS, self._start_begin, copy)
            self._waiting_to_begin[copy.id] = timer

    def _start_begin(self, copy: ExchangeCopy) -> None:
        del self._waiting_to_begin[copy.id]
        self._begun[copy.id] = asyncio.create_task(self._begin(copy))
        self._begun[copy.id].add_done_callback(lambda _: self._begun.pop(copy.id, None))

    async def _begin(self, copy: ExchangeCopy) -> None:
        try:
            row = await self._in_thread(copy, lambda: copy.end_request(copy.person))
            await self._write(row)
        except SessionaryError as error:
            # It is written with its response, if that can be.
            log.warning("A request that the proxy passed on is not durable yet: %s", error)
        except Exception:
            log.exception("A request that the proxy passed on could not be written")

    async def end(self, copy: ExchangeCopy) -> None:
        """Make an exchange durable; return when it is, or when its client may not wait longer."""
        status = self.status
        self.status = replace(status, passing=status.passing - 1, passed=status.passed + 1)
        timer = self._waiting_to_begin.pop(copy.id, None)
        if timer is not None:
            timer.cancel()
        # Not waited for: in whatever order the two are written, the row is what it is at the end.
        begun = self._begun.get(copy.id)
        if len(self._ending) >= MOST_WAITING or self._waiting_bytes > MOST_WAITING_BYTES:
            if begun is not None:
                begun.cancel()
            self._note_gap("the exchanges that wait to be recorded take too much memory")
            self._count(lost=1)
            copy.release()
            return
        task = asyncio.create_task(self._end(copy))
        self._ending.add(task)
        self.status = replace(self.status, waiting=len(self._ending))
        task.add_done_callback(self._ended)
        if not self._is_away:
            await asyncio.wait({task}, timeout=self._hold_seconds)
        if not task.done():
            copy.is_released = True
            self._note_gap(f"the database did not answer within {self._hold_seconds:g} s")

    async def _end(self, copy: ExchangeCopy) -> None:
        """Write a finished exchange, again and again while the database is away."""
        size = copy.held
        self._waiting_bytes += size
        try:
            row = await self._in_thread(copy, lambda: copy.end(self._clock.now()))
            copy.release()
            pause = _FIRST_PAUSE
            while True:
                try:
                    await self._write(row)
                    break
                except (RetryLater, StoreUnavailable) as error:
                    self._note_gap(str(error))
                    if self._is_closed:
                        raise
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            self.status = replace(self.status, durable=self.status.durable + 1)
            if copy.is_released:
                self._count(late=1)
            self._is_away = False
            self._on_durable()
        except Exception:
            log.exception("An exchange that passed the proxy could not be kept; it is not recorded")
            self._note_gap("what passed could not be stored", is_away=self._is_away)
            self._count(lost=1)
        finally:
            copy.release()
            self._waiting_bytes -= size

    async def _in_thread(
        self, copy: ExchangeCopy, make: Callable[[], StoredExchange]
    ) -> StoredExchange:
        """Compress large bodies in a thread, so that other streams go on meanwhile."""
        return make() if copy.held < KEPT_BYTES else await asyncio.to_thread(make)

    async def _write(self, row: StoredExchange) -> None:
        await self._store.write(
            exchanges.put,
            replace(row, holder=self._holder),
            expires_at=self._clock.now() + LEASE,
        )

    def _note_gap(self, reason: str, *, is_away: bool = True) -> None:
        self._is_away = is_away
        if self._gap is not None:
            return
        self._gap = RecordingGap(self._clock.now(), reason)
        self.status = replace(self.status, gap=self._gap)
        log.error("The proxy cannot record at the moment, traffic goes on: %s", reason)
        self._on_gap(self._gap)

    def _count(self, *, late: int = 0, lost: int = 0) -> None:
        status = self.status
        self.status = replace(status, late=status.late + late, lost=status.lost + lost)
        if self._gap is not None:
            self._gap = replace(self._gap, late=self._gap.late + late, lost=self._gap.lost + lost)
            self.status = replace(self.status, gap=self._gap)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """End the gap when nothing waits any more."""
        self._ending.discard(task)
        self._busy_at = time.monotonic()
        self.status = replace(self.status, waiting=len(self._ending))
        if self._gap is not None and not self._is_away and not self._ending:
            self._on_gap(self._end_gap(self._gap))

    def _end_gap(self, gap: RecordingGap) -> RecordingGap:
        gap, self._gap = replace(gap, until=self._clock.now()), None
        self.status = replace(self.status, gap=None)
        log.warning("%s", gap.text)
        return gap

    async def wait_until_quiet(self, seconds: float) -> None:
        """Wait until nothing has begun or ended for a moment, and nothing waits to be durable, but not for longer."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            quiet_at = (now if self._ending else self._busy_at) + _QUIET_SECONDS
            if now >= quiet_at:
                return
            await asyncio.sleep(min(quiet_at, until) - now)

    async def keep_alive(self) -> None:
        """Say again and again that this process still awaits its responses."""
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            try:
                await self._store.write(
                    exchanges.renew, self._holder, expires_at=self._clock.now() + LEASE
                )
            except SessionaryError as error:
                log.warning("The proxy could not tell the database that it runs: %s", error)

    async def close(self, *, seconds: float) -> RecordingGap | None:
        """Wait for what is being written; return the gap that has not ended by then."""
        self._is_closed = True
        if self._ending:
            await asyncio.wait(self._ending, timeout=seconds)
        for timer in self._waiting_to_begin.values():
            timer.cancel()
        left = [*self._ending, *self._begun.values()]
        if self._ending:
            self._note_gap("the proxy was stopped before the database answered")
            self._count(lost=len(self._ending))
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        return None if self._gap is None else self._end_gap(self._gap)
