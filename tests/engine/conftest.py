"""The stores that the engine's tests run on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sessionary.clock import RandomIds, SystemClock
from sessionary.store.database import Store
from sessionary.store.open import open_store
from tests.support.engine_world import EngineWorld


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A fresh store of each kind."""
    is_file = request.param == "sqlite"
    url = str(tmp_path / "sessionary.db") if is_file else request.getfixturevalue("migrated_url")
    opened = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
    yield opened
    opened.close()


@pytest.fixture
def world(store: Store) -> EngineWorld:
    """Engines on that store, with a fake clock, a scripted agent and a loopback channel."""
    return EngineWorld(store)
