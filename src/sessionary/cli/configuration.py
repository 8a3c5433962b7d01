"""`sessionary agents`, `channels` and `config`: what sessionary.toml says, and whether it works."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from sessionary.agents.registry import Checkable, catalog_of
from sessionary.cli.console import Column, Console
from sessionary.cli.tree import command, group, pass_console
from sessionary.config import Config, environment, load
from sessionary.config.engine import EngineConfig, read_engine
from sessionary.config.proxy import read_proxy
from sessionary.config.server import read_imports, read_telemetry, read_web
from sessionary.errors import BadInput, RetryLater, Unreachable
from sessionary.store.open import sqlite_path


@command("list", example="sessionary agents list")
@pass_console
def list_agents(console: Console) -> None:
    """List the configured agents, the models that a session may choose for each, and the personas.

    Without any agent, the demo answers.
    """
    catalog = catalog_of(read_engine(_load(console)))
    items: list[dict[str, Any]] = [
        {
            "name": each.name,
            "kind": each.kind,
            "model": each.model,
            "models": list(each.models),
            "default": each.name == catalog.default,
        }
        for each in catalog.agents.values()
    ]
    console.print_list(
        items,
        (
            Column("NAME"),
            Column("KIND"),
            Column("MODELS", flexible=True),
            Column("ANSWERS"),
        ),
        [
            [
                item["name"],
                item["kind"],
                ", ".join(item["models"]),
                "by default" if item["default"] else "when chosen",
            ]
            for item in items
        ],
        empty="",
    )
    if catalog.personas:
        console.note(f"Personas: {', '.join(catalog.personas)}.")


@command("list", example="sessionary channels list")
@pass_console
def list_channels(console: Console) -> None:
    """List all channels: whether each is configured, and who may use it."""
    # The base of all channels takes a third of a start: `agents list` does without it.
    from sessionary.channels.registry import CHANNELS

    settings = read_engine(_load(console))
    items: list[dict[str, Any]] = []
    for name in dict.fromkeys([*settings.channels, *CHANNELS.names]):
        item = {"name": name, "configured": name in settings.channels, "extra": None}
        try:
            item["extra"] = CHANNELS.load(name).extra
        except BadInput as error:
            item["problem"] = str(error)
        items.append(item | {"access": _access(settings, name)})
    console.print_list(
        items,
        (
            Column("NAME"),
            Column("STATE"),
            Column("NEEDS"),
            Column("WHO MAY WRITE", flexible=True),
        ),
        [
            [
                item["name"],
                "configured" if item["configured"] else "-",
                item["extra"] or "",
                item.get("problem") or (item["access"] if item["configured"] else ""),
            ]
            for item in items
        ],
        empty="",
    )


@command("check", example="sessionary channels check telegram")
@click.argument("name")
@pass_console
def check_channel(console: Console, name: str) -> None:
    """Check a channel: connect, and print the bot's account or what is missing."""
    from sessionary.channels.registry import CHANNELS

    settings = read_engine(_load(console))
    if name not in settings.channels:
        page = CHANNELS.load(name).documentation
        explained = f" {page} explains, step by step, what to write into it." if page else ""
        raise BadInput(f"sessionary.toml has no table [channels.{name}].{explained}")
    account = asyncio.run(_connect(name, settings.channels[name]))
    who = _access(settings, name)
    lines = [account]
    if who == "nobody":
        lines.append(
            f"Nobody may use it yet: set allow or everyone in [access.{name}], "
            f"or run: sessionary access allow {name} PERSON"
        )
    console.answer({"name": name, "ok": True, "says": account, "access": who}, "\n".join(lines))


async def _connect(name: str, values: Mapping[str, Any]) -> str:
    from sessionary.channels import registry

    adapter = registry.build(name, values, environment())
    try:
        return await adapter.check()
    except RetryLater as error:
        why = str(error).rstrip(".")
        raise Unreachable(
            f"{why}. Check the network and [channels.{name}], then try again; nothing was changed."
        ) from error
    finally:
        await adapter.close()


def _access(settings: EngineConfig, name: str) -> str:
    """Who may use a channel according to sessionary.toml; commands may have allowed others."""
    access = settings.engine.access.get(name)
    if access is None:
        return "nobody"
    if access.everyone:
        return "everyone"
    pairs = "strangers may ask" if access.strangers == "pair" else ""
    listed = f"{len(access.allow)} people" if access.allow else ""
    return ", ".join(each for each in (listed, pairs) if each) or "nobody"


@command("check", example="sessionary config check")
@pass_console
def check_config(console: Console) -> None:
    """Check sessionary.toml, and every secret, program and function that it names."""
    loaded = _load(console)
    settings = read_engine(loaded)
    read_web(loaded, environment())
    read_telemetry(loaded, environment())
    read_proxy(loaded)
    # Only this command needs the engine: `agents list` and `--help` start without it.
    from sessionary.app.engine import Agents
    from sessionary.cli.plugins import installed_plugins
    from sessionary.importers.registry import IMPORTERS

    for source in read_imports(loaded).watch:
        IMPORTERS.load(source, where="[imports] watch")
    made = Agents(settings, folder=loaded.home)
    for name in settings.agents:
        runner = made.get(name).runner
        if isinstance(runner, Checkable):
            runner.check()
    asyncio.run(_build_channels(settings))
    sqlite_path(loaded.database)
    plugins = installed_plugins()
    value = {
        "home": str(loaded.home),
        "profile": loaded.profile,
        "agents": sorted(settings.agents),
        "channels": sorted(settings.channels),
        "plugins": [asdict(each) for each in plugins],
    }
    agents = ", ".join(sorted(settings.agents)) or "none (the demo agent answers)"
    channels = ", ".join(sorted(settings.channels)) or "none"
    lines = [f"The configuration is valid. Agents: {agents}. Channels: {channels}."]
    if plugins:
        lines.append(f"Plug-ins: {', '.join(map(str, plugins))}.")
        lines += [each.problem for each in plugins if each.problem is not None]
    console.answer(value, "\n".join(lines))


@command("show", example="sessionary config show --changed\nsessionary config show --json")
@click.option("--changed", is_flag=True, help="Only what differs from the defaults.")
@pass_console
def show_config(console: Console, *, changed: bool) -> None:
    """Show every setting in force, and where it comes from: a flag, a variable, the file, or the default.

    Secrets are not shown, only where they are.
    """
    # Only this command needs the declarations of all channels and agents.
    from sessionary.app.settings import effective_settings, setting_line

    flags = {"home": console.home, "database": console.database, "profile": console.profile}
    found = effective_settings(_load(console), flags=flags, environ=environment())
    shown = [each for each in found if not changed or each.origin != "default"]
    console.print_list(
        [{"name": each.name, "value": each.value, "from": each.origin} for each in shown],
        (Column("SETTING"), Column("VALUE", flexible=True), Column("FROM")),
        [[each.name, setting_line(each), each.origin] for each in shown],
        empty="Every setting has its default.",
    )


async def _build_channels(settings: EngineConfig) -> None:
    """Build every channel with its secrets, as `serve` does, without connecting."""
    from sessionary.channels import registry

    for name, values in settings.channels.items():
        await registry.build(name, values, environment()).close()


def _load(console: Console) -> Config:
    return load(home=console.home, database=console.database, profile=console.profile)


COMMANDS: dict[str, click.Command] = {
    "agents": group("agents", "List the configured agents.", [list_agents]),
    "channels": group("channels", "List and check channels.", [list_channels, check_channel]),
    "config": group("config", "Check and show the configuration.", [check_config, show_config]),
}
