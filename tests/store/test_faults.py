"""Full disks, broken files, dead servers: honest refusals, and recovery by itself."""

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sessionary.actions.sessions import log
from sessionary.clock import RandomIds, SystemClock
from sessionary.errors import RetryLater, SessionaryError, StoreUnavailable
from sessionary.model.message import message
from sessionary.store.database import Store, Tx
from sessionary.store.open import open_store
from sessionary.store.postgres.store import PostgresStore
from sessionary.store.sqlite.store import SqliteStore
from tests.store.conftest import PATIENT_SECONDS, lock_waiters, opened, short_waits
from tests.support.postgres import PostgresServer
from tests.support.world import World

FILL = """
import json, resource, sys
from sessionary.clock import RandomIds, SystemClock
from sessionary.errors import SessionaryError
from sessionary.store.open import open_store
from tests.support.world import World

world = World(open_store(sys.argv[1], create=True, clock=SystemClock(), ids=RandomIds()))
session = world.session("first")
if sys.argv[2] == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
acked, refused = [], []
for number in range(400):
    try:
        acked.append(world.append_text(session, f"{number} " + "x" * 9000).seq)
    except SessionaryError as error:
        refused.append((error.kind, error.committed))
        break
readable = len(world.texts(session))
if sys.argv[2] == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
else:
    import os
    os.unlink(sys.argv[3])
after = world.append_text(session, "after").seq
print(json.dumps([acked, refused, readable, after, world.texts(session)[-1]]))
world.store.close()
"""


def fill(url: str, *how: str) -> list[Any]:
    ran = subprocess.run(
        [sys.executable, "-c", FILL, url, *how], capture_output=True, timeout=240, check=False
    )
    assert ran.stderr == b"", ran.stderr.decode()
    outcomes: list[Any] = json.loads(ran.stdout)
    return outcomes


def check_filled(outcomes: list[Any]) -> None:
    acked, refused, readable, after, last = outcomes
    assert acked == list(range(2, 2 + len(acked)))
    assert len(refused) == 1
    kind, committed = refused[0]
    assert (kind, committed) in {
        ("store-full", "no"),
        ("store-unavailable", "no"),
        ("store-unavailable", "unknown"),
    }
    maybe = {len(acked) + 1, len(acked) + 2} if committed == "unknown" else {len(acked) + 1}
    assert readable in maybe
    assert (after in {readable + 1}, last) == (True, "after")


