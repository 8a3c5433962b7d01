"""Threads, processes, and a SIGKILL in the middle: nothing is lost."""

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from sessionary.compat.hermes.state import SessionDB
from tests.compat.hermes.conftest import Opener
from tests.compat.hermes.test_sessions import row
from tests.project.code import ROOT

ENOUGH = 60
TIMEOUT_SECONDS = 60


@contextmanager
def child(address: str, name: str, folder: Path) -> Iterator[Path]:
    """A process that writes; on leaving the block it is killed at whatever it does."""
    report = folder / f"{name}.report"
    command = [sys.executable, "-m", "tests.compat.hermes.writing_child"]
    process = subprocess.Popen([*command, address, name, str(report)], cwd=ROOT)
    try:
        until = time.monotonic() + TIMEOUT_SECONDS
        while len(lines(report)) < ENOUGH:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.005)
        yield report
    finally:
        process.kill()
        process.wait()


def lines(report: Path) -> list[list[str]]:
    text = report.read_text() if report.exists() else ""
    return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]


def test_every_answered_write_of_killed_processes_is_there(
    address: str, open_db: Opener, tmp_path: Path
) -> None:
    db = open_db()
    with child(address, "one", tmp_path) as first, child(address, "two", tmp_path) as second:
        db.ensure_session("shared")
        mine = [db.append_message("shared", "user", f"mine.{n}") for n in range(20)]

    promised = lines(first) + lines(second)
    sessions = {session for session, *_ in promised}
    stored = {
        each["id"]: each["content"] for session in sessions for each in db.get_messages(session)
    }
    for _, text, *numbers in promised:
        expected = [text] if len(numbers) == 1 else [f"{text}.a", f"{text}.b"]
        assert [stored[int(number)] for number in numbers] == expected
    assert [stored[number] for number in mine] == [f"mine.{n}" for n in range(20)]
    assert len(set(stored.values())) == len(stored)
    for session in sessions:
        spoken = db.get_messages(session)
        found = row(db, session)
        assert found["message_count"] == len(spoken)
        assert found["tool_call_count"] == sum(len(each["tool_calls"] or ()) for each in spoken)
        answered = sum(1 for name, *_ in promised if name == session)
        assert isinstance(found["input_tokens"], int)
        assert found["input_tokens"] >= answered


def test_many_threads_share_one_object(db: SessionDB) -> None:
    def work(n: int) -> int:
        db.create_session("s1", "cli")
        number = db.append_message("s1", "user", str(n))
        db.update_token_counts("s1", input_tokens=1, estimated_cost_usd=0.5, api_call_count=1)
        return number

    with ThreadPoolExecutor(16) as pool:
        numbers = list(pool.map(work, range(160)))

    found = row(db, "s1")
    assert len(set(numbers)) == found["message_count"] == 160
    assert (found["input_tokens"], found["api_call_count"]) == (160, 160)
    assert found["estimated_cost_usd"] == 80.0
    assert {each["content"] for each in db.get_messages("s1")} == {str(n) for n in range(160)}
