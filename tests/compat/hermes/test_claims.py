"""Locks that one holds, handoffs that one takes, notes that all read."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import time_machine

from sessionary.compat.hermes.state import SessionDB
from tests.compat.hermes.conftest import Opener


@pytest.fixture
def chat(db: SessionDB) -> SessionDB:
    db.create_session("s1", "cli")
    return db


def test_one_holds_the_right_to_compress_and_only_that_one_gives_it_back(chat: SessionDB) -> None:
    assert chat.try_acquire_compression_lock("s1", "a")
    assert not chat.try_acquire_compression_lock("s1", "b")
    chat.release_compression_lock("s1", "b")
    assert chat.get_compression_lock_holder("s1") == "a"

    chat.release_compression_lock("s1", "a")

    assert chat.get_compression_lock_holder("s1") is None
    assert chat.try_acquire_compression_lock("s1", "b")


def test_a_lock_that_has_run_out_can_be_taken(chat: SessionDB) -> None:
    with time_machine.travel("2026-03-01T10:00:00+00:00") as clock:
        chat.try_acquire_compression_lock("s1", "a", ttl_seconds=60)
        clock.shift(61)

        assert chat.get_compression_lock_holder("s1") is None
        assert chat.try_acquire_compression_lock("s1", "b")
        assert chat.get_compression_lock_holder("s1") == "b"


def test_an_id_without_a_session_can_be_locked_and_stays_locked_when_it_gets_one(
    db: SessionDB,
) -> None:
    assert db.get_compression_lock_holder("new") is None
    assert db.try_acquire_compression_lock("new", "a")
    db.create_session("new", "cli")

    assert not db.try_acquire_compression_lock("new", "b")
    db.release_compression_lock("new", "b")
    assert db.get_compression_lock_holder("new") == "a"
    db.release_compression_lock("new", "a")
    assert db.try_acquire_compression_lock("new", "b")


def test_of_many_at_once_one_gets_the_lock_and_one_the_handoff(open_db: Opener) -> None:
    several = [open_db() for _ in range(3)]
    several[0].create_session("s1", "cli")
    several[0].request_handoff("s1", "telegram")

    with ThreadPoolExecutor(12) as pool:
        locks = list(
            pool.map(
                lambda n: several[n % 3].try_acquire_compression_lock("s1", f"h{n}"), range(12)
            )
        )
        claims = list(pool.map(lambda n: several[n % 3].claim_handoff("s1"), range(12)))

    assert sum(locks) == sum(claims) == 1


def test_a_handoff_waits_runs_and_completes(chat: SessionDB) -> None:
    assert chat.get_handoff_state("s1") is None
    assert chat.request_handoff("s1", "telegram")
    assert not chat.request_handoff("s1", "discord")
    assert chat.get_handoff_state("s1") == {
        "state": "pending",
        "platform": "telegram",
        "error": None,
    }
    [waiting] = chat.list_pending_handoffs()
    assert (waiting["id"], waiting["handoff_platform"]) == ("s1", "telegram")

    assert chat.claim_handoff("s1")
    assert not chat.claim_handoff("s1")
    assert chat.list_pending_handoffs() == []
    chat.complete_handoff("s1")

    state = chat.get_handoff_state("s1")
    assert state is not None
    assert state["state"] == "completed"
    assert chat.request_handoff("s1", "discord")


def test_a_handoff_fails_with_a_reason(chat: SessionDB) -> None:
    chat.request_handoff("s1", "telegram")
    chat.claim_handoff("s1")
    chat.fail_handoff("s1", "no such chat")

    state = chat.get_handoff_state("s1")
    assert state is not None
    assert (state["state"], state["error"]) == ("failed", "no such chat")
    assert not chat.request_handoff("nobody", "telegram")
    assert not chat.claim_handoff("nobody")


def test_notes_are_kept_for_every_process(open_db: Opener) -> None:
    open_db().set_meta("k", "1")
    open_db().set_meta("k", "zwei ☃")

    assert open_db().get_meta("k") == "zwei ☃"
    assert open_db().get_meta("none") is None
