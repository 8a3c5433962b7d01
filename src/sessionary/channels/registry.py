"""From what the configuration says of a platform to the adapter that speaks to it."""

import importlib
from collections.abc import Mapping
from typing import Any, Protocol, cast

from sessionary.config.table import Table
from sessionary.engine.ports import Adapter
from sessionary.errors import BadInput

# Platform: the module with `build` and `check`, and the extra that brings its library.
KNOWN: dict[str, tuple[str, str | None]] = {
    "telegram": ("sessionary.channels.telegram", "telegram"),
    "discord": ("sessionary.channels.discord", "discord"),
    "slack": ("sessionary.channels.slack", "slack"),
    "whatsapp": ("sessionary.channels.whatsapp", "whatsapp"),
    "signal": ("sessionary.channels.signal", "signal"),
    "matrix": ("sessionary.channels.matrix", "matrix"),
    "email": ("sessionary.channels.email", "email"),
    "webhook": ("sessionary.channels.webhook", None),
    "api": ("sessionary.channels.api", None),
}


class Channel(Protocol):
    """What the package of a platform offers."""

    def build(self, table: Table, environ: Mapping[str, str]) -> Adapter:
        """The adapter that the settings describe."""

    async def check(self, adapter: Adapter) -> str:
        """Connect, and say who the bot is; the error says what is missing and how to get it."""


def build(platform: str, values: Mapping[str, Any], environ: Mapping[str, str]) -> Adapter:
    """The adapter of a platform, from its table of the configuration."""
    table = Table(values, f"[channels.{platform}]")
    table.leave(("agent",))
    adapter = load(platform).build(table, environ)
    table.refuse_unknown()
    return adapter


def load(platform: str) -> Channel:
    """The package of a platform; its library is an extra that may not be there."""
    known = KNOWN.get(platform)
    if known is None:
        raise BadInput(f"There is no channel {platform!r}. Known: {', '.join(KNOWN)}.")
    module, extra = known
    try:
        return cast(Channel, importlib.import_module(module))
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("sessionary"):
            raise BadInput(f"This version has no channel {platform!r} yet.") from error
        raise BadInput(
            f"The channel {platform!r} needs an extra: install sessionary[{extra}] ({error})."
        ) from error
