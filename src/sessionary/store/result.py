"""One answer that can be awaited or waited for."""

import sys
import threading
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sessionary.errors import BadInput, Committed

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
U = TypeVar("U")
_Lock = type(threading.Lock())


class Pending(Generic[T]):
    """The outcome of a transaction, now or later.

    `await pending` in a coroutine, `pending.result()` in a thread: the same
    object, the same outcome, for any number of waiters. Raw locks stand where a
    condition variable would, because this is on the path of every append.
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
            # The worker may have finished between the test and the gate.
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

    async def settled(self) -> BaseException | None:
        """Wait for the outcome; its error, or None.

        Whoever is cancelled meanwhile goes only after it: nothing may overtake a write.
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

    async def given_to(self, take: Callable[[T], None]) -> T:
        """The value, once `take` has it.

        It gets it even when whoever awaits is cancelled: what the record says is in someone's
        hands must not fall between them.
        """
        try:
            await self.settled()
        finally:
            if self.error is None:
                take(self.result())
        return self.result()

    def map(self, change: Callable[[T], U]) -> "Pending[U]":
        """The same answer, seen through a function that runs where it is received."""
        return _Mapped(self, change)

    def settle(self, value: Any, error: BaseException | None) -> None:
        """Record the outcome; `announce` then wakes whoever waits."""
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

    async def settled(self) -> BaseException | None:
        return await self._inner.settled()


def running_loop(*, committed: Committed = "unknown") -> "asyncio.AbstractEventLoop":
    """The event loop that the caller runs in; one line for callers that run in something else."""
    # Whoever runs an event loop of asyncio has loaded it; a blocking program goes without.
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


def settled_with(error: BaseException) -> Pending[Any]:
    """An answer that was an error before anyone could wait for it."""
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
