# Generated from async_pages.py by tools/make_sync_client.py: change that file, and run the tool.
"""Pages of lists. Iterating over a page goes on through the pages after it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from sessionary.actions.search.search import Hit, SearchResult

T = TypeVar("T")


class PageFetch(Protocol[T]):
    """Fetches the page at a cursor; None is the first one."""

    def __call__(self, cursor: str | None, /) -> "Page[T]":
        """Return the page."""


class Page(Generic[T]):
    """A page of a list: its items, and the cursor of the page after it."""

    def __init__(self, items: tuple[T, ...], cursor: str | None, fetch: PageFetch[T]) -> None:
        self.items = items
        self.cursor = cursor
        self._fetch = fetch

    def next_page(self) -> "Page[T] | None":
        """Return the page after this one; None after the last."""
        return None if self.cursor is None else self._fetch(self.cursor)

    def __iter__(self) -> Iterator[T]:
        page: Page[T] | None = self
        while page is not None:
            yield from page.items
            page = page.next_page()

    def __repr__(self) -> str:
        more = "" if self.cursor is None else ", and more"
        return f"<{type(self).__name__} of {len(self.items)} items{more}>"


class HitsFetch(Protocol):
    """Fetches the page of hits at a cursor; None is the first one."""

    def __call__(self, cursor: str | None, /) -> "HitPage":
        """Return the page."""


class HitPage(Page["Hit"]):
    """A page of hits, best first, and what the search says besides."""

    items: "tuple[Hit, ...]"

    def __init__(self, result: "SearchResult", fetch: HitsFetch) -> None:
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
