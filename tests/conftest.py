"""Fixtures for every test, and the rule that a skipped test fails."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TypeVar

import hypothesis
import pytest

from sessionary.clock import RandomIds, SystemClock
from sessionary.store.open import open_store
from tests.support.dovecot import Dovecot
from tests.support.external_server import ServerUnavailable
from tests.support.postgres import (
    PostgresServer,
    PostgresUnavailable,
    Server,
    start_own_server,
    start_server,
)
from tests.support.synapse import Synapse

pytest_plugins = ["pytester"]

TOOLS = Path(__file__).parents[1] / ".tools"

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

# Ids of tests that may be skipped or expected to fail, each with the reason.
MAY_BE_SKIPPED: dict[str, str] = {}

# The same examples on every machine; `--hypothesis-profile=explore` tries more.
hypothesis.settings.register_profile("steady", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.register_profile("explore", max_examples=2000, deadline=None, print_blob=True)
hypothesis.settings.load_profile("steady")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that may take long, so that at the end no worker waits for another."""

    def longest_first(item: pytest.Item) -> float:
        limit = item.get_closest_marker("timeout")
        return -float(limit.args[0]) if limit is not None and limit.args else 0.0

    items.sort(key=longest_first)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _fail_if_skipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _fail_if_skipped((yield))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests have counted.

    The fault tests: kills, requests, acknowledged, lost, doubled. The cost of a turn: statements, transactions, round
    trips.
    """
    for title, property_name in (
        ("faults", "counts"),
        ("cost of a turn", "turn cost"),
        ("long chats", "long chat"),
        ("turns that wait", "waiting"),
    ):
        counted = [
            (report.nodeid, value)
            for outcome in ("passed", "failed")
            for report in terminalreporter.stats.get(outcome, [])
            for name, value in report.user_properties
            if name == property_name
        ]
        if counted:
            terminalreporter.section(title)
        for nodeid, value in sorted(counted):
            terminalreporter.write_line(f"{nodeid.rpartition('::')[2]}: {value}")


def _fail_if_skipped(report: Report) -> Report:
    """Turn a skip, an expected failure or its unexpected success into a failure."""
    is_silent = report.skipped or hasattr(report, "wasxfail")
    if is_silent and report.nodeid not in MAY_BE_SKIPPED:
        reason = getattr(report, "wasxfail", None) or report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was skipped or expected to fail: {reason}"
        vars(report).pop("wasxfail", None)
    return report


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def _separate_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the tests away from the conversations of the person who runs them."""
    with pytest.MonkeyPatch.context() as environ:
        for name in list(os.environ):
            if name.startswith("SESSIONARY_") and not name.startswith("SESSIONARY_TEST_"):
                environ.delenv(name)
        environ.setenv("SESSIONARY_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A real PostgreSQL, one for each test process; it answers `create_database()`."""
    try:
        server = start_server(os.environ.get("SESSIONARY_TEST_POSTGRES"))
    except PostgresUnavailable as error:
        pytest.fail(str(error), pytrace=False)
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres: Server) -> Iterator[str]:
    """The URL of a fresh, empty database."""
    url = postgres.create_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture(scope="session")
def migrated(postgres: Server) -> Iterator[str]:
    """The URL of a database with our schema and nothing in it, to be copied."""
    url = postgres.create_database()
    open_store(url, create=True, clock=SystemClock(), ids=RandomIds()).close()
    yield url
    postgres.drop_database(url)


@pytest.fixture
def migrated_url(postgres: Server, migrated: str) -> Iterator[str]:
    """The URL of a fresh database with our schema: a copy takes a third of making it again."""
    url = postgres.create_database(template=migrated)
    yield url
    postgres.drop_database(url)


@pytest.fixture
def postgres_to_break() -> Iterator[PostgresServer]:
    """A server that this test alone uses, and may kill and restart."""
    try:
        server = start_own_server()
    except PostgresUnavailable as error:
        pytest.fail(str(error), pytrace=False)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def synapse() -> Iterator[Synapse]:
    """A real Matrix homeserver, one for each test process."""
    try:
        server = Synapse(TOOLS)
    except ServerUnavailable as error:
        pytest.fail(str(error), pytrace=False)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def dovecot() -> Iterator[Dovecot]:
    """A real IMAP server, one for each test process."""
    try:
        server = Dovecot()
    except ServerUnavailable as error:
        pytest.fail(str(error), pytrace=False)
    yield server
    server.stop()
