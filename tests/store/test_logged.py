"""What a store does by itself, and what it gives up, is in the log."""

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from sessionary.errors import Conflict, Damaged, RetryLater, StoreUnavailable
from sessionary.model.message import message
from sessionary.store import migrations
from sessionary.store.database import RaceLost, Store, Tx
from sessionary.store.postgres import store as postgres_store
from sessionary.store.postgres.store import PostgresStore
from sessionary.store.search import indexer, sqlite_index
from sessionary.store.search.index_file import IndexFile
from sessionary.store.sqlite import db_file
from sessionary.store.sqlite import store as sqlite_store
from sessionary.store.sqlite.store import SqliteStore
from tests.store.conftest import PATIENT_SECONDS, lock_waiters, opened, short_waits
from tests.support.postgres import PostgresServer
from tests.support.world import World


class Log:
    """The lines that the store has logged."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def levels(self, beginning: str) -> list[int]:
        """The level of each line that begins so."""
        return [each.levelno for each in self.lines() if each.getMessage().startswith(beginning)]

    def lines(self) -> list[logging.LogRecord]:
        return [each for each in self._caplog.records if each.name.startswith("sessionary.store")]

    def wait_for(self, beginning: str) -> logging.LogRecord:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            for line in self.lines():
                if line.getMessage().startswith(beginning):
                    return line
            time.sleep(0.01)
        raise AssertionError(f"{beginning!r} is not in {[str(each) for each in self.lines()]}")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    caplog.set_level(logging.INFO, "sessionary.store")
    return Log(caplog)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "x.db")


@pytest.fixture
def file_store(path: str) -> Iterator[Store]:
    store = opened(f"sqlite:///{path}")
    yield store
    store.close()


def note(tx: Tx, value: str = "x") -> None:
    tx.run("set_meta", name="noted", value=value)


def test_a_transaction_that_is_run_again(store: Store, log: Log) -> None:
    tries: list[int] = []

    def lose_once(tx: Tx) -> None:
        note(tx)
        tries.append(1)
        if len(tries) == 1:
            raise RaceLost

    store.write(lose_once).result()

    assert log.levels("A write failed among 1 (RaceLost()") == [logging.INFO]


def test_a_transaction_that_is_given_up(store: Store, log: Log) -> None:
    def lose(tx: Tx) -> None:
        raise RaceLost

    with pytest.raises(Conflict):
        store.write(lose).result()

    assert log.levels("A write lost")[-1] == logging.WARNING
    assert log.lines()[-1].getMessage().endswith("races and was given up.")


def test_a_lock_that_another_program_keeps(path: str, file_store: Store, log: Log) -> None:
    impatient = SqliteStore(path, wait_seconds=0.05)
    with db_file.write_lock(path, 1), pytest.raises(RetryLater):
        impatient.write(note).result()
    impatient.close()

    assert log.levels("Another program has kept the lock") == [logging.WARNING]


def test_a_long_wait_for_the_lock(
    path: str, file_store: Store, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db_file, "LONG_WAIT_SECONDS", 0.0)
    with db_file.write_lock(path, 1):
        others = lock_waiters()
        pending = file_store.write(note)
        while not lock_waiters() - others:
            time.sleep(0.001)
    pending.result()

    assert log.levels("Waited ") == [logging.INFO]


class FailingDisk(apsw.Connection):
    """A connection whose disk fails where a test wants it."""

    commits_fail = False

    def wal_checkpoint(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        raise apsw.IOError("the disk failed")

    def execute(self, statements: str, *args: Any, **kwargs: Any) -> apsw.Cursor:
        if self.commits_fail and statements == "COMMIT":
            raise apsw.IOError("the disk failed")
        return super().execute(statements, *args, **kwargs)


@pytest.fixture
def on_failing_disk(path: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    opened(f"sqlite:///{path}").close()
    monkeypatch.setattr(apsw, "Connection", FailingDisk)
    store = SqliteStore(path)
    yield store
    store.close()


def test_a_checkpoint_that_fails(
    on_failing_disk: Store, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "CHECKPOINT_PAGES", 1)

    on_failing_disk.write(note).result()
    on_failing_disk.write(note).result()

    assert log.levels("A checkpoint of ")[:1] == [logging.WARNING]


def test_a_connection_that_is_made_again(
    on_failing_disk: Store, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as failing:
        failing.setattr(FailingDisk, "commits_fail", True)
        with pytest.raises(StoreUnavailable):
            on_failing_disk.write(note).result()
    on_failing_disk.write(note).result()

    assert log.levels("Writing to ") == [logging.INFO]


def test_damage(file_store: Store, log: Log) -> None:
    file_store.note_damage(Damaged("page 7 is wrong"))

    assert log.levels("The store is damaged; writes are refused: page 7") == [logging.ERROR]


def test_a_schema_that_is_upgraded(path: str, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = migrations.known("sqlite")
    with monkeypatch.context() as before:
        before.setattr(migrations, "known", lambda dialect: steps[:-1])
        opened(f"sqlite:///{path}").close()
    assert log.lines() == []

    opened(f"sqlite:///{path}").close()

    assert log.levels(f"The store's schema is upgraded by {steps[-1].name}.") == [logging.INFO]


def say(store: Store, text: str) -> None:
    world = World(store)
    world.append(world.session("hello"), message("user", text))


def test_an_index_that_is_rebuilt(path: str, file_store: Store, log: Log) -> None:
    say(file_store, "walrus")
    Path(f"{path}-search").write_bytes(b"not an index" * 1000)

    assert file_store.catch_up().result().behind == 0

    assert log.levels(f"The search index {path}-search was unusable") == [logging.INFO]


def failing_once(real: Callable[..., int], error: Exception) -> Callable[..., int]:
    errors = [error]

    def step(tx: Tx, limit: int = 400) -> int:
        if errors:
            raise errors.pop()
        return real(tx, limit)

    return step


@pytest.mark.parametrize(
    ("error", "level"),
    [(TypeError("a bug"), logging.ERROR), (apsw.FullError("no room"), logging.WARNING)],
)
def test_a_background_indexer_that_fails_and_goes_on(
    path: str,
    file_store: Store,
    log: Log,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    level: int,
) -> None:
    monkeypatch.setattr(sqlite_index, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(indexer, "step", failing_once(indexer.step, error))
    say(file_store, "walrus")

    file_store.index_in_background()

    line = log.wait_for("Feeding the search index failed")
    assert line.levelno == level
    assert bool(line.exc_info) == (level == logging.ERROR)
    while IndexFile(path).examine() != (0, None):
        time.sleep(0.01)


def test_a_background_indexer_that_fails_on_postgresql(
    emptied: Callable[[], str], log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "FEED_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(indexer, "step", failing_once(indexer.step, TypeError("a bug")))
    store = opened(emptied())
    say(store, "walrus")

    store.index_in_background()

    assert log.wait_for("Feeding the search index failed (a bug)").exc_info
    say(store, "another walrus")
    assert store.catch_up().result().behind == 0
    store.close()


def test_a_server_that_is_lost_and_found(postgres_to_break: PostgresServer, log: Log) -> None:
    url = postgres_to_break.create_database()
    opened(url).close()
    store = PostgresStore(url, wait_seconds=PATIENT_SECONDS)
    store.write(note).result()
    postgres_to_break.kill()
    with short_waits(store, 1):
        with pytest.raises(StoreUnavailable):
            store.write(note).result()
        assert log.wait_for("PostgreSQL cannot be reached for 1 s").levelno == logging.WARNING
    postgres_to_break.restart()

    store.write(note).result()

    assert logging.INFO in log.levels("PostgreSQL closed a connection")
    assert log.wait_for("Connected to PostgreSQL again.").levelno == logging.INFO
    store.close()


def test_a_server_that_only_reads_as_in_a_failover(emptied: Callable[[], str], log: Log) -> None:
    url = emptied()
    store = opened(url)
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    with psycopg.connect(url, autocommit=True) as server:
        try:
            server.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
            other = PostgresStore(url)
            with pytest.raises(StoreUnavailable):
                other.write(note).result()
            other.close()
        finally:
            server.execute("SET default_transaction_read_only = off")
            server.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
    store.close()

    assert log.levels("PostgreSQL refuses writes") == [logging.WARNING]
