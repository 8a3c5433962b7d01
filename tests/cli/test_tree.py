"""The tree of commands: each has help with an example, and speaks JSON."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from sessionary import Sessionary
from sessionary.actions import access, outbox
from sessionary.cli.root import root
from sessionary.model.message import Text
from sessionary.model.prompt import HomeAddress
from sessionary.model.source import Channel, Person
from tests.cli.conftest import Program
from tests.cli.test_turns import waiting_turn
from tests.support.asking_agent import park_question
from tools import cli_page

LEAVES = dict(cli_page.leaves())
GROUPS = ["sessionary", *sorted({path.rpartition(" ")[0] for path in LEAVES} - {"sessionary"})]

# What makes each command do its work in a store with a session «Capitals» and a project «Places».
WORK = {
    "sessionary sessions list": [],
    "sessionary sessions show": ["Capitals"],
    "sessionary sessions append": ["Capitals", "hi"],
    "sessionary sessions rename": ["Capitals", "Rivers"],
    "sessionary sessions choose": ["Capitals", "--tools", "none"],
    "sessionary sessions pin-message": ["Capitals", "1"],
    "sessionary sessions unpin-message": ["Capitals", "1"],
    "sessionary turns list": ["Capitals"],
    "sessionary turns context": ["TURN"],
    "sessionary questions list": [],
    "sessionary questions show": ["QUESTION"],
    "sessionary questions answer": ["QUESTION", "approve"],
    "sessionary policy explain": ["send", "--source", "telegram:5"],
    "sessionary policy list": [],
    "sessionary policy revoke": ["APPROVAL"],
    "sessionary sessions pin": ["Capitals"],
    "sessionary sessions unpin": ["Capitals"],
    "sessionary sessions archive": ["Capitals"],
    "sessionary sessions unarchive": ["Capitals"],
    "sessionary sessions trash": ["Capitals"],
    "sessionary sessions restore": ["Capitals"],
    "sessionary sessions purge": ["Capitals", "--yes"],
    "sessionary sessions fork": ["Capitals"],
    "sessionary sessions stop": ["Capitals"],
    "sessionary sessions end": ["Capitals"],
    "sessionary sessions reopen": ["Capitals"],
    "sessionary sessions hold": ["Capitals", "--reason", "build"],
    "sessionary sessions release": ["Capitals"],
    "sessionary sessions move": ["Capitals", "Places"],
    "sessionary sessions undo": ["Capitals"],
    "sessionary export": ["Capitals"],
    "sessionary import": ["FILE"],
    "sessionary prune": [],
    "sessionary pack": [],
    "sessionary erase": ["telegram", "5"],
    "sessionary erasures": [],
    "sessionary search": ["hello"],
    "sessionary demo": ["--sessions", "3", "--home", "OTHER"],
    "sessionary usage": [],
    "sessionary scan-secrets": [],
    "sessionary chat": ["hello"],
    "sessionary schedule add": ["other", "every 1h", "hello"],
    "sessionary schedule list": [],
    "sessionary schedule runs": ["daily"],
    "sessionary schedule run": ["daily"],
    "sessionary schedule pause": ["daily"],
    "sessionary schedule resume": ["daily"],
    "sessionary schedule remove": ["daily"],
    "sessionary access list": [],
    "sessionary access approve": ["CODE"],
    "sessionary access allow": ["telegram", "6"],
    "sessionary access revoke": ["telegram", "5"],
    "sessionary deliveries list": [],
    "sessionary deliveries show": ["DELIVERY"],
    "sessionary deliveries retry": ["DELIVERY"],
    "sessionary deliveries redirect": ["DELIVERY", "webhook:home"],
    "sessionary deliveries abandon": ["DELIVERY"],
    "sessionary channels list": [],
    "sessionary channels check": ["webhook"],
    "sessionary agents list": [],
    "sessionary config check": [],
    "sessionary config show": [],
    "sessionary password set": [],
    "sessionary password clear": [],
    "sessionary password link": [],
    "sessionary password hash": [],
    "sessionary tokens add": [],
    "sessionary tokens list": [],
    "sessionary tokens revoke": ["TOKEN"],
    "sessionary route explain": ["--platform", "telegram", "--chat", "5"],
    "sessionary bindings list": [],
    "sessionary bindings reset": ["main/web/dm/chat=a"],
    "sessionary bindings switch": ["main/web/dm/chat=a", "Capitals"],
    "sessionary projects list": [],
    "sessionary projects add": ["Other"],
    "sessionary projects rename": ["Places", "Other"],
    "sessionary projects colour": ["Places", "#000000"],
    "sessionary projects remove": ["Places"],
    "sessionary verify": [],
    "sessionary rebuild": [],
    "sessionary doctor": [],
    "sessionary backup": ["COPY"],
    "sessionary restore": ["COPY", "--yes"],
    "sessionary migrate": ["--to", "COPY"],
    "sessionary move-home": ["FORMER", "--home", "OTHER"],
    "sessionary stats": [],
    "sessionary completion": ["bash"],
}


@pytest.mark.parametrize("path", LEAVES)
def test_every_command_has_help_with_an_example(sessionary: Program, path: str) -> None:
    answer = sessionary(*path.split()[1:], "--help")

    assert answer.code == 0
    assert f"\n  {path}" in answer.out.partition("Example")[2]
    assert "Options of every command:" in answer.out
    assert not sessionary.home.exists()


@pytest.mark.parametrize("path", GROUPS)
def test_a_group_says_of_each_command_what_the_command_says_itself(
    sessionary: Program, path: str
) -> None:
    answer = sessionary(*path.split()[1:])
    commands = answer.out.partition("Commands:\n")[2].partition("\n\n")[0]
    command: click.Command = root
    ctx = click.Context(root)
    for name in path.split()[1:]:
        assert isinstance(command, click.Group)
        found = command.get_command(ctx, name)
        assert found is not None
        command = found
    assert isinstance(command, click.Group)

    assert answer.code == 0
    assert [line.split()[0] for line in commands.splitlines()] == command.list_commands(ctx)


def test_the_page_about_the_command_line_is_what_the_commands_say() -> None:
    page = cli_page.PAGE.read_text(encoding="utf-8")

    assert page == cli_page.page(), "make it again: .venv/bin/python -m tools.cli_page"


def test_the_manual_page_is_what_the_commands_say() -> None:
    page = cli_page.PAGE.with_name("sessionary.1").read_text(encoding="utf-8")

    assert page == cli_page.man_page(), "make it again: .venv/bin/python -m tools.cli_page"


@pytest.fixture
def working(sessionary: Program, tmp_path: Path) -> Program:
    sessionary.append("new", "hello", "--title", "Capitals")
    sessionary("projects", "add", "Places")
    sessionary("bindings", "switch", "main/web/dm/chat=a", "Capitals")
    sessionary("export", "Capitals", "-o", str(tmp_path / "export.jsonl"))
    sessionary("schedule", "add", "daily", "@daily", "hello")
    sessionary("access", "allow", "telegram", "5")
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    table = f"[channels.webhook]\nsecret_file = {str(secret)!r}\n"
    (sessionary.home / "sessionary.toml").write_text(table, encoding="utf-8")
    return sessionary


def _asks_with_a_code(home: Path) -> str:
    """A stranger asks to be let in; the code they were given."""
    with Sessionary(home=str(home)) as client:
        client.store.write(
            access.request_pairing,
            "telegram",
            Person("7"),
            profile="main",
            code="K7QM2XPA",
            moment=client.moment(),
        ).result()
    return "K7QM2XPA"


def _turn(home: Path) -> str:
    """A turn has ended; its id."""
    with Sessionary(home=str(home)) as client:
        chat = client.session("asked")
        with chat.turn("hello") as turn:
            turn.append("assistant", "hi")
        return chat.turns().items[0].turn.id


def _delivery(home: Path) -> str:
    """Something waits in the outbox, and there is another channel for it; its id."""
    with Sessionary(home=str(home)) as client:
        given: dict[str, Any] = {"profile": "main", "moment": client.moment()}
        client.store.write(access.set_home, HomeAddress("webhook", "home"), **given).result()
        words = (Text("hello"),)
        return client.store.write(outbox.enqueue, Channel("webhook", "1"), words, **given).result()


# They serve until their clients have gone.
SERVERS = ("sessionary serve", "sessionary mcp", "sessionary acp", "sessionary proxy")


@pytest.mark.parametrize("path", [path for path in LEAVES if path not in SERVERS])
def test_every_command_prints_exactly_one_json_document(
    working: Program, tmp_path: Path, path: str
) -> None:
    if path == "sessionary sessions unpin-message":
        working("sessions", "pin-message", "Capitals", "1")
    if path == "sessionary sessions stop":
        with Sessionary(home=str(working.home)) as client:
            waiting_turn(client, str(client.find("Capitals").id))
    if path == "sessionary restore":
        working("backup", str(tmp_path / "copy.db"))
    words = {"FILE": str(tmp_path / "export.jsonl"), "COPY": str(tmp_path / "copy.db")}
    words["OTHER"] = str(tmp_path / "other")
    words["FORMER"] = str(tmp_path / "former")
    if path == "sessionary move-home":
        (tmp_path / "former").mkdir()
        (tmp_path / "former" / "hansard.toml").write_text('profile = "work"')
    if "TOKEN" in WORK[path]:
        words["TOKEN"] = working("tokens", "add", "--json").json["id"]
    if "CODE" in WORK[path]:
        words["CODE"] = _asks_with_a_code(working.home)
    if "TURN" in WORK[path]:
        words["TURN"] = _turn(working.home)
    if "QUESTION" in WORK[path]:
        words["QUESTION"] = park_question(working.home).id
    if "APPROVAL" in WORK[path]:
        asked = park_question(working.home)
        working("questions", "answer", asked.id, "approve", "--always", "session")
        (approval,) = working("policy", "list", "--json").json["items"]
        words["APPROVAL"] = approval["id"]
    if "DELIVERY" in WORK[path]:
        words["DELIVERY"] = _delivery(working.home)
    args = [words.get(word, word) for word in WORK[path]]

    stdin = b"correct horse battery" if " password " in path else b""
    answer = working(*path.split()[1:], *args, "--json", stdin=stdin)

    assert answer.code == 0, answer.err
    assert isinstance(answer.json, dict)
    assert "error" not in answer.json


@pytest.mark.parametrize("path", [*LEAVES, *GROUPS])
def test_wrong_usage_is_one_json_document_too(sessionary: Program, path: str) -> None:
    answer = sessionary(*path.split()[1:], "--json", "--no-such-option")

    assert answer.code == 2
    assert answer.json["error"]["type"] == "usage"
    assert answer.line.startswith("sessionary: No such option")


def test_the_version_is_printed(sessionary: Program) -> None:
    assert sessionary("--version").out.startswith("sessionary 0.")
    assert set(sessionary("--version", "--json").json) == {"version"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion_script(sessionary: Program, shell: str) -> None:
    assert "_SESSIONARY_COMPLETE" in sessionary("completion", shell).out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("sessionary se", ["sessions"]),
        ("sessionary sessions un", ["unpin", "unarchive", "undo"]),
        ("sessionary sessions show C", ["Capitals"]),
        ("sessionary sessions list --pinned", ["--pinned", "--pinned-first"]),
    ],
)
def test_a_shell_completes_commands_options_and_titles(
    working: Program, words: str, expected: list[str]
) -> None:
    environ = {
        "_SESSIONARY_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }

    answer = working.run(environ=environ)

    found = [line.partition(",")[2] for line in answer.out.splitlines()]
    assert [name for name in found if name in expected] == expected


def test_completion_in_a_fresh_home_offers_nothing_and_makes_nothing(sessionary: Program) -> None:
    environ = {
        "_SESSIONARY_COMPLETE": "bash_complete",
        "COMP_WORDS": "sessionary sessions show x",
        "COMP_CWORD": "3",
    }

    answer = sessionary.run(environ=environ)

    assert (answer.out.strip(), answer.err) == ("", "")
    assert not sessionary.home.exists()


def test_bash_gets_a_title_as_one_word(sessionary: Program) -> None:
    sessionary.append("new", "hello", "--title", "Capitals of * Europe")
    bin_folder = sessionary.home.parent / "bin"
    bin_folder.mkdir()
    program = bin_folder / "sessionary"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m sessionary "$@"\n')
    program.chmod(0o700)
    script = sessionary("completion", "bash").out
    script += "COMP_WORDS=(sessionary sessions show 'Capitals\\ o'); COMP_CWORD=3\n"
    script += '_sessionary_completion sessionary; printf "%s\\n" "${COMPREPLY[@]}"\n'

    done = subprocess.run(
        ["bash", "-c", script],
        env={
            **os.environ,
            "SESSIONARY_HOME": str(sessionary.home),
            "PATH": f"{bin_folder}:/usr/bin:/bin",
        },
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "Capitals\\ of\\ \\*\\ Europe\n"
