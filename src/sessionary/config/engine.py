"""Settings of the engine: agents, channels, access, budgets, loops."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sessionary.config import FILE, Config
from sessionary.config.table import Table
from sessionary.errors import BadInput

SCOPES = ("person", "channel", "schedule")


@dataclass(frozen=True, slots=True)
class AccessSettings:
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
    reserve_tokens: int | None = None
    reserve_microusd: int | None = None


@dataclass(frozen=True, slots=True)
class AgentTable:
    """The table of an agent; its options are read by the module of its kind."""

    name: str
    kind: str
    prompt: str | None
    options: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Agents, channels, access, budgets, and how the loops run."""

    agent: str | None = None
    agents: Mapping[str, AgentTable] = field(default_factory=dict)
    agent_by_platform: Mapping[str, str] = field(default_factory=dict)
    channels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    access: Mapping[str, AccessSettings] = field(default_factory=dict)
    budgets: Mapping[str, BudgetSettings] = field(default_factory=dict)
    lease_seconds: float = 30.0
    poll_seconds: float = 1.0
    sweep_seconds: float = 5.0
    turn_seconds: float = 900.0
    longest_output: int = 2_000_000
    most_turns: int = 64
    send_attempts: int = 12
    send_seconds: float = 45.0
    longest_backoff_seconds: float = 300.0
    while_running: str = "queue"
    compact_at_tokens: int | None = None
    finalizer: str | None = None


def read(config: Config) -> EngineSettings:
    """Read the tables that concern the engine."""
    table = Table(config.file, str(config.home / FILE))
    agents = {name: _agent(name, each) for name, each in table.table("agents").tables()}
    chosen = table.text("agent")
    if chosen is not None and chosen not in agents:
        raise BadInput(f"agent = {chosen!r}: there is no table [agents.{chosen}].")
    loops = table.table("engine")
    channels = dict(table.table("channels").tables())
    settings = EngineSettings(
        agent=chosen or next(iter(agents), None),
        agents=agents,
        agent_by_platform=_by_platform(channels, agents),
        channels={name: each.values for name, each in channels.items()},
        access={name: _access_settings(each) for name, each in table.table("access").tables()},
        budgets={name: _budget(name, each) for name, each in table.table("budget").tables()},
        lease_seconds=loops.number("lease_seconds", 30),
        poll_seconds=loops.number("poll_seconds", 1),
        sweep_seconds=loops.number("sweep_seconds", 5),
        turn_seconds=loops.number("turn_seconds", 900),
        longest_output=loops.whole("longest_output") or 2_000_000,
        most_turns=loops.whole("most_turns") or 64,
        send_attempts=loops.whole("send_attempts") or 12,
        send_seconds=loops.number("send_seconds", 45),
        longest_backoff_seconds=loops.number("longest_backoff_seconds", 300),
        while_running=loops.word("while_running", "queue", ("queue", "interrupt")),
        compact_at_tokens=loops.whole("compact_at_tokens"),
        finalizer=loops.text("finalizer"),
    )
    loops.refuse_unknown()
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


def _access_settings(table: Table) -> AccessSettings:
    settings = AccessSettings(
        everyone=table.flag("everyone", default=False),
        allow=table.texts("allow", ()),
        strangers=table.word("strangers", "ignore", ("ignore", "pair")),
    )
    table.refuse_unknown()
    return settings


def _budget(name: str, table: Table) -> BudgetSettings:
    if name.partition(":")[0] not in SCOPES:
        raise BadInput(
            f"[budget.{name}]: a budget is of a {', '.join(SCOPES[:-1])} or {SCOPES[-1]}, "
            'as in [budget.person] or [budget."person:telegram:42"].'
        )
    budget = BudgetSettings(
        per=table.word("per", "day", ("day", "month")),
        tokens=table.whole("tokens"),
        microusd=_microusd(table, "usd"),
        reserve_tokens=table.whole("reserve_tokens"),
        reserve_microusd=_microusd(table, "reserve_usd"),
    )
    table.refuse_unknown()
    if budget.tokens is None and budget.microusd is None:
        raise BadInput(f"[budget.{name}] sets no limit: write tokens or usd.")
    return budget


def _microusd(table: Table, name: str) -> int | None:
    if table.values.get(name) is None:
        return None
    return round(table.number(name, 1) * 1_000_000)
