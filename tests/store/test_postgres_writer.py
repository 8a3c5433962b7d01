"""Functions that wait together share a commit, and nothing else."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from typing import Any, TypeVar

import psycopg
import pytest

from sessionary.actions.sessions import log, read, titles
from sessionary.errors import BadInput, StoreUnavailable
from sessionary.store.database import Store, Tx
from sessionary.store.postgres import store as postgres_store
from sessionary.store.postgres.store import MAX_WRITERS
from tests.store.conftest import opened
from tests.store.test_faults import ENDS_AT_COMMIT
from tests.support.world import World

T = TypeVar("T")
NUMBER_OF_THE_TRANSACTION = "SELECT pg_current_xact_id()::text"


@pytest.fixture
def two(emptied: Callable[[], str]) -> Iterator[tuple[World, World]]:
    """Two programs on one PostgreSQL."""
    url = emptied()
    worlds = [World(opened(url), name=name) for name in ("one", "two")]
    yield worlds[0], worlds[1]
    for world in worlds:
        world.store.close()


class Busy:
    """Keeps every connection that writes busy, until it is stopped."""

    def __init__(self, store: Store) -> None:
        self._end = threading.Event()
        inside = threading.Semaphore(0)

        def wait(_: Tx) -> None:
            inside.release()
            self._end.wait(20)

        for _ in range(MAX_WRITERS):
            store.write(wait)
            inside.acquire(timeout=20)

    def end(self) -> None:
        self._end.set()


def noting(name: str) -> Callable[[Tx], str]:
    def note(tx: Tx) -> str:
        tx.run("set_meta", name=name, value="x")
        cursor: Any = tx._cursor  # type: ignore[attr-defined]
        return str(cursor.execute(NUMBER_OF_THE_TRANSACTION).fetchone()[0])

    return note


def forget(tx: Tx, count: int) -> None:
    for number in range(count):
        tx.run("delete_meta", name=f"n{number}")


def lock(tx: Tx, session: str) -> str:
    log.lock_session(tx, session, profile="main")
    return session


def noted(store: Store, name: str) -> bool:
    return store.read(lambda tx: tx.one("get_meta", name=name)).result() is not None


def test_those_who_wait_together_share_a_commit(
    two: tuple[World, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow this machine is at the moment, nobody is taken for slow.
    monkeypatch.setattr(postgres_store, "BATCH_SECONDS", 60.0)
    store = two[0].store
    busy = Busy(store)
    pending = [store.write(noting(f"n{number}")) for number in range(40)]
    busy.end()

    transactions = {each.result() for each in pending}

    assert len(transactions) < 20
    assert all(noted(store, f"n{number}") for number in range(40))


def test_one_that_is_watched_is_known_by_what_it_does(
    two: tuple[World, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow one goes alone, however many quick ones telemetry watches beside it."""

    def watched(action: Callable[[Tx], T]) -> Callable[[Tx], T]:
        @wraps(action)
        def watching(tx: Tx) -> T:
            return action(tx)

        return watching

    def slow(tx: Tx) -> str:
        return noting("slow")(tx)

    store = two[0].store
    monkeypatch.setattr(postgres_store, "BATCH_SECONDS", 0.0)
    store.write(watched(slow)).result()
    monkeypatch.setattr(postgres_store, "BATCH_SECONDS", 60.0)
    store.write(watched(noting("quick"))).result()
    busy = Busy(store)
    quick = [noting(f"n{number}") for number in range(16)]
    pending = [store.write(watched(each)) for each in (*quick[:8], slow, *quick[8:])]
    busy.end()

    transactions = [each.result() for each in pending]

    assert transactions.count(transactions[8]) == 1


def test_one_that_fails_after_it_has_written_takes_no_one_with_it(
    two: tuple[World, World],
) -> None:
    store = two[0].store

    def fail(tx: Tx) -> None:
        noting("failed")(tx)
        raise BadInput("on second thoughts")

    busy = Busy(store)
    pending: list[Any] = [
        store.write(fail if number == 5 else noting(f"n{number}")) for number in range(10)
    ]
    busy.end()

    with pytest.raises(BadInput):
        pending[5].result()
    assert all(each.result() for each in pending if each is not pending[5])
    assert not noted(store, "failed")


