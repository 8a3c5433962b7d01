"""The index file of an SQLite store: one thread that feeds it and answers from it.

The file is derived: when it is missing, damaged or of another store it is made again
from the log. Whatever happens to it, the log does not notice.
"""

import fcntl
import os
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from hansard.errors import HansardError, StoreUnavailable
from hansard.store import indexing, sqlite_file
from hansard.store.database import Tx
from hansard.store.pending import announce
from hansard.store.sqlite_errors import translate
from hansard.store.sqlite_match import SCORE, score
from hansard.store.sqlite_tx import SqliteTx
from hansard.store.sqlite_writer import Job

REPAIRS = 3
BUSY_MS = 10_000
_DAMAGE = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, apsw.SchemaChangeError)


class IndexLost(Exception):
    """The index cannot be used as it is; it is made again."""


class SqliteIndex:
    """Feeds the index and runs searches on it, in a thread of its own."""

    def __init__(self, path: str) -> None:
        self._log = path
        self._path = f"{path}-search"
        self._jobs: queue.SimpleQueue[tuple[Job | None, float | None]] = queue.SimpleQueue()
        self._connection: apsw.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._stale = threading.Event()
        self._feeds_itself = False
        self._thread = threading.Thread(
            target=self._work_forever, name="hansard-index", daemon=True
        )
        self._thread.start()

    def submit(self, job: Job, *, patience: float | None) -> None:
        """Run a search as soon as the index has seen every append that has returned."""
        self._jobs.put((job, patience))

    def feed_in_background(self) -> None:
        """From now on take changes into the index as they come, not only when someone searches."""
        self._feeds_itself = True
        self.wake()

    def wake(self) -> None:
        """Say that the log has grown."""
        if self._feeds_itself and not self._stale.is_set():
            self._stale.set()
            self._jobs.put((_WAKE, None))

    def close(self) -> None:
        """Finish the search that runs, and let go of the files."""
        self._jobs.put((None, None))
        self._thread.join()

    def _work_forever(self) -> None:
        while True:
            job, patience = self._jobs.get()
            if job is None:
                break
            if job is _WAKE:
                self._stale.clear()
                self._feed_a_little()
            else:
                self._answer(job, patience)
        self._disconnect()

    def _answer(self, job: Job, patience: float | None) -> None:
        try:
            job.pending.settle(self._search(job, patience), None)
        except apsw.Error as error:
            self._disconnect()
            job.pending.settle(None, translate(error, self._path))
        except BaseException as error:  # the search's own; it is handed to the caller
            job.pending.settle(None, error)
        announce((job.pending,))

    def _search(self, job: Job, patience: float | None) -> Any:
        for _ in range(REPAIRS):
            try:
                connection = self._connected()
                self._catch_up(connection, patience)
                with _transaction(connection, "BEGIN"):
                    return job.action(SqliteTx(connection), *job.args, **job.kwargs)
            except (IndexLost, *_DAMAGE):
                self._replace()
        raise StoreUnavailable(
            f"The search index {self._path} cannot be made; the record itself is safe."
        )

    def _catch_up(self, connection: apsw.Connection, patience: float | None) -> None:
        until = None if patience is None else time.monotonic() + patience
        while self._step(connection):
            if until is not None and time.monotonic() > until:
                self.wake()
                return

    def _step(self, connection: apsw.Connection) -> int:
        with _transaction(connection, "BEGIN IMMEDIATE"):
            return indexing.step(SqliteTx(connection))

    def _feed_a_little(self) -> None:
        """One batch, then whoever waits; a failure here is met again, and told, by the next search."""
        try:
            if self._step(self._connected()):
                self.wake()
        except (IndexLost, *_DAMAGE):
            self._replace()
            self.wake()
        except (apsw.Error, HansardError):
            self._disconnect()

    def _connected(self) -> apsw.Connection:
        if self._connection is not None and self._file != _file_id(self._path):
            self._disconnect()
        if self._connection is None:
            self._connection = self._connect()
            self._file = _file_id(self._path)
        return self._connection

    def _connect(self) -> apsw.Connection:
        connection = sqlite_file.connect_index(self._path, self._log)
        try:
            connection.set_busy_timeout(BUSY_MS)
            connection.register_fts5_function(SCORE, score)
            tx = SqliteTx(connection)
            with _transaction(connection, "BEGIN IMMEDIATE"):
                prepare(connection, tx)
            connection.execute(sqlite_file.script("vocabulary")).fetchall()
        except BaseException:
            connection.close()
            raise
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close(True)
            self._connection = None

    def _replace(self) -> None:
        """Take the damaged file away, unless another process has done so already."""
        damaged = self._file or _file_id(self._path)
        self._disconnect()
        with _alone(f"{self._path}-lock"):
            if damaged is not None and _file_id(self._path) == damaged:
                for name in (self._path, f"{self._path}-wal", f"{self._path}-shm"):
                    if os.path.exists(name):
                        os.remove(name)


def prepare(connection: apsw.Connection, tx: SqliteTx) -> None:
    """Make the index's tables when they are not there; refuse an index of another store or form."""
    facts = f"{_meta(tx, 'store_id')}/{_meta(tx, 'generation')}"
    form = connection.pragma("user_version", schema="main")
    if form == 0:
        connection.execute(sqlite_file.script("search")).fetchall()
        tx.run("begin_index", store_id=facts)
    elif form != sqlite_file.INDEX_FORM:
        raise IndexLost
    row = tx.one("index_identity")
    if row is None or row[0] != facts or row[1] > row[2]:
        raise IndexLost


def search_in_memory(tx: Tx, action: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A search in a store that has no files: its index stands among its tables."""
    assert isinstance(tx, SqliteTx)
    if tx.one("has_index") is None:
        tx.connection.register_fts5_function(SCORE, score)
        tx.script(sqlite_file.script("search"))
        tx.script(sqlite_file.script("vocabulary"))
        tx.run("begin_index", store_id="")
    while indexing.step(tx):
        continue
    with tx.only_reading():
        return action(tx, *args, **kwargs)


def _meta(tx: SqliteTx, name: str) -> str:
    row = tx.one("get_meta", name=name)
    return "" if row is None else str(row[0])


def _file_id(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def _transaction(connection: apsw.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """Hold a lock file beside the index, so that two processes do not replace it at once."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _nothing(*_: Any) -> None:
    """What a wake-up call does."""


_WAKE = Job(_nothing, (), {}, None)  # type: ignore[arg-type]
