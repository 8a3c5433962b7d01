"""The kinds of channels that are installed, and their adapters by configuration."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sessionary.config import FILE
from sessionary.config.engine import ChannelTable
from sessionary.config.reader import Place, check_secrets, read, settings_of
from sessionary.engine.ports import Adapter
from sessionary.errors import BadInput, SessionaryError
from sessionary.plugins import PluginGroup

S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelKind(Generic[S]):
    """A kind of channel, as a package registers it under the entry point group `sessionary.channels`.

    `name` is the platform's: that of the entry point, of the table `[channels.<name>]` and of `Adapter.platform`.
    `settings` is the class that declares that table. `create` returns the adapter for a table; it imports the
    platform's library, so that the kind can be listed where `extra`, what pip has to install for it, is missing.
    """

    name: str
    title: str
    settings: type[S]
    create: Callable[[S], Adapter]
    extra: str | None = None
    documentation: str | None = None


CHANNELS: PluginGroup[ChannelKind[Any]] = PluginGroup("sessionary.channels", "channel", ChannelKind)


def build(platform: str, values: Mapping[str, Any], environ: Mapping[str, str]) -> Adapter:
    """Return the adapter of a platform, from its table of the configuration."""
    settings = read_settings(platform, values, environ)
    check_secrets(settings)
    quiet_libraries()
    kind = CHANNELS.load(platform)
    try:
        return kind.create(settings)
    except SessionaryError:
        raise
    except ModuleNotFoundError as error:
        if kind.extra is None or (error.name or "").startswith("sessionary"):
            raise CHANNELS.failed(platform, error) from error
        raise BadInput(
            f"The channel {platform!r} needs an extra: install {kind.extra} ({error})."
        ) from error
    except Exception as error:  # a plug-in may raise anything
        raise CHANNELS.failed(platform, error) from error


def read_settings(platform: str, values: Mapping[str, Any], environ: Mapping[str, str]) -> Any:
    """Return the settings of a platform, without looking up its secrets."""
    place = Place(FILE, "channels").below(platform)
    # Read by the engine, for every channel.
    others = [each.name for each in settings_of(ChannelTable)]
    return read(CHANNELS.load(platform).settings, values, place, environ=environ, others=others)


def quiet_libraries() -> None:
    """Keep secrets and duplicates of libraries out of the log; called where a channel is built, never at import."""
    # It logs every address at INFO, and Telegram's contain the bot's token.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    # It logs every error that it also returns to us; we log those that matter.
    logging.getLogger("nio.responses").setLevel(logging.CRITICAL)