def test_one_that_passes_over_a_failed_statement_takes_no_one_with_it(
    two: tuple[World, World],
) -> None:
    """P1: the server has forgotten all of that transaction; none of it is acknowledged."""
    store = two[0].store

    def pass_over(tx: Tx) -> str:
        with suppress(psycopg.Error):
            tx.run("set_meta", name=None, value="x")
        return "done"

    def fail_otherwise(tx: Tx) -> None:
        pass_over(tx)
        raise BadInput("no")

    for spoiler in (pass_over, fail_otherwise):
        busy = Busy(store)
        pending: list[Any] = [store.write(noting(f"n{number}")) for number in range(4)]
        store.write(spoiler)
        busy.end()

        assert all(each.result(timeout=20) for each in pending)
        assert all(noted(store, f"n{number}") for number in range(4))
        store.write(forget, 4).result()


def test_a_slow_function_keeps_no_one_waiting(two: tuple[World, World]) -> None:
    store = two[0].store
    busy = Busy(store)

    assert [store.write(noting(f"n{number}")).result(timeout=20) for number in range(3)]

    busy.end()


def test_a_row_that_another_program_holds_holds_up_no_one_else(two: tuple[World, World]) -> None:
    one, other = two
    held, free = one.session("a"), one.session("b")
    inside, leave = threading.Event(), threading.Event()

    def hold(tx: Tx) -> None:
        log.lock_session(tx, held, profile="main")
        inside.set()
        leave.wait(20)

    holding = other.store.write(hold)
    inside.wait(20)
    busy = Busy(one.store)
    pending = [one.store.write(lock, each) for each in (free, held, free)]
    busy.end()

    assert [pending[0].result(timeout=20), pending[2].result(timeout=20)] == [free, free]
    with pytest.raises(TimeoutError):
        pending[1].result(timeout=0.01)
    leave.set()
    assert pending[1].result(timeout=20) == held
    holding.result()


def test_two_programs_that_lock_each_other_out_both_come_through(two: tuple[World, World]) -> None:
    ids = [two[0].session(name) for name in "ab"]
    done = [
        world.store.write(lock, session)
        for _ in range(20)
        for world, order in zip(two, (ids, ids[::-1]), strict=True)
        for session in order
    ]

    assert {each.result(timeout=20) for each in done} == set(ids)


def test_a_commit_without_an_answer_is_unknown_for_all_who_shared_it(
    two: tuple[World, World],
) -> None:
    store = two[0].store

    def end_at_commit(tx: Tx) -> None:
        tx.script(ENDS_AT_COMMIT)

    busy = Busy(store)
    pending: list[Any] = [store.write(noting("a")), store.write(end_at_commit)]
    pending.append(store.write(noting("b")))
    busy.end()

    committed = []
    for each in pending:
        try:
            committed.append(each.result(timeout=20))
        except StoreUnavailable as error:
            committed.append(error.committed)
    assert committed[1] == "unknown"
    for name, outcome in (("a", committed[0]), ("b", committed[2])):
        assert outcome == "unknown" or noted(store, name)


def test_a_title_that_is_being_given_is_waited_for_and_costs_no_attempt(
    two: tuple[World, World],
) -> None:
    """Only ATTEMPTS races may be lost: of more sessions that begin alike, some had no title."""
    one, other = two
    given, may_commit, attempts = threading.Event(), threading.Event(), []

    def name(tx: Tx, session: str) -> str | None:
        attempts.append(session)
        return titles.name_automatically(tx, read.get_head(tx, session, profile="main"), "hello")

    def name_and_wait(tx: Tx, session: str) -> str | None:
        title = name(tx, session)
        given.set()
        may_commit.wait(20)
        return title

    first = one.store.write(name_and_wait, one.session("hello"))
    assert given.wait(20)
    second = other.store.write(name, other.session("hello"))
    with psycopg.connect(one.store.url, autocommit=True) as watcher:
        while watcher.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() is None:
            continue
    may_commit.set()

    assert [first.result(), second.result()] == ["hello", "hello #2"]
    assert len(attempts) == 2
