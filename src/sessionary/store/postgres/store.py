"""PostgreSQL: the same functions on pooled connections; concurrent writes share a commit."""

import copy
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import psycopg
from psycopg.errors import InFailedSqlTransaction
from psycopg.pq import TransactionStatus
from psycopg_pool import PoolTimeout

from sessionary.errors import Conflict, NotFound, SessionaryError, StoreUnavailable
from sessionary.store import migrations
from sessionary.store.database import (
    KEPT_CHANGING,
    BaseStore,
    BatchFailed,
    Pending,
    RaceLost,
    Tx,
    WriteOutcome,
    announce,
    failed_with,
)
from sessionary.store.postgres.connection import (
    RACES,
    Connection,
    Pool,
    PostgresTx,
    SnapshotTx,
    begin,
    translate,
)

if TYPE_CHECKING:
    from sessionary.store.search.indexer import IndexState

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

CONNECTIONS = 16
# How long a call waits for a connection, and a search for the index.
WAIT_SECONDS = 10.0
CATCH_UP_SECONDS = 30.0
CONNECT_SECONDS = 5
# How long closing waits for running transactions before it cuts their connections.
FINISH_SECONDS = 3.0
CUT_SECONDS = 0.5
# Changes above the watermark are compared one by one: beyond this number the watermark moves up first.
MAX_UNSETTLED = 2000
# After a failure, background feeding pauses.
FEED_PAUSE_SECONDS = 10.0

ATTEMPTS = 8
LOST_RACES = (RaceLost, *RACES)
# At most MAX_WRITERS transactions run at once. Up to MAX_BATCH writes join each of them, until
# BATCH_SECONDS have passed.
MAX_WRITERS = 4
BATCH_SECONDS = 0.02
MAX_BATCH = 256
# A write that has waited longer gets one more connection.
OVERDUE_SECONDS = 0.05


