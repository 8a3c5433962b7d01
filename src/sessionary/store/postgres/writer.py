"""Writing on PostgreSQL: functions that wait at the same time share a transaction and its commit."""

import copy
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg.errors import InFailedSqlTransaction
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolTimeout

from sessionary.errors import Conflict, SessionaryError, StoreUnavailable
from sessionary.store.database import KEPT_CHANGING, Pending, RaceLost, Row, Tx, announce
from sessionary.store.postgres.errors import RACES, translate
from sessionary.store.postgres.tx import PostgresTx
from sessionary.store.postgres.workers import Workers

T = TypeVar("T")
Connection = psycopg.Connection[Row]
Publish = Callable[[Sequence[Any]], None]

ATTEMPTS = 8
# Another was first.
LOST = (RaceLost, *RACES)
# So many transactions at a time; so long, and so many, may join each.
LANES = 4
SHARED_SECONDS = 0.02
MOST = 256
# Who has waited longer gets a connection of his own.
PATIENCE_SECONDS = 0.05


class Job(NamedTuple):
    """One function of a transaction, where its answer goes, and since when it waits."""

    action: Callable[[Tx], Any]
    pending: Pending[Any]
    code: object
    since: float
    is_alone: bool = False


class Outcome(NamedTuple):
    """What a job came to; its caller learns of it after the commit."""

    value: Any
    error: BaseException | None
    events: Sequence[Any] = ()


class Tangled(Exception):
    """A job failed among others: what is its own can no longer be told from theirs."""


