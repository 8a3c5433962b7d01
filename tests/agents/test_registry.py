"""From configuration to runners: clear errors, and no secret in sight."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from sessionary.agents import model
from sessionary.agents.command import CommandRunner
from sessionary.agents.demo import EchoRunner, ScriptRunner
from sessionary.agents.model import ModelOptions, ModelRunner
from sessionary.agents.python import PythonRunner
from sessionary.agents.registry import DEMO, build
from sessionary.agents.summaries import ExtractiveSummarizer, ModelSummarizer
from sessionary.config.engine import AgentTable
from sessionary.config.reader import Place, read
from sessionary.config.secret import Secret
from sessionary.errors import BadInput

KEY = "sk-very-secret"


def agent(kind: str, **options: object) -> AgentTable:
    return AgentTable(name="bot", kind=kind, options=options)


def test_each_kind_has_its_runner() -> None:
    kinds = {
        EchoRunner: agent("echo"),
        ScriptRunner: DEMO,
        CommandRunner: agent("command", command=["true"], env={"A": "1"}),
        PythonRunner: agent("python", function="json:dumps"),
        ModelRunner: agent("model", model="openai:gpt-5", settings={"temperature": 0}),
    }

    for runner, settings in kinds.items():
        assert type(build(settings, environ={}).runner) is runner


def test_a_model_agent_summarizes_with_its_model() -> None:
    assert isinstance(
        build(agent("model", model="openai:m"), environ={}).summarizer, ModelSummarizer
    )
    assert isinstance(build(agent("echo"), environ={}).summarizer, ExtractiveSummarizer)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (agent("robot"), ["[agents.bot]", "'robot'", "command, echo, model, python, script"]),
        (agent("model"), ["[agents.bot]", "set model, provider:model, such as openai:gpt-5"]),
        (agent("model", model="m", modle="x"), ["'modle'", "Did you mean 'model'"]),
        (agent("model", model=7), ["model must be a text"]),
        (agent("model", model="m", api_key_env="NO_KEY"), ["NO_KEY"]),
        (agent("model", model="m", api_key_file="/nowhere/key"), ["/nowhere/key"]),
        (agent("model", model="m", mcp=[{}]), ["mcp 1", "either a command or a url"]),
        (agent("model", model="m", mcp=[{"url": "x", "folde": "y"}]), ["Did you mean 'folder'"]),
        (agent("model", model="m", attempts=0), ["attempts", "a whole number above 0"]),
        (agent("command"), ["program"]),
        (agent("echo", loud=True), ["'loud'", "none"]),
        (agent("script", pace_seconds=-1), ["pace_seconds"]),
    ],
)
def test_a_mistake_in_the_options_is_named(settings: AgentTable, words: list[str]) -> None:
    with pytest.raises(BadInput) as caught:
        build(settings, environ={})

    for word in words:
        assert word in str(caught.value)


def test_a_key_comes_from_a_variable_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")

    for given in ({"api_key_env": "KEY"}, {"api_key_file": str(path)}):
        options = read(ModelOptions, {"model": "m"} | given, Place("agent"), environ={"KEY": KEY})
        assert options.key is not None
        assert options.key.reveal() == KEY
        assert KEY not in repr(options)


def test_a_secret_is_never_shown() -> None:
    secret = Secret(KEY)

    assert KEY not in f"{secret} {secret!r} {[secret]}"
    with pytest.raises(TypeError):
        pickle.dumps(secret)


def test_a_missing_library_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "LIBRARY", "pydantic_ai_that_is_not_there")

    with pytest.raises(BadInput, match=r"sessionary\[agents\]"):
        build(agent("model", model="openai:m"), environ={})


def test_building_agents_loads_no_model_library() -> None:
    code = (
        "import sys, sessionary\n"
        "from sessionary.agents.registry import build\n"
        "from sessionary.config.engine import AgentTable\n"
        "build(AgentTable(options={'model': 'openai:m'}), environ={})\n"
        "heavy = {'pydantic_ai', 'pydantic', 'openai', 'anthropic', 'mcp', 'fastmcp', 'httpx2'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
