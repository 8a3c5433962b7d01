"""Discord: servers, threads and direct messages, by the gateway."""

from collections.abc import Mapping

from hansard.channels.discord.adapter import DiscordAdapter
from hansard.channels.discord.inbound import DEFAULT_LARGEST_FILE, Rules
from hansard.channels.files import MEGABYTE
from hansard.config.table import Table
from hansard.engine.ports import Adapter


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
    )
    return DiscordAdapter(token, rules)


async def check(adapter: Adapter) -> str:
    """Present the token, and say who the bot is."""
    assert isinstance(adapter, DiscordAdapter)
    return f"Discord knows this bot as {await adapter.who()}."
