"""What a store promises to its callers, whatever they do in their transactions."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from sessionary.actions.sessions import log, read
from sessionary.errors import BadInput, Conflict, SessionaryError, StoreUnavailable
from sessionary.model.message import message
from sessionary.store.database import Pending, RaceLost, Store, Tx
from sessionary.store.postgres import store as postgres_store
from sessionary.store.postgres.store import MAX_WRITERS
from sessionary.store.sqlite import store as sqlite_store
from tests.store.conftest import PATIENT_SECONDS, Opener, lock_waiters, opened
from tests.support.world import World


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


def note(tx: Tx, name: str, value: str = "x") -> str:
    """The smallest write there is."""
    tx.run("set_meta", name=name, value=value)
    return value


def noted(tx: Tx, name: str) -> str | None:
    row = tx.one("get_meta", name=name)
    return None if row is None else row[0]


def note_and_fail(tx: Tx, name: str) -> None:
    note(tx, name)
    raise BadInput("on second thoughts")


def note_and_tell(tx: Tx, name: str) -> None:
    note(tx, name)
    tx.after_commit(name)


def test_a_failing_action_undoes_its_own_work_only(store: Store) -> None:
    """P3."""
    gate = threading.Event()
    pending: list[Any] = [store.write(lambda tx: gate.wait(10))]
    pending += [
        store.write(note_and_fail if number % 2 else note, f"n{number}") for number in range(6)
    ]
    gate.set()

    for each in pending[1::2]:
        each.result()
    for each in pending[2::2]:
        with pytest.raises(BadInput):
            each.result()
    kept = [store.read(noted, f"n{number}").result() for number in range(6)]

    assert kept == ["x", None] * 3


def test_an_action_s_own_error_reaches_the_caller(store: Store) -> None:
    def divide(tx: Tx) -> float:
        return 1 / 0

    for ask in (store.write, store.read):
        with pytest.raises(ZeroDivisionError):
            ask(divide).result()
    assert store.write(note, "after").result() == "x"


class Odd(Exception):
    """One that cannot be made again from what it says."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} and {other}")


def test_an_error_that_cannot_be_copied_reaches_its_caller_too(store: Store) -> None:
    def fail(tx: Tx) -> None:
        note(tx, "odd")
        raise Odd("this", "that")

    for _ in range(MAX_WRITERS + 1):
        with pytest.raises(Odd, match="this and that"):
            store.write(fail).result(timeout=20)
    assert store.write(note, "after").result(timeout=20) == "x"
    assert store.read(noted, "odd").result() is None


def test_an_acknowledged_write_is_there_even_after_an_ignored_failed_statement(
    store: Store,
) -> None:
    """P1: on PostgreSQL a failed statement takes the whole transaction with it."""

    def pass_over(tx: Tx) -> str:
        note(tx, "kept")
        with suppress(apsw.Error, psycopg.Error):
            tx.run("set_meta", name=None, value="x")
        return "done"

    pending = store.write(pass_over)
    with suppress(SessionaryError):
        pending.result(timeout=20)

    outcome = "x" if pending.error is None else getattr(pending.error, "committed", None)
    assert outcome == (store.read(noted, "kept").result() or "no")


def test_many_rows_come_by_name_or_in_order_and_are_counted(store: Store) -> None:
    def put(tx: Tx) -> list[int]:
        receipt = {"profile": "main", "idempotency_key": "b", "session_no": 1, "seq": 2}
        rows = [("main", "a", 1, 1), ("main", "c", 1, 3)]
        return [tx.many("insert_receipt", each) for each in ([receipt], rows, rows, [])]

    def seq_of(tx: Tx, idempotency_key: str) -> int | None:
        row = tx.one("find_receipt", profile="main", idempotency_key=idempotency_key)
        return None if row is None else row[1]

    assert store.write(put).result() == [1, 2, 0, 0]
    assert [store.read(seq_of, idempotency_key).result() for idempotency_key in "abcd"] == [
        1,
        2,
        3,
        None,
    ]


def test_awaiting_and_waiting_give_the_same(store: Store) -> None:
    async def both() -> list[str | None]:
        await store.write(note, "a", "1")
        many = await asyncio.gather(*(store.write(note, f"m{n}", str(n)) for n in range(20)))
        assert many == [str(n) for n in range(20)]
        with pytest.raises(BadInput):
            await store.write(note_and_fail, "b")
        return [await store.read(noted, name) for name in ("a", "b", "m7")]

    assert asyncio.run(both()) == ["1", None, "7"]
    assert [store.read(noted, name).result() for name in ("a", "b", "m7")] == ["1", None, "7"]


def test_an_answer_can_be_asked_for_by_several_and_again(store: Store) -> None:
    gate = threading.Event()
    pending = store.write(lambda tx: gate.wait(10) and "done")
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(pending.result())) for _ in range(3)]
    for thread in threads:
        thread.start()
    with pytest.raises(TimeoutError):
        pending.result(timeout=0.001)
    gate.set()
    for thread in threads:
        thread.join()

    async def again() -> Any:
        return await pending, await pending

    assert [*answers, pending.result()] == ["done"] * 4
    assert asyncio.run(again()) == ("done", "done")


