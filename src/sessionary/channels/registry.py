"""The platforms that have a channel, and their adapters by configuration."""

import logging
from collections.abc import Mapping
from typing import Any, Protocol

from sessionary.config import FILE
from sessionary.config.engine import ChannelTable
from sessionary.config.reader import Place, check_secrets, read, settings_of
from sessionary.engine.ports import Adapter
from sessionary.errors import BadInput

# Each platform, and the extra with its library.
KNOWN: dict[str, str | None] = {
    "telegram": "telegram",
    "discord": "discord",
    "slack": "slack",
    "whatsapp": "whatsapp",
    "signal": "signal",
    "matrix": "matrix",
    "email": "email",
    "webhook": None,
    "api": None,
}


class ChannelModule(Protocol):
    """The package of a platform: the class that declares its settings, and what builds its adapter from them."""

    SETTINGS: type[Any]

    def build(self, settings: Any) -> Adapter:
        """Return the adapter that the settings describe."""


def build(platform: str, values: Mapping[str, Any], environ: Mapping[str, str]) -> Adapter:
    """Return the adapter of a platform, from its table of the configuration."""
    settings = read_settings(platform, values, environ)
    check_secrets(settings)
    return load(platform).build(settings)


def read_settings(platform: str, values: Mapping[str, Any], environ: Mapping[str, str]) -> Any:
    """Return the settings of a platform, without looking up its secrets."""
    place = Place(FILE, "channels").below(platform)
    # Read by the engine, for every channel.
    others = [each.name for each in settings_of(ChannelTable)]
    return read(load(platform).SETTINGS, values, place, environ=environ, others=others)


def quiet_libraries() -> None:
    """Keep secrets and duplicates of libraries out of the log; called where a program starts, never at import."""
    # It logs every address at INFO, and Telegram's contain the bot's token.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    # It logs every error that it also returns to us; we log those that matter.
    logging.getLogger("nio.responses").setLevel(logging.CRITICAL)


def load(platform: str) -> ChannelModule:
    """Return the package of a platform, whose library is an extra that may be missing."""
    if platform not in KNOWN:
        raise BadInput(f"There is no channel {platform!r}. Known: {', '.join(KNOWN)}.")
    try:
        return _import(platform)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("sessionary"):
            raise
        raise BadInput(
            f"The channel {platform!r} needs an extra: install sessionary[{KNOWN[platform]}] "
            f"({error})."
        ) from error


def _import(platform: str) -> ChannelModule:
    """Import one platform: each has its own library, which may be missing and is slow to load."""
    match platform:
        case "telegram":
            from sessionary.channels import telegram

            return telegram
        case "discord":
            from sessionary.channels import discord

            return discord
        case "slack":
            from sessionary.channels import slack

            return slack
        case "whatsapp":
            from sessionary.channels import whatsapp

            return whatsapp
        case "signal":
            from sessionary.channels import signal

            return signal
        case "matrix":
            from sessionary.channels import matrix

            return matrix
        case "email":
            from sessionary.channels import email

            return email
        case "webhook":
            from sessionary.channels import webhook

            return webhook
        case _:
            from sessionary.channels import api

            return api