class PostgresStore(BaseStore):
    """A store on a PostgreSQL server, shared by any number of machines."""

    dialect = "postgres"

    def __init__(
        self, url: str, *, connections: int = CONNECTIONS, wait_seconds: float = WAIT_SECONDS
    ) -> None:
        super().__init__(url)
        self._pool = Pool(url, connections=connections, wait_seconds=wait_seconds)
        self._workers = Workers(connections, "sessionary-postgres")
        self._writer = PostgresWriter(self._pool, self._workers, publish=self._publish)
        self._feeding = False
        self._feed_not_before = 0.0
        self._pool.open()

    def write(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        """Run an action in a transaction; the answer comes after the commit is durable."""
        if (refusal := self._refusal()) is not None:
            return failed_with(refusal)
        self._check_process()
        pending: Pending[T] = Pending(self.note_damage)
        # Slow functions are known by their code; a wrapped one counts as what it wraps.
        code = getattr(getattr(action, "__wrapped__", action), "__code__", type(action))
        with self._guard:
            self._check_open()
            self._writer.submit(code, lambda tx: action(tx, *args, **kwargs), pending)
        return pending

    def read(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        """Run an action that only reads, on one consistent snapshot."""
        return self._submit(lambda: self._read(lambda tx: action(tx, *args, **kwargs)))

    def search(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        """Run an action that reads log and index; the index has seen every append that returned."""
        return self._submit(lambda: self._search(lambda tx: action(tx, *args, **kwargs)))

    def catch_up(self, seconds: float | None = None) -> "Pending[IndexState]":
        """Feed the index until it is complete or the time is over; return how far it has come."""
        from sessionary.store.search import indexer  # as in `_search`

        def feed() -> "IndexState":
            self._feed_for(seconds)
            return self._read(indexer.state)

        return self._submit(feed)

    def rebuild_index(self) -> Pending[None]:
        """Delete the index; the next search makes it again from the log."""
        from sessionary.store.search import indexer  # as in `_search`

        return self._submit(lambda: self._writer.run_alone(indexer.clear))

    def index_in_background(self) -> None:
        """From now on feed the index as the log grows, not only before a search."""
        self.listen(lambda _: self._feed_soon())
        self._feed_soon()

    def scrub(self) -> None:
        """Nothing to do: the server's files are its administrator's business."""

    def shrink(self) -> None:
        """Nothing to do: the server reuses freed space by itself."""

    def close(self) -> None:
        """Finish what was begun and close the connections.

        A call that still waits for a server that is gone or silent gets an error.
        """
        if not self._begin_close():
            return
        self._writer.close()
        self._workers.close()
        is_finished = self._workers.join(FINISH_SECONDS)
        self._pool.close(timeout=CUT_SECONDS)
        if not is_finished:
            self._pool.cut()
            self._workers.join(CUT_SECONDS)

    def _submit(self, work: Callable[[], T]) -> Pending[T]:
        self._check_process()
        pending: Pending[T] = Pending(self.note_damage)
        with self._guard:
            self._check_open()
            self._workers.submit(_settle, pending, work)
        return pending

    def _read(self, action: Callable[[Tx], T]) -> T:
        with self._pool.connection() as connection:
            begin(connection, read_only=True)
            return action(SnapshotTx(connection))

    def _search(self, action: Callable[[Tx], T]) -> T:
        """Search in the transaction that finds the index complete; feed it first when it is not."""
        # Loaded by the first search: every other command starts 30 ms sooner.
        from sessionary.store.search import indexer

        def search(tx: Tx) -> T:
            state = indexer.state(tx)
            if state.behind or state.unsettled > MAX_UNSETTLED:
                raise _IndexBehind
            return action(tx)

        try:
            return self._read(search)
        except _IndexBehind:
            self._feed_for(CATCH_UP_SECONDS)
            return self._read(action)

    def _feed_for(self, seconds: float | None) -> None:
        from sessionary.store.search import indexer  # as in `_search`

        until = None if seconds is None else time.monotonic() + seconds
        state = self._read(indexer.state)
        while state.behind and not self._closed:
            if until is not None and time.monotonic() > until:
                return
            limit = indexer.batch_for(state.behind)
            if self._writer.run_alone(partial(indexer.step, limit=limit)) < limit:
                state = self._read(indexer.state)
        if state.unsettled > MAX_UNSETTLED and not self._closed:
            self._writer.run_alone(indexer.step)  # nothing new: the watermark moves up

    def _feed_soon(self) -> None:
        """Start a feeder, unless one runs: it takes in what comes meanwhile, too."""
        with self._guard:
            if self._feeding or self._closed or time.monotonic() < self._feed_not_before:
                return
            self._feeding = True
            self._workers.submit(self._feed)

    def _feed(self) -> None:
        try:
            self._feed_for(None)
        except Exception as error:  # the next search meets it again, and reports it
            self._feed_not_before = time.monotonic() + FEED_PAUSE_SECONDS
            self.note_damage(error)
            is_expected = isinstance(error, psycopg.Error | PoolTimeout | SessionaryError)
            if not self._closed:
                log.log(
                    logging.WARNING if is_expected else logging.ERROR,
                    "Feeding the search index failed (%s); it pauses for %.0f s.",
                    error,
                    FEED_PAUSE_SECONDS,
                    exc_info=None if is_expected else error,
                )
        finally:
            self._feeding = False


class _IndexBehind(Exception):
    """The index has not seen everything yet."""


def connect(url: str, *, create: bool, facts: dict[str, Any]) -> PostgresStore:
    """Open a store on a server that can be reached, and migrate its schema."""
    try:
        psycopg.connect(url, connect_timeout=CONNECT_SECONDS).close()
    except (psycopg.Error, ValueError) as error:
        raise StoreUnavailable(
            f"PostgreSQL cannot be reached: {_reason(error, url)}. Nothing was changed."
        ) from error
    store = PostgresStore(url)
    try:
        if store.read(migrations.pending, store.dialect).result():
            store.write(_migrate, create=create, facts=facts).result()
    except BaseException:
        store.close()
        raise
    return store


def _reason(error: Exception, url: str) -> str:
    """What the client library says of the last address it tried, without its advice."""
    # It may repeat the address that was given, with the password in it.
    lines = str(error).replace(url, "the address").splitlines()
    told = [line for line in lines if line.strip() and not line.startswith("\t")]
    return (told or [type(error).__name__])[-1].strip().rstrip(".")


def _migrate(tx: Tx, *, create: bool, facts: dict[str, Any]) -> None:
    # Two programs that start at once must not both create the tables.
    tx.one("lock_key", profile="", key="schema")
    if not create and tx.one("has_migrations") is None:
        raise NotFound("There is no store in this PostgreSQL database; nothing was made.")
    migrations.apply(tx, "postgres", **facts)


def _settle(pending: Pending[T], work: Callable[[], T]) -> None:
    try:
        pending.settle(work(), None)
    except BaseException as error:  # handed to the caller
        pending.settle(None, _translated(error))
    announce((pending,))


def _translated(error: BaseException) -> BaseException:
    if isinstance(error, PoolTimeout):
        return StoreUnavailable("PostgreSQL cannot be reached. Nothing was written.")
    return translate(error) if isinstance(error, psycopg.Error) else error


class QueuedWrite(NamedTuple):
    """One function of a transaction, where its answer goes, and since when it waits."""

    action: Callable[[Tx], Any]
    pending: Pending[Any]
    code: object
    since: float
    is_alone: bool = False


class PostgresWriter:
    """Runs queued writes, commits them together, and answers.

    Only a few connections write at a time, so that the writes that wait meanwhile come together.
    Where all are held up, by slow functions or by another process, an overdue write gets one more.
    """

    def __init__(
        self, pool: Pool, workers: "Workers", *, publish: Callable[[Sequence[Any]], None]
    ) -> None:
        self._pool = pool
        self._workers = workers
        self._publish = publish
        self._waiting: deque[QueuedWrite] = deque()
        self._guard = threading.Lock()
        self._writers = 0
        self._has_watcher = False
        self._closing = threading.Event()
        # The code of functions that took long the last time: they share no commit.
        self._slow: set[object] = set()

    def submit(self, code: object, action: Callable[[Tx], T], pending: Pending[T]) -> None:
        """Have the function run and committed, with others that wait; `code` identifies it."""
        with self._guard:
            self._waiting.append(QueuedWrite(action, pending, code, time.monotonic()))
            if self._writers < MAX_WRITERS:
                self._writers += 1
                self._workers.submit(self._work)
            else:
                self._start_watcher()

    def run_alone(self, action: Callable[[Tx], T]) -> T:
        """Run a function in a transaction of its own, and again when another was first."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self._pool.connection() as connection:
                    tx = _begin(connection)
                    value = action(tx)
                    _commit(connection)
            except LOST_RACES as error:
                log.info("A write lost a race (%r), attempt %d of %d.", error, attempt, ATTEMPTS)
                continue
            self._publish(tx.events)
            return value
        log.warning("A write lost %d races and was given up.", ATTEMPTS)
        raise Conflict(KEPT_CHANGING)

    def close(self) -> None:
        """Stop watching; the workers go on until no write waits."""
        self._closing.set()

    def _work(self) -> None:
        while True:
            with self._guard:
                if not self._waiting:
                    self._writers -= 1
                    return
                job = self._waiting.popleft()
            self._answer(job)

    def _start_watcher(self) -> None:
        if not self._has_watcher:
            self._has_watcher = True
            self._workers.submit(self._watch)

    def _watch(self) -> None:
        """Serve the writes that are overdue because every writer is held up."""
        self._closing.wait(OVERDUE_SECONDS)
        with self._guard:
            self._has_watcher = False
        while (job := self._next_overdue()) is not None:
            self._answer(job)
        with self._guard:
            if self._writers or not self._waiting:
                return
            self._writers += 1
        self._work()

    def _next_overdue(self) -> QueuedWrite | None:
        with self._guard:
            if self._waiting and time.monotonic() - self._waiting[0].since > OVERDUE_SECONDS:
                job = self._waiting.popleft()
                if self._waiting:
                    self._start_watcher()
                return job
            return None

    def _answer(self, first: QueuedWrite) -> None:
        """Commit a write, and those that join it; nothing is settled before that."""
        jobs = [first]
        try:
            if first.is_alone or first.code in self._slow:
                began = time.monotonic()
                try:
                    outcomes = [WriteOutcome(self.run_alone(first.action), None)]
                finally:
                    self._note_time(first, time.monotonic() - began)
            else:
                outcomes = self._run_together(jobs)
        except BatchFailed as failed:
            log.info("A write failed among %d (%r); each runs alone.", len(jobs), failed.__cause__)
            with self._guard:
                self._waiting.extendleft(job._replace(is_alone=True) for job in reversed(jobs))
                self._start_watcher()
            return
        except BaseException as error:  # handed to the callers, who would wait for a dead thread
            # A copy for each: a raised error collects tracebacks. Other errors may not be copyable.
            told = _translated(error)
            outcomes = [
                WriteOutcome(None, copy.copy(told) if isinstance(told, SessionaryError) else told)
                for _ in jobs
            ]
        for job, outcome in zip(jobs, outcomes, strict=True):
            job.pending.settle(outcome.value, outcome.error)
        self._publish([event for outcome in outcomes for event in outcome.events])
        announce(job.pending for job in jobs)

    def _run_together(self, jobs: list[QueuedWrite]) -> list[WriteOutcome]:
        """Run the first job and those that join it in one transaction; they are added to `jobs`."""
        began = time.monotonic()
        with self._pool.connection() as connection:
            outcomes = [self._run(connection, jobs[0], is_shared=False)]
            while time.monotonic() - began < BATCH_SECONDS and self._join(jobs):
                if len(jobs) == 2:
                    # Others may hold what these need, or wait for what these hold: fail soon.
                    PostgresTx(connection).run("wait_briefly")
                outcomes.append(self._run(connection, jobs[-1], is_shared=True))
            try:
                _commit(connection)
            except (*RACES, InFailedSqlTransaction) as error:
                raise BatchFailed from error
        return outcomes

    def _join(self, jobs: list[QueuedWrite]) -> bool:
        """Take one more that waits, unless it must run alone."""
        with self._guard:
            if not self._waiting or len(jobs) == MAX_BATCH:
                return False
            job = self._waiting[0]
            if job.is_alone or job.code in self._slow:
                return False
            jobs.append(self._waiting.popleft())
            return True

    def _run(self, connection: Connection, job: QueuedWrite, *, is_shared: bool) -> WriteOutcome:
        began = time.monotonic()
        tx = PostgresTx(connection) if is_shared else _begin(connection)
        try:
            return WriteOutcome(job.action(tx), None, tx.events)
        except BaseException as error:  # handed to the caller
            if connection.broken:
                raise
            if isinstance(error, LOST_RACES):
                raise BatchFailed from error
            if tx.has_written or isinstance(error, psycopg.Error):
                if is_shared:
                    raise BatchFailed from error
                raise
            return WriteOutcome(None, error)
        finally:
            self._note_time(job, time.monotonic() - began)

    def _note_time(self, job: QueuedWrite, seconds: float) -> None:
        if seconds > BATCH_SECONDS:
            self._slow.add(job.code)
        else:
            self._slow.discard(job.code)


def _begin(connection: Connection) -> PostgresTx:
    """A transaction that may write, and sees what others have committed meanwhile."""
    begin(connection)
    return PostgresTx(connection)


def _commit(connection: Connection) -> None:
    if connection.pgconn.transaction_status == TransactionStatus.INERROR:
        # The server would answer COMMIT without an error, and roll back.
        raise InFailedSqlTransaction("a statement failed and was passed over; nothing was written")
    try:
        connection.commit()
    except RACES:
        raise
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        # The server may have committed before the answer was lost.
        raise translate(error, committed="unknown") from error


class Workers:
    """A pool of threads that work off a queue; each is started when it is needed.

    Like an executor without futures: every job has its own way to report its outcome.
    """

    def __init__(self, max_threads: int, name: str) -> None:
        self._max_threads = max_threads
        self._name = name
        self._queue: queue.SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]] | None] = (
            queue.SimpleQueue()
        )
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._unfinished = 0
        self._is_closing = False

    def submit(self, work: Callable[..., object], *args: Any) -> None:
        """Run the work in the next free thread; ignored when closing."""
        with self._lock:
            if self._is_closing:
                return
            self._unfinished += 1
            if self._unfinished > len(self._threads) < self._max_threads:
                thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._threads.add(thread)
                thread.start()
            self._queue.put((work, args))

    def close(self) -> None:
        """Take no more work; the threads end when they have finished what was submitted."""
        with self._lock:
            self._is_closing = True
            for _ in self._threads:
                self._queue.put(None)

    def join(self, seconds: float) -> bool:
        """Wait until the threads have ended; say whether they did so in time."""
        until = time.monotonic() + seconds
        with self._lock:
            threads = tuple(self._threads)
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _work(self) -> None:
        try:
            while (taken := self._queue.get()) is not None:
                work, args = taken
                try:
                    work(*args)
                finally:
                    with self._lock:
                        self._unfinished -= 1
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())
