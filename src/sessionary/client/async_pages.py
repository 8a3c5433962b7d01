"""Pages of lists. Iterating over a page goes on through the pages after it."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from sessionary.actions.search.search import Hit, SearchResult

T = TypeVar("T")


class AsyncPageFetch(Protocol[T]):
    """Fetches the page at a cursor; None is the first one."""

    async def __call__(self, cursor: str | None, /) -> "AsyncPage[T]":
        """Return the page."""


class AsyncPage(Generic[T]):
    """A page of a list: its items, and the cursor of the page after it."""

    def __init__(self, items: tuple[T, ...], cursor: str | None, fetch: AsyncPageFetch[T]) -> None:
        self.items = items
        self.cursor = cursor
        self._fetch = fetch

    async def next_page(self) -> "AsyncPage[T] | None":
        """Return the page after this one; None after the last."""
        return None if self.cursor is None else await self._fetch(self.cursor)

    async def __aiter__(self) -> AsyncIterator[T]:
        page: AsyncPage[T] | None = self
        while page is not None:
            for item in page.items:
                yield item
            page = await page.next_page()

    def __repr__(self) -> str:
        more = "" if self.cursor is None else ", and more"
        return f"<{type(self).__name__} of {len(self.items)} items{more}>"


class AsyncHitsFetch(Protocol):
    """Fetches the page of hits at a cursor; None is the first one."""

    async def __call__(self, cursor: str | None, /) -> "AsyncHitPage":
        """Return the page."""


class AsyncHitPage(AsyncPage["Hit"]):
    """A page of hits, best first, and what the search says besides."""

    items: "tuple[Hit, ...]"

    def __init__(self, result: "SearchResult", fetch: AsyncHitsFetch) -> None:
        super().__init__(result.hits, result.next, fetch)
        self.result = result

    @property
    def total(self) -> int:
        """How many matches were counted; with `more` there are others beyond them."""
        return self.result.total

    @property
    def more(self) -> bool:
        """Whether there are more matches than were counted."""
        return self.result.more

    @property
    def suggestion(self) -> str | None:
        """Another spelling that would find something, if nothing was found."""
        return self.result.suggestion
