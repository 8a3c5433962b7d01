"""Discord: servers, threads and direct messages, by the gateway."""

from dataclasses import dataclass
from typing import Annotated

from sessionary.channels.discord.inbound import DiscordOptions
from sessionary.channels.registry import ChannelKind
from sessionary.config.secret import Secret
from sessionary.config.setting import Setting, address
from sessionary.engine.ports import Adapter

_ADDRESS = address("https", "wss", "http", "ws")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscordSettings(DiscordOptions):
    """The table `[channels.discord]`."""

    token: Annotated[Secret, Setting("the bot's token", example="DISCORD_TOKEN")]
    base_url: Annotated[
        str | None,
        _ADDRESS,
        Setting("your own proxy for Discord's API", example="https://proxy.example.org/api"),
    ] = None
    gateway_url: Annotated[
        str | None,
        _ADDRESS,
        Setting("your own proxy for Discord's gateway", example="wss://proxy.example.org"),
    ] = None


def create(settings: DiscordSettings) -> Adapter:
    """Return the adapter that `[channels.discord]` describes."""
    # Loads discord.py, which may be missing.
    from sessionary.channels.discord.adapter import DiscordAdapter, DiscordServers

    servers = DiscordServers(settings.base_url, settings.gateway_url)
    return DiscordAdapter(settings.token, settings, servers=servers)


CHANNEL = ChannelKind(
    name="discord",
    title="Discord",
    settings=DiscordSettings,
    create=create,
    extra="sessionary[discord]",
    documentation="docs/channels/discord.md",
)
