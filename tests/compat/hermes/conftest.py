"""A `SessionDB` on each database; after every test the record must agree with itself."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from sessionary.actions import verify
from sessionary.compat.hermes.state import SessionDB
from tests.store.conftest import emptied, opened  # noqa: F401

KINDS = ("sqlite", "postgres")
Opener = Callable[[], SessionDB]


@pytest.fixture(params=KINDS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the record is: a path that does not exist yet, or a server's URL."""
    if request.param == "sqlite":
        return str(tmp_path / "deep" / "down" / "state.db")
    url: str = request.getfixturevalue("emptied")()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DELETE FROM meta WHERE name LIKE 'hermes/%'")
    return url


@pytest.fixture
def open_db(address: str) -> Iterator[Opener]:
    """Opens the record, as often as a test wants; what it left is verified."""
    with ExitStack() as ending:

        def opener() -> SessionDB:
            made = SessionDB(address)
            ending.callback(made.close)
            return made

        yield opener
    if "://" in address or Path(address).exists():
        store = opened(address)
        assert verify.verify(store).broken == ()
        store.close()


@pytest.fixture
def db(open_db: Opener) -> SessionDB:
    """The record, open."""
    return open_db()
