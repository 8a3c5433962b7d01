"""The tree of commands: each has help with an example, and speaks JSON."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from hansard.actions import access, deliver
from hansard.app.house import open_house
from hansard.cli.root import root
from hansard.model.part import Text
from hansard.model.place import Channel, Person
from hansard.model.surroundings import HomeChannel
from tests.cli.conftest import Program

DOCS = Path(__file__).parents[2] / "docs" / "cli.py"


def _docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_cli", DOCS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LEAVES = dict(_docs().leaves())
GROUPS = ["hansard", *sorted({path.rpartition(" ")[0] for path in LEAVES} - {"hansard"})]

# What makes each command do its work in a store with a session «Capitals» and a project «Places».
WORK = {
    "hansard sessions list": [],
    "hansard sessions show": ["Capitals"],
    "hansard sessions append": ["Capitals", "hi"],
    "hansard sessions rename": ["Capitals", "Rivers"],
    "hansard sessions pin": ["Capitals"],
    "hansard sessions unpin": ["Capitals"],
    "hansard sessions archive": ["Capitals"],
    "hansard sessions unarchive": ["Capitals"],
    "hansard sessions trash": ["Capitals"],
    "hansard sessions restore": ["Capitals"],
    "hansard sessions purge": ["Capitals", "--yes"],
    "hansard sessions fork": ["Capitals"],
    "hansard sessions end": ["Capitals"],
    "hansard sessions reopen": ["Capitals"],
    "hansard sessions hold": ["Capitals", "--reason", "build"],
    "hansard sessions release": ["Capitals"],
    "hansard sessions move": ["Capitals", "Places"],
    "hansard sessions undo": ["Capitals"],
    "hansard export": ["Capitals"],
    "hansard import": ["FILE"],
    "hansard prune": [],
    "hansard pack": [],
    "hansard erase": ["telegram", "5"],
    "hansard erasures": [],
    "hansard search": ["hello"],
    "hansard demo": ["--sessions", "3", "--home", "OTHER"],
    "hansard usage": [],
    "hansard scan-secrets": [],
    "hansard chat": ["hello"],
    "hansard schedule add": ["other", "every 1h", "hello"],
    "hansard schedule list": [],
    "hansard schedule runs": ["daily"],
    "hansard schedule run": ["daily"],
    "hansard schedule pause": ["daily"],
    "hansard schedule resume": ["daily"],
    "hansard schedule remove": ["daily"],
    "hansard access list": [],
    "hansard access approve": ["CODE"],
    "hansard access allow": ["telegram", "6"],
    "hansard access revoke": ["telegram", "5"],
    "hansard deliveries list": [],
    "hansard deliveries show": ["DELIVERY"],
    "hansard deliveries retry": ["DELIVERY"],
    "hansard deliveries redirect": ["DELIVERY", "webhook:home"],
    "hansard deliveries abandon": ["DELIVERY"],
    "hansard channels list": [],
    "hansard channels check": ["webhook"],
    "hansard agents list": [],
    "hansard config check": [],
    "hansard password set": [],
    "hansard password clear": [],
    "hansard password link": [],
    "hansard password hash": [],
    "hansard tokens add": [],
    "hansard tokens list": [],
    "hansard tokens revoke": ["TOKEN"],
    "hansard route explain": ["--platform", "telegram", "--chat", "5"],
    "hansard bindings list": [],
    "hansard bindings reset": ["main/web/dm/chat=a"],
    "hansard bindings switch": ["main/web/dm/chat=a", "Capitals"],
    "hansard projects list": [],
    "hansard projects add": ["Other"],
    "hansard projects rename": ["Places", "Other"],
    "hansard projects colour": ["Places", "#000000"],
    "hansard projects remove": ["Places"],
    "hansard verify": [],
    "hansard rebuild": [],
    "hansard doctor": [],
    "hansard backup": ["COPY"],
    "hansard restore": ["COPY", "--yes"],
    "hansard migrate": ["--to", "COPY"],
    "hansard stats": [],
    "hansard bench": ["open", "--scale", "tiny"],
    "hansard completion": ["bash"],
}


@pytest.mark.parametrize("path", LEAVES)
def test_every_command_has_help_with_an_example(hansard: Program, path: str) -> None:
    answer = hansard(*path.split()[1:], "--help")

    assert answer.code == 0
    assert f"\n  {path}" in answer.out.partition("Example")[2]
    assert "Options of every command:" in answer.out
    assert not hansard.home.exists()


@pytest.mark.parametrize("path", GROUPS)
def test_a_group_says_of_each_command_what_the_command_says_itself(
    hansard: Program, path: str
) -> None:
    answer = hansard(*path.split()[1:])
    said = answer.out.partition("Commands:\n")[2].partition("\n\n")[0]
    command: click.Command = root
    ctx = click.Context(root)
    for name in path.split()[1:]:
        assert isinstance(command, click.Group)
        found = command.get_command(ctx, name)
        assert found is not None
        command = found
    assert isinstance(command, click.Group)

    assert answer.code == 0
    assert [line.split()[0] for line in said.splitlines()] == command.list_commands(ctx)


def test_the_page_about_the_command_line_is_what_the_commands_say() -> None:
    page = DOCS.with_suffix(".md").read_text(encoding="utf-8")

    assert page == _docs().page(), "make it again: .venv/bin/python docs/cli.py"


def test_the_manual_page_is_what_the_commands_say() -> None:
    page = DOCS.with_name("hansard.1").read_text(encoding="utf-8")

    assert page == _docs().man_page(), "make it again: .venv/bin/python docs/cli.py"


@pytest.fixture
def working(hansard: Program, tmp_path: Path) -> Program:
    hansard.append("new", "hello", "--title", "Capitals")
    hansard("projects", "add", "Places")
    hansard("bindings", "switch", "main/web/dm/chat=a", "Capitals")
    hansard("export", "Capitals", "-o", str(tmp_path / "export.jsonl"))
    hansard("schedule", "add", "daily", "@daily", "hello")
    hansard("access", "allow", "telegram", "5")
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    table = f"[channels.webhook]\nsecret_file = {str(secret)!r}\n"
    (hansard.home / "hansard.toml").write_text(table, encoding="utf-8")
    return hansard


def _asks_with_a_code(home: Path) -> str:
    """A stranger asks to be let in; the code they were given."""
    with open_house(home=str(home)) as house:
        house.writing(
            access.ask,
            "telegram",
            Person("7"),
            profile="main",
            code="K7QM2XPA",
            when=house.occasion(),
        ).result()
    return "K7QM2XPA"


def _delivery(home: Path) -> str:
    """Something waits in the outbox, and there is another channel for it; its id."""
    with open_house(home=str(home)) as house:
        given: dict[str, Any] = {"profile": "main", "when": house.occasion()}
        house.writing(access.set_home, HomeChannel("webhook", "home"), **given).result()
        words = (Text("hello"),)
        return house.writing(deliver.enqueue, Channel("webhook", "1"), words, **given).result()


@pytest.mark.parametrize(
    "path", [path for path in LEAVES if path not in ("hansard serve", "hansard mcp")]
)
def test_every_command_prints_exactly_one_json_document(
    working: Program, tmp_path: Path, path: str
) -> None:
    if path == "hansard restore":
        working("backup", str(tmp_path / "copy.db"))
    words = {"FILE": str(tmp_path / "export.jsonl"), "COPY": str(tmp_path / "copy.db")}
    words["OTHER"] = str(tmp_path / "other")
    if "TOKEN" in WORK[path]:
        words["TOKEN"] = working("tokens", "add", "--json").json["id"]
    if "CODE" in WORK[path]:
        words["CODE"] = _asks_with_a_code(working.home)
    if "DELIVERY" in WORK[path]:
        words["DELIVERY"] = _delivery(working.home)
    args = [words.get(word, word) for word in WORK[path]]

    stdin = b"correct horse battery" if " password " in path else b""
    answer = working(*path.split()[1:], *args, "--json", stdin=stdin)

    assert answer.code == 0, answer.err
    assert isinstance(answer.json, dict)
    assert "error" not in answer.json


@pytest.mark.parametrize("path", [*LEAVES, *GROUPS])
def test_wrong_usage_is_one_json_document_too(hansard: Program, path: str) -> None:
    answer = hansard(*path.split()[1:], "--json", "--no-such-option")

    assert answer.code == 2
    assert answer.json["error"]["type"] == "usage"
    assert answer.line.startswith("hansard: No such option")


def test_the_version_is_printed(hansard: Program) -> None:
    assert hansard("--version").out.startswith("hansard 0.")
    assert set(hansard("--version", "--json").json) == {"version"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion_script(hansard: Program, shell: str) -> None:
    assert "_HANSARD_COMPLETE" in hansard("completion", shell).out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("hansard se", ["sessions"]),
        ("hansard sessions un", ["unpin", "unarchive", "undo"]),
        ("hansard sessions show C", ["Capitals"]),
        ("hansard sessions list --pinned", ["--pinned", "--pinned-first"]),
    ],
)
def test_a_shell_completes_commands_options_and_titles(
    working: Program, words: str, expected: list[str]
) -> None:
    environ = {
        "_HANSARD_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }

    answer = working.run(environ=environ)

    found = [line.partition(",")[2] for line in answer.out.splitlines()]
    assert [name for name in found if name in expected] == expected


def test_completion_in_a_fresh_home_offers_nothing_and_makes_nothing(hansard: Program) -> None:
    environ = {
        "_HANSARD_COMPLETE": "bash_complete",
        "COMP_WORDS": "hansard sessions show x",
        "COMP_CWORD": "3",
    }

    answer = hansard.run(environ=environ)

    assert (answer.out.strip(), answer.err) == ("", "")
    assert not hansard.home.exists()


def test_bash_gets_a_title_as_one_word(hansard: Program) -> None:
    hansard.append("new", "hello", "--title", "Capitals of * Europe")
    bin_folder = hansard.home.parent / "bin"
    bin_folder.mkdir()
    program = bin_folder / "hansard"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m hansard "$@"\n')
    program.chmod(0o700)
    script = hansard("completion", "bash").out
    script += "COMP_WORDS=(hansard sessions show 'Capitals\\ o'); COMP_CWORD=3\n"
    script += '_hansard_completion hansard; printf "%s\\n" "${COMPREPLY[@]}"\n'

    done = subprocess.run(
        ["bash", "-c", script],
        env={
            **os.environ,
            "HANSARD_HOME": str(hansard.home),
            "PATH": f"{bin_folder}:/usr/bin:/bin",
        },
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "Capitals\\ of\\ \\*\\ Europe\n"
