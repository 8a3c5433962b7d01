"""Settings of the engine: agents, channels, access, budgets, and how turns run."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any, Literal

from sessionary.config import FILE, Config
from sessionary.config.reader import Place, read, settings_of
from sessionary.config.setting import (
    MAX_SECONDS,
    MAY_BE_EMPTY,
    Microusd,
    Seconds,
    Setting,
    Texts,
    TextTable,
)
from sessionary.errors import BadInput

SCOPES = ("person", "channel", "schedule", "session", "agent", "model", "profile")


class ChoiceName(StrEnum):
    """What a session may have of its own."""

    AGENT = "agent"
    MODEL = "model"
    PERSONA = "persona"
    TOOLS = "tools"


class WhileRunning(StrEnum):
    """What happens to a message that arrives while a turn runs."""

    QUEUE = "queue"
    INTERRUPT = "interrupt"
    STEER = "steer"


class ToolDecision(StrEnum):
    """What happens when an agent calls a tool."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class OnExpiry(StrEnum):
    """What happens to a turn when nobody has answered its question in time."""

    DENY = "deny"
    END = "end"


class Approvers(StrEnum):
    """Who may approve a tool call."""

    OWNER = "owner"
    ASKER = "asker"


class Strangers(StrEnum):
    """What happens to a stranger's direct message."""

    IGNORE = "ignore"
    PAIR = "pair"


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Who may reach the agent on a platform."""

    everyone: Annotated[bool, Setting("anyone may write to the agent")] = False
    allow: Annotated[frozenset[str], Setting('user ids of the platform: ["123456789"]')] = (
        frozenset()
    )
    owners: Annotated[
        frozenset[str],
        Setting(
            "who approves tool calls, by user id, and needs no approval in a direct chat; "
            "default: the one person in allow, if it is one",
            example=["123456789"],
        ),
    ] = frozenset()
    strangers: Annotated[
        Strangers, Setting('or "pair": a stranger gets a code that you can approve')
    ] = Strangers.IGNORE
    may_choose: Annotated[
        frozenset[ChoiceName],
        Setting(
            "what people may choose for their session; in groups only those in allow: "
            '["model", "persona"]',
        ),
    ] = frozenset()

    def is_owner(self, ids: frozenset[str]) -> bool:
        """Whether one of these ids is an owner's."""
        owners = self.owners or (self.allow if len(self.allow) == 1 else frozenset())
        return bool(owners & ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """A table of `[[policy]]`: what happens when a tool is called. The first rule that matches decides.

    Each value is a pattern in which `*` stands for any text.
    """

    decision: Annotated[ToolDecision, Setting("allow, ask or deny", example="ask")]
    tool: Annotated[str, Setting("the name of the tool", example="files_write*")] = "*"
    arguments: Annotated[
        TextTable, Setting("arguments that the call must have", example={"path": "/etc/*"})
    ] = field(default_factory=dict)
    agent: Annotated[str | None, Setting("only this agent", example="assistant")] = None
    platform: Annotated[str | None, Setting("only here", example="telegram")] = None
    chat_type: Annotated[
        str | None, Setting("only in such chats: dm, group, channel, thread", example="group")
    ] = None
    chat: Annotated[str | None, Setting("only in this chat", example="-100123")] = None
    person: Annotated[str | None, Setting("only for this person", example="123456789")] = None
    by: Annotated[
        Approvers, Setting('who may approve: the owners; or "asker": also the person who asked')
    ] = Approvers.OWNER


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSettings:
    """The table `[questions]`."""

    expire_seconds: Annotated[Seconds, Setting("how long a question waits for its answer")] = (
        86_400.0
    )
    remind_seconds: Annotated[
        float, Setting("when to remind people of it once; 0: never", ge=0, le=MAX_SECONDS)
    ] = 3_600.0
    on_expiry: Annotated[
        OnExpiry, Setting('then it counts as denied, and the turn goes on; or "end": the turn ends')
    ] = OnExpiry.DENY


@dataclass(frozen=True, slots=True)
class Budget:
    """How much may be used in a day or a month; None means without limit.

    `reserve_tokens` and `reserve_microusd`: how much each turn reserves when it begins; None means an estimate.
    """

    per: Annotated[Literal["day", "month"], Setting('or "month"')] = "day"
    tokens: Annotated[int | None, Setting("tokens in that time", gt=0, example=1_000_000)] = None
    microusd: Annotated[
        Microusd | None, Setting("US dollars in that time", name="usd", example=5.0)
    ] = None
    reserve_tokens: Annotated[
        int | None,
        Setting("what each running turn reserves; default: an estimate", gt=0, example=20_000),
    ] = None
    reserve_microusd: Annotated[
        Microusd | None, Setting("the same in US dollars", name="reserve_usd", example=0.2)
    ] = None

    def check(self) -> None:
        """Refuse a budget without a limit."""
        if self.tokens is None and self.microusd is None:
            raise ValueError("it sets no limit; write tokens or usd.")


@dataclass(frozen=True, slots=True)
class AgentTable:
    """The table of an agent; its options are read by the module of its kind."""

    kind: Annotated[
        str, Setting("what answers: script (the demo), echo, model, command, python")
    ] = "model"
    prompt: Annotated[
        str | None,
        MAY_BE_EMPTY,
        Setting("the system prompt", example="You are a helpful assistant."),
    ] = None
    resume: Annotated[
        bool | None,
        Setting(
            "continue its turns in another process when theirs ends; default: yes for models, no for others",
            example=True,
        ),
    ] = None
    models: Annotated[
        Texts,
        Setting(
            "models that a session may choose besides its own",
            example=["openai:gpt-5", "openai:gpt-5-mini"],
        ),
    ] = ()
    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class PersonaTable:
    """The table of a persona."""

    prompt: Annotated[
        str,
        Setting("what follows the agent's own prompt", example="Answer like a patient teacher."),
    ]
    title: Annotated[str | None, Setting("what to show instead of its name", example="Teacher")] = (
        None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelTable:
    """What the table of every channel may have."""

    agent: Annotated[str | None, Setting("which agent answers here", example="assistant")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The table `[engine]`; the engine also needs the tables `[access.*]` and `[budget.*]`."""

    while_running: Annotated[
        WhileRunning,
        Setting(
            'a message that arrives during a turn waits; or "interrupt"; '
            'or "steer": the agent reads it at its next step'
        ),
    ] = WhileRunning.QUEUE
    turn_seconds: Annotated[Seconds, Setting("a turn that takes longer is ended")] = 900.0
    longest_output: Annotated[int, Setting("characters an agent may write in one turn", gt=0)] = (
        2_000_000
    )
    most_turns: Annotated[int, Setting("concurrent turns in one process", gt=0)] = 64
    resume_attempts: Annotated[
        int,
        Setting("how often a turn is continued after its process died; 0: it is interrupted", ge=0),
    ] = 3
    compact_at_percent: Annotated[
        int,
        Setting(
            "replace older messages with a summary above this share of the model's window; "
            "0: only when the provider refuses a context as too long",
            ge=0,
            le=95,
        ),
    ] = 70
    compact_at_tokens: Annotated[
        int | None,
        Setting("and above this size, also if the window is unknown", gt=0, example=100_000),
    ] = None
    finalizer: Annotated[
        str | None,
        Setting(
            "called with each ended session's id and reason, at least once",
            example="my_module:ended",
        ),
    ] = None
    lease_seconds: Annotated[
        Seconds, Setting("a turn whose process is silent for this long is continued or ended")
    ] = 20.0
    poll_seconds: Annotated[
        Seconds, Setting("how often to look for what another process wrote")
    ] = 1.0
    sweep_seconds: Annotated[
        Seconds, Setting("how often to look for sessions to reset and turns that were lost")
    ] = 5.0
    send_attempts: Annotated[
        int, Setting("then a delivery is abandoned and listed as such", gt=0)
    ] = 12
    send_seconds: Annotated[Seconds, Setting("how long a platform may take to respond")] = 45.0
    longest_backoff: Annotated[
        Seconds,
        Setting("the longest pause between two attempts", name="longest_backoff_seconds"),
    ] = 300.0
    # Not in the file: for tests.
    confirm_seconds: float = 3.0
    show_seconds: float = 0.5
    # The tables [access.*], [budget.*], [[policy]] and [questions].
    access: Mapping[str, AccessPolicy] = field(default_factory=dict)
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    policy: tuple[PolicyRule, ...] = ()
    questions: QuestionSettings = field(default_factory=QuestionSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTables:
    """The tables that an engine is built from, as they are in the file."""

    agents: Annotated[Mapping[str, Mapping[str, Any]], Setting("the agents, by name")] = field(
        default_factory=dict
    )
    personas: Annotated[
        Mapping[str, PersonaTable], Setting("texts that a session may choose, by name")
    ] = field(default_factory=dict)
    channels: Annotated[Mapping[str, Mapping[str, Any]], Setting("the channels, by platform")] = (
        field(default_factory=dict)
    )
    access: Annotated[
        Mapping[str, AccessPolicy], Setting("who may reach the agent, by platform")
    ] = field(default_factory=dict)
    budget: Annotated[Mapping[str, Budget], Setting("how much may be used, by scope")] = field(
        default_factory=dict
    )
    policy: Annotated[
        tuple[PolicyRule, ...], Setting("which tool calls run, need an approval, or are refused")
    ] = ()
    questions: Annotated[QuestionSettings, Setting("how long questions to people wait")] = field(
        default_factory=QuestionSettings
    )
    engine: Annotated[EngineSettings, Setting("how turns run")] = field(
        default_factory=EngineSettings
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Agents, channels, and the settings of the engine."""

    agent: str | None = None
    agents: Mapping[str, AgentTable] = field(default_factory=dict)
    personas: Mapping[str, PersonaTable] = field(default_factory=dict)
    agent_by_platform: Mapping[str, str] = field(default_factory=dict)
    channels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    engine: EngineSettings = field(default_factory=EngineSettings)


def read_engine(config: Config) -> EngineConfig:
    """Read the tables that concern the engine."""
    names = {each.name for each in settings_of(EngineTables)}
    place = Place(config.path)
    tables = read(
        EngineTables, {name: each for name, each in config.file.items() if name in names}, place
    )
    agents = {
        name: _agent(name, values, place.below("agents").below(name))
        for name, values in tables.agents.items()
    }
    chosen = config.settings.agent
    if chosen is not None and chosen not in agents:
        raise BadInput(f"{place}: agent = {chosen!r}: there is no table [{_agent_table(chosen)}].")
    for name in tables.budget:
        if name.partition(":")[0] not in SCOPES:
            raise BadInput(
                f"{place.below('budget').below(name)}: a budget is of a "
                f"{', '.join(SCOPES[:-1])} or {SCOPES[-1]}, as in [budget.person] or "
                '[budget."person:telegram:42"].'
            )
    return EngineConfig(
        agent=chosen or next(iter(agents), None),
        agents=agents,
        personas=tables.personas,
        agent_by_platform=_by_platform(tables.channels, agents, place.below("channels")),
        channels=tables.channels,
        engine=replace(
            tables.engine,
            access=tables.access,
            budgets=tables.budget,
            policy=tables.policy,
            questions=tables.questions,
        ),
    )


def _agent_table(name: str) -> str:
    return Place(FILE, "agents").below(name).table


# The settings that the tables of all agents have.
_COMMON = ("kind", "prompt", "models", "resume")


def _agent(name: str, values: Mapping[str, Any], place: Place) -> AgentTable:
    """Read what the tables of all agents have; the rest depends on the agent's kind."""
    options = {key: value for key, value in values.items() if key not in _COMMON}
    table = replace(read(AgentTable, values, place, others=options), name=name, options=options)
    own = options.get("model")
    if (
        table.kind == "model"
        and isinstance(own, str)
        and not {"provider", "base_url"} & set(options)
    ):
        provider = own.partition(":")[0]
        for each in table.models:
            if not each.startswith(f"{provider}:"):
                raise BadInput(
                    f"{place}: models: {each!r} is of another provider than {own!r}; "
                    "make another agent for it."
                )
    return table


def _by_platform(
    channels: Mapping[str, Mapping[str, Any]], agents: Mapping[str, AgentTable], place: Place
) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for platform, values in channels.items():
        where = place.below(platform)
        name = read(ChannelTable, values, where, others=values).agent
        if name is not None and name not in agents:
            raise BadInput(f"{where}: agent = {name!r}: there is no table [{_agent_table(name)}].")
        if name is not None:
            chosen[platform] = name
    return chosen
