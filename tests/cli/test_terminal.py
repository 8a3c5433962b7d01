"""What a person at a terminal gets: short names, colours, a pager, rendered Markdown, local times."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessionary.agents.command import CommandOptions, CommandRunner
from sessionary.cli import console
from sessionary.cli.sessions import show
from sessionary.engine.ports import Event, Step, TurnRequest
from sessionary.errors import BadInput
from sessionary.model.message import Message, Role, ToolCall, ToolResult, message
from tests.cli.conftest import Program

STYLE = re.compile(r"\x1b\[[0-9;]*m")
AGENTS = """
[agents.tools]
kind = "python"
function = "tests.cli.test_terminal:with_tools"
[agents.lists]
kind = "python"
function = "tests.cli.test_terminal:in_markdown"
"""


def with_tools(_: TurnRequest) -> Iterator[Event]:
    """An agent that calls a tool before it answers."""
    yield Step(Message(Role.ASSISTANT, (ToolCall("c1", "read_file", {"path": "notes.md"}),)))
    yield Step(Message(Role.TOOL, (ToolResult("c1", "three lines", "read_file"),)))
    yield Step(message("assistant", "It has three lines."))


def in_markdown(_: TurnRequest) -> Iterator[str]:
    """An agent that streams Markdown in small pieces."""
    text = "# Plan\n\nSome **bold** words.\n\n- one\n- two\n\nThe end."
    yield from (text[at : at + 5] for at in range(0, len(text), 5))


def at_terminal(program: Program, *args: str, **environ: str) -> str:
    """Run a command with a terminal on its three streams; what the terminal was sent."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 200, 80, 0, 0))
    env = {**os.environ, "SESSIONARY_HOME": str(program.home), "TERM": "xterm", "PAGER": "cat"}
    env.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "sessionary", *args],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**env, **environ},
        start_new_session=True,
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the last one has let go of the terminal
            break
        if not piece:
            break
        shown += piece
    process.wait()
    os.close(leader)
    return shown.decode().replace("\r\n", "\n")


@pytest.fixture
def talking(sessionary: Program) -> Program:
    sessionary.home.mkdir(mode=0o700)
    (sessionary.home / "sessionary.toml").write_text(AGENTS)
    return sessionary


@pytest.mark.parametrize("args", [["-h"], ["sessions", "-h"], ["sessions", "list", "-h"]])
def test_a_short_flag_shows_the_help(sessionary: Program, args: list[str]) -> None:
    answer = sessionary(*args)

    assert answer.code == 0
    assert answer.out.startswith("Usage: ")


def test_a_short_flag_prints_the_version(sessionary: Program) -> None:
    assert sessionary("-V").out == sessionary("--version").out


def test_ls_and_show_are_short_for_sessions_list_and_show(sessionary: Program) -> None:
    sessionary.append("new", "hello", "--role", "user", "--title", "Capitals")

    assert sessionary("ls", "--json").json == sessionary("sessions", "list", "--json").json
    assert sessionary("sessions", "ls").out == sessionary("ls").out
    assert sessionary("show", "Capitals").out == sessionary("sessions", "show", "Capitals").out


def test_a_title_is_found_in_other_capitals(sessionary: Program) -> None:
    made = sessionary.append("new", "hello", "--role", "user", "--title", "Größen der Städte")

    found = sessionary("show", "GRÖSSEN der städte", "--json")

    assert found.code == 0, found.err
    assert found.json["session"]["id"] == made["session_id"]


def test_two_titles_that_differ_in_capitals_are_ambiguous_but_each_is_found_as_written(
    sessionary: Program,
) -> None:
    first = sessionary.append("new", "hello", "--role", "user", "--title", "Capitals")
    second = sessionary.append("new", "hello", "--role", "user", "--title", "CAPITALS")

    assert sessionary("show", "capitals").code == 4
    assert sessionary("show", "Capitals", "--json").json["session"]["id"] == first["session_id"]
    assert sessionary("show", "CAPITALS", "--json").json["session"]["id"] == second["session_id"]


def test_a_misspelt_title_is_refused_with_the_one_that_was_perhaps_meant(
    sessionary: Program,
) -> None:
    sessionary.append("new", "hello", "--role", "user", "--title", "Capitals of Europe")

    answer = sessionary("show", "Captals of Europe")

    assert answer.code == 3
    assert "Did you mean “Capitals of Europe”?" in answer.line


@pytest.mark.parametrize(
    "shown", ["Where is the harbour of Lisbon?", "where is the HARBOUR of lis…", "* Where is the…"]
)
def test_what_a_list_shows_as_the_title_names_the_session(sessionary: Program, shown: str) -> None:
    made = sessionary.append("new", "Where is the harbour of Lisbon?", "--role", "user")
    sessionary.append("new", "Where was it?", "--role", "user")

    found = sessionary("show", shown, "--json")

    assert found.code == 0, found.err
    assert found.json["session"]["id"] == made["session_id"]


