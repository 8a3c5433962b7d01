"""Discord: servers, threads and direct messages, by the gateway."""

from collections.abc import Mapping

from sessionary.channels.base import read_megabytes, read_options
from sessionary.channels.discord.adapter import DiscordAdapter
from sessionary.channels.discord.client import DiscordServers
from sessionary.channels.discord.inbound import DiscordOptions
from sessionary.config.table import Table
from sessionary.errors import BadInput

_SCHEMES = ("https://", "wss://", "http://", "ws://")


def build(table: Table, environ: Mapping[str, str]) -> DiscordAdapter:
    """Return the adapter that `[channels.discord]` describes."""
    default = DiscordOptions()
    options = read_options(
        table,
        default,
        always_in=frozenset(table.texts("always_in", ())),
        commands=table.flag("slash_commands", default=True),
        largest_file=read_megabytes(table, "largest_file_mb", default.largest_file),
        stream=table.flag("stream", default=False),
    )
    servers = DiscordServers(_address(table, "base_url"), _address(table, "gateway_url"))
    return DiscordAdapter(table.required_secret("token", environ), options, servers=servers)


def _address(table: Table, name: str) -> str | None:
    given = table.text(name)
    if given is not None and not given.startswith(_SCHEMES):
        raise BadInput(f"[channels.discord]: {name} must be an address, not {given!r}.")
    return None if given is None else given.rstrip("/")
