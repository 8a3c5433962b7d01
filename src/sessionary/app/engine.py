"""Builds the engine from a configuration and an open store."""

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from sessionary import config
from sessionary.actions import schedules
from sessionary.agents import registry
from sessionary.app.context import AppContext, load_prices
from sessionary.config.engine import AgentTable, EngineConfig, read_engine
from sessionary.engine.context import EngineContext, EventBus
from sessionary.engine.engine import Engine
from sessionary.engine.ports import Adapter, Sender
from sessionary.errors import BadInput
from sessionary.model.choice import ChoiceCatalog
from sessionary.model.schedule import Run
from sessionary.model.source import Source, session_named_by
from sessionary.model.usage import Usage

if TYPE_CHECKING:
    from sessionary.telemetry.instrument import Instrumentation

# The kinds of agents whose settings have `mcp`.
_TAKES_SERVERS = frozenset({"model", "acp"})


class Agents:
    """The configured agents, each built when it is first used."""

    def __init__(
        self,
        settings: EngineConfig,
        *,
        folder: Path | None = None,
        default: str | registry.ConfiguredAgent | None = None,
    ) -> None:
        """`folder` is where sessionary.toml is: Python agents are imported from there too.

        `default` is used instead of the configured default: the name of an agent, or one that is not in the settings.
        """
        self._settings = settings
        self._folder = folder
        self._made: dict[str, registry.ConfiguredAgent] = {}
        self._given = None if isinstance(default, str) else default
        self._default = default if isinstance(default, str) else None
        # MCP servers that an editor has for a session, and the agents that were built with them.
        self._servers: dict[str, Sequence[Mapping[str, Any]]] = {}
        self._made_with_servers: dict[tuple[str, str], registry.ConfiguredAgent] = {}
        for table in settings.agents.values():
            # Refuse an unknown kind when the program starts.
            registry.AGENTS.require(table.kind, where=f"{config.FILE} [agents.{table.name}]")
        if self._default is not None:
            self.get(self._default)

    def choose(self, source: Source, name: str | None) -> registry.ConfiguredAgent:
        """Return the agent for a source: the named one, the platform's, the default, or the demo."""
        # A turn that it began goes on with it, by its name.
        if self._given is not None and name in (None, self._given.name):
            return self._given
        platform = self._settings.agent_by_platform.get(source.platform)
        chosen = name or self._default or platform or self._settings.agent
        session_id = session_named_by(source)
        if session_id in self._servers and self.takes_servers(chosen):
            return self._with_servers(chosen or "", session_id)
        return self.get(chosen)

    def takes_servers(self, name: str | None) -> bool:
        """Whether an agent can use MCP servers besides those of its settings."""
        return name is not None and self._table(name).kind in _TAKES_SERVERS

    async def set_servers(self, session_id: str, servers: Sequence[Mapping[str, Any]]) -> None:
        """Let agents use these MCP servers too in the turns of a session that this process runs, and no others.

        Each has the fields of an entry of `mcp` in the table of an agent.
        """
        if list(servers) == list(self._servers.get(session_id, ())):
            return  # an agent with them may be at work
        if servers:
            self._servers[session_id] = servers
        else:
            self._servers.pop(session_id, None)
        for key in [key for key in self._made_with_servers if key[0] == session_id]:
            await self._made_with_servers.pop(key).close()

    def _with_servers(self, name: str, session_id: str) -> registry.ConfiguredAgent:
        key = session_id, name
        if key not in self._made_with_servers:
            table = self._table(name)
            servers = [*table.options.get("mcp", ()), *self._servers[session_id]]
            table = dataclasses.replace(table, options={**table.options, "mcp": servers})
            self._made_with_servers[key] = registry.build(
                table, environ=config.environment(), folder=self._folder
            )
        return self._made_with_servers[key]

    @property
    def catalog(self) -> ChoiceCatalog:
        """What sessions may choose from; an agent that was given to this process answers whatever they chose."""
        return replace(
            registry.catalog_of(self._settings),
            only=self._default if self._given is None else self._given.name,
            known_tools=self._known_tools,
            known_window=self._known_window,
        )

    def _known_tools(self, name: str) -> Sequence[str] | None:
        made, table = self._made.get(name), self._settings.agents.get(name)
        if made is None and table is not None and table.kind == "model":
            # Without a server there are no tools; a server is asked for its own when the first turn begins.
            return None if table.options.get("mcp") else ()
        names: Sequence[str] | None = getattr(
            None if made is None else made.runner, "tool_names", None
        )
        return names

    def _known_window(self, name: str) -> int | None:
        made = self._made.get(name)
        return None if made is None else made.window(None)

    def get(self, name: str | None) -> registry.ConfiguredAgent:
        """Return an agent by its name; None is the demo agent."""
        made = self._made.get(name or "")
        if made is None:
            table = self._table(name)
            made = registry.build(table, environ=config.environment(), folder=self._folder)
            self._made[name or ""] = made
        return made

    async def close(self) -> None:
        """Close the agents that were built, and the given one."""
        given = () if self._given is None else (self._given,)
        for each in (*self._made.values(), *self._made_with_servers.values(), *given):
            await each.close()

    def _table(self, name: str | None) -> AgentTable:
        if name is None or (name == registry.DEMO.name and not self._settings.agents):
            return registry.DEMO
        table = self._settings.agents.get(name)
        if table is None:
            known = ", ".join(sorted(self._settings.agents)) or "none"
            raise BadInput(f"There is no agent {name!r}. Configured: {known}.")
        return table


