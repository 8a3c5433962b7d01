"""Nothing that others wrote steers the terminal."""

import os
import pty
import subprocess
import sys

import pytest

from tests.cli.conftest import Program

EVIL = "\x1b]0;owned\x07\x1b[2Jred\x9b31m \u202eback\x7f \r over"
STEERING = [*map(chr, range(9)), *map(chr, range(11, 32)), "\x7f", *map(chr, range(0x80, 0xA0))]
STEERING += ["\u202e", "\u2066", "\u200f"]


@pytest.fixture
def infected(sessionary: Program) -> Program:
    sessionary.append("new", EVIL, "--title", f"Evil {EVIL}", "--source", f"web{EVIL}")
    sessionary.append(sessionary.ids()[0], EVIL, "--person", EVIL, "--model", EVIL)
    sessionary("projects", "add", f"Project {EVIL}")
    sessionary("sessions", "move", sessionary.ids()[0], "Project owned2Jred31m back over")
    return sessionary


def assert_harmless(text: str) -> None:
    assert [sign for sign in STEERING if sign in text.replace("\r\n", "\n")] == []


@pytest.mark.parametrize("how", [[], ["--json"]])
@pytest.mark.parametrize(
    "args",
    [
        ["sessions", "list"],
        ["sessions", "show", "ID"],
        ["sessions", "show", "ID", "--all"],
        ["sessions", "show", "ID", "--raw"],
        ["sessions", "show", "ID", "--context"],
        ["sessions", "pin", "ID"],
        ["sessions", "purge", "ID"],
        ["sessions", "show", EVIL],
        ["sessions", "list", "--since", EVIL],
        ["sessions", "list", "--project", EVIL],
        ["sessions", EVIL],
        ["sessions", "list", f"--{EVIL}"],
        ["projects", "list"],
        ["usage", "--by", "model"],
        ["usage", "--by", "source"],
        ["usage", "--by", "session"],
        ["usage", "--by", "project"],
        ["route", "explain", "--platform", f"web{EVIL}", "--type", EVIL, "--person", EVIL],
        ["bindings", "reset", EVIL],
        ["verify"],
        ["import", EVIL],
    ],
)
def test_what_others_wrote_is_harmless_in_every_answer(
    infected: Program, args: list[str], how: list[str]
) -> None:
    [session] = infected.ids()

    answer = infected(*[session if word == "ID" else word for word in args], *how)

    assert answer.out + answer.err != ""
    assert_harmless(answer.out)
    assert_harmless(answer.err)


@pytest.mark.parametrize("form", ["md", "html"])
def test_what_others_wrote_is_harmless_in_pages_to_read(infected: Program, form: str) -> None:
    answer = infected("export", "--all", "--format", form)

    assert answer.code == 0
    # Marks of direction stay: those who read such scripts need them in a page.
    assert_harmless(answer.out.replace("\u202e", ""))


def test_an_export_to_a_terminal_is_harmless(infected: Program) -> None:
    for form in ("jsonl", "md"):
        assert_harmless(on_a_terminal(infected, "export", "--all", "--format", form))


def test_a_list_on_a_terminal_fits_it(infected: Program) -> None:
    infected.append("new", "\u4e2d\u6587" * 60)

    shown = on_a_terminal(infected, "sessions", "list", columns=60)

    assert_harmless(shown)
    assert max(map(len, shown.splitlines())) <= 60


@pytest.mark.parametrize("wish", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_plain_terminal_gets_nothing_but_letters(
    sessionary: Program, monkeypatch: pytest.MonkeyPatch, wish: dict[str, str]
) -> None:
    sessionary.append("new", "the harbour", "--title", "Harbour")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    bold = on_a_terminal(sessionary, "search", "harbour")
    for name, value in wish.items():
        monkeypatch.setenv(name, value)

    assert "\x1b[1mHarbour\x1b[0m" in bold
    assert_harmless(on_a_terminal(sessionary, "search", "harbour"))
    assert_harmless(on_a_terminal(sessionary, "verify"))


def on_a_terminal(program: Program, *args: str, columns: int = 80) -> str:
    """What the program writes to a terminal of its own."""
    outer, inner = pty.openpty()
    os.set_blocking(outer, True)
    command = [
        "sh",
        "-c",
        f'stty cols {columns}; exec "$0" "$@"',
        sys.executable,
        "-m",
        "sessionary",
    ]
    process = subprocess.Popen(
        [*command, *args],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env={**os.environ, "SESSIONARY_HOME": str(program.home)},
    )
    os.close(inner)
    pieces = []
    while True:
        try:
            piece = os.read(outer, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(outer)
    assert process.wait() == 0
    return b"".join(pieces).decode()
