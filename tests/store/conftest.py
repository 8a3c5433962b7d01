"""The stores that every test of this room runs on."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

pytest.register_assert_rewrite(
    "tests.support.suite",
    *(
        f"sessionary.testing.store_{subject}"
        for subject in ("folds", "lists", "log", "outbox", "routing", "sessions", "turns")
    ),
)

from sessionary.clock import RandomIds, SystemClock  # noqa: E402
from sessionary.store.database import Store  # noqa: E402
from sessionary.store.open import open_store  # noqa: E402
from sessionary.store.postgres.store import PostgresStore  # noqa: E402
from tests.support.postgres import Server  # noqa: E402
from tests.support.shared_database import delete_all_rows  # noqa: E402
from tests.support.world import World  # noqa: E402

# A store that waits for a condition waits for so long that no busy machine matters.
PATIENT_SECONDS = 60.0
KINDS = ("sqlite-memory", "sqlite-file", "postgres")

Opener = Callable[[], Store]


def opened(url: str) -> Store:
    return open_store(url, create=True, clock=SystemClock(), ids=RandomIds())


@contextmanager
def short_waits(store: PostgresStore, seconds: float) -> Iterator[None]:
    """Within the block the store waits for a connection only so long: for a server that is down."""
    pool = store._pool
    usual = pool.timeout, pool.reconnect_timeout
    pool.timeout = pool.reconnect_timeout = seconds
    yield
    pool.timeout, pool.reconnect_timeout = usual


def lock_waiters() -> set[threading.Thread]:
    """The threads of this process that wait for the lock of an SQLite file."""
    return {each for each in threading.enumerate() if each.name == "sessionary-lock"}


@pytest.fixture(scope="session")
def emptied(postgres: Server, migrated: str) -> Iterator[Callable[[], str]]:
    """One database for many tests, one after the other: emptying it is cheaper than a new one."""
    url = postgres.create_database(template=migrated)

    yield lambda: delete_all_rows(url)
    postgres.drop_database(url)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An delete_all_rows store of each kind."""
    with ExitStack() as ending:
        store = opened(_url(request, tmp_path, request.param))
        ending.callback(store.close)
        yield store


@pytest.fixture(params=KINDS[1:])
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens the same database once more: another process, as far as the store knows."""
    with ExitStack() as ending:
        url = _url(request, tmp_path, request.param)

        def opener() -> Store:
            store = opened(url)
            ending.callback(store.close)
            return store

        yield opener


@pytest.fixture
def worlds(open_again: Opener) -> list[World]:
    """Two programs on one database."""
    return [World(open_again(), name=name) for name in ("one", "two")]


def _url(request: pytest.FixtureRequest, folder: Path, kind: str) -> str:
    if kind == "sqlite-memory":
        return "sqlite::memory:"
    if kind == "sqlite-file":
        return f"sqlite:///{folder}/sessionary.db"
    url: str = request.getfixturevalue("emptied")()
    return url
