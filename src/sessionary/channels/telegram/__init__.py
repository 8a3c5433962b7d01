"""Telegram: a bot that polls, or to which Telegram posts."""

from collections.abc import Mapping

from sessionary.channels.telegram import settings
from sessionary.channels.telegram.adapter import TelegramAdapter
from sessionary.config.table import Table
from sessionary.engine.ports import Adapter
from sessionary.errors import BadInput


def build(table: Table, environ: Mapping[str, str]) -> TelegramAdapter:
    """The adapter that the settings describe."""
    return TelegramAdapter(settings.read(table, environ))


async def check(adapter: Adapter) -> str:
    """Connect, and say who the bot is and what it will hear."""
    if not isinstance(adapter, TelegramAdapter):
        raise BadInput("This is not a Telegram channel.")
    me, hook = await adapter.client.me(), await adapter.client.hook()
    wanted = adapter.settings.webhook_url
    lines = [f"The bot is @{me.username} ({me.id})."]
    if wanted is None:
        lines.append("Its messages are polled.")
        if hook.url:
            lines.append(f"Telegram now posts them to {hook.url}; serving will end that.")
    elif hook.url == wanted:
        lines.append(f"Telegram posts its messages to {wanted}.")
    else:
        lines.append(f"Telegram will be asked to post its messages to {wanted}.")
    if hook.problem:
        lines.append(f"The last posting failed: {hook.problem}.")
    lines.append(f"{hook.waiting} messages wait.")
    return " ".join(lines)
