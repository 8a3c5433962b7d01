"""Fixtures that the suites need: put `pytest_plugins = ["sessionary.testing.fixtures"]` into your conftest.py."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sessionary.clock import RandomIds, SystemClock
from sessionary.store.database import Store
from sessionary.store.open import open_store


@pytest.fixture
def anyio_backend() -> str:
    """Run asynchronous tests on asyncio."""
    return "asyncio"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Open an empty store in a file."""
    url = str(tmp_path / "sessionary.db")
    opened = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
    yield opened
    opened.close()