def test_a_file_that_may_not_grow_refuses_writes_and_serves_reads(tmp_path: Path) -> None:
    """F5, P14."""
    check_filled(fill(f"sqlite:///{tmp_path}/x.db", "limit"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)],
        check=False,
        capture_output=True,
    )
    if made.returncode != 0:
        # No right to mount here: the limit on the file's size stands in for the full disk.
        yield tmp_path
        return
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_refuses_writes_and_recovers_by_itself(small_disk: Path) -> None:
    """F5, P14."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 900_000)
    how = ("disk", str(ballast)) if os.path.ismount(small_disk) else ("limit", str(ballast))

    check_filled(fill(f"sqlite:///{small_disk}/x.db", *how))


def test_a_store_that_another_program_keeps_busy_says_so_in_time(tmp_path: Path) -> None:
    """P10."""
    url = f"sqlite:///{tmp_path}/x.db"
    busy = opened(url)
    waiting = SqliteStore(f"{tmp_path}/x.db", wait_seconds=0.5)
    entered, leave = threading.Event(), threading.Event()
    others = lock_waiters()

    def linger(tx: Tx) -> None:
        entered.set()
        leave.wait(PATIENT_SECONDS)

    pending = busy.write(linger)
    assert entered.wait(PATIENT_SECONDS)
    try:
        with pytest.raises(RetryLater) as caught:
            waiting.write(lambda tx: tx.run("set_meta", name="a", value="x")).result()
        reads = waiting.read(lambda tx: tx.one("get_meta", name="store_id")).result()
    finally:
        leave.set()
        pending.result()

    assert caught.value.committed == "no"
    assert reads is not None
    # The thread that waited in vain still gets the lock, for a moment.
    for waiter in lock_waiters() - others:
        waiter.join()
    assert waiting.write(lambda tx: tx.run("set_meta", name="a", value="x")).result() == 1
    waiting.close()
    busy.close()


def test_a_file_that_is_removed_meanwhile_is_a_clear_refusal(tmp_path: Path) -> None:
    """F9."""
    store = SqliteStore(f"{tmp_path}/never-made.db")

    for ask in (store.write, store.read):
        with pytest.raises(StoreUnavailable) as caught:
            ask(lambda tx: tx.one("get_meta", name="store_id")).result()
        assert caught.value.committed == "no"
    store.close()
    assert not (tmp_path / "never-made.db").exists()


def appended(world: World, session: str, idempotency_key: str) -> Callable[[Tx], log.Appended]:
    new_message = message("user", idempotency_key)

    def append(tx: Tx) -> log.Appended:
        return log.append(
            tx,
            session,
            new_message,
            profile="main",
            at=world.clock.now(),
            idempotency_key=idempotency_key,
        )

    return append


def outcome(act: Callable[[], Any]) -> tuple[str, str]:
    try:
        act()
    except SessionaryError as error:
        return error.kind, error.committed
    return "ok", "yes"


def test_a_killed_server_is_no_and_after_its_return_all_goes_on(
    postgres_to_break: PostgresServer,
) -> None:
    """F22: the pool recovers; nothing acknowledged is lost."""
    url = postgres_to_break.create_database()
    opened(url).close()
    store = PostgresStore(url, wait_seconds=PATIENT_SECONDS)
    world = World(store)
    session = world.session("a")
    inside, killed = threading.Event(), threading.Event()

    def cut_off(tx: Tx) -> log.Appended:
        done = appended(world, session, "lost")(tx)
        inside.set()
        killed.wait(PATIENT_SECONDS)
        tx.one("get_meta", name="store_id")
        return done

    pending = store.write(cut_off)
    assert inside.wait(PATIENT_SECONDS)
    postgres_to_break.kill()
    with short_waits(store, 1):
        killed.set()
        in_flight = outcome(pending.result)
        down = outcome(lambda: store.write(appended(world, session, "down")).result())
        reading = outcome(lambda: world.texts(session))
    postgres_to_break.restart()

    back = outcome(lambda: store.write(appended(world, session, "back")).result())

    assert in_flight == down == ("store-unavailable", "no")
    assert reading == ("store-unavailable", "no")
    assert back == ("ok", "yes")
    assert world.texts(session) == ["a", "back"]
    store.close()


@pytest.mark.parametrize("way", ["kill", "freeze"])
def test_a_store_whose_server_is_gone_closes_soon_and_fails_waiting_callers(
    postgres_to_break: PostgresServer, way: str
) -> None:
    """F2, F22: an answer that cannot come holds nobody up."""
    url = postgres_to_break.create_database()
    opened(url).close()
    store = PostgresStore(url, connections=1, wait_seconds=PATIENT_SECONDS)
    world = World(store)
    session = world.session("a")
    inside, gone = threading.Event(), threading.Event()

    def cut_off(tx: Tx) -> None:
        inside.set()
        gone.wait(PATIENT_SECONDS)
        appended(world, session, "lost")(tx)

    waiting = [store.write(cut_off), *(store.read(lambda tx: None) for _ in range(5))]
    assert inside.wait(PATIENT_SECONDS)
    getattr(postgres_to_break, way)()
    gone.set()
    began = time.monotonic()
    store.close()

    assert time.monotonic() - began < PATIENT_SECONDS / 2
    outcomes = {outcome(partial(each.result, PATIENT_SECONDS / 2)) for each in waiting}
    assert outcomes == {("store-unavailable", "no")}


def test_a_commit_without_an_answer_is_unknown_and_settled_by_its_key(
    postgres_to_break: PostgresServer,
) -> None:
    """F22, P3: repeat it with the same idempotency key."""
    url = postgres_to_break.create_database()
    opened(url).close()
    store = PostgresStore(url, wait_seconds=PATIENT_SECONDS)
    world = World(store)
    session = world.session("a")

    def append_and_lose_the_line(tx: Tx) -> None:
        appended(world, session, "k")(tx)
        # Deferred to the commit, where the server ends its own connection.
        tx.script(ENDS_AT_COMMIT)

    outcome_of_write = outcome(lambda: store.write(append_and_lose_the_line).result())
    again = store.write(appended(world, session, "k")).result()

    assert outcome_of_write == ("store-unavailable", "unknown")
    assert world.texts(session) == ["a", "k"]
    assert again.seq == 2
    store.close()


ENDS_AT_COMMIT = """
CREATE FUNCTION pg_temp.goodbye() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_terminate_backend(pg_backend_pid());
    RETURN NULL;
