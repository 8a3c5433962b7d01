"""Telegram: a bot that polls, or to which Telegram posts."""

from collections.abc import Mapping

from sessionary.channels.telegram import settings
from sessionary.channels.telegram.adapter import TelegramAdapter
from sessionary.config.table import Table


def build(table: Table, environ: Mapping[str, str]) -> TelegramAdapter:
    """Return the adapter that `[channels.telegram]` describes."""
    return TelegramAdapter(settings.read(table, environ))
