"""The kinds of agents that are installed, and the agents that are configured."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from sessionary.agents.summaries import Asker, ExtractiveSummarizer, ModelSummarizer, ModelTitler
from sessionary.config import FILE
from sessionary.config.engine import AgentTable, EngineConfig
from sessionary.config.reader import Place, check_secrets, read
from sessionary.engine.ports import Runner, Summarizer
from sessionary.errors import SessionaryError
from sessionary.model.choice import AgentOffer, ChoiceCatalog, Persona
from sessionary.model.prompt import PromptContext, render
from sessionary.plugins import PluginGroup

S = TypeVar("S")
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


@runtime_checkable
class HasWindow(Protocol):
    """A runner that knows how many tokens its model reads."""

    def window(self, model: str | None) -> int | None:
        """Return the size of a model's window, of its own with None; None if it is unknown."""


@runtime_checkable
class Checkable(Protocol):
    """A runner whose settings can be checked further than by their types, without starting anything."""

    def check(self) -> None:
        """Raise `BadInput` if the agent cannot be run, such as a program that is not there."""


@runtime_checkable
class NamesModel(Protocol):
    """A runner that asks one model."""

    @property
    def model(self) -> str | None:
        """The name of the model, as a usage report has it."""


@dataclass(frozen=True, slots=True)
class ConfiguredAgent:
    """A named agent: its runner, its summarizer and its titler."""

    name: str
    prompt: str | None
    runner: Runner
    summarizer: Summarizer
    titler: ModelTitler
    # Whether a turn whose process has ended is continued in another.
    resumes: bool = False
    # What it asks, if its runner knows that before a turn.
    model: str | None = None
    # Whether a program may give it tools of its own for a turn, and ask for a form of the answer.
    takes_turn_options: bool = False

    @property
    def reports_unknown_calls(self) -> bool:
        """Whether the person is told when it is not known whether a tool ran."""
        return getattr(self.runner, "reports_unknown_calls", False) is True

    def window(self, model: str | None) -> int | None:
        """Return how many tokens the agent's model reads, or another one that it may use; None if unknown."""
        runner = self.runner
        return runner.window(model) if isinstance(runner, HasWindow) else None

    async def close(self) -> None:
        """Close connections and processes."""
        await self.runner.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContext:
    """What an agent is created with besides its settings: the environment, and the directory of sessionary.toml."""

    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    folder: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentKind(Generic[S]):
    """A kind of agent, as a package registers it under the entry point group `sessionary.agents`.

    `name` is that of the entry point, and what `kind` is set to in a table `[agents.*]`. `settings` is the class that
    declares the other settings of such a table; `create` returns the runner for one. `extra` is what pip has to
    install for it.
    """

    name: str
    title: str
    settings: type[S]
    create: Callable[[S, AgentContext], Runner]
    extra: str | None = None
    documentation: str | None = None
    # Whether its turns are continued in another process when theirs ends, unless the table says otherwise.
    resumes: bool = False


AGENTS: PluginGroup[AgentKind[Any]] = PluginGroup("sessionary.agents", "agent kind", AgentKind)
DEMO = AgentTable(name="demo", kind="script")


def catalog_of(settings: EngineConfig) -> ChoiceCatalog:
    """Return what sessions may choose from: the configured agents with their models, and the personas."""
    tables = settings.agents or {DEMO.name: DEMO}
    personas = settings.personas.items()
    return ChoiceCatalog(
        agents={name: _offer(table) for name, table in tables.items()},
        personas={name: Persona(name, each.prompt, each.title) for name, each in personas},
        default=settings.agent or DEMO.name,
        default_by_platform=settings.agent_by_platform,
    )


def _offer(table: AgentTable) -> AgentOffer:
    """Return what a session may choose of an agent; its own model comes first."""
    own, window = table.options.get("model"), table.options.get("window")
    model = own if isinstance(own, str) else None
    models = dict.fromkeys((*(() if model is None else (model,)), *table.models))
    return AgentOffer(
        table.name, table.kind, model, tuple(models), window if isinstance(window, int) else None
    )


def build(
    table: AgentTable, *, environ: Mapping[str, str], folder: Path | None = None
) -> ConfiguredAgent:
    """Build the agent that a table describes; secrets are read from `environ`."""
    place = Place(FILE, "agents").below(table.name)
    kind = AGENTS.load(table.kind, where=str(place))
    settings = read(kind.settings, table.options, place, environ=environ)
    check_secrets(settings)
    try:
        runner = kind.create(settings, AgentContext(environ=environ, folder=folder))
    except SessionaryError:
        raise
    except Exception as error:  # a plug-in may raise anything
        raise AGENTS.failed(table.kind, error) from error
    resumes = kind.resumes if table.resume is None else table.resume
    return agent_of(runner, name=table.name, prompt=table.prompt, resumes=resumes)


def agent_of(
    runner: Runner, *, name: str, prompt: str | None = None, resumes: bool = False
) -> ConfiguredAgent:
    """Return an agent with this runner, which also writes summaries and titles if it can be asked."""
    asker = runner if isinstance(runner, Asker) else None
    return ConfiguredAgent(
        name,
        prompt,
        runner,
        ExtractiveSummarizer() if asker is None else ModelSummarizer(asker),
        ModelTitler(asker),
        resumes,
        runner.model if isinstance(runner, NamesModel) else None,
        getattr(runner, "takes_turn_options", False) is True,
    )
