"""The interface to a database: a transaction is a function, whose outcome can be awaited or waited for in a thread."""

import os
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
)

from sessionary.errors import BadInput, Committed, Damaged, StoreUnavailable, Unreadable

if TYPE_CHECKING:
    import asyncio
    import logging

    from sessionary.model.query import Query
    from sessionary.store.search.indexer import IndexState

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")
Row = tuple[Any, ...]
# A named statement, and its parameters by name.
Statement = tuple[str, Mapping[str, Any]]
Listener = Callable[[Sequence[Any]], None]

REMEDY = "Run `sessionary doctor`, then restore a backup (`sessionary restore`)."
KEPT_CHANGING = "Others kept changing the same record; nothing was written. Try again."
_Lock = type(threading.Lock())


class _Process:
    """Counts the forks that led to this process: to ask for its number would take 5 µs of each call."""

    forks = 0

    @classmethod
    def note_fork(cls) -> None:
        cls.forks += 1


os.register_at_fork(after_in_child=_Process.note_fork)


class RaceLost(Exception):
    """Another transaction changed the same data first. The store runs the function again on fresh data."""


# For a search of everything that matches.
MANY = 2**31


class Tx(Protocol):
    """What an action can do in its transaction. An action never commits and never waits for the network.

    A query that exists only for another database, such as a lock, is skipped: it returns and changes no rows.
    """

    def one(self, name: str, /, **params: Any) -> Row | None:
        """Run a named query; return its first row, or None."""

    def all(self, name: str, /, **params: Any) -> list[Row]:
        """Run a named query; return all its rows."""

    def run(self, name: str, /, **params: Any) -> int:
        """Run a named statement; return the number of rows it changed."""

    def many(self, name: str, rows: Iterable[Mapping[str, Any] | Row], /) -> int:
        """Run a named statement once for each row of parameters; return the number of rows it changed.

        The values of a tuple are in the order in which the parameters first occur in the statement.
        """

    def batch(self, statements: Sequence[Statement], /) -> list[list[Row]]:
        """Run named statements one after the other; return the rows of each. PostgreSQL is asked once for all."""

    def overlapped(self) -> AbstractContextManager[object]:
        """Within the block, PostgreSQL works on what `many` and `run` sent while we go on.

        They return no counts then, and an error may come with a later statement or with the block's end.
        """

    def script(self, text: str) -> None:
        """Run several statements without parameters; for migrations."""

    def match(
        self,
        query: "Query",
        facets: Sequence[Sequence[str]],
        *,
        without: Sequence[str] = (),
        between: tuple[int, int] | None = None,
        below: int | None = None,
        limit: int = MANY,
    ) -> Generator[dict[str, Any], int | None, None]:
        """Yield the parameters of this database's search queries, to be run one after the other.

        Who wants only `limit` matches sends how many each query has found, and stops when they are enough.

        A document matches if it has one facet of each group and none of `without`. `is_sure` says
        whether every match lies between the two times, or must still be checked.
        """

    def after_commit(self, event: Any) -> None:
        """Publish an event after this transaction is committed; never if it is not."""


class Pending(Generic[T]):
    """The outcome of a transaction, now or later.

    `await pending` in a coroutine, `pending.result()` in a thread: the same object, the same
    outcome, for any number of waiters. It uses plain locks, which are faster than a condition variable,
    because every append goes through it.
    """

    __slots__ = ("_done", "_error", "_on_error", "_value", "_waiters")

    def __init__(self, on_error: Callable[[BaseException], None] | None = None) -> None:
        self._done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._on_error = on_error
        self._waiters: list[threading.Lock | asyncio.Future[Any]] = []

    def result(self, timeout: float | None = None) -> T:
        """Wait for the outcome; return the value or raise the error."""
        if not self._done:
            lock = threading.Lock()
            lock.acquire()
            self._waiters.append(lock)
            # Check again: the worker may have finished after the first check, before it could see this waiter.
            if not self._done and not lock.acquire(  # type: ignore[redundant-expr]
                timeout=-1 if timeout is None else timeout
            ):
                raise TimeoutError("the transaction has not finished yet")
        return self._outcome()

    def __await__(self) -> Generator[Any, None, T]:
        if not self._done:
            future = running_loop().create_future()
            self._waiters.append(future)
            if not self._done:
                yield from future
        return self._outcome()

    @property
    def error(self) -> BaseException | None:
        """The error, once there is an outcome; None if there was none."""
        return self._error

    async def wait_uncancellable(self) -> BaseException | None:
        """Wait for the outcome; return its error, or None.

        A cancellation takes effect only when the outcome is there, so that no later write overtakes this one.
        """
        loop = running_loop()
        asyncio = sys.modules["asyncio"]
        cancelled = None
        while not self._done:
            future = loop.create_future()
            self._waiters.append(future)
            try:
                if not self._done:
                    await future
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
        return self._error

    async def handoff(self, take: Callable[[T], None]) -> T:
        """Pass the value to `take`, even if the caller is cancelled meanwhile; then return it.

        This is for leases: what the database records as held by this process must reach the code that releases it.
        """
        try:
            await self.wait_uncancellable()
        finally:
            if self.error is None:
                take(self.result())
        return self.result()

    def map(self, change: Callable[[T], U]) -> "Pending[U]":
        """Return the same outcome with its value changed by a function, which runs in the waiter's thread or task."""
        return _Mapped(self, change)

    def settle(self, value: Any, error: BaseException | None) -> None:
        """Record the outcome; `announce` then wakes the waiters."""
        if error is not None and self._on_error is not None:
            self._on_error(error)
        self._value = value
        self._error = error
        self._done = True

    def _outcome(self) -> T:
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value