END $$;
CREATE TEMP TABLE farewell (x int);
CREATE CONSTRAINT TRIGGER farewell AFTER INSERT ON farewell
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pg_temp.goodbye();
INSERT INTO farewell VALUES (1);
"""


def test_a_read_only_server_refuses_writes_with_a_reason(migrated_url: str) -> None:
    """F6."""
    store = opened(migrated_url)
    world = World(store)
    session = world.session("a")
    store.close()
    with psycopg.connect(migrated_url, autocommit=True) as server:
        name = server.info.dbname
        server.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'.encode())

    store = opened(migrated_url)
    outcome_of_write = outcome(lambda: store.write(appended(world, session, "k")).result())

    assert outcome_of_write == ("store-unavailable", "no")
    assert World(store).texts(session) == ["a"]
    store.close()


def test_a_statement_that_was_cut_short_can_be_tried_again(migrated_url: str) -> None:
    store = opened(migrated_url)

    def slow(tx: Tx) -> None:
        tx.script("SET LOCAL statement_timeout = '20ms'; SELECT pg_sleep(5)")

    with pytest.raises(RetryLater, match="nothing was written") as caught:
        store.write(slow).result()

    assert caught.value.committed == "no"
    store.close()


@pytest.fixture
def killed_writer(tmp_path: Path) -> Iterator[Store]:
    """A store whose last writer died with the turnstile in its hands."""
    url = f"sqlite:///{tmp_path}/x.db"
    opened(url).close()
    program = subprocess.Popen(
        [sys.executable, "-c", HOLD_AND_WAIT, url], stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    program.stdout.readline()
    program.kill()
    program.wait()
    program.stdout.close()
    store = open_store(url, create=False, clock=SystemClock(), ids=RandomIds())
    yield store
    store.close()


HOLD_AND_WAIT = """
import sys, time
from sessionary.clock import RandomIds, SystemClock
from sessionary.store.open import open_store
store = open_store(sys.argv[1], create=False, clock=SystemClock(), ids=RandomIds())
def hold(tx):
    tx.run("set_meta", name="half", value="done")
    print(flush=True)
    time.sleep(60)
store.write(hold).result()
"""


def test_a_killed_writer_leaves_nothing_half_done_and_no_lock(killed_writer: Store) -> None:
    """F1, P1."""
    assert killed_writer.read(lambda tx: tx.one("get_meta", name="half")).result() is None
    assert killed_writer.write(lambda tx: tx.run("set_meta", name="a", value="x")).result() == 1


def test_a_transaction_that_its_process_left_open_is_undone(migrated_url: str) -> None:
    """F1: a process that is frozen, or whose machine is gone, keeps its locks from others for a minute at most."""
    store = opened(migrated_url)
    assert isinstance(store, PostgresStore)
    world = World(store)
    session = world.session("first")

    def freeze(tx: Any) -> None:
        log.append(tx, session, message("user", "lost"), profile="main", at=world.clock.now())
        tx.script("SET LOCAL idle_in_transaction_session_timeout = 10")
        # The server ends the transaction while it waits for the next statement.
        select.select([tx._cursor.connection], [], [], PATIENT_SECONDS)
        log.append(tx, session, message("user", "lost"), profile="main", at=world.clock.now())

    with store._pool.connection() as connection:
        limit = connection.execute("SHOW idle_in_transaction_session_timeout").fetchone()
    with pytest.raises(StoreUnavailable) as refused:
        store.write(freeze).result()
    world.append_text(session, "after")
    texts = world.texts(session)
    store.close()

    assert limit == ("1min",)
    assert refused.value.committed == "no"
    assert "lost" not in texts
    assert texts[-1] == "after"
