"""A planned stop is short, however dead the database is."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

import pytest

from sessionary.app import import_watch
from sessionary.engine import engine
from sessionary.store.postgres import store as postgres_store
from sessionary.web import connections
from tests.faults.server import Gone, Served
from tests.support.postgres import PostgresServer

PROMISED_SECONDS = 20
# The promise is for a machine that has time for the server; here many tests share two cores.
BUSY_MACHINE_SECONDS = 10
SLOW_AGENT = """
[agents.slow]
kind = "command"
command = ["sleep", "60"]
"""


@pytest.fixture
def server(postgres_to_break: PostgresServer, tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path / "home", postgres_to_break.create_database())
    (made.home / "sessionary.toml").write_text(SLOW_AGENT)
    yield made
    made.close()


def test_the_time_limits_of_a_stop_add_up_to_less_than_was_promised() -> None:
    """F2: these parts stop one after the other, and each may wait for the database in vain."""
    requests = connections.STOP_SECONDS
    imports = import_watch.STOP_SECONDS
    turns = engine.STOP_SECONDS + engine.CLOSE_SECONDS
    database = postgres_store.FINISH_SECONDS + 2 * postgres_store.CUT_SECONDS

    assert requests + imports + turns + database < PROMISED_SECONDS


def test_a_server_whose_database_is_silent_ends_all_the_same(
    postgres_to_break: PostgresServer,
    server: Served,
    record_property: Callable[[str, object], None],
) -> None:
    """F2: a turn runs, a request waits for its answer, and the database says nothing any more."""
    server.start()
    server.ask("POST", "/sessions", {"text": "hello", "run": True})
    postgres_to_break.freeze()
    asking = threading.Thread(target=asked_in_vain, args=(server,))
    asking.start()

    began = time.monotonic()
    code = server.stop()
    took = time.monotonic() - began
    asking.join()

    record_property("stopped_after_seconds", round(took, 1))
    assert code == 0
    assert took < PROMISED_SECONDS + BUSY_MACHINE_SECONDS


def asked_in_vain(server: Served) -> None:
    """Send a request; whether it is cut off or refused, it gets no sessions."""
    with suppress(Gone, ValueError):
        status, _ = server.ask("GET", "/sessions")
        assert status == HTTPStatus.SERVICE_UNAVAILABLE
