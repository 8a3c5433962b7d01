"""The embedded database: one writer thread with group commit, a few reader threads."""

import copy
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

import apsw

from sessionary.errors import Conflict, SessionaryError, StoreReadOnly, StoreUnavailable
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
    logger,
)
from sessionary.store.sqlite import db_file
from sessionary.store.sqlite.db_file import FairFileLock, SqliteTx, translate

if TYPE_CHECKING:
    from sessionary.store.search.indexer import IndexState
    from sessionary.store.search.sqlite_index import SqliteIndex

P = ParamSpec("P")
T = TypeVar("T")

MAX_READERS = 4
# How long a write waits for other processes, and a search for the index.
WAIT_SECONDS = 10.0
CATCH_UP_SECONDS = 30.0
# A transaction takes no further job after this time.
BATCH_SECONDS = 0.03
CHECKPOINT_PAGES = 4000
# How often a job runs that finds its data changed under it.
MAX_RACES = 5

MAX_BATCH = 512
POLL_SECONDS = 0.00005
MAX_WAIT_SECONDS = 0.003
# The batcher stops waiting after IDLE_POLLS polls without a new job, and skips at most MAX_SKIPS waits.
IDLE_POLLS = 2
MAX_SKIPS = 32


class Job(NamedTuple):
    """One function of a transaction, and where its answer goes."""

    action: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    pending: Pending[Any]