def test_an_answer_can_be_seen_through_a_function(store: Store) -> None:
    async def awaited() -> int:
        return await store.write(note, "b", "22").map(int)

    assert store.write(note, "a", "11").map(int).result() == 11
    assert asyncio.run(awaited()) == 22


def test_a_cancelled_task_does_not_lose_the_write(store: Store) -> None:
    """P1: what was handed over is done."""
    gate = threading.Event()
    handed_over: list[Pending[str]] = []

    def note_later(tx: Tx) -> str:
        gate.wait(10)
        return note(tx, "kept")

    async def give_up() -> None:
        handed_over.append(store.write(note_later))
        task = asyncio.ensure_future(_await(handed_over[0]))
        await asyncio.sleep(0)
        task.cancel()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(give_up())

    assert handed_over[0].result() == "x"
    assert store.read(noted, "kept").result() == "x"


async def _await(pending: Any) -> Any:
    return await pending


def test_events_are_published_after_the_commit_and_only_then(store: Store) -> None:
    seen: list[Any] = []

    def listener(events: Any) -> None:
        # Another connection sees it already.
        seen.extend((name, names_there(name)) for name in events)

    def names_there(name: str) -> bool:
        return in_memory or store.read(noted, name).result() == "x"

    in_memory = "memory" in store.url
    stop = store.listen(listener)
    store.write(note_and_tell, "a").result()
    with pytest.raises(BadInput):
        store.write(_tell_and_fail, "b").result()
    stop()
    stop()
    store.write(note_and_tell, "c").result()

    assert seen == [("a", True)]


def _tell_and_fail(tx: Tx, name: str) -> None:
    note_and_tell(tx, name)
    raise BadInput("no")


