"""`sessionary chat`, as a person or a script calls it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessionary import Sessionary
from sessionary.actions import turns
from sessionary.actions.sessions import routing
from sessionary.actions.turns import Claim
from sessionary.app.chat import TerminalChat
from sessionary.engine.ports import Event, Step, TurnRequest
from sessionary.model.message import message
from sessionary.model.source import key_for
from sessionary.model.turn import Lease
from sessionary.store.database import Tx
from tests.cli.conftest import Program

TIMEOUT_SECONDS = 60
AGENTS = """
[agents.whole]
kind = "python"
function = "tests.cli.test_chat:whole"
[agents.slow]
kind = "python"
function = "tests.cli.test_chat:slow"
"""


def whole(_: TurnRequest) -> Iterator[Event]:
    """An agent that streams nothing."""
    yield Step(message("assistant", "First, a thought."))
    yield Step(message("assistant", "Then the answer."))


def slow(_: TurnRequest) -> Iterator[str]:
    """An agent that goes on until it is stopped."""
    yield "It begins"
    while True:
        time.sleep(0.05)
        yield ""


@pytest.fixture
def talking(sessionary: Program) -> Program:
    sessionary.home.mkdir(mode=0o700)
    (sessionary.home / "sessionary.toml").write_text(AGENTS)
    return sessionary


def test_the_reply_is_printed_also_by_an_agent_that_streams_nothing(talking: Program) -> None:
    answer = talking("chat", "hello", "--agent", "whole")
    as_json = talking("chat", "hello", "--agent", "whole", "--json")

    assert (answer.code, answer.out) == (0, "First, a thought.\nThen the answer.\n")
    (session_id,) = talking.ids()
    assert as_json.json == {
        "state": "done",
        "reason": None,
        "session_id": session_id,
        "reply": "Then the answer.",
    }


def test_a_command_is_answered_and_a_retry_is_followed(talking: Program) -> None:
    talking("chat", "hello", "--agent", "whole")

    titled = talking("chat", "/title Harbour", "--json")
    again = talking("chat", "/retry", "--agent", "whole", "--json")

    assert titled.json["state"] == "answered"
    assert again.json["reply"] == "Then the answer."
    assert talking("sessions", "list", "--json").json["items"][0]["message_count"] == 4


@pytest.mark.parametrize(
    ("code", "says", "args"),
    [
        (2, "Standard input is no terminal", ["--new"]),
        (2, "exclude each other", ["hi", "--new", "--session", "x"]),
        (1, "The message is empty", [""]),
        (1, "The message is empty", ["-"]),
        (3, "No session is called 'nobody'", ["hi", "--session", "nobody"]),
        (1, "There is no agent 'nobody'", ["hi", "--agent", "nobody"]),
    ],
)
def test_a_refusal_leaves_the_conversation_as_it_is(
    talking: Program, code: int, says: str, args: list[str]
) -> None:
    talking("chat", "hello", "--agent", "whole")
    before = talking("sessions", "list", "--json").out

    answer = talking("chat", *args)

    assert (answer.code, answer.out) == (code, "")
    assert says in answer.line
    assert talking("sessions", "list", "--json").out == before


def test_a_call_that_makes_no_sense_makes_no_store(sessionary: Program) -> None:
    assert sessionary("chat").code == 2
    assert not sessionary.home.exists()


def start(program: Program, *args: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "sessionary", "chat", *args],
        env={**os.environ, "SESSIONARY_HOME": str(program.home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        # A shell that started us in the background has made us deaf to Ctrl-C; the child is not.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )


def test_ctrl_c_stops_the_turn_and_keeps_its_text(talking: Program) -> None:
    with start(talking, "hello", "--agent", "slow") as process:
        assert process.stdout is not None
        assert process.stdout.read(9) == "It begins"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_SECONDS)

    assert (process.returncode, out) == (130, "\n")
    assert err == "(interrupted: stopped by you; /retry asks again)\n"
    [head] = talking("sessions", "list", "--json").json["items"]
    shown = talking("sessions", "show", head["id"], "--json").json["items"]
    assert [item["text"] for item in shown[1:]] == ["hello", "It begins"]
    assert not head["running"]


def test_who_presses_ctrl_c_twice_does_not_wait_for_a_turn_elsewhere(talking: Program) -> None:
    talking("chat", "hello", "--agent", "whole")
    with Sessionary(home=str(talking.home)) as client:
        lease = client.store.write(_run_elsewhere, client).result()
        with start(talking, "and now?") as process:
            assert process.stderr is not None
            assert "yours is next" in process.stderr.readline()
            process.send_signal(signal.SIGINT)
            _wait_until_stop_is_asked(client, lease, process)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=TIMEOUT_SECONDS)

    assert (process.returncode, err) == (130, "sessionary: Interrupted.\n")


def _run_elsewhere(tx: Tx, client: Sessionary) -> Lease:
    """Another process runs a turn in the terminal's conversation."""
    head = routing.get_current(tx, key_for(TerminalChat(client.app).source, profile="main"))
    assert head is not None
    claim = Claim("another process", 600, "other")
    return turns.take_lease(tx, head.no, head.id, claim=claim, moment=client.moment())


def _wait_until_stop_is_asked(
    client: Sessionary, lease: Lease, process: "subprocess.Popen[str]"
) -> None:
    while client.store.read(turns.get_stop_reason, lease).result() is None:
        assert process.poll() is None


def test_a_session_is_given_another_agent_and_persona(talking: Program) -> None:
    with (talking.home / "sessionary.toml").open("a") as file:
        file.write('[personas.pirate]\nprompt = "Ahoy."\n')
    talking("chat", "hello", "--agent", "whole", "--persona", "pirate")
    (id,) = talking.ids()

    changed = talking(
        "sessions",
        "choose",
        id,
        "--agent",
        "default",
        "--persona",
        "none",
        "--tools",
        "a b",
        "--json",
    )
    refused = talking("sessions", "choose", id, "--model", "huge")
    nothing = talking("sessions", "choose", id)

    assert [changed.json[name] for name in ("agent", "persona", "tools")] == [
        None,
        None,
        ["a", "b"],
    ]
    texts = [each["text"] for each in talking("sessions", "show", id, "--json").json["items"]]
    assert texts[0].endswith(" chose the agent whole and the persona pirate.")
    assert texts[-1].endswith(
        " chose the default agent and the tools a, b, and removed the persona."
    )
    assert refused.code == 1
    assert "offers no models" in refused.err
    assert nothing.code == 2
    assert "pirate" in talking("agents", "list").err