def test_beginnings_that_several_sessions_share_are_ambiguous(sessionary: Program) -> None:
    sessionary.append("new", "hello there", "--role", "user")
    sessionary.append("new", "hello there", "--role", "user")

    assert sessionary("show", "hello there").code == 4


def test_a_terminal_shows_roles_in_colour_and_renders_markdown(sessionary: Program) -> None:
    sessionary.append("new", "some **bold** words", "--role", "user", "--title", "Notes")

    shown = at_terminal(sessionary, "show", "Notes")

    assert "\x1b[1;32muser\x1b[0m" in shown
    assert "some \x1b[1mbold\x1b[0m words" in shown


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_plain_terminal_gets_no_styles(sessionary: Program, environ: dict[str, str]) -> None:
    sessionary.append("new", "some **bold** words", "--role", "user", "--title", "Notes")

    shown = at_terminal(sessionary, "show", "Notes", **environ)

    assert "\x1b" not in shown
    assert "some **bold** words" in shown


def test_a_pipe_gets_the_text_as_it_was_written(sessionary: Program) -> None:
    sessionary.append("new", "some **bold** words", "--role", "user", "--title", "Notes")

    answer = sessionary.run("show", "Notes")

    assert "some **bold** words" in answer.out
    assert "\x1b" not in answer.out


def test_what_a_message_brings_along_steers_no_terminal(sessionary: Program) -> None:
    sessionary.append(
        "new", "red \x1b[31m, title \x1b]0;owned\x07", "--role", "user", "--title", "Bad"
    )

    shown = STYLE.sub("", at_terminal(sessionary, "show", "Bad"))

    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_a_long_transcript_goes_through_the_pager(sessionary: Program, tmp_path: Path) -> None:
    sessionary.append("new", "hello", "--role", "user", "--title", "Notes")
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\nsed 's/^/| /'\n")
    pager.chmod(0o755)

    shown = at_terminal(sessionary, "show", "Notes", SESSIONARY_PAGER=str(pager), NO_COLOR="1")

    assert "| Notes\n" in shown
    assert "| hello\n" in shown


def test_a_pager_that_is_left_early_is_no_failure(sessionary: Program, tmp_path: Path) -> None:
    made = sessionary.append("new", "hello", "--role", "user", "--title", "Notes")
    for _ in range(3):
        sessionary.append(made["session_id"], "x" * 100_000, "--role", "user")
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\nhead -n 1\n")
    pager.chmod(0o755)

    shown = at_terminal(sessionary, "show", "Notes", SESSIONARY_PAGER=str(pager), NO_COLOR="1")

    assert shown == "Notes\n"


def test_times_are_shown_in_the_zone_of_the_machine_or_in_utc(sessionary: Program) -> None:
    sessionary.append("new", "hello", "--role", "user", "--title", "Notes")
    tokyo = {"TZ": "Asia/Tokyo"}

    local = sessionary.run("show", "Notes", environ=tokyo)
    in_utc = sessionary.run("show", "Notes", "--utc", environ=tokyo)

    assert " JST" in local.out
    assert " UTC" not in local.out
    assert " UTC" in in_utc.out


def test_the_configured_zone_comes_before_that_of_the_machine(sessionary: Program) -> None:
    sessionary.append("new", "hello", "--role", "user", "--title", "Notes")
    (sessionary.home / "sessionary.toml").write_text('zone = "Asia/Kolkata"\n')

    assert " IST" in sessionary.run("show", "Notes", environ={"TZ": "Asia/Tokyo"}).out


def test_chat_shows_what_tools_do(talking: Program) -> None:
    shown = STYLE.sub("", at_terminal(talking, "chat", "hello", "--agent", "tools"))

    assert '-> read_file {"path": "notes.md"}' in shown
    assert "<- three lines" in shown
    assert "It has three lines." in shown


def test_a_call_of_unknown_outcome_is_not_called_failed() -> None:
    failed = ToolResult("c1", "no such file", "read_file", is_error=True)
    unknown = ToolResult("c1", "It is not known.", is_error=True, extra={"outcome": "unknown"})

    assert show.tool_line(failed) == "  <- failed: no such file"
    assert show.tool_line(unknown) == "  <- It is not known."


def test_chat_in_a_pipe_prints_the_reply_and_nothing_else(talking: Program) -> None:
    answer = talking.run("chat", "hello", "--agent", "tools")

    assert (answer.out, answer.err) == ("It has three lines.\n", "")


def test_chat_renders_markdown_in_place_of_what_was_streamed(talking: Program) -> None:
    shown = at_terminal(talking, "chat", "hello", "--agent", "lists")

    assert "Some \x1b[1mbold\x1b[0m words." in shown
    assert "• " in shown
    assert shown.rstrip().endswith("The end.")