def test_a_listener_that_fails_disturbs_no_one(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []

    def failing(events: Any) -> None:
        raise KeyError(events)

    store.listen(failing)
    store.listen(seen.extend)
    store.write(note_and_tell, "a").result()
    store.write(note_and_tell, "b").result()

    assert seen == ["a", "b"]
    logged = [each for each in caplog.records if each.message.startswith("A listener failed")]
    assert [each.exc_info and each.exc_info[0] for each in logged] == [KeyError, KeyError]


def test_who_reads_cannot_write(store: Store) -> None:
    """House: readers are read-only connections."""
    with pytest.raises(SessionaryError) as caught:
        store.read(note, "sly").result()

    assert caught.value.committed == "no"
    assert store.read(noted, "sly").result() is None
    assert store.write(note, "open").result() == "x"


def test_a_lost_race_is_run_again_on_fresh_data(store: Store) -> None:
    tries: list[int] = []

    def second_time_lucky(tx: Tx) -> str:
        tries.append(len(tries))
        note(tx, f"try {len(tries)}")
        if len(tries) < 3:
            raise RaceLost
        return "won"

    assert store.write(second_time_lucky).result() == "won"
    assert [store.read(noted, f"try {n}").result() for n in (1, 2, 3)] == [None, None, "x"]


def test_a_race_that_is_always_lost_is_a_clear_refusal(store: Store) -> None:
    """P3."""

    def never(tx: Tx) -> None:
        note(tx, "never")
        raise RaceLost

    with pytest.raises(Conflict, match="nothing was written") as caught:
        store.write(never).result()

    assert caught.value.committed == "no"
    assert store.read(noted, "never").result() is None


def test_close_finishes_what_was_begun(open_again: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """F2."""
    monkeypatch.setattr(postgres_store, "FINISH_SECONDS", PATIENT_SECONDS)
    store = open_again()
    gate = threading.Event()
    pending: list[Any] = [store.write(lambda tx: gate.wait(10))]
    pending += [store.write(note, f"n{number}") for number in range(20)]
    closing = threading.Thread(target=store.close)
    closing.start()
    gate.set()
    closing.join()

    assert [each.result() for each in pending[1:]] == ["x"] * 20
    assert open_again().read(noted, "n19").result() == "x"


def test_a_closed_store_says_so(store: Store) -> None:
    store.write(note, "a").result()
    store.close()
    store.close()

    for ask in (store.write, store.read):
        with pytest.raises(StoreUnavailable, match="closed"):
            ask(noted, "a").result()


def test_a_store_that_closes_answers_everyone(open_again: Opener) -> None:
    """Nobody waits for ever: each call is answered or refused."""
    for _ in range(10):
        store = open_again()
        outcomes: list[Any] = []

        def write_on(store: Store = store, outcomes: list[Any] = outcomes) -> None:
            try:
                while True:
                    store.write(note, "a").result(timeout=10)
            except StoreUnavailable as error:
                outcomes.append(error)

        threads = [threading.Thread(target=write_on) for _ in range(3)]
        for thread in threads:
            thread.start()
        store.write(note, "b").result()
        store.close()
        for thread in threads:
            thread.join()
        assert len(outcomes) == 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_store_does_not_cross_a_fork(store: Store) -> None:
    """Engineering rule 6."""
    store.write(note, "a").result()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            store.write(note, "b").result(timeout=5)
        except StoreUnavailable as error:
            store.close()
            code = 0 if "fork" in str(error) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert store.write(note, "c").result() == "x"


def test_a_read_sees_one_moment(open_again: Opener) -> None:
    """A snapshot: what is written meanwhile is not half seen."""
    reader, writer = open_again(), open_again()
    writer.write(note, "a", "1").result()
    looked, written = threading.Event(), threading.Event()

    def look_twice(tx: Tx) -> tuple[str | None, str | None]:
        first = noted(tx, "a")
        looked.set()
        written.wait(10)
        return first, noted(tx, "a")

    pending = reader.read(look_twice)
    looked.wait(10)
    writer.write(note, "a", "2").result()
    written.set()

    assert pending.result() == ("1", "1")
    assert reader.read(noted, "a").result() == "2"


def test_a_read_that_starts_after_an_answer_shows_it(open_again: Opener) -> None:
    """In any process."""
    one, two = World(open_again(), name="one"), World(open_again(), name="two")
    session = one.session("0")
    for number in range(1, 20):
        (one if number % 2 else two).append_text(session, str(number))
        other = two if number % 2 else one
        assert other.texts(session)[-1] == str(number)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Store]:
    store = opened(f"sqlite:///{tmp_path}/group.db")
    yield store
    store.close()


def test_many_callers_share_one_commit(file: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Group commit: many concurrent callers pay for one fsync."""
    monkeypatch.setattr(sqlite_store, "BATCH_SECONDS", 60.0)
    commits: list[int] = []
    gate = threading.Event()

    def committed() -> bool:
        commits.append(1)
        return False  # go ahead

    def watch(tx: Tx) -> None:
        connection: apsw.Connection = tx._connection  # type: ignore[attr-defined]
        connection.set_commit_hook(committed)
        gate.wait(10)

    pending: list[Any] = [file.write(watch)]
    pending += [file.write(note, f"n{number}") for number in range(100)]
    gate.set()
    for each in pending:
        each.result()

    assert len(commits) < 20


def test_a_program_that_waits_for_the_lock_is_next_however_much_the_other_has_to_write(
    file: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "BATCH_SECONDS", -1.0)  # each write commits by itself
    other = opened(f"sqlite:///{tmp_path}/group.db")
    others = lock_waiters()
    order: list[str] = []
    begun, gate = threading.Event(), threading.Event()

    def hold(tx: Tx) -> None:
        begun.set()
        gate.wait(PATIENT_SECONDS)

    file.write(hold)
    assert begun.wait(PATIENT_SECONDS)
    busy = [file.write(lambda tx: order.append("busy")) for _ in range(5)]
    waiting = other.write(lambda tx: order.append("waiting"))
    while not lock_waiters() - others:
        time.sleep(0.001)
    gate.set()
    for each in (*busy, waiting):
        each.result()
    other.close()

    assert order == ["waiting", *["busy"] * 5]


def test_whatever_goes_wrong_in_a_commit_reaches_the_callers(file: Store) -> None:
    def break_commit(tx: Tx) -> None:
        connection: apsw.Connection = tx._connection  # type: ignore[attr-defined]
        connection.set_commit_hook(lambda: 1 / 0 > 0)

    with pytest.raises(ZeroDivisionError):
        file.write(break_commit).result()

    assert file.write(note, "after").result() == "x"


def test_no_answer_comes_before_the_commit(file: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """P1: acknowledged means durable, for every caller and however early."""
    monkeypatch.setattr(sqlite_store, "BATCH_SECONDS", 60.0)
    world = World(file)
    session = world.session("a")
    begun, handed_over = threading.Event(), threading.Event()
    reached, gate = threading.Event(), threading.Event()
    new_message = message("user", "b")

    def hold(tx: Tx) -> None:
        begun.set()
        handed_over.wait(PATIENT_SECONDS)

    def append(tx: Tx) -> int:
        done = log.append(tx, session, new_message, profile="main", at=world.clock.now())
        return done.seq

    def linger(tx: Tx) -> None:
        reached.set()
        gate.wait(PATIENT_SECONDS)

    # While this one runs, the two that follow come together.
    file.write(hold)
    assert begun.wait(PATIENT_SECONDS)
    early = file.write(append)
    file.write(linger)
    handed_over.set()
    assert reached.wait(PATIENT_SECONDS)
    try:
        with pytest.raises(TimeoutError):
            early.result(timeout=0.01)
        assert file.read(read.get_head, session, profile="main").result().last_seq == 1
    finally:
        gate.set()

    assert early.result() == 2
