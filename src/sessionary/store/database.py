"""The port to a database: a transaction is a function, and its answer can be awaited or waited for."""

import sys
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
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

from sessionary.errors import BadInput, Committed, Damaged, Unreadable

if TYPE_CHECKING:
    import asyncio
    import logging

    from sessionary.model.query import Query
    from sessionary.store.search.indexer import IndexState

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")
Row = tuple[Any, ...]
Listener = Callable[[Sequence[Any]], None]

REMEDY = "Run `sessionary doctor`, then restore a backup (`sessionary restore`)."
KEPT_CHANGING = "Others kept changing the same record; nothing was written. Try again."
CROSSED_FORK = "An open store cannot cross a fork; open it again in the child process."
_Lock = type(threading.Lock())


class RaceLost(Exception):
    """Another transaction was first. The store runs the function again on fresh data."""


class Tx(Protocol):
    """What an action may do in its transaction. It never commits nor waits for the network.

    A query that only the other database has (a lock, for example) is skipped: no row, no change.
    """

    def one(self, name: str, /, **params: Any) -> Row | None:
        """The first row of a named query, or None."""

    def all(self, name: str, /, **params: Any) -> list[Row]:
        """Every row of a named query."""

    def run(self, name: str, /, **params: Any) -> int:
        """Run a named statement; the number of rows it changed."""

    def many(self, name: str, rows: Iterable[Mapping[str, Any] | Row], /) -> int:
        """Run a named statement once per row; the number of rows it changed.

        A tuple holds its values in the order in which the statement first names its parameters.
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
    ) -> list[dict[str, Any]]:
        """Return the parameter sets for this database's search queries, to be run one after the other.

        A document matches if it has one facet of each group and none of `without`. `is_sure` says
        whether every match lies between the two times, or must still be checked.
        """

    def after_commit(self, event: Any) -> None:
        """Publish an event once, and only if, this transaction is committed."""


class Pending(Generic[T]):
    """The outcome of a transaction, now or later.

    `await pending` in a coroutine, `pending.result()` in a thread: the same object, the same
    outcome, for any number of waiters. It uses raw locks instead of a condition variable because
    every append goes through it.
    """

    __slots__ = ("_done", "_error", "_on_error", "_value", "_waiters")

    def __init__(self, on_error: Callable[[BaseException], None] | None = None) -> None:
        self._done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._on_error = on_error
        self._waiters: list[threading.Lock | asyncio.Future[Any]] = []

    def result(self, timeout: float | None = None) -> T:
        """Wait for the outcome and return or raise it."""
        if not self._done:
            gate = threading.Lock()
            gate.acquire()
            self._waiters.append(gate)
            # The worker may have finished after the first test and missed the new waiter.
            if not self._done and not gate.acquire(  # type: ignore[redundant-expr]
                timeout=-1 if timeout is None else timeout
            ):
                raise TimeoutError("the answer is not there yet")
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
        """What went wrong, once there is an outcome."""
        return self._error

    async def wait_uncancellable(self) -> BaseException | None:
        """Wait for the outcome; return its error, or None.

        A cancellation takes effect only after the outcome, so that nothing overtakes a write.
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

        For claims: whatever the database says this process holds must reach its new owner.
        """
        try:
            await self.wait_uncancellable()
        finally:
            if self.error is None:
                take(self.result())
        return self.result()

    def map(self, change: Callable[[T], U]) -> "Pending[U]":
        """The same answer, changed by a function that runs where the answer is received."""
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
    """Return the event loop of the caller; raise `BadInput` if it runs under something else."""
    # A caller in an asyncio loop has loaded asyncio; a blocking program never loads it.
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
    """An answer that is an error from the start."""
    pending: Pending[Any] = Pending()
    pending.settle(None, error)
    return pending


def announce(settled: Iterable[Pending[Any]]) -> None:
    """Wake the waiters of settled answers: threads one by one, each event loop once."""
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
            continue  # the loop was closed: no one waits any more


def _wake(futures: "list[asyncio.Future[Any]]") -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


class WriteOutcome(NamedTuple):
    """What a function of a shared transaction came to; its caller learns of it after the commit."""

    value: Any
    error: BaseException | None
    events: Sequence[Any] = ()


class BatchFailed(Exception):
    """A function failed in a shared transaction, and its work cannot be told from the others'."""


class Store(Protocol):
    """An open database: functions of a transaction go in, answers come out."""

    url: str

    @property
    def damage(self) -> Damaged | None:
        """The first structural damage that was found; while there is one, writes are refused."""

    def note_damage(self, error: Damaged) -> None:
        """Record damage that a check found."""

    def write(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        """Run an action in a transaction; the answer comes after the commit is durable."""

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
        """Run an action that reads log and index; the index has seen every append that returned."""

    def catch_up(self, seconds: float | None = None) -> Pending["IndexState"]:
        """Feed the index until it is complete or the time is over; return how far it has come."""

    def rebuild_index(self) -> Pending[None]:
        """Delete the index; the next search makes it again from the log."""

    def index_in_background(self) -> None:
        """From now on feed the index as the log grows, not only before a search."""

    def scrub(self) -> None:
        """Remove copies of deleted content that the database keeps beside its tables."""

    def shrink(self) -> None:
        """Return the disk space of deleted content to the system."""

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call back with the events of every commit of this store object; returns how to stop."""

    def close(self) -> None:
        """Finish what was begun and release the database."""


class DamageLatch:
    """Keeps the first structural damage that any read, search or write of a store found."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: Damaged | None = None

    def note(self, error: BaseException) -> None:
        """Remember an error if it is the first that says that the database is damaged."""
        if self.found is None and isinstance(error, Damaged) and not isinstance(error, Unreadable):
            self.found = error
            # A program without logging is a short command: it prints the error itself.
            if "logging" in sys.modules:
                logger(__name__).error("The store is damaged; writes are refused: %s", error)

    def refusal(self) -> Damaged | None:
        """The answer to every write after damage was found: it could destroy what can be saved."""
        if self.found is None:
            return None
        return Damaged(
            "The store is damaged; nothing was written, and what can be read is still served. "
            + REMEDY
        )


class Listeners:
    """Who is told about the commits of one store object."""

    def __init__(self) -> None:
        self._all: list[Listener] = []

    def add(self, listener: Listener) -> Callable[[], None]:
        """Add a listener; returns how to remove it. Removing it twice is fine."""
        self._all = [*self._all, listener]

        def remove() -> None:
            self._all = [each for each in self._all if each is not listener]

        return remove

    def publish(self, events: Sequence[Any]) -> None:
        """Tell everyone. One that fails is logged: the callers of the commit still wait."""
        if not events:
            return
        for listener in self._all:
            try:
                listener(events)
            except Exception:
                logger(__name__).exception("A listener failed after a commit.")


def logger(name: str) -> "logging.Logger":
    """The logger of a module of the store; a command that has nothing to log saves 3 ms of imports."""
    import logging

    return logging.getLogger(name)
