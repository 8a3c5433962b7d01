"""Telegram: a bot that polls, or to which Telegram posts."""

from sessionary.channels.telegram.adapter import TelegramAdapter
from sessionary.channels.telegram.settings import TelegramSettings

SETTINGS = TelegramSettings


def build(settings: TelegramSettings) -> TelegramAdapter:
    """Return the adapter that `[channels.telegram]` describes."""
    return TelegramAdapter(settings)
