"""The writer thread's work: many functions, one transaction, one fsync."""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import apsw

from hansard.errors import HansardError
from hansard.store import sqlite_file
from hansard.store.database import RaceLost
from hansard.store.pending import Pending, announce
from hansard.store.sqlite_errors import translate
from hansard.store.sqlite_tx import SqliteTx
from hansard.store.turnstile import Turnstile

BATCH_SECONDS = 0.03
CHECKPOINT_PAGES = 1000
RACES = 5

Publish = Callable[[Sequence[Any]], None]


class Job(NamedTuple):
    """One function of a transaction, and where its answer goes."""

    action: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    pending: Pending[Any]


class Writer:
    """Owns the only writing connection of this process; lives in one thread."""

    def __init__(self, path: str, *, publish: Publish, wait_seconds: float) -> None:
        self._path = path
        self._publish = publish
        self._wait_seconds = wait_seconds
        self._connection: apsw.Connection | None = None
        self._turnstile: Turnstile | None = None
        self._wal_pages = 0

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
        """Commit the first jobs in one transaction and answer them; say how many."""
        events: list[Any] = []
        try:
            connection = self._connected()
            with self._turnstile.pass_through() if self._turnstile is not None else nullcontext():
                done = self._transact(connection, jobs, events)
        except (HansardError, apsw.Error) as error:
            done = len(jobs)
            failure = error if isinstance(error, HansardError) else self._failure(error)
            for job in jobs:
                job.pending.settle(None, failure)
        else:
            self._publish(events)
        announce(job.pending for job in jobs[:done])
        self._checkpoint()
        return done

    def _transact(self, connection: apsw.Connection, jobs: list[Job], events: list[Any]) -> int:
        started = time.monotonic()
        connection.execute("BEGIN IMMEDIATE")
        try:
            done = 0
            for job in jobs:
                _run(connection, job, events)
                done += 1
                if time.monotonic() - started > BATCH_SECONDS:
                    break
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return done

    def _failure(self, error: apsw.Error) -> HansardError:
        if isinstance(error, apsw.IOError):
            self._discard()
            return translate(error, self._path, committed="unknown")
        return translate(error, self._path)

    def _connected(self) -> apsw.Connection:
        if self._connection is None:
            if self._path == sqlite_file.MEMORY:
                self._connection = sqlite_file.memory()
            else:
                self._connection = sqlite_file.connect_writer(self._path)
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
        except (apsw.BusyError, apsw.LockedError, apsw.FullError):
            return  # the next commit tries again; nothing depends on it


def _run(connection: apsw.Connection, job: Job, events: list[Any]) -> None:
    """Run one job in a savepoint; its failure undoes its own work and no one else's."""
    for attempt in range(RACES):
        tx = SqliteTx(connection)
        connection.execute("SAVEPOINT job")
        try:
            value = job.action(tx, *job.args, **job.kwargs)
        except BaseException as error:  # handed to the caller below
            if not connection.in_transaction:
                raise  # SQLite itself undid the whole transaction: disk full, I/O error
            connection.execute("ROLLBACK TO job")
            connection.execute("RELEASE job")
            if isinstance(error, RaceLost) and attempt + 1 < RACES:
                continue
            told = translate(error, "the store") if isinstance(error, apsw.Error) else error
            job.pending.settle(None, told)
            return
        connection.execute("RELEASE job")
        events.extend(tx.events)
        job.pending.settle(value, None)
        return
