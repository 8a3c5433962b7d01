"""The embedded database: one writer thread with group commit, a few readers."""

import importlib
import os
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import apsw

from sessionary.errors import Damaged, StoreUnavailable
from sessionary.store.database import (
    CROSSED_FORK,
    DamageLatch,
    Listener,
    Listeners,
    Pending,
    Tx,
    announce,
    failed_with,
)
from sessionary.store.sqlite import db_file, vacuum
from sessionary.store.sqlite.batch import Gathering
from sessionary.store.sqlite.errors import translate
from sessionary.store.sqlite.tx import SqliteTx
from sessionary.store.sqlite.writer import Job, Writer

if TYPE_CHECKING:
    from sessionary.store.search.indexer import IndexState
    from sessionary.store.search.sqlite_index import SqliteIndex

P = ParamSpec("P")
T = TypeVar("T")

READERS = 4
WAIT_SECONDS = 10.0
PATIENCE_SECONDS = 30.0


class SqliteStore:
    """A store in one file, or in memory when the path is `:memory:`."""

    dialect = "sqlite"

    def __init__(self, path: str, *, wait_seconds: float = WAIT_SECONDS) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        self._in_memory = path == db_file.MEMORY
        self._wait_seconds = wait_seconds
        self._writes: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._listeners = Listeners()
        self._index: SqliteIndex | None = None
        self._writer: threading.Thread | None = None
        self._readers: list[threading.Thread] = []
        self._reading = 0
        self._guard = threading.Lock()
        self._closed = False
        self._pid = os.getpid()
        self._latch = DamageLatch()

    @property
    def damage(self) -> Damaged | None:
        """The first structural damage that was met; while there is one, writes are refused."""
        return self._latch.found

    def note_damage(self, error: Damaged) -> None:
        """Take note of damage that a check found."""
        self._latch.note(error)

    def write(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        """Run an action in a transaction; the answer comes after the commit is durable."""
        if (refusal := self._latch.refusal()) is not None:
            return failed_with(refusal)
        return self._enqueue_write(action, args, kwargs)

    def _enqueue_write(
        self, action: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Pending[T]:
        pending: Pending[T] = Pending(self._latch.note)
        self._check_process()
        with self._guard:
            self._check_open()
            if self._writer is None:
                self._writer = _start(self._write_forever, "sessionary-writer")
            self._writes.put(Job(action, args, kwargs, pending))
        return pending

    def read(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        """Run an action that only reads, on one consistent snapshot."""
        if self._in_memory:
            return self._enqueue_write(_only_read, (action, args, kwargs), {})
        pending: Pending[T] = Pending(self._latch.note)
        self._check_process()
        with self._guard:
            self._check_open()
            self._reading += 1
            if self._reading > len(self._readers) < READERS:
                self._readers.append(_start(self._read_forever, "sessionary-reader"))
            self._reads.put(Job(action, args, kwargs, pending))
        return pending

    def search(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        """Run an action that reads log and index, which has seen every append that returned."""
        return self._ask_index(action, args, kwargs, patience=PATIENCE_SECONDS)

    def catch_up(self, seconds: float | None = None) -> "Pending[IndexState]":
        """Feed the index for so long, or until it is complete; how far it has come."""
        return self._ask_index(_index_module().state, (), {}, patience=seconds)

    def rebuild_index(self) -> Pending[None]:
        """Forget the index; it is made again from the log, by whoever asks it next."""
        return self._ask_index(_index_module().forget, (), {}, patience=0)

    def index_in_background(self) -> None:
        """From now on feed the index as the log grows, not only when someone searches."""
        if self._in_memory:
            return
        with self._guard:
            self._check_open()
            index = self._open_index()
        self.listen(lambda _: index.wake())
        index.feed_in_background()

    def scrub(self) -> None:
        """Fold the log of pages into the file and empty it, unless a reader still needs it."""
        self._check_process()
        if not self._in_memory:
            vacuum.empty_wal(self.path, wait_seconds=self._wait_seconds)

    def shrink(self, on_step: Callable[[], None] = vacuum.nothing) -> None:
        """Write the file anew without its free pages; writers wait meanwhile. What `on_step` raises ends it."""
        self._check_process()
        if (refusal := self._latch.refusal()) is not None:
            raise refusal
        if not self._in_memory:
            vacuum.vacuum(self.path, wait_seconds=self._wait_seconds, on_step=on_step)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call back with the events of every commit; returns how to stop."""
        return self._listeners.add(listener)

    def close(self) -> None:
        """Finish what was begun and let go of the file."""
        if os.getpid() != self._pid:
            return  # it belongs to the parent process
        with self._guard:
            if self._closed:
                return
            self._closed = True
        if self._index is not None:
            self._index.close()
        for _ in self._readers:
            self._reads.put(None)
        for reader in self._readers:
            reader.join()
        # The writer last: whoever closes last folds the WAL into the file, and readers cannot.
        if self._writer is not None:
            self._writes.put(None)
            self._writer.join()

    def _ask_index(
        self,
        action: Callable[..., T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        patience: float | None,
    ) -> Pending[T]:
        self._check_process()
        if self._in_memory:
            return self._enqueue_write(_index_module().search_in_memory, (action, args, kwargs), {})
        pending: Pending[T] = Pending(self._latch.note)
        with self._guard:
            self._check_open()
            self._open_index().submit(Job(action, args, kwargs, pending), patience=patience)
        return pending

    def _open_index(self) -> "SqliteIndex":
        if self._index is None:
            index: SqliteIndex = _index_module().SqliteIndex(self.path, on_damage=self._latch.note)
            self._index = index
        return self._index

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("The store is closed.")

    def _check_process(self) -> None:
        # Before the guard: another thread may have held it at the moment of the fork.
        if os.getpid() != self._pid:
            raise StoreUnavailable(CROSSED_FORK)

    def _write_forever(self) -> None:
        writer = Writer(self.path, publish=self._listeners.publish, wait_seconds=self._wait_seconds)
        gathering = Gathering(self._writes)
        while not gathering.closing:
            jobs = gathering.take(commit_seconds=writer.commit_seconds)
            writer.work(jobs)
            gathering.answered(len(jobs))
        writer.close()

    def _read_forever(self) -> None:
        connection: apsw.Connection | None = None
        while (job := self._reads.get()) is not None:
            try:
                connection = connection or db_file.connect_reader(self.path)
                job.pending.settle(_read_once(connection, job), None)
            except apsw.Error as error:
                job.pending.settle(None, translate(error, self.path))
                connection = None
            except BaseException as error:  # the action's own; it is handed to the caller
                job.pending.settle(None, error)
            with self._guard:
                self._reading -= 1
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
    """Read on the one connection that a store in memory has; it cannot write meanwhile."""
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


def _index_module() -> Any:
    """The index, loaded by whoever searches; all others start without it."""
    return importlib.import_module("sessionary.store.search.sqlite_index")
