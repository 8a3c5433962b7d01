"""A database of each kind, and both clients on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sessionary import Sessionary


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home directory that a client without arguments uses."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("SESSIONARY_HOME", str(folder))
    monkeypatch.delenv("SESSIONARY_DATABASE", raising=False)
    return folder


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, home: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{home / 'sessionary.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def s(url: str) -> Iterator[Sessionary]:
    """A blocking client."""
    with Sessionary(url) as opened:
        yield opened
