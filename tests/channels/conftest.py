"""The store that the channels' tests run on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sessionary.clock import RandomIds, SystemClock
from sessionary.store.database import Store
from sessionary.store.open import open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A fresh SQLite store; the store suite checks that both databases behave alike."""
    url = str(tmp_path / "sessionary.db")
    opened = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
    yield opened
    opened.close()