class _Mapped(Pending[U]):
    __slots__ = ("_change", "_inner")

    def __init__(self, inner: Pending[Any], change: Callable[[Any], U]) -> None:
        super().__init__()
        self._inner = inner
        self._change = change

    def result(self, timeout: float | None = None) -> U:
        return self._change(self._inner.result(timeout))

    def __await__(self) -> Generator[Any, None, U]:
        value = yield from self._inner.__await__()
        return self._change(value)

    @property
    def error(self) -> BaseException | None:
        return self._inner.error

    async def wait_uncancellable(self) -> BaseException | None:
        return await self._inner.wait_uncancellable()


def running_loop(*, committed: Committed = "unknown") -> "asyncio.AbstractEventLoop":
    """Return the asyncio event loop of the caller; raise `BadInput` if there is none."""
    # A caller in an asyncio loop has imported asyncio; a program without one is spared the import.
    loaded: Any = sys.modules.get("asyncio")
    try:
        if loaded is not None:
            loop: asyncio.AbstractEventLoop = loaded.get_running_loop()
            return loop
    except RuntimeError:
        pass
    raise BadInput(
        "The awaitable interface runs under asyncio only, not under trio or another loop. There, "
        "open it with `with` and call it in a thread: `await trio.to_thread.run_sync(…)`.",
        committed=committed,
    )


def failed_with(error: BaseException) -> Pending[Any]:
    """Return an outcome that is this error."""
    pending: Pending[Any] = Pending()
    pending.settle(None, error)
    return pending


def announce(settled: Iterable[Pending[Any]]) -> None:
    """Wake the waiters of settled outcomes: each thread by its lock, each event loop with one call."""
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[Any]]] = {}
    for pending in settled:
        for waiter in pending._waiters:
            if isinstance(waiter, _Lock):
                waiter.release()
            else:
                loops.setdefault(waiter.get_loop(), []).append(waiter)
    for loop, futures in loops.items():
        try:
            loop.call_soon_threadsafe(_wake, futures)
        except RuntimeError:
            continue  # the loop is closed: nobody in it waits any more


def _wake(futures: "list[asyncio.Future[Any]]") -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


class WriteOutcome(NamedTuple):
    """The outcome of one function in a shared transaction; its caller gets it after the commit."""

    value: Any
    error: BaseException | None
    events: Sequence[Any] = ()


class BatchFailed(Exception):
    """A function failed in a shared transaction, and its changes cannot be undone without those of the others."""


class Store(Protocol):
    """An open database, which runs functions in transactions."""

    url: str

    @property
    def damage(self) -> Damaged | None:
        """The first structural damage that was found, or None; after that, writes are refused."""

    def note_damage(self, error: Damaged) -> None:
        """Record damage that a check found."""

    def write(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        """Run an action in a transaction; its outcome is there once the commit is durable."""

    def read(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        """Run an action that only reads, on one consistent snapshot."""

    def search(
        self,
        action: Callable[Concatenate[Tx, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Pending[T]:
        """Run an action that reads the log and the index; the index contains every append that has returned."""

    def catch_up(self, seconds: float | None = None) -> Pending["IndexState"]:
        """Update the index until it is complete or the time is up; return its state."""

    def rebuild_index(self) -> Pending[None]:
        """Delete the index; the next search builds it again from the log."""

    def index_in_background(self) -> None:
        """From now on update the index whenever the log grows, not only before a search."""

    def scrub(self) -> None:
        """Remove copies of deleted content that the database keeps beside its tables."""

    def shrink(self) -> None:
        """Return the disk space of deleted content to the operating system."""

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with the events of every commit of this store object; return a function that stops it."""

    def close(self) -> None:
        """Finish the transactions that have begun, and close the database."""


class BaseStore:
    """What both stores have in common: the damage that was found, the listeners, and the checks before each call."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.damage: Damaged | None = None
        self._listeners: list[Listener] = []
        self._guard = threading.Lock()
        self._closed = False
        self._forks = _Process.forks

    def note_damage(self, error: BaseException) -> None:
        """Keep the error if it is the first one that reports structural damage; from then on writes are refused."""
        if self.damage is None and isinstance(error, Damaged) and not isinstance(error, Unreadable):
            self.damage = error
            # A program that has not imported logging is a short command, which prints the error itself.
            if "logging" in sys.modules:
                logger(__name__).error("The store is damaged; writes are refused: %s", error)

    def _refusal(self) -> Damaged | None:
        """Return the error for a write after damage was found: writing could destroy what can still be saved."""
        if self.damage is None:
            return None
        return Damaged(
            "The store is damaged; nothing was written, and what can be read is still served. "
            + REMEDY
        )

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with the events of every commit of this store object; return a function that stops it."""
        self._listeners = [*self._listeners, listener]

        def remove() -> None:
            self._listeners = [each for each in self._listeners if each is not listener]

        return remove

    def _publish(self, events: Sequence[Any]) -> None:
        """Call every listener. An error is only logged: the callers are still waiting for their outcomes."""
        if not events:
            return
        for listener in self._listeners:
            try:
                listener(events)
            except Exception:
                logger(__name__).exception("A listener failed after a commit.")

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("The store is closed.")

    def _check_process(self) -> None:
        # Before the guard is taken: another thread may have held it at the moment of the fork.
        if _Process.forks != self._forks:
            raise StoreUnavailable(
                "An open store cannot cross a fork; open it again in the child process."
            )

    def _begin_close(self) -> bool:
        """Mark the store as closed; False if it is closed already, or belongs to the parent process."""
        if _Process.forks != self._forks:
            return False
        with self._guard:
            was_open, self._closed = not self._closed, True
        return was_open


def logger(name: str) -> "logging.Logger":
    """Return the logger of a module of the store."""
    import logging  # not at the top: a command that logs nothing saves 3 ms

    return logging.getLogger(name)
