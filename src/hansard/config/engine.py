"""What the configuration says of agents, channels, doors and budgets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hansard.config import FILE, Config
from hansard.config.table import Table
from hansard.errors import BadInput


@dataclass(frozen=True, slots=True)
class DoorSettings:
    """Who may reach the agent on a platform."""

    everyone: bool = False
    allow: tuple[str, ...] = ()
    strangers: str = "ignore"


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """How much may be used in a day or a month."""

    per: str = "day"
    tokens: int | None = None
    microusd: int | None = None


@dataclass(frozen=True, slots=True)
class AgentTable:
    """An agent as it is written down; its options are read by whoever knows its kind."""

    name: str
    kind: str
    prompt: str | None
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Agents, channels, doors, budgets, and how the loops run."""

    agent: str | None = None
    agents: Mapping[str, AgentTable] = field(default_factory=dict)
    agent_by_platform: Mapping[str, str] = field(default_factory=dict)
    channels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    doors: Mapping[str, DoorSettings] = field(default_factory=dict)
    budgets: Mapping[str, BudgetSettings] = field(default_factory=dict)
    lease_seconds: float = 30.0
    poll_seconds: float = 1.0
    turn_seconds: float = 900.0
    most_turns: int = 64
    while_running: str = "queue"
    compact_at_tokens: int | None = None
    finalizer: str | None = None
    allowed_hosts: tuple[str, ...] = ()


def read(config: Config) -> EngineSettings:
    """Read the tables that concern the engine."""
    table = Table(config.file, str(config.home / FILE))
    agents = {name: _agent(name, each) for name, each in table.table("agents").tables()}
    chosen = table.text("agent")
    if chosen is not None and chosen not in agents:
        raise BadInput(f"agent = {chosen!r}: there is no table [agents.{chosen}].")
    loops, web = table.table("engine"), table.table("web")
    channels = dict(table.table("channels").tables())
    settings = EngineSettings(
        agent=chosen or next(iter(agents), None),
        agents=agents,
        agent_by_platform=_by_platform(channels, agents),
        channels={name: each.values for name, each in channels.items()},
        doors={name: _door(each) for name, each in table.table("access").tables()},
        budgets={name: _budget(each) for name, each in table.table("budget").tables()},
        lease_seconds=loops.number("lease_seconds", 30),
        poll_seconds=loops.number("poll_seconds", 1),
        turn_seconds=loops.number("turn_seconds", 900),
        most_turns=loops.whole("most_turns") or 64,
        while_running=loops.word("while_running", "queue", ("queue", "interrupt")),
        compact_at_tokens=loops.whole("compact_at_tokens"),
        finalizer=loops.text("finalizer"),
        allowed_hosts=web.texts("allowed_hosts", ()),
    )
    loops.refuse_unknown()
    web.refuse_unknown()
    return settings


def _agent(name: str, table: Table) -> AgentTable:
    kind = table.word("kind", "model", ("model", "command", "python", "script", "echo"))
    options = {key: value for key, value in table.values.items() if key not in ("kind", "prompt")}
    return AgentTable(name, kind, table.text("prompt"), options)


def _by_platform(channels: Mapping[str, Table], agents: Mapping[str, AgentTable]) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for platform, table in channels.items():
        name = table.text("agent")
        if name is not None and name not in agents:
            raise BadInput(
                f"[channels.{platform}] agent = {name!r}: there is no table [agents.{name}]."
            )
        if name is not None:
            chosen[platform] = name
    return chosen


def _door(table: Table) -> DoorSettings:
    door = DoorSettings(
        everyone=table.flag("everyone", default=False),
        allow=table.texts("allow", ()),
        strangers=table.word("strangers", "ignore", ("ignore", "pair")),
    )
    table.refuse_unknown()
    return door


def _budget(table: Table) -> BudgetSettings:
    usd = table.values.get("usd")
    budget = BudgetSettings(
        per=table.word("per", "day", ("day", "month")),
        tokens=table.whole("tokens"),
        microusd=None if usd is None else round(table.number("usd", 1) * 1_000_000),
    )
    table.refuse_unknown()
    return budget
