"""Pipes that close, disks that are full, people who press Ctrl-C."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Program

Process = subprocess.Popen[bytes]


def start(sessionary: Program, *args: str, stdout: int = subprocess.PIPE) -> Process:
    return subprocess.Popen(
        [sys.executable, "-m", "sessionary", *args],
        env={**os.environ, "SESSIONARY_HOME": str(sessionary.home), "PYTHONUNBUFFERED": ""},
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.PIPE,
        # A shell that started us in the background has made us deaf to Ctrl-C; the child is not.
        preexec_fn=_hear_ctrl_c,  # noqa: PLW1509
    )


def _hear_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def stderr_of(process: Process) -> str:
    """All of its standard error."""
    assert process.stderr is not None
    return process.stderr.read().decode()


def test_a_pipe_that_closes_early_ends_it_quietly(sessionary: Program) -> None:
    sessionary.append("new", "x" * 1000, "--title", "Long")
    for _ in range(3):
        sessionary.append("Long", "y" * 100_000)
    with start(sessionary, "sessions", "show", "Long", "--all") as process:
        assert process.stdout is not None
        process.stdout.close()

        assert stderr_of(process) == ""
        assert process.wait() == 141


@pytest.mark.parametrize("args", [["sessions", "list", "--json"], ["sessions", "append", "L", "x"]])
def test_an_answer_that_cannot_be_written_is_reported(sessionary: Program, args: list[str]) -> None:
    sessionary.append("new", "one", "--title", "L")
    with Path("/dev/full").open("wb") as full, start(sessionary, *args, stdout=full.fileno()) as it:
        assert stderr_of(it) == (
            "sessionary: The answer could not be written: No space left on device. "
            "The command was carried out.\n"
        )
        assert it.wait() == 1


def test_ctrl_c_ends_it_with_one_line(sessionary: Program) -> None:
    with start(sessionary, "sessions", "append", "new", "-") as process:
        _wait_until_it_reads(process)
        process.send_signal(signal.SIGINT)

        assert stderr_of(process) == "sessionary: Interrupted.\n"
        assert process.wait() == 130
    assert not sessionary.home.exists()


def test_ctrl_c_while_it_is_being_loaded_shows_no_traceback(
    sessionary: Program, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Pressed:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'sessionary.cli.main':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Pressed())\n"
    )

    answer = sessionary.run(
        "sessions", "list", environ={"PYTHONPATH": str(tmp_path)}, preexec_fn=_hear_ctrl_c
    )

    assert (answer.code, answer.err) == (-signal.SIGINT, "")


def _wait_until_it_reads(process: Process) -> None:
    """It sleeps in a read of standard input once the kernel says so."""
    while "pipe" not in Path(f"/proc/{process.pid}/wchan").read_text():
        assert process.poll() is None


def test_a_terminal_without_letters_gets_escapes(sessionary: Program) -> None:
    sessionary.append("new", "caf\u00e9 \u4e2d", "--title", "caf\u00e9")

    answer = sessionary.run("sessions", "show", "caf\u00e9", environ={"PYTHONIOENCODING": "ascii"})

    assert answer.code == 0
    assert "caf\\xe9 \\u4e2d" in answer.out


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["sessions", "list"], 0),
        (["sessions", "list", "--json"], 0),
        (["sessions", "append", "L", "-"], 1),
        (["sessions", "show", "nobody", "--json"], 3),
        (["nonsense"], 2),
    ],
)
def test_streams_that_were_closed_before_it_began_are_no_fault(
    sessionary: Program, args: list[str], code: int
) -> None:
    sessionary.append("new", "one", "--title", "L")

    for closed in range(3):
        done = sessionary.run(*args, preexec_fn=lambda number=closed: os.close(number))
        assert done.code == code
        assert "bug in Sessionary" not in done.err
        assert "Traceback" not in done.err
    assert sessionary("verify").code == 0
