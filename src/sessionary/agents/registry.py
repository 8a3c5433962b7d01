"""From the settings of an agent to the runner that takes its turns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from sessionary.agents.command import CommandOptions, CommandRunner, program_environment
from sessionary.agents.demo import DEFAULT_PACE_SECONDS, EchoRunner, ScriptRunner
from sessionary.agents.model import ModelOptions, ModelRunner, require_library
from sessionary.agents.python import PythonRunner
from sessionary.agents.summaries import ExtractiveSummarizer, ModelSummarizer, ModelTitler
from sessionary.config import FILE
from sessionary.config.engine import AgentTable
from sessionary.config.reader import Place, check_secrets, read
from sessionary.config.setting import Setting
from sessionary.engine.ports import Runner, Summarizer
from sessionary.errors import BadInput
from sessionary.model.prompt import PromptContext, render

DEFAULT_PROMPT = """\
You are a helpful agent. Answer in the language of the person who writes to you, plainly and to the
point. Say so when you do not know something, and when a tool failed.
"""


def assemble(prompt: str | None, surroundings: PromptContext) -> str:
    """Return the system prompt of a turn. The same facts give the same bytes.

    What changes least comes first; the note about a reset comes last, because the second turn omits it. So a
    provider's prompt cache matches as much as possible.
    """
    head = DEFAULT_PROMPT if prompt is None else prompt
    return "\n\n".join(filter(None, (head.strip(), render(surroundings))))


@dataclass(frozen=True, slots=True)
class ConfiguredAgent:
    """A named agent: its runner, its summarizer and its titler."""

    name: str
    prompt: str | None
    runner: Runner
    summarizer: Summarizer
    titler: ModelTitler

    async def close(self) -> None:
        """Close connections and processes."""
        await self.runner.close()


@dataclass(frozen=True, slots=True)
class AgentKind:
    """A kind of agent: the class that declares its settings, and what builds a runner from them.

    `build` also gets the environment, and the directory of sessionary.toml.
    """

    settings: type[Any]
    build: Callable[[Any, Mapping[str, str], Path | None], Runner]


@dataclass(frozen=True, slots=True, kw_only=True)
class EchoSettings:
    """An agent that repeats the message has no settings of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSettings:
    """The settings of the demo agent."""

    pace_seconds: Annotated[
        float, Setting("the pause after each word of the demo", ge=0, le=60)
    ] = DEFAULT_PACE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonSettings:
    """The settings of an agent that is a function."""

    function: Annotated[str, Setting("module:function", example="my_module:answer")]


def build(
    table: AgentTable, *, environ: Mapping[str, str], folder: Path | None = None
) -> ConfiguredAgent:
    """Build the agent that a table describes; secrets are read from `environ`."""
    kind = kind_of(table)
    settings = read(kind.settings, table.options, _place(table), environ=environ)
    check_secrets(settings)
    runner = kind.build(settings, environ, folder)
    model = runner if isinstance(runner, ModelRunner) else None
    return ConfiguredAgent(
        table.name,
        table.prompt,
        runner,
        ExtractiveSummarizer() if model is None else ModelSummarizer(model),
        ModelTitler(model),
    )


def kind_of(table: AgentTable) -> AgentKind:
    """Return the kind of an agent; raise BadInput if there is none of that name."""
    kind = KINDS.get(table.kind)
    if kind is None:
        *most, last = sorted(KINDS)
        raise BadInput(
            f"{_place(table)}: there is no kind {table.kind!r}; use {', '.join(most)} or {last}."
        )
    return kind


def _place(table: AgentTable) -> Place:
    return Place(FILE, "agents").below(table.name)


def _model(options: ModelOptions, _: Mapping[str, str], __: Path | None) -> Runner:
    require_library(f"The agent for {options.model}")
    return ModelRunner(options)


def _command(options: CommandOptions, environ: Mapping[str, str], _: Path | None) -> Runner:
    passed = program_environment(environ, names=options.pass_env, added=options.env)
    return CommandRunner(replace(options, environ=passed))


DEMO = AgentTable(name="demo", kind="script")
KINDS: dict[str, AgentKind] = {
    "model": AgentKind(ModelOptions, _model),
    "command": AgentKind(CommandOptions, _command),
    "python": AgentKind(
        PythonSettings, lambda settings, _, folder: PythonRunner(settings.function, folder=folder)
    ),
    "script": AgentKind(
        ScriptSettings, lambda settings, _, __: ScriptRunner(pace=settings.pace_seconds)
    ),
    "echo": AgentKind(EchoSettings, lambda _, __, ___: EchoRunner()),
}
