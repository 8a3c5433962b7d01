"""The index file of an SQLite store: one thread that feeds it and answers from it.

The file is derived: when it is missing, damaged or of another store it is made again
from the log. Whatever happens to it, the log does not notice.
"""

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import apsw

from sessionary.errors import Damaged, SessionaryError, StoreUnavailable
from sessionary.store.database import Tx, announce
from sessionary.store.search import indexer
from sessionary.store.search.fts5 import IndexTx
from sessionary.store.search.index_file import IndexFile, IndexLost, is_damage, transaction
from sessionary.store.search.indexer import IndexState
from sessionary.store.sqlite.errors import translate
from sessionary.store.sqlite.tx import SqliteTx
from sessionary.store.sqlite.writer import Job

REPAIRS = 3
# A long backlog is taken in large batches: fewer, larger pieces are merged less often.
BATCH, LARGE_BATCH = indexer.BATCH, 4000
# While others write, the indexer lets them: until it is quiet, or the backlog grows long.
QUIET_SECONDS = 0.02
MOST_DELAY_SECONDS = 0.5
MOST_BEHIND = 20_000

_CANNOT_WRITE = (apsw.FullError, apsw.ReadOnlyError, apsw.BusyError, apsw.LockedError)


class SqliteIndex:
    """Feeds the index and runs searches on it, in a thread of its own."""

    def __init__(self, path: str, *, on_damage: Callable[[BaseException], None]) -> None:
        self._file = IndexFile(path)
        self._on_damage = on_damage
        self._jobs: queue.SimpleQueue[tuple[Job | None, float | None]] = queue.SimpleQueue()
        self._is_stale = False
        self._woken = 0.0
        self._feeds_itself = False
        self._closing = False
        self._thread = threading.Thread(
            target=self._work_forever, name="sessionary-index", daemon=True
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
        """Say that the log has grown. The writer does after each commit: it must cost nothing."""
        self._woken = time.monotonic()
        if self._feeds_itself and not self._is_stale:
            self._is_stale = True
            self._jobs.put((_WAKE, None))

    def close(self) -> None:
        """Finish the search that runs, and let go of the files."""
        self._closing = True
        self._jobs.put((None, None))
        self._thread.join()

    def _work_forever(self) -> None:
        while True:
            job, patience = self._jobs.get()
            if job is None:
                break
            if job is _WAKE:
                self._feed_when_quiet()
            else:
                self._answer(job, patience)
        self._file.disconnect()

    def _answer(self, job: Job, patience: float | None) -> None:
        try:
            job.pending.settle(self._search(job, patience), None)
        except apsw.Error as error:
            self._file.disconnect()
            job.pending.settle(None, translate(error, self._file.path))
        except OSError as error:
            message = f"The search index {self._file.path} cannot be used: {error.strerror}."
            job.pending.settle(None, StoreUnavailable(message))
        except BaseException as error:  # the search's own; it is handed to the caller
            job.pending.settle(None, error)
        announce((job.pending,))

    def _search(self, job: Job, patience: float | None) -> Any:
        if job.action is forget:
            return self._file.replace()
        for _ in range(REPAIRS):
            try:
                connection = self._file.connected()
                self._catch_up(connection, patience)
                with transaction(connection, "BEGIN"):
                    return job.action(IndexTx(connection), *job.args, **job.kwargs)
            except (IndexLost, apsw.Error) as error:
                if not is_damage(error):
                    raise
                self._file.check_log(error)
                self._file.replace()
        raise StoreUnavailable(
            f"The search index {self._file.path} cannot be made; the record itself is safe."
        )

    def _catch_up(self, connection: apsw.Connection, patience: float | None) -> None:
        """Take in what is new; where nothing can be written, the answer says how much it lacks."""
        until = None if patience is None else time.monotonic() + patience
        try:
            while behind := _behind(connection):
                if self._closing or (until is not None and time.monotonic() > until):
                    self.wake()
                    return
                _step(connection, BATCH if behind <= 2 * BATCH else LARGE_BATCH)
        except _CANNOT_WRITE:
            return

    def _feed_when_quiet(self) -> None:
        """Wait until the writer rests, but not for ever; whoever searches meanwhile is answered."""
        until = time.monotonic() + MOST_DELAY_SECONDS
        while (now := time.monotonic()) < until and now - self._woken < QUIET_SECONDS:
            try:
                job, patience = self._jobs.get(timeout=QUIET_SECONDS)
            except queue.Empty:
                continue
            if job is None:
                self._jobs.put((None, None))
                return
            self._answer(job, patience)
        self._is_stale = False
        self._feed_a_little()

    def _feed_a_little(self) -> None:
        """A batch or a few; a failure here is met again, and told, by the next search."""
        try:
            connection = self._file.connected()
            while not self._closing and (behind := _behind(connection)):
                _step(connection, BATCH)
                if behind < MOST_BEHIND:
                    woken = self._woken
                    self.wake()
                    self._woken = woken
                    return
        except (IndexLost, apsw.Error, SessionaryError, OSError) as error:
            # Nor may a file that cannot be taken away end the thread that all searches wait for.
            try:
                self._begin_anew(error)
            except Damaged as damage:
                self._on_damage(damage)
            except (apsw.Error, OSError):
                return

    def _begin_anew(self, error: Exception) -> None:
        if is_damage(error):
            self._file.check_log(error)
            self._file.replace()
            self.wake()
        else:
            self._file.disconnect()
            self._on_damage(error)


def state(tx: Tx) -> IndexState:
    """How far the index has come."""
    return indexer.state(tx)


def forget(_: Tx) -> None:
    """Take the file away, whatever is in it: the index itself knows how."""


def search_in_memory(tx: Tx, action: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A search in a store that has no files: its index stands among its tables."""
    assert isinstance(tx, SqliteTx)
    index = IndexTx(tx.connection)
    if index.one("has_index") is None:
        IndexFile.make_in(index)
    if action is forget:
        index.clear()
        return indexer.clear(index)
    while indexer.step(index):
        continue
    with index.only_reading():
        return action(index, *args, **kwargs)


def _behind(connection: apsw.Connection) -> int:
    with transaction(connection, "BEGIN"):
        return indexer.state(IndexTx(connection)).behind


def _step(connection: apsw.Connection, limit: int) -> int:
    with transaction(connection, "BEGIN IMMEDIATE"):
        return indexer.step(IndexTx(connection), limit)


def _nothing(*_: Any) -> None:
    """What a wake-up call does."""


_WAKE = Job(_nothing, (), {}, None)  # type: ignore[arg-type]
