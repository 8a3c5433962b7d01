"""The writer thread's work: many functions, one transaction, one fsync."""

import copy
import errno
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import apsw

from sessionary.errors import Conflict, SessionaryError, StoreReadOnly, StoreUnavailable
from sessionary.store.database import KEPT_CHANGING, Pending, RaceLost, announce
from sessionary.store.sqlite import db_file
from sessionary.store.sqlite.errors import translate
from sessionary.store.sqlite.lock import Turnstile
from sessionary.store.sqlite.tx import SqliteTx

BATCH_SECONDS = 0.03
CHECKPOINT_PAGES = 4000
RACES = 5

READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)

Publish = Callable[[Sequence[Any]], None]


class Job(NamedTuple):
    """One function of a transaction, and where its answer goes."""

    action: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    pending: Pending[Any]


class Outcome(NamedTuple):
    """What a job came to; its caller learns of it after the commit."""

    value: Any
    error: BaseException | None
    events: Sequence[Any] = ()


class Writer:
    """Owns the only writing connection of this process; lives in one thread."""

    def __init__(self, path: str, *, publish: Publish, wait_seconds: float) -> None:
        self._path = path
        self._publish = publish
        self._wait_seconds = wait_seconds
        self._connection: apsw.Connection | None = None
        self._turnstile: Turnstile | None = None
        self._wal_pages = 0
        self.commit_seconds = 0.0

    def work(self, jobs: list[Job]) -> None:
        """Commit the jobs in as few transactions as their time allows."""
        while jobs:
            jobs = jobs[self._commit(jobs) :]

    def close(self) -> None:
        """Let go of the file; the last one to do so folds the WAL into it."""
        self._discard()
        if self._turnstile is not None:
            self._turnstile.close()

    def _commit(self, jobs: list[Job]) -> int:
        """Commit the first jobs in one transaction and answer them; say how many.

        Nothing is settled before the commit: a caller may ask at any moment.
        """
        outcomes: list[Outcome] = []
        try:
            connection = self._connected()
            with self._turnstile.pass_through() if self._turnstile is not None else nullcontext():
                self._transact(connection, jobs, outcomes)
        except BaseException as error:  # handed to the callers: no one waits for a dead thread
            outcomes = [Outcome(None, self._failure(error)) for _ in jobs]
        for job, outcome in zip(jobs, outcomes, strict=False):
            job.pending.settle(outcome.value, outcome.error)
        self._publish([event for outcome in outcomes for event in outcome.events])
        announce(job.pending for job in jobs[: len(outcomes)])
        self._checkpoint()
        return len(outcomes)

    def _transact(
        self, connection: apsw.Connection, jobs: list[Job], outcomes: list[Outcome]
    ) -> None:
        try:
            self._attempt(connection, jobs, outcomes, _run_plainly)
        except _Tangled:
            # Rare. Savepoints for all would cost every append.
            outcomes.clear()
            self._attempt(connection, jobs, outcomes, _run_apart)

    def _attempt(
        self,
        connection: apsw.Connection,
        jobs: list[Job],
        outcomes: list[Outcome],
        run: Callable[[apsw.Connection, Job], Outcome],
    ) -> None:
        started = time.monotonic()
        connection.execute("BEGIN IMMEDIATE")
        try:
            for job in jobs:
                outcomes.append(run(connection, job))
                if time.monotonic() - started > BATCH_SECONDS:
                    break
            self._commit_now(connection)
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _commit_now(self, connection: apsw.Connection) -> None:
        try:
            began = time.monotonic()
            connection.execute("COMMIT")
            self.commit_seconds = time.monotonic() - began
        except apsw.IOError as error:
            # The journal may have reached the disk before the answer failed.
            raise translate(error, self._path, committed="unknown") from error

    def _failure(self, error: BaseException) -> BaseException:
        """What the callers are told. A connection whose disk failed is not used again."""
        cause = error.__cause__ if isinstance(error, SessionaryError) else error
        if isinstance(cause, apsw.IOError) or not isinstance(error, SessionaryError | apsw.Error):
            self._discard()
        if isinstance(error, apsw.Error):
            return translate(error, self._path)
        if isinstance(error, OSError):
            said = f"Cannot write beside {self._path}: {error.strerror}. Nothing was written."
            if error.errno in READ_ONLY:
                return StoreReadOnly(f"{said} Reading works.")
            return StoreUnavailable(said)
        # One for each caller: a raised error collects tracebacks. Others' may not let themselves be copied.
        return copy.copy(error) if isinstance(error, SessionaryError) else error

    def _connected(self) -> apsw.Connection:
        if self._connection is None:
            if self._path == db_file.MEMORY:
                self._connection = db_file.memory()
            else:
                self._connection = db_file.connect_writer(self._path)
                self._turnstile = self._turnstile or Turnstile(self._path, self._wait_seconds)
            self._connection.set_wal_hook(self._saw_wal)
        return self._connection

    def _discard(self) -> None:
        if self._connection is not None:
            self._connection.close(True)
            self._connection = None

    def _saw_wal(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """Fold the WAL into the file once it is long; readers and answers do not wait for it."""
        if self._wal_pages < CHECKPOINT_PAGES or self._connection is None:
            return
        self._wal_pages = 0
        try:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.IOError:
            self._discard()  # the commits are safe in the WAL; the next one opens it anew
        except apsw.Error:
            return  # busy or full: the next commit tries again; nothing depends on it


class _Tangled(Exception):
    """A job failed after it had written: what is its own can no longer be told from the others'."""


def _run_plainly(connection: apsw.Connection, job: Job) -> Outcome:
    """Run one job in the transaction. One that fails before it has written leaves no trace."""
    for _ in range(RACES):
        tx = SqliteTx(connection)
        before = connection.total_changes()
        try:
            return Outcome(job.action(tx, *job.args, **job.kwargs), None, tx.events)
        except BaseException as error:  # handed to the caller
            if not connection.in_transaction:
                raise  # SQLite itself undid the whole transaction: disk full, I/O error
            if connection.total_changes() != before:
                raise _Tangled from error
            if not isinstance(error, RaceLost):
                return Outcome(None, _told(error))
    return Outcome(None, Conflict(KEPT_CHANGING))


def _run_apart(connection: apsw.Connection, job: Job) -> Outcome:
    """Run one job in a savepoint; its failure undoes its own work and no one else's."""
    for _ in range(RACES):
        tx = SqliteTx(connection)
        connection.execute("SAVEPOINT job")
        try:
            value = job.action(tx, *job.args, **job.kwargs)
        except BaseException as error:  # handed to the caller
            if not connection.in_transaction:
                raise  # SQLite itself undid the whole transaction: disk full, I/O error
            connection.execute("ROLLBACK TO job")
            connection.execute("RELEASE job")
            if isinstance(error, RaceLost):
                continue
            return Outcome(None, _told(error))
        connection.execute("RELEASE job")
        return Outcome(value, None, tx.events)
    return Outcome(None, Conflict(KEPT_CHANGING))


def _told(error: BaseException) -> BaseException:
    return translate(error, "the store") if isinstance(error, apsw.Error) else error
