"""From the settings of an agent to the runner that takes its turns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sessionary.agents.command import CommandOptions, CommandRunner, program_environment
from sessionary.agents.demo import DEFAULT_PACE_SECONDS, EchoRunner, ScriptRunner
from sessionary.agents.model import ModelRunner, model_options, require_library
from sessionary.agents.python import PythonRunner
from sessionary.agents.settings import DEMO, AgentSettings, Options
from sessionary.agents.summaries import ExtractiveSummarizer, ModelSummarizer, ModelTitler
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


def build(settings: AgentSettings, *, environ: Mapping[str, str]) -> ConfiguredAgent:
    """Build the agent that the settings describe; secrets are read from `environ`."""
    make = _KINDS.get(settings.kind)
    where = f"agent {settings.name!r}"
    if make is None:
        raise BadInput(f"{where}: there is no kind {settings.kind!r}; use {_kinds()}.")
    options = Options(settings.options, where, environ, folder=settings.folder)
    runner = make(options)
    options.refuse_unknown()
    model = runner if isinstance(runner, ModelRunner) else None
    return ConfiguredAgent(
        settings.name,
        settings.prompt,
        runner,
        ExtractiveSummarizer() if model is None else ModelSummarizer(model),
        ModelTitler(model),
    )


def _kinds() -> str:
    *most, last = sorted(_KINDS)
    return f"{', '.join(most)} or {last}"


def _script(options: Options) -> Runner:
    return ScriptRunner(pace=options.number("pace_seconds", DEFAULT_PACE_SECONDS))


def _model(options: Options) -> Runner:
    read = model_options(options)
    require_library(f"The agent for {read.model}")
    return ModelRunner(read)


def _command(options: Options) -> Runner:
    added = {name: str(value) for name, value in options.mapping("env").items()}
    environ = program_environment(options.environ, names=options.texts("pass_env"), added=added)
    return CommandRunner(
        CommandOptions(
            command=options.texts("command"),
            folder=options.text("folder"),
            environ=environ,
            timeout_seconds=options.number("timeout_seconds", 600.0, least=0.001),
            most_bytes=int(options.number("most_bytes", 32 * 1024 * 1024, least=1)),
        )
    )


def _python(options: Options) -> Runner:
    return PythonRunner(options.required("function"), folder=options.folder)


_KINDS: dict[str, Callable[[Options], Runner]] = {
    "echo": lambda _: EchoRunner(),
    DEMO: _script,
    "model": _model,
    "command": _command,
    "python": _python,
}
