"""The quick start in the README, and the first half hour, work as they are written."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Program

README = Path(__file__).parents[2] / "README.md"


def test_the_commands_of_the_readme_work_one_after_the_other(sessionary: Program) -> None:
    text = README.read_text(encoding="utf-8")
    block = text.partition("## The first five minutes")[2].partition("```sh\n")[2]
    commands = [
        shlex.split(line, comments=True)[1:]
        for line in block.partition("```")[0].splitlines()
        if line.startswith("sessionary ")
    ]
    assert len(commands) > 5
    session = ""
    for command in commands:
        answer = sessionary(*[session if word == "ID" else word for word in command])
        assert answer.code == 0, (command, answer.err)
        found = re.match(r"[0-9a-z]{26}", answer.out)
        session = found[0][:14] if found and not session else session


def test_the_commands_of_the_first_half_hour_work_one_after_the_other(
    sessionary: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (README.parent / "docs" / "start.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(sh|toml)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    sessionary.home.mkdir(mode=0o700)
    monkeypatch.chdir(sessionary.home)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "never sent")
    done = 0
    for kind, block in blocks:
        if kind == "toml":
            (sessionary.home / "sessionary.toml").write_text(block, encoding="utf-8")
            continue
        for line in block.splitlines():
            answer = sessionary(*shlex.split(line, comments=True)[1:])
            assert answer.code == 0, (line, answer.err)
            assert answer.out, line
            done += 1
    assert done > 12
