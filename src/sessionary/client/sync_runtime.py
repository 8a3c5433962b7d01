"""How the blocking client waits; `async_runtime` is the same for the asynchronous one."""

import logging
import os
import sys
import threading
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import aclosing, suppress
from queue import SimpleQueue
from typing import Self, TypeVar

from sessionary.app.context import AppContext
from sessionary.client.base import OpenStore
from sessionary.client.pages import HitPage, Page
from sessionary.errors import SessionaryError, TurnLost
from sessionary.model.usage import Usage
from sessionary.store.database import Pending, Store

T = TypeVar("T")
log = logging.getLogger(__name__)


class BlockingOpenStore(OpenStore):
    """Opens the store at once."""

    def __init__(
        self,
        database: str | os.PathLike[str] | None = None,
        *,
        home: str | os.PathLike[str] | None = None,
        profile: str | None = None,
        create: bool = True,
    ) -> None:
        super().__init__(database, home=home, profile=profile, create=create)
        self._app = self._open()

    def close(self) -> None:
        """Finish pending writes and close the store; a second call does nothing."""
        app = self._take_app()
        if app is not None:
            app.close()

    def __enter__(self) -> Self:
        _ = self.app
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    def _over(cls, app: AppContext) -> Self:
        """Return a client on a store that is open already."""
        client = cls.__new__(cls)
        client._app = app
        return client


def prepare_prices(_: Iterable[Usage | None]) -> None:
    """Nothing to do: the first call that gets its cost loads the table of prices."""


def finish(pending: Pending[T]) -> T:
    """Wait for a transaction and return its value."""
    return pending.result()


def take_result(pending: Pending[T], take: Callable[[T], None]) -> None:
    """Wait for a transaction and pass its value on."""
    take(pending.result())


def run_blocking(function: Callable[[], T]) -> T:
    """Run a function that blocks."""
    return function()


def run_async(function: Callable[[], Coroutine[object, object, T]]) -> T:
    """Run a coroutine of the composition root to its end, in an event loop of its own."""
    import asyncio  # a program that never asks an agent saves 40 ms

    if not _has_running_loop():
        return asyncio.run(function())
    # This thread's event loop is running, and waits for us: another thread runs ours.
    outcome: list[T] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            outcome.append(asyncio.run(function()))
        except BaseException as error:  # raised again in the caller's thread
            failure.append(error)

    thread = threading.Thread(target=work, name="sessionary-call")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def stream_async(make: Callable[[], AsyncGenerator[T]]) -> Generator[T]:
    """Yield what an asynchronous generator yields, which runs on in a thread while the caller uses an item."""
    import asyncio  # a program that never asks an agent saves 40 ms

    items: SimpleQueue[tuple[T] | BaseException | None] = SimpleQueue()
    started: SimpleQueue[Callable[[], object]] = SimpleQueue()

    async def consume() -> None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        started.put(lambda: loop.call_soon_threadsafe(task.cancel))
        async with aclosing(make()) as generator:
            async for item in generator:
                items.put((item,))

    def work() -> None:
        try:
            asyncio.run(consume())
        except BaseException as error:  # raised again in the caller's thread
            items.put(error)
        else:
            items.put(None)

    thread = threading.Thread(target=work, name="sessionary-stream")
    thread.start()
    cancel = started.get()
    try:
        while (found := items.get()) is not None:
            if isinstance(found, BaseException):
                raise found
            yield found[0]
    finally:
        with suppress(RuntimeError):  # the loop has ended
            cancel()
        thread.join()


def _has_running_loop() -> bool:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def iterate(make: Callable[[], Iterator[T]]) -> Iterator[T]:
    """Return the items of an iterator."""
    return make()


class Heartbeat:
    """Renews a lease in a thread until it is stopped; keeps the error if the lease is lost."""

    def __init__(self, renew: Callable[[], Pending[None]], *, seconds: float) -> None:
        self._renew = renew
        self._seconds = seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sessionary-lease", daemon=True)
        self.lost: TurnLost | None = None

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing; nothing is renewed after this has returned."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            try:
                self._renew().result()
            except TurnLost as error:
                self.lost = error
                return
            except SessionaryError as error:
                log.warning("A turn's lease could not be renewed; it is tried again: %s", error)


class ChangeSignal:
    """Wakes a waiter when this process commits something; other processes are noticed after the timeout."""

    def __init__(self, store: Store) -> None:
        self._event = threading.Event()
        self._stop = store.listen(self._on_commit)

    def wait(self, seconds: float) -> None:
        """Return after the next commit, or when the time is up."""
        self._event.wait(seconds)
        self._event.clear()

    def close(self) -> None:
        """Stop listening."""
        self._stop()

    def _on_commit(self, _: Sequence[object]) -> None:
        self._event.set()


def paginate(fetch: Callable[[str | None], Page[T]], cursor: str | None = None) -> Page[T]:
    """Return the first page."""
    return fetch(cursor)


def paginate_hits(fetch: Callable[[str | None], HitPage], cursor: str | None = None) -> HitPage:
    """Return the first page of hits."""
    return fetch(cursor)
