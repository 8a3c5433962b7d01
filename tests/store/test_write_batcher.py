"""The writer waits for callers that come back, and never for one that is alone."""

import queue
import threading
import time

import pytest

from sessionary.store.postgres.store import Workers
from sessionary.store.sqlite import store as sqlite_store
from sessionary.store.sqlite.store import WriteBatcher


def queue_of(*jobs: str | None) -> "queue.SimpleQueue[str | None]":
    made: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    for job in jobs:
        made.put(job)
    return made


def test_everything_that_waits_is_taken_at_once() -> None:
    assert WriteBatcher(queue_of("a", "b", "c")).take(commit_seconds=0) == ["a", "b", "c"]


def test_closing_ends_the_batch_and_the_work() -> None:
    batcher = WriteBatcher(queue_of("a", None, "never"))

    assert batcher.take(commit_seconds=0) == ["a"]
    assert batcher.closing
    assert WriteBatcher(queue_of(None)).take(commit_seconds=0) == []


def test_those_who_were_answered_together_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "MAX_WAIT_SECONDS", 60.0)
    jobs = queue_of("a", "b")
    batcher = WriteBatcher(jobs)
    assert batcher.take(commit_seconds=60) == ["a", "b"]
    batcher.note_answered(2)
    jobs.put("a again")
    monkeypatch.setattr(time, "sleep", lambda _: jobs.put("b again"))

    assert batcher.take(commit_seconds=60) == ["a again", "b again"]


def test_a_caller_who_is_alone_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    jobs = queue_of()
    batcher = WriteBatcher(jobs)

    for number in range(20):
        jobs.put(str(number))
        assert batcher.take(commit_seconds=1) == [str(number)]
        batcher.note_answered(1)

    assert slept == []


def test_waiting_in_vain_becomes_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    jobs = queue_of()
    batcher = WriteBatcher(jobs)

    for _ in range(100):
        jobs.put("alone")
        batcher.take(commit_seconds=1)
        batcher.note_answered(3)

    assert 0 < len(slept) < 20


def test_workers_finish_what_was_handed_over_before_they_end() -> None:
    workers = Workers(2, "test")
    done: list[int] = []
    for number in range(50):
        workers.submit(done.append, number)

    workers.close()

    assert workers.join(10)
    assert sorted(done) == list(range(50))


def test_workers_start_no_more_threads_than_there_is_work() -> None:
    workers = Workers(8, "test-few")
    gate = threading.Event()
    workers.submit(gate.wait)
    before = {each.name for each in threading.enumerate()}
    gate.set()
    workers.close()

    assert len([name for name in before if name == "test-few"]) == 1
