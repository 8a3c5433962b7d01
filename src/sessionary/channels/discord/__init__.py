"""Discord: servers, threads and direct messages, by the gateway."""

from collections.abc import Mapping

from sessionary.channels.discord.adapter import DiscordAdapter
from sessionary.channels.discord.client import Servers
from sessionary.channels.discord.inbound import DEFAULT_LARGEST_FILE, Rules
from sessionary.channels.enclosures import largest_sent
from sessionary.channels.files import MEGABYTE
from sessionary.config.table import Table
from sessionary.engine.ports import Adapter
from sessionary.errors import BadInput

_SCHEMES = ("https://", "wss://", "http://", "ws://")


def build(table: Table, environ: Mapping[str, str]) -> DiscordAdapter:
    """The adapter that `[channels.discord]` describes."""
    token = table.required_secret("token", environ)
    most = table.number("largest_file_mb", DEFAULT_LARGEST_FILE / MEGABYTE)
    rules = Rules(
        always=table.word("answer", "mentioned", ("mentioned", "always")) == "always",
        always_in=frozenset(table.texts("always_in", ())),
        observe=table.flag("observe", default=False),
        commands=table.flag("slash_commands", default=True),
        largest_file=round(most * MEGABYTE),
        stream=table.flag("stream", default=False),
        largest_sent=largest_sent(table, DEFAULT_LARGEST_FILE),
    )
    servers = Servers(_address(table, "base_url"), _address(table, "gateway_url"))
    return DiscordAdapter(token, rules, servers=servers)


async def check(adapter: Adapter) -> str:
    """Present the token, and say who the bot is."""
    assert isinstance(adapter, DiscordAdapter)
    return f"Discord knows this bot as {await adapter.who()}."


def _address(table: Table, name: str) -> str | None:
    given = table.text(name)
    if given is not None and not given.startswith(_SCHEMES):
        raise BadInput(f"[channels.discord]: {name} must be an address, not {given!r}.")
    return None if given is None else given.rstrip("/")
