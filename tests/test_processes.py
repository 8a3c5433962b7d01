"""The name of a process tells another one on the same machine that it has ended."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sessionary.processes import has_ended, process_name, short_name

PROGRAM = (
    "from sessionary.processes import process_name; print(process_name(), flush=True); input()"
)


@contextmanager
def other_process() -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Another process that runs until it is killed, and its name."""
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


def test_a_process_that_runs_has_not_ended() -> None:
    with other_process() as (name, _):
        assert not has_ended(name)
    assert not has_ended(process_name())


def test_a_process_that_was_killed_has_ended_before_and_after_its_parent_takes_note() -> None:
    with other_process() as (name, process):
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert has_ended(name)
        process.wait()
        assert has_ended(name)


def test_a_process_has_ended_if_another_one_has_got_its_number() -> None:
    name, _, began = process_name().rpartition("-")

    assert has_ended(f"{name}-{int(began) - 1}")


def test_people_read_the_host_and_the_number_of_a_process() -> None:
    assert short_name(process_name()) == f"{os.uname().nodename}/{os.getpid()}"
    assert short_name("engine-1") == "engine-1"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "engine-1",
        "{host}/1",
        # Another machine, another start of this one, or another container.
        "elsewhere/999999/{mark}",
        "{host}/999999/00000000-1",
        # No numbers of processes.
        "{host}/0/{mark}",
        "{host}/-1/{mark}",
        "{host}/99999999999999999999/{mark}",
    ],
)
def test_what_cannot_be_seen_from_here_is_not_said_to_have_ended(name: str) -> None:
    host, _, mark = process_name().rsplit("/", 2)

    assert not has_ended(name.format(host=host, mark=mark))