class PostgresWriter:
    """Runs what waits, commits it together, and answers.

    A few connections write at a time, so that those who wait meanwhile come together. Where all
    are held up, by slow functions or by another process, those behind them get one more.
    """

    def __init__(
        self, pool: ConnectionPool[Connection], workers: Workers, *, publish: Publish
    ) -> None:
        self._pool = pool
        self._workers = workers
        self._publish = publish
        self._waiting: deque[Job] = deque()
        self._guard = threading.Lock()
        self._lanes = 0
        self._is_watched = False
        self._closing = threading.Event()
        # Functions that took long the last time: no one shall wait for their commit.
        self._slow: set[object] = set()

    def submit(self, code: object, action: Callable[[Tx], T], pending: Pending[T]) -> None:
        """Have the function run and committed, with others that wait; `code` is what runs."""
        with self._guard:
            self._waiting.append(Job(action, pending, code, time.monotonic()))
            if self._lanes < LANES:
                self._lanes += 1
                self._workers.submit(self._work)
            else:
                self._have_watched()

    def alone(self, action: Callable[[Tx], T]) -> T:
        """Run a function in a transaction of its own, and again when another was first."""
        for _ in range(ATTEMPTS):
            try:
                with self._pool.connection() as connection:
                    tx = _begun(connection)
                    value = action(tx)
                    _commit(connection)
            except LOST:
                continue
            self._publish(tx.events)
            return value
        raise Conflict(KEPT_CHANGING)

    def close(self) -> None:
        """Let no one watch any longer; whoever works goes on until no one waits."""
        self._closing.set()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            self._answer(job)

    def _next(self) -> Job | None:
        with self._guard:
            if self._waiting:
                return self._waiting.popleft()
            self._lanes -= 1
            return None

    def _have_watched(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            self._workers.submit(self._watch)

    def _watch(self) -> None:
        """Serve those whom the one that works has kept waiting."""
        self._closing.wait(PATIENCE_SECONDS)
        with self._guard:
            self._is_watched = False
        while (job := self._overdue()) is not None:
            self._answer(job)
        with self._guard:
            if self._lanes or not self._waiting:
                return
            self._lanes += 1
        self._work()

    def _overdue(self) -> Job | None:
        with self._guard:
            if self._waiting and time.monotonic() - self._waiting[0].since > PATIENCE_SECONDS:
                job = self._waiting.popleft()
                if self._waiting:
                    self._have_watched()
                return job
            return None

    def _answer(self, first: Job) -> None:
        """Commit the job, and those that come meanwhile; nothing is settled before that."""
        jobs = [first]
        try:
            if first.is_alone or first.code in self._slow:
                outcomes = [self._run_alone(first)]
            else:
                outcomes = self._run_together(jobs)
        except Tangled:
            with self._guard:
                self._waiting.extendleft(job._replace(is_alone=True) for job in reversed(jobs))
                self._have_watched()
            return
        except BaseException as error:  # handed to the callers: no one waits for a dead thread
            outcomes = [Outcome(None, _told(error)) for _ in jobs]
        for job, outcome in zip(jobs, outcomes, strict=True):
            job.pending.settle(outcome.value, outcome.error)
        self._publish([event for outcome in outcomes for event in outcome.events])
        announce(job.pending for job in jobs)

    def _run_alone(self, job: Job) -> Outcome:
        began = time.monotonic()
        try:
            return Outcome(self.alone(job.action), None)
        finally:
            self._remember(job, time.monotonic() - began)

    def _run_together(self, jobs: list[Job]) -> list[Outcome]:
        began = time.monotonic()
        with self._pool.connection() as connection:
            outcomes = [self._run(connection, jobs[0], is_shared=False)]
            while time.monotonic() - began < SHARED_SECONDS and self._join(jobs):
                if len(jobs) == 2:
                    # Others hold what these need, or wait for what these hold: not for long.
                    PostgresTx(connection).run("wait_briefly")
                outcomes.append(self._run(connection, jobs[-1], is_shared=True))
            try:
                _commit(connection)
            except (*RACES, InFailedSqlTransaction) as error:
                raise Tangled from error
        return outcomes

    def _join(self, jobs: list[Job]) -> bool:
        """Take one more that waits, unless it must go alone."""
        with self._guard:
            if not self._waiting or len(jobs) == MOST:
                return False
            job = self._waiting[0]
            if job.is_alone or job.code in self._slow:
                return False
            jobs.append(self._waiting.popleft())
            return True

    def _run(self, connection: Connection, job: Job, *, is_shared: bool) -> Outcome:
        began = time.monotonic()
        tx = PostgresTx(connection) if is_shared else _begun(connection)
        try:
            return Outcome(job.action(tx), None, tx.events)
        except BaseException as error:  # handed to the caller
            if connection.broken:
                raise
            if isinstance(error, LOST):
                raise Tangled from error
            if tx.has_written or isinstance(error, psycopg.Error):
                if is_shared:
                    raise Tangled from error
                raise
            return Outcome(None, error)
        finally:
            self._remember(job, time.monotonic() - began)

    def _remember(self, job: Job, seconds: float) -> None:
        if seconds > SHARED_SECONDS:
            self._slow.add(job.code)
        else:
            self._slow.discard(job.code)


def _begun(connection: Connection) -> PostgresTx:
    """A transaction that may write, and sees what others have committed meanwhile."""
    if connection.read_only:
        connection.isolation_level = None
        connection.read_only = None
    return PostgresTx(connection)


def _commit(connection: Connection) -> None:
    if connection.pgconn.transaction_status == TransactionStatus.INERROR:
        # The server would answer a COMMIT as if all were well, and roll back.
        raise InFailedSqlTransaction("a statement failed and was passed over; nothing was written")
    try:
        connection.commit()
    except RACES:
        raise
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        # The server may have committed before the answer was lost.
        raise translate(error, committed="unknown") from error


def _told(error: BaseException) -> BaseException:
    """What a caller is told; ours once for each, because a raised error collects tracebacks."""
    if isinstance(error, PoolTimeout):
        return StoreUnavailable("PostgreSQL cannot be reached. Nothing was written.")
    if isinstance(error, psycopg.Error):
        return translate(error)
    # What others have thought of may not let itself be copied.
    return copy.copy(error) if isinstance(error, SessionaryError) else error
