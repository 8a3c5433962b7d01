"""How the asynchronous client waits; `sync_runtime` is the same for the blocking one."""

import asyncio
import logging
import os
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import aclosing, suppress
from typing import Self, TypeVar

from sessionary.app.context import AppContext, load_prices
from sessionary.client.async_pages import AsyncHitsFetch, AsyncPageFetch
from sessionary.client.async_paginator import AsyncHitPaginator, AsyncPaginator
from sessionary.client.base import OpenStore
from sessionary.errors import SessionaryError, StoreUnavailable, TurnLost
from sessionary.model.usage import Usage
from sessionary.store.database import Pending, Store, running_loop

T = TypeVar("T")
log = logging.getLogger(__name__)


class AsyncOpenStore(OpenStore):
    """Opens and closes the store in a thread, so that the event loop goes on."""

    @classmethod
    async def connect(
        cls,
        database: str | os.PathLike[str] | None = None,
        *,
        home: str | os.PathLike[str] | None = None,
        profile: str | None = None,
        create: bool = True,
    ) -> Self:
        """Open a client without `async with`; close it with `await client.aclose()`."""
        client = cls(database, home=home, profile=profile, create=create)
        await client._ensure_open()
        return client

    async def aclose(self) -> None:
        """Finish pending writes and close the store; a second call does nothing."""
        app = self._take_app()
        if app is not None:
            await asyncio.shield(asyncio.to_thread(app.close))

    async def __aenter__(self) -> Self:
        await self._ensure_open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _ensure_open(self) -> None:
        running_loop(committed="no")
        if self._was_closed:
            raise StoreUnavailable("The client is closed; open a new one.")
        if self._app is not None:
            return
        opening = asyncio.ensure_future(asyncio.to_thread(self._open))
        try:
            self._app = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_when_opened)
            raise

    @classmethod
    def _over(cls, app: AppContext) -> Self:
        """Return a client on a store that is open already."""
        client = cls()
        client._app = app
        return client


def _close_when_opened(opening: "asyncio.Future[AppContext]") -> None:
    """Close a store that was opened for someone who no longer waits for it."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


async def prepare_prices(calls: Iterable[Usage | None]) -> None:
    """Load the table of prices before the first call gets its cost, in a thread: the event loop goes on."""
    if not load_prices.cache_info().currsize and any(
        used is not None and used.model is not None and used.cost_microusd is None for used in calls
    ):
        await asyncio.to_thread(load_prices)


async def finish(pending: Pending[T]) -> T:
    """Wait for a transaction and return its value."""
    return await pending


async def take_result(pending: Pending[T], take: Callable[[T], None]) -> None:
    """Wait for a transaction and pass its value on, even if the caller is cancelled meanwhile."""
    await pending.handoff(take)


async def run_blocking(function: Callable[[], T]) -> T:
    """Run a function that blocks, in a thread."""
    return await asyncio.to_thread(function)


async def run_async(function: Callable[[], Coroutine[object, object, T]]) -> T:
    """Run a coroutine of the composition root."""
    return await function()


async def stream_async(make: Callable[[], AsyncGenerator[T]]) -> AsyncGenerator[T]:
    """Yield what a generator of the composition root yields."""
    async with aclosing(make()) as items:
        async for item in items:
            yield item


async def iterate(make: Callable[[], Iterator[T]]) -> AsyncGenerator[T]:
    """Yield the items of an iterator that blocks; each is fetched in a thread."""
    iterator = await asyncio.to_thread(make)
    nothing = object()
    while True:
        item = await asyncio.to_thread(next, iterator, nothing)
        if item is nothing:
            return
        yield item  # type: ignore[misc] # `nothing` has left


class AsyncHeartbeat:
    """Renews a lease in the background until it is stopped; keeps the error if the lease is lost."""

    def __init__(self, renew: Callable[[], Pending[None]], *, seconds: float) -> None:
        self._renew = renew
        self._seconds = seconds
        self._task: asyncio.Task[None] | None = None
        self.lost: TurnLost | None = None

    def start(self) -> None:
        """Begin to renew."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop renewing; nothing is renewed after this has returned."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            try:
                await self._renew()
            except TurnLost as error:
                self.lost = error
                return
            except SessionaryError as error:
                log.warning("A turn's lease could not be renewed; it is tried again: %s", error)


class AsyncChangeSignal:
    """Wakes a waiter when this process commits something; other processes are noticed after the timeout."""

    def __init__(self, store: Store) -> None:
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._stop = store.listen(self._on_commit)

    async def wait(self, seconds: float) -> None:
        """Return after the next commit, or when the time is up."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)
        self._event.clear()

    def close(self) -> None:
        """Stop listening."""
        self._stop()

    def _on_commit(self, _: Sequence[object]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._event.set)


def paginate(fetch: AsyncPageFetch[T], cursor: str | None = None) -> AsyncPaginator[T]:
    """Return the list whose pages `fetch` gives."""
    return AsyncPaginator(fetch, cursor)


def paginate_hits(fetch: AsyncHitsFetch, cursor: str | None = None) -> AsyncHitPaginator:
    """Return the hits whose pages `fetch` gives."""
    return AsyncHitPaginator(fetch, cursor)