def build_engine(
    app: AppContext,
    *,
    adapters: Mapping[str, Adapter] | None = None,
    agents: Agents | None = None,
    instrumentation: "Instrumentation | None" = None,
    bus: EventBus | None = None,
    push: Sender | None = None,
) -> Engine:
    """Build an engine on an open store, with this process's channels; instrumented if wanted.

    `push` notifies browsers of questions.
    """
    settings = read_engine(app.config)
    chosen = agents or Agents(settings, folder=app.config.home)
    channels = dict(adapters or {})
    if instrumentation is not None:
        channels = {name: instrumentation.adapter(each) for name, each in channels.items()}
    context = EngineContext(
        store=app.store if instrumentation is None else instrumentation.store(app.store),
        clock=app.clock,
        ids=app.ids,
        holder=app.holder,
        agent_for=chosen.choose
        if instrumentation is None
        else instrumentation.agents(chosen.choose),
        system_prompt=registry.assemble,
        priced=partial(_priced, app),
        adapters=channels,
        # Also channels of other processes: the process that ends a turn enqueues its reply.
        deliverable=frozenset({*channels, *settings.channels}),
        policies=app.policies,
        isolation=app.isolation,
        settings=settings.engine,
        profile=app.profile,
        redact_people=app.config.settings.redact_people,
        catalog=chosen.catalog,
        bus=bus or EventBus(),
        push=push,
    )
    # The first usage would hold the event loop for a few milliseconds, until the table of prices is loaded.
    threading.Thread(target=load_prices, name="load-prices", daemon=True).start()
    return Engine(context)


def _priced(app: AppContext, used: Usage) -> Usage:
    from sessionary import prices  # loaded by a thread of `build_engine`

    return prices.priced(used, at=app.clock.now())


async def run_schedule(app: AppContext, name: str) -> Run:
    """Run a schedule once, now, in this process, and return the run."""
    agents = Agents(read_engine(app.config), folder=app.config.home)
    engine = build_engine(app, agents=agents)
    context = engine.context
    due = await context.store.write(
        schedules.run_now,
        name,
        profile=app.profile,
        holder=context.holder,
        seconds=context.settings.lease_seconds,
        moment=context.moment(),
    )
    await engine.scheduler.run_one(due)
    await agents.close()
    latest = await context.store.read(schedules.list_runs, name, profile=app.profile, limit=1)
    return latest[0]
