"""The stores that every test of this room runs on, and a way to read what came of an import."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sessionary.clock import Moment, RandomIds, SystemClock
from sessionary.importers.base.session_merger import ImportTarget
from sessionary.store.database import Store
from sessionary.store.open import open_store
from sessionary.testing.importer_world import ImportedStore


@pytest.fixture(params=("sqlite", "postgres"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each kind."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'sessionary.db'}"
        opened = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
        yield opened
        opened.close()
        return
    url = request.getfixturevalue("migrated_url")
    opened = open_store(url, create=False, clock=SystemClock(), ids=RandomIds())
    yield opened
    opened.close()


@pytest.fixture
def archive(store: Store) -> ImportedStore:
    """What people see of the store."""
    return ImportedStore(store)


@pytest.fixture
def target(store: Store) -> Callable[[str], ImportTarget]:
    """Where the imports of a tool go."""

    def to(tool: str) -> ImportTarget:
        clock = SystemClock()
        return ImportTarget(store, "main", tool, tool.title(), Moment(clock.now(), RandomIds()))

    return to
