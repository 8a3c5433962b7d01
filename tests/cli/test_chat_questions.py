"""`sessionary chat` at a terminal, when the agent asks something."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Program
from tests.support import asking_agent
from tests.support.asking_agent import SETTINGS

TIMEOUT_SECONDS = 60
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x08|\x1b[=>]|\r")
CTRL_C, CTRL_D = "\x03", "\x04"


class Terminal:
    """A person who runs the program at a terminal, reads what it shows, and types."""

    def __init__(self, program: Program, *args: str) -> None:
        self._leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 200, 0, 0))
        environ = {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "NO_COLOR": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sessionary", "chat", *args],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env={**os.environ, "SESSIONARY_HOME": str(program.home), **environ},
            start_new_session=True,
        )
        os.close(follower)
        self._bytes = b""
        self._read = 0

    def until(self, text: str) -> str:
        """Wait until a text is shown after what was read before; return everything up to it."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while (at := self.shown.find(text, self._read)) < 0:
            assert time.monotonic() < deadline, f"{text!r} is not in {self.shown[self._read :]!r}"
            if select.select([self._leader], [], [], 1)[0]:
                self._bytes += os.read(self._leader, 65536)
        begin, self._read = self._read, at + len(text)
        return self.shown[begin : self._read]

    @property
    def shown(self) -> str:
        """What the terminal was sent, without what steers it."""
        return CONTROL.sub("", self._bytes.decode(errors="replace"))

    def type(self, text: str) -> None:
        """Type something."""
        os.write(self._leader, text.encode())

    def end(self) -> int:
        """Wait until the program has ended; return its exit code."""
        while True:
            try:
                piece = os.read(self._leader, 65536)
            except OSError:  # the last one has let go of the terminal
                break
            if not piece:
                break
            self._bytes += piece
        return self._process.wait(TIMEOUT_SECONDS)

    def close(self) -> None:
        """End the program, if it still runs."""
        self._process.kill()
        self._process.wait()
        os.close(self._leader)


class Desk:
    """Where a person opens terminals, one after the other."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._opened: list[Terminal] = []

    def chat(self, *args: str) -> Terminal:
        """Start a chat at a new terminal."""
        self._opened.append(Terminal(self.program, *args))
        return self._opened[-1]

    def close(self) -> None:
        """End what still runs."""
        for terminal in self._opened:
            terminal.close()


@pytest.fixture
def desk(sessionary: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    asking_agent.install(tmp_path / "site", monkeypatch)
    monkeypatch.setenv("LOGNAME", "ada")
    sessionary.home.mkdir(mode=0o700)
    (sessionary.home / "sessionary.toml").write_text(f'agent = "send"\n{SETTINGS}')
    made = Desk(sessionary)
    yield made
    made.close()


def open_code(program: Program) -> str:
    (question,) = program("questions", "list", "--json").json["items"]
    return str(question["code"])


def test_the_question_is_shown_with_numbered_options_and_the_reply_answers_it(desk: Desk) -> None:
    terminal = desk.chat()
    terminal.until("›")
    terminal.type("go\r")
    shown = terminal.until("answer ›")
    terminal.type("1\r")
    after = terminal.until("Done: Approved by ada.")
    terminal.until("›")
    terminal.type(CTRL_D)

    assert "May the tool send be called?\n\nto: Ann\ntext:\n| See you at 9.\n" in shown
    assert "1. Approve\n2. Deny\n3. Always in this session\n" in shown
    assert "(Approved by ada.)" in after
    assert terminal.end() == 0
    assert "stays open" not in terminal.shown


def test_whoever_leaves_is_told_how_to_answer_and_finds_the_question_again(desk: Desk) -> None:
    terminal = desk.chat()
    terminal.until("›")
    terminal.type("go\r")
    terminal.until("answer ›")
    code = open_code(desk.program)
    terminal.type(CTRL_C)
    terminal.until(f"sessionary questions answer {code} approve")
    terminal.until("answer ›")
    terminal.type(CTRL_D)
    terminal.until(f"The question {code} stays open.")

    assert terminal.end() == 0
    assert open_code(desk.program) == code

    again = desk.chat()
    again.until("May the tool send be called?")
    again.until("answer ›")
    again.type("deny: not today\r")
    again.until("Done: Denied by ada: not today.")


def test_what_is_answered_elsewhere_goes_on_at_once_and_keeps_what_was_typed(desk: Desk) -> None:
    terminal = desk.chat()
    terminal.until("›")
    terminal.type("go\r")
    terminal.until("answer ›")
    terminal.type("something ")
    terminal.until("something")
    desk.program("questions", "answer", open_code(desk.program), "deny")
    terminal.until("(Denied by ada.)")
    terminal.until("Done: Denied by ada.")
    terminal.until("something")
    terminal.type("plain\r")
    terminal.until("Nothing to ask.")


def test_stop_gives_the_turn_up_and_the_chat_goes_on(desk: Desk) -> None:
    terminal = desk.chat()
    terminal.until("›")
    terminal.type("go\r")
    terminal.until("answer ›")
    terminal.type("/stop\r")
    terminal.until("(interrupted: stopped by you; /retry asks again)")
    terminal.until("›")
    terminal.type("something plain\r")
    terminal.until("Nothing to ask.")

    assert desk.program("questions", "list").err == "No question waits for an answer.\n"


def test_one_turn_at_a_terminal_asks_there_and_ends_with_its_reply(desk: Desk) -> None:
    answered = desk.chat("go")
    answered.until("answer ›")
    answered.type("yes\r")
    answered.until("Done: Approved by ada.")

    assert answered.end() == 0

    left = desk.chat("go")
    left.until("answer ›")
    left.type(CTRL_D)
    left.until("stays open. Answer it with: sessionary questions answer ")

    assert left.end() == 1
