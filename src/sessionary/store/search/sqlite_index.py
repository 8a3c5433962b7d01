"""The index file of an SQLite store: one thread that feeds it and searches it.

The file is derived: when it is missing, damaged or of another store, it is rebuilt from the log.
No failure of the index reaches the log.
"""

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import apsw

from sessionary.errors import SessionaryError, StoreUnavailable
from sessionary.store.database import Tx, announce, logger
from sessionary.store.search import indexer
from sessionary.store.search.fts5 import IndexTx
from sessionary.store.search.index_file import IndexFile, IndexLost, is_damage, transaction
from sessionary.store.sqlite.db_file import SqliteTx, translate
from sessionary.store.sqlite.store import Job

MAX_REBUILDS = 3
BATCH = indexer.BATCH
# While others write, feeding waits: until it is quiet, or the backlog grows long.
QUIET_SECONDS = 0.02
MAX_DELAY_SECONDS = 0.5
LONG_BACKLOG = 20_000
# After a failure feeding pauses, twice as long each time.
FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 60.0

_CANNOT_WRITE = (apsw.FullError, apsw.ReadOnlyError, apsw.BusyError, apsw.LockedError)


class _Search(NamedTuple):
    """A search, and how long the index may catch up with the log before it."""

    job: Job
    catch_up_seconds: float | None


# The messages of the thread's queue besides searches.
_FEED, _CLOSE = "feed", "close"


class SqliteIndex:
    """Feeds the index and runs searches on it, in a thread of its own."""

    def __init__(self, path: str, *, on_damage: Callable[[BaseException], None]) -> None:
        self._file = IndexFile(path)
        self._on_damage = on_damage
        self._queue: queue.SimpleQueue[_Search | str] = queue.SimpleQueue()
        self._is_stale = False
        self._woken = 0.0
        self._feeds_itself = False
        self._closing = False
        self._pause_seconds = 0.0
        self._resume_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="sessionary-index", daemon=True)
        self._thread.start()

    def submit(self, job: Job, *, catch_up_seconds: float | None) -> None:
        """Run a search as soon as the index has seen every append that has returned."""
        self._queue.put(_Search(job, catch_up_seconds))

    def feed_in_background(self) -> None:
        """From now on feed the index as the log grows, not only before a search."""
        self._feeds_itself = True
        self.wake()

    def wake(self) -> None:
        """Say that the log has grown. The writer calls it after each commit, so it must be cheap."""
        self._woken = time.monotonic()
        if self._feeds_itself and not self._is_stale:
            self._is_stale = True
            self._queue.put(_FEED)

    def close(self) -> None:
        """Finish the running search and close the files."""
        self._closing = True
        self._queue.put(_CLOSE)
        self._thread.join()

    def _run(self) -> None:
        while (message := self._next()) != _CLOSE:
            if isinstance(message, _Search):
                self._answer(message)
            elif self._resume_at is None:  # else it is fed after the pause
                self._feed_when_quiet()
        self._file.disconnect()

    def _next(self) -> _Search | str:
        """The next message; when a pause is over, feed."""
        if self._resume_at is not None:
            try:
                return self._queue.get(timeout=max(0.0, self._resume_at - time.monotonic()))
            except queue.Empty:
                self._resume_at = None
                return _FEED
        return self._queue.get()

    def _answer(self, search: _Search) -> None:
        pending = search.job.pending
        try:
            pending.settle(self._search(search), None)
        except apsw.Error as error:
            self._file.disconnect()
            pending.settle(None, translate(error, self._file.path))
        except OSError as error:
            message = f"The search index {self._file.path} cannot be used: {error.strerror}."
            pending.settle(None, StoreUnavailable(message))
        except BaseException as error:  # the search's own; it is handed to the caller
            pending.settle(None, error)
        announce((pending,))

    def _search(self, search: _Search) -> Any:
        action, args, kwargs, _ = search.job
        if action is delete:
            return self._file.delete()
        for _ in range(MAX_REBUILDS):
            try:
                connection = self._file.connected()
                self._catch_up(connection, search.catch_up_seconds)
                with transaction(connection, "BEGIN"):
                    return action(IndexTx(connection), *args, **kwargs)
            except (IndexLost, apsw.Error) as error:
                if not is_damage(error):
                    raise
                self._file.rebuild(error)
        raise StoreUnavailable(
            f"The search index {self._file.path} cannot be made; the record itself is safe."
        )

    def _catch_up(self, connection: apsw.Connection, seconds: float | None) -> None:
        """Take in what is new; where nothing can be written, the answer says how much is missing."""
        until = None if seconds is None else time.monotonic() + seconds
        try:
            while behind := _behind(connection):
                if self._closing or (until is not None and time.monotonic() > until):
                    self.wake()
                    return
                _step(connection, indexer.batch_for(behind))
        except _CANNOT_WRITE as error:
            logger(__name__).info("The search index cannot be fed now: %s", error)

    def _feed_when_quiet(self) -> None:
        """Feed once the writer rests or MAX_DELAY_SECONDS are over; answer searches meanwhile."""
        until = time.monotonic() + MAX_DELAY_SECONDS
        while (now := time.monotonic()) < until and now - self._woken < QUIET_SECONDS:
            try:
                message = self._queue.get(timeout=QUIET_SECONDS)
            except queue.Empty:
                continue
            if message == _CLOSE:
                self._queue.put(_CLOSE)
                return
            if isinstance(message, _Search):
                self._answer(message)
        self._is_stale = False
        try:
            self._feed()
        except Exception as error:  # searches wait for this thread: nothing may end it
            self._pause(error)
        else:
            self._pause_seconds = 0.0

    def _feed(self) -> None:
        """Take in a batch, or more of a long backlog; then let others write before the next."""
        if self._pause_seconds:
            self._file.disconnect()  # the last attempt failed: not on the same connection again
        try:
            connection = self._file.connected()
            while not self._closing and (behind := _behind(connection)):
                _step(connection, BATCH)
                if behind < LONG_BACKLOG:
                    woken = self._woken
                    self.wake()
                    self._woken = woken
                    return
        except (IndexLost, apsw.Error) as error:
            if not is_damage(error):
                raise
            self._file.rebuild(error)
            self.wake()

    def _pause(self, error: Exception) -> None:
        self._pause_seconds = min(2 * self._pause_seconds or FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        self._resume_at = time.monotonic() + self._pause_seconds
        self._on_damage(error)
        if isinstance(error, apsw.Error | OSError | SessionaryError):
            # The next search meets the failure again and reports it.
            logger(__name__).warning(
                "Feeding the search index failed (%s); next attempt in %.0f s.",
                error,
                self._pause_seconds,
            )
        else:
            logger(__name__).error(
                "Feeding the search index failed; next attempt in %.0f s.",
                self._pause_seconds,
                exc_info=error,
            )


def delete(_: Tx) -> None:
    """Delete the index: `SqliteIndex` knows this function and does it itself."""


def search_in_memory(tx: Tx, action: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Search a store in memory; its index is among its tables."""
    assert isinstance(tx, SqliteTx)
    index = IndexTx(tx.connection)
    if index.one("has_index") is None:
        IndexFile.make_in(index)
    if action is delete:
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
