"""`sessionary agents …` and `sessionary config …`."""

import asyncio

from sessionary.agents.command import CommandRunner
from sessionary.cli.console import Console
from sessionary.cli.table import Column, table
from sessionary.cli.tree import command, group, pass_console
from sessionary.config import Config, environment, imports, load, telemetry, web
from sessionary.config.engine import EngineSettings, read
from sessionary.store.open import sqlite_path


@command("list", example="sessionary agents list")
@pass_console
def list_agents(console: Console) -> None:
    """List the agents; without any the demo agent answers."""
    settings = read(_load(console))
    items = [
        {
            "name": each.name,
            "kind": each.kind,
            "model": each.options.get("model"),
            "default": each.name == settings.agent,
        }
        for each in settings.agents.values()
    ]
    items = items or [{"name": "demo", "kind": "script", "model": None, "default": True}]
    if console.json:
        console.emit({"items": items, "next": None})
        return
    rows = [
        [
            str(item["name"]),
            str(item["kind"]),
            str(item["model"] or ""),
            "by default" if item["default"] else "when named",
        ]
        for item in items
    ]
    columns = (Column("NAME", flexible=True), Column("KIND"), Column("MODEL"), Column("ANSWERS"))
    console.print(table(columns, rows, width=console.width if console.is_terminal else None))


@command("check", example="sessionary config check")
@pass_console
def check(console: Console) -> None:
    """Read sessionary.toml, look for every secret, program and function it names; say what is wrong."""
    loaded = _load(console)
    settings = read(loaded)
    web.read(loaded, environment())
    telemetry.read(loaded, environment())
    # Only this command needs the engine: `agents list` and `--help` start without it.
    from sessionary.app.engine import Agents
    from sessionary.importers.registry import importer

    for source in imports.read(loaded).watch:
        importer(source)
    made = Agents(settings, folder=loaded.home)
    for name in settings.agents:
        runner = made.get(name).runner
        if isinstance(runner, CommandRunner):
            runner.check()
    asyncio.run(_build_channels(settings))
    sqlite_path(loaded.database)
    value = {
        "home": str(loaded.home),
        "profile": loaded.profile,
        "agents": sorted(settings.agents),
        "channels": sorted(settings.channels),
    }
    listed = ", ".join(sorted(settings.agents)) or "none (the demo agent answers)"
    channels = ", ".join(sorted(settings.channels)) or "none"
    console.answer(value, f"The configuration is sound. Agents: {listed}. Channels: {channels}.")


async def _build_channels(settings: EngineSettings) -> None:
    """Make every channel as `serve` does, with its secrets; nobody is called."""
    # Loads every configured platform's library.
    from sessionary.channels import registry

    for name, values in settings.channels.items():
        await registry.build(name, values, environment()).close()


def _load(console: Console) -> Config:
    return load(home=console.home, database=console.database, profile=console.profile)


agents = group(
    "agents",
    "The agents of this configuration.",
    {"list": (list_agents, "List the agents.")},
)


config = group(
    "config",
    "The configuration.",
    {"check": (check, "Read sessionary.toml and say what is wrong.")},
)
