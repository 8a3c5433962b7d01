"""Stores of every kind with a world to speak in, and a way to ask."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sessionary.actions.search.search import Hit, SearchOptions, SearchResult, search
from sessionary.model.message import message
from sessionary.store.database import Store
from tests.store.conftest import (  # noqa: F401
    KINDS,
    _url,
    emptied,
    open_again,
    opened,
    store,
)
from tests.support.postgres import Server
from tests.support.world import World

__all__ = ["KINDS", "Library", "Maker", "opened"]


class Library(World):
    """A world that can be searched."""

    def find(self, text: str, **wish: object) -> SearchResult:
        """Search as a person would."""
        return self.store.search(
            search,
            text,
            profile=self.profile,
            options=SearchOptions(**wish),  # type: ignore[arg-type]
            now=self.clock.now(),
        ).result()

    def hits(self, text: str, **wish: object) -> list[Hit]:
        """Every hit, not only the best of each session."""
        wish.setdefault("all_hits", True)
        wish.setdefault("limit", 200)
        return list(self.find(text, **wish).hits)

    def texts_of(self, text: str, **wish: object) -> set[str]:
        """The texts of the messages that are found."""
        return {hit.text for hit in self.hits(text, **wish)}

    def sessions_with(self, *texts: str, role: str = "user") -> list[str]:
        """Sessions with one message each; their ids."""
        made = []
        for text in texts:
            session = self.session("hello")
            self.append(session, message(role, text))
            made.append(session)
        return made


Maker = Callable[[str], Library]


@pytest.fixture
def library(store: Store) -> Library:  # noqa: F811
    return Library(store)


@pytest.fixture(scope="module")
def make_library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Maker]:
    """Makes a library of a kind that lives as long as the module."""
    with ExitStack() as ending:

        def make(kind: str) -> Library:
            if kind == "postgres":
                server: Server = request.getfixturevalue("postgres")
                url = server.create_database(template=request.getfixturevalue("migrated"))
                ending.callback(server.drop_database, url)
            elif kind == "sqlite-file":
                folder: Path = tmp_path_factory.mktemp("library")
                url = f"sqlite:///{folder}/sessionary.db"
            else:
                url = "sqlite::memory:"
            made = opened(url)
            ending.callback(made.close)
            return Library(made)

        yield make
