"""Lists that are awaited for a page, or iterated with `async for`; the blocking client gives the first page at once."""

from collections.abc import AsyncIterator, Generator
from typing import TYPE_CHECKING, Generic, TypeVar

from sessionary.client.async_pages import (
    AsyncHitPage,
    AsyncHitsFetch,
    AsyncPage,
    AsyncPageFetch,
)

if TYPE_CHECKING:
    from sessionary.actions.search.search import Hit

T = TypeVar("T")


class AsyncPaginator(Generic[T]):
    """A list that is fetched page by page: `await` it for the first page, or iterate with `async for`."""

    def __init__(self, fetch: AsyncPageFetch[T], cursor: str | None) -> None:
        self._fetch = fetch
        self._cursor = cursor

    def __await__(self) -> Generator[object, None, AsyncPage[T]]:
        return (yield from self._first().__await__())

    async def __aiter__(self) -> AsyncIterator[T]:
        async for item in await self._first():
            yield item

    async def _first(self) -> AsyncPage[T]:
        return await self._fetch(self._cursor)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: await it for a page, or use it in `async for`>"


class AsyncHitPaginator(AsyncPaginator["Hit"]):
    """Hits that are fetched page by page: `await` it for the first page, or iterate with `async for`."""

    def __init__(self, fetch: AsyncHitsFetch, cursor: str | None) -> None:
        super().__init__(fetch, cursor)
        self._fetch_hits = fetch

    def __aiter__(self) -> "AsyncIterator[Hit]":
        return super().__aiter__()

    def __await__(self) -> Generator[object, None, AsyncHitPage]:
        return (yield from self._first_hits().__await__())

    async def _first_hits(self) -> AsyncHitPage:
        return await self._fetch_hits(self._cursor)