class SqliteStore(BaseStore):
    """A store in one file, or in memory when the path is `:memory:`."""

    dialect = "sqlite"

    def __init__(self, path: str, *, wait_seconds: float = WAIT_SECONDS) -> None:
        super().__init__(f"sqlite:///{path}")
        self.path = path
        self._in_memory = path == db_file.MEMORY
        self._wait_seconds = wait_seconds
        self._writes: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._index: SqliteIndex | None = None
        self._writer: threading.Thread | None = None
        self._readers: list[threading.Thread] = []
        self._unfinished_reads = 0

    def write(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        """Run an action in a transaction; the answer comes after the commit is durable."""
        if (refusal := self._refusal()) is not None:
            return failed_with(refusal)
        return self._enqueue_write(action, args, kwargs)

    def _enqueue_write(
        self, action: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Pending[T]:
        pending: Pending[T] = Pending(self.note_damage)
        self._check_process()
        with self._guard:
            self._check_open()
            if self._writer is None:
                writer = SqliteWriter(
                    self.path,
                    self._writes,
                    publish=self._publish,
                    wait_seconds=self._wait_seconds,
                )
                self._writer = _start(writer.run, "sessionary-writer")
            self._writes.put(Job(action, args, kwargs, pending))
        return pending

    def read(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        """Run an action that only reads, on one consistent snapshot."""
        if self._in_memory:
            return self._enqueue_write(_only_read, (action, args, kwargs), {})
        pending: Pending[T] = Pending(self.note_damage)
        self._check_process()
        with self._guard:
            self._check_open()
            self._unfinished_reads += 1
            if self._unfinished_reads > len(self._readers) < MAX_READERS:
                self._readers.append(_start(self._run_reads, "sessionary-reader"))
            self._reads.put(Job(action, args, kwargs, pending))
        return pending

    def search(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        """Run an action that reads log and index; the index has seen every append that returned."""
        return self._search(action, args, kwargs, catch_up_seconds=CATCH_UP_SECONDS)

    def catch_up(self, seconds: float | None = None) -> "Pending[IndexState]":
        """Feed the index until it is complete or the time is over; return how far it has come."""
        from sessionary.store.search import indexer  # as in `_open_index`

        return self._search(indexer.state, (), {}, catch_up_seconds=seconds)

    def rebuild_index(self) -> Pending[None]:
        """Delete the index; the next search makes it again from the log."""
        from sessionary.store.search import sqlite_index  # as in `_open_index`

        return self._search(sqlite_index.delete, (), {}, catch_up_seconds=0)

    def index_in_background(self) -> None:
        """From now on feed the index as the log grows, not only before a search."""
        if self._in_memory:
            return
        with self._guard:
            self._check_open()
            index = self._open_index()
        self.listen(lambda _: index.wake())
        index.feed_in_background()

    def scrub(self) -> None:
        """Fold the WAL into the file and empty it, unless a reader still needs it."""
        self._check_process()
        if not self._in_memory:
            db_file.empty_wal(self.path, wait_seconds=self._wait_seconds)

    def shrink(self, on_step: Callable[[], None] = lambda: None) -> None:
        """Rewrite the file without its free pages; writers wait. An exception from `on_step` stops it."""
        self._check_process()
        if (refusal := self._refusal()) is not None:
            raise refusal
        if not self._in_memory:
            db_file.vacuum(self.path, wait_seconds=self._wait_seconds, on_step=on_step)

    def close(self) -> None:
        """Finish what was begun and release the file."""
        if not self._begin_close():
            return
        if self._index is not None:
            self._index.close()
        for _ in self._readers:
            self._reads.put(None)
        for reader in self._readers:
            reader.join()
        # The writer last: the last connection to close folds in the WAL, and a reader cannot.
        if self._writer is not None:
            self._writes.put(None)
            self._writer.join()

    def _search(
        self,
        action: Callable[..., T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        catch_up_seconds: float | None,
    ) -> Pending[T]:
        self._check_process()
        if self._in_memory:
            from sessionary.store.search.sqlite_index import search_in_memory  # as in `_open_index`

            return self._enqueue_write(search_in_memory, (action, args, kwargs), {})
        pending: Pending[T] = Pending(self.note_damage)
        with self._guard:
            self._check_open()
            job = Job(action, args, kwargs, pending)
            self._open_index().submit(job, catch_up_seconds=catch_up_seconds)
        return pending

    def _open_index(self) -> "SqliteIndex":
        # Loaded by the first search: every other command starts 30 ms sooner.
        from sessionary.store.search.sqlite_index import SqliteIndex

        if self._index is None:
            self._index = SqliteIndex(self.path, on_damage=self.note_damage)
        return self._index

    def _run_reads(self) -> None:
        connection: apsw.Connection | None = None
        while (job := self._reads.get()) is not None:
            try:
                connection = connection or db_file.connect_reader(self.path)
                job.pending.settle(_read_once(connection, job), None)
            except apsw.Error as error:
                job.pending.settle(None, translate(error, self.path))
                logger(__name__).info("A read failed (%s); the next one connects again.", error)
                connection = None
            except BaseException as error:  # the action's own; it is handed to the caller
                job.pending.settle(None, error)
            with self._guard:
                self._unfinished_reads -= 1
            announce((job.pending,))
        if connection is not None:
            connection.close()


def _start(work: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


def _only_read(
    tx: Tx, action: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> T:
    """Read on the only connection of a store in memory; writes are refused meanwhile."""
    assert isinstance(tx, SqliteTx)
    with tx.only_reading():
        return action(tx, *args, **kwargs)


def _read_once(connection: apsw.Connection, job: Job) -> Any:
    connection.execute("BEGIN")
    try:
        return job.action(SqliteTx(connection), *job.args, **job.kwargs)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


class WriteBatcher(Generic[T]):
    """Takes jobs from a queue in batches; None in the queue means that the store is closing.

    Callers that were answered by one commit often write again at once. If the writer committed as
    soon as the first of them is back, each of the others would wait for a whole fsync. So it waits a
    moment for as many as it has just answered: never longer than a commit takes, only while they
    keep coming, and ever more rarely when they do not come. A single caller never waits.
    """

    def __init__(self, jobs: "queue.SimpleQueue[T | None]") -> None:
        self._jobs = jobs
        self._expected = 1
        self._skips_left = 0
        self._skips = 0
        self.closing = False

    def take(self, *, commit_seconds: float) -> list[T]:
        """The next batch, at least one job; empty when the store is closing."""
        job = self._jobs.get()
        if self._expected > 1 and job is not None:
            self._wait(min(commit_seconds, MAX_WAIT_SECONDS))
        batch: list[T] = []
        while job is not None:
            batch.append(job)
            if len(batch) == MAX_BATCH:
                return batch
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return batch
        self.closing = True
        return batch

    def note_answered(self, count: int) -> None:
        """Say how many callers have their answer: they may come back beside those already waiting."""
        self._expected = min(count + self._jobs.qsize(), MAX_BATCH)

    def _wait(self, seconds: float) -> None:
        if self._skips_left > 0:
            self._skips_left -= 1
            return
        wanted = self._expected - 1
        at_first = last = self._jobs.qsize()
        until = time.monotonic() + seconds
        idle = 0
        while last < wanted and idle < IDLE_POLLS and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
            now = self._jobs.qsize()
            idle = idle + 1 if now == last else 0
            last = now
        # After a wait in vain the next ones are skipped, twice as many each time.
        self._skips = min(2 * self._skips + 1, MAX_SKIPS) if last == at_first < wanted else 0
        self._skips_left = self._skips


class SqliteWriter:
    """Owns the only writing connection of this process; runs in one thread."""

    def __init__(
        self,
        path: str,
        jobs: "queue.SimpleQueue[Job | None]",
        *,
        publish: Callable[[Sequence[Any]], None],
        wait_seconds: float,
    ) -> None:
        self._path = path
        self._jobs = jobs
        self._publish = publish
        self._wait_seconds = wait_seconds
        self._connection: apsw.Connection | None = None
        self._lock: FairFileLock | None = None
        self._wal_pages = 0
        self._commit_seconds = 0.0

    def run(self) -> None:
        """Commit the jobs of the queue, in as few transactions as their time allows, until it closes."""
        batcher = WriteBatcher(self._jobs)
        while not batcher.closing:
            jobs = batcher.take(commit_seconds=self._commit_seconds)
            done = 0
            while done < len(jobs):
                done += self._commit(jobs[done:])
            batcher.note_answered(len(jobs))
        # The last connection to close folds the WAL into the file.
        self._disconnect()
        if self._lock is not None:
            self._lock.close()

    def _commit(self, jobs: list[Job]) -> int:
        """Commit the first jobs in one transaction and answer them; return how many these are.

        No answer is settled before the commit: a caller may look at any moment.
        """
        outcomes: list[WriteOutcome] = []
        try:
            connection = self._connected()
            with self._lock.acquire() if self._lock is not None else nullcontext():
                try:
                    self._transact(connection, jobs, outcomes)
                except BatchFailed as failed:
                    # Rare. Savepoints for all would slow down every append.
                    logger(__name__).info(
                        "A write failed among %d (%r); they run again in savepoints.",
                        len(outcomes) + 1,
                        failed.__cause__,
                    )
                    outcomes.clear()
                    self._transact(connection, jobs, outcomes, in_savepoints=True)
        except BaseException as error:  # handed to the callers, who would wait for a dead thread
            outcomes = [WriteOutcome(None, self._failure(error)) for _ in jobs]
        for job, outcome in zip(jobs, outcomes, strict=False):
            job.pending.settle(outcome.value, outcome.error)
        self._publish([event for outcome in outcomes for event in outcome.events])
        announce(job.pending for job in jobs[: len(outcomes)])
        self._checkpoint()
        return len(outcomes)

    def _transact(
        self,
        connection: apsw.Connection,
        jobs: list[Job],
        outcomes: list[WriteOutcome],
        *,
        in_savepoints: bool = False,
    ) -> None:
        """Run jobs until BATCH_SECONDS are over, collect their outcomes, and commit them together.

        A job that fails in a savepoint undoes only its own work. Without savepoints, one that fails
        before it has written leaves no trace; one that fails later raises `BatchFailed`.
        """
        began = time.monotonic()
        connection.execute("BEGIN IMMEDIATE")
        try:
            for job in jobs:
                outcome: WriteOutcome | None = None
                for _ in range(MAX_RACES):
                    tx = SqliteTx(connection)
                    changes = connection.total_changes()
                    if in_savepoints:
                        connection.execute("SAVEPOINT job")
                    try:
                        value = job.action(tx, *job.args, **job.kwargs)
                        outcome = WriteOutcome(value, None, tx.events)
                    except BaseException as error:  # handed to the caller
                        if not connection.in_transaction:
                            raise  # SQLite itself undid the whole transaction: disk full, I/O error
                        if in_savepoints:
                            connection.execute("ROLLBACK TO job")
                        elif connection.total_changes() != changes:
                            raise BatchFailed from error
                        if isinstance(error, apsw.Error):
                            outcome = WriteOutcome(None, translate(error, "the store"))
                        elif not isinstance(error, RaceLost):
                            outcome = WriteOutcome(None, error)
                    if in_savepoints:
                        connection.execute("RELEASE job")
                    if outcome is not None:
                        break
                if outcome is None:
                    logger(__name__).warning("A write lost %d races and was given up.", MAX_RACES)
                    outcome = WriteOutcome(None, Conflict(KEPT_CHANGING))
                outcomes.append(outcome)
                if time.monotonic() - began > BATCH_SECONDS:
                    break
            self._commit_now(connection)
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _commit_now(self, connection: apsw.Connection) -> None:
        began = time.monotonic()
        try:
            connection.execute("COMMIT")
        except apsw.IOError as error:
            # The WAL may have reached the disk before the error came.
            raise translate(error, self._path, committed="unknown") from error
        self._commit_seconds = time.monotonic() - began

    def _failure(self, error: BaseException) -> BaseException:
        """What the callers are told. A connection whose disk failed is not used again."""
        cause = error.__cause__ if isinstance(error, SessionaryError) else error
        if isinstance(cause, apsw.IOError):
            logger(__name__).info(
                "Writing to %s failed (%s); the next write connects again.", self._path, cause
            )
            self._disconnect()
        elif not isinstance(error, SessionaryError | apsw.Error):
            self._disconnect()
            if not isinstance(error, OSError):
                logger(__name__).error("The writer failed.", exc_info=error)
        if isinstance(error, apsw.Error):
            return translate(error, self._path)
        if isinstance(error, OSError):
            reason = f"Cannot write beside {self._path}: {error.strerror}. Nothing was written."
            if error.errno in db_file.READ_ONLY_ERRNOS:
                return StoreReadOnly(f"{reason} Reading works.")
            return StoreUnavailable(reason)
        # A copy for each caller: a raised error collects tracebacks. Other errors may not be copyable.
        return copy.copy(error) if isinstance(error, SessionaryError) else error

    def _connected(self) -> apsw.Connection:
        if self._connection is None:
            if self._path == db_file.MEMORY:
                self._connection = db_file.connect_memory()
            else:
                self._connection = db_file.connect_writer(self._path)
                self._lock = self._lock or FairFileLock(self._path, self._wait_seconds)
            self._connection.set_wal_hook(self._note_wal_size)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close(True)
            self._connection = None

    def _note_wal_size(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """Fold the WAL into the file once it is long; readers and answers do not wait for it."""
        if self._wal_pages < CHECKPOINT_PAGES or self._connection is None:
            return
        self._wal_pages = 0
        try:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except (apsw.BusyError, apsw.LockedError) as error:
            logger(__name__).debug("Another process is at the WAL of %s: %s", self._path, error)
        except apsw.Error as error:
            # The commits are safe in the WAL, and a later commit tries again.
            logger(__name__).warning("A checkpoint of %s failed: %s", self._path, error)
            if isinstance(error, apsw.IOError):
                self._disconnect()
