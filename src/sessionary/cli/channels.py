"""`sessionary channels …`."""

import asyncio
from collections.abc import Mapping
from typing import Any

import click

from sessionary.channels import registry
from sessionary.cli.console import Console
from sessionary.cli.table import Column, table
from sessionary.cli.tree import command, group, pass_console
from sessionary.config import Config, environment, load
from sessionary.config.engine import EngineSettings, read
from sessionary.errors import BadInput, RetryLater, Unreachable


@command("list", example="sessionary channels list")
@pass_console
def list_channels(console: Console) -> None:
    """List every channel, whether it is configured, and who may use it."""
    settings = read(_load(console))
    known = registry.KNOWN
    names = dict.fromkeys([*settings.channels, *known])
    items = [
        {
            "name": name,
            "configured": name in settings.channels,
            "extra": known.get(name, (None, None))[1],
            "access": _access(settings, name),
        }
        for name in names
    ]
    if console.json:
        console.emit({"items": items, "next": None})
        return
    rows = [
        [
            str(item["name"]),
            "configured" if item["configured"] else "-",
            f"sessionary[{item['extra']}]" if item["extra"] else "",
            str(item["access"]) if item["configured"] else "",
        ]
        for item in items
    ]
    columns = (
        Column("NAME"),
        Column("STATE"),
        Column("NEEDS"),
        Column("WHO MAY WRITE", flexible=True),
    )
    console.print(table(columns, rows, width=console.width if console.is_terminal else None))


@command("check", example="sessionary channels check telegram")
@click.argument("name")
@pass_console
def check(console: Console, name: str) -> None:
    """Connect to a channel and say who the bot is; or what is missing, and how to get it."""
    settings = read(_load(console))
    if name not in settings.channels:
        if name not in registry.KNOWN:
            known = ", ".join(registry.KNOWN)
            raise BadInput(f"There is no channel {name!r}. Known: {known}.")
        raise BadInput(
            f"sessionary.toml has no table [channels.{name}]. docs/channels/{name}.md says, "
            "step by step, what belongs into it."
        )
    told = asyncio.run(_checked(registry, name, settings.channels[name]))
    who = _access(settings, name)
    value = {"name": name, "ok": True, "says": told, "access": who}
    lines = [told]
    if who == "nobody":
        lines.append(
            f"Nobody may use it yet: set allow or everyone in [access.{name}], "
            f"or run: sessionary access allow {name} PERSON"
        )
    console.answer(value, "\n".join(lines))


async def _checked(registry: Any, name: str, values: Mapping[str, Any]) -> str:
    adapter = registry.build(name, values, environment())
    try:
        told: str = await registry.load(name).check(adapter)
    except RetryLater as error:
        why = str(error).rstrip(".")
        raise Unreachable(
            f"{why}. Is the network there, and is [channels.{name}] right? Nothing was changed; "
            "try again."
        ) from error
    finally:
        await adapter.close()
    return told


def _access(settings: EngineSettings, name: str) -> str:
    """Who may use a channel, as far as the configuration says; others may have been let in."""
    door = settings.access.get(name)
    if door is None:
        return "nobody"
    if door.everyone:
        return "everyone"
    pairs = "strangers may ask" if door.strangers == "pair" else ""
    listed = f"{len(door.allow)} people" if door.allow else ""
    return ", ".join(each for each in (listed, pairs) if each) or "nobody"


def _load(console: Console) -> Config:
    return load(home=console.home, database=console.database, profile=console.profile)


channels = group(
    "channels",
    "Where people reach the agent.",
    {
        "list": (list_channels, "List the channels that there are."),
        "check": (check, "Connect, and say who the bot is or what is missing."),
    },
)