def test_chat_names_its_session_in_json(talking: Program) -> None:
    answered = talking("chat", "hello", "--agent", "tools", "--json").json

    assert answered["session_id"] in talking.ids()


def test_a_growing_text_is_cut_between_blocks_and_not_inside_lists_or_fences() -> None:
    assert console.split_blocks("one\n\ntwo") == ("one", "two")
    assert console.split_blocks("one\n\n") == ("", "one\n\n")
    assert console.split_blocks("- a\n\n- b\n\nc") == ("- a\n\n- b", "c")
    assert console.split_blocks("```\na\n\nb\n") == ("", "```\na\n\nb\n")
    assert console.split_blocks("```\na\n\nb\n```\n\nc") == ("```\na\n\nb\n```", "c")
    assert console.split_blocks("1. a\n\n   more\n\nc") == ("1. a\n\n   more", "c")


def test_a_very_long_text_is_shown_as_it_was_written() -> None:
    text = "**a** " * 20_000

    assert console.render_markdown(text, width=80) == text


def test_a_token_is_revoked_by_its_name(sessionary: Program) -> None:
    made = sessionary("tokens", "add", "--name", "grafana", "--json").json

    gone = sessionary("tokens", "revoke", "grafana", "--json")

    assert gone.json["id"] == made["id"]
    assert gone.json["revoked_at"] is not None
    assert sessionary("tokens", "revoke", "grafana").code == 3


def test_a_name_that_two_good_tokens_share_is_ambiguous(sessionary: Program) -> None:
    for _ in range(2):
        sessionary("tokens", "add", "--name", "grafana")

    assert sessionary("tokens", "revoke", "grafana").code == 4


def settings(sessionary: Program, text: str, **files: str) -> None:
    sessionary.home.mkdir(mode=0o700, exist_ok=True)
    (sessionary.home / "sessionary.toml").write_text(text)
    for name, content in files.items():
        (sessionary.home / f"{name}.py").write_text(content)


def test_a_check_of_the_configuration_finds_a_program_that_is_not_there(
    sessionary: Program,
) -> None:
    settings(sessionary, '[agents.prog]\nkind = "command"\ncommand = ["no-such-program"]\n')

    answer = sessionary("config", "check")

    assert answer.code == 1
    assert "no-such-program cannot be started" in answer.line


def test_a_program_is_looked_for_as_the_system_does_when_it_starts_it(tmp_path: Path) -> None:
    program = tmp_path / "answer"
    program.write_text("#!/bin/sh\n")
    runner = CommandRunner(CommandOptions(command=("./answer",), folder=str(tmp_path)))

    with pytest.raises(BadInput, match="may not be run"):
        runner.check()
    program.chmod(0o755)
    runner.check()


def test_the_module_of_an_agent_is_found_beside_the_configuration(sessionary: Program) -> None:
    settings(
        sessionary,
        '[agents.bot]\nkind = "python"\nfunction = "my_own_bot:answer"\n',
        my_own_bot="def answer(request):\n    return 'beside it'\n",
    )

    assert sessionary.run("chat", "hello").out == "beside it\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import not_there_at_all", "ModuleNotFoundError"),
        ("x = y", "NameError: name 'y' is not defined (broken_bot.py, line 1)"),
        ("def answer(", "SyntaxError"),
    ],
)
def test_a_module_that_cannot_be_loaded_is_one_line_of_error(
    sessionary: Program, text: str, says: str
) -> None:
    function = 'kind = "python"\nfunction = "broken_bot:answer"\n'
    settings(sessionary, f"[agents.bot]\n{function}", broken_bot=text)

    answer = sessionary.run("config", "check")

    assert answer.code == 1
    assert says in answer.line


def test_the_traceback_of_an_agent_is_shown_when_it_is_asked_for(sessionary: Program) -> None:
    settings(
        sessionary,
        '[agents.bot]\nkind = "python"\nfunction = "failing_bot:answer"\n',
        failing_bot="def answer(request):\n    raise ValueError('two\\nlines')\n",
    )

    done = sessionary.run("chat", "hello")
    debugged = sessionary.run("chat", "hello", "--debug")

    assert done.code == 1
    assert done.line == "(failed: ValueError: two lines; /retry asks again)"
    assert "Traceback" in debugged.err
    assert "failing_bot.py" in debugged.err


def test_the_prices_of_the_demo_are_those_of_the_price_table(sessionary: Program) -> None:
    sessionary("demo", "--sessions", "20")

    rows = sessionary("usage", "--by", "model", "--json").json["items"]

    assert {row["group"] for row in rows} == {"claude-sonnet-4-5", "gpt-5-mini", "gemini-2.5-pro"}
    assert all(row["cost_microusd"] and not row["unknown_cost_calls"] for row in rows)
    # Dollars for a million tokens of each kind: no model costs what another does.
    assert len({row["cost_microusd"] * 10 // row["output_tokens"] for row in rows}) == 3
