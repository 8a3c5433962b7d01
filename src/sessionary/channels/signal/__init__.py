"""Signal: an account that signal-cli's daemon holds."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from sessionary.channels.files import MEGABYTE
from sessionary.channels.registry import ChannelKind
from sessionary.channels.signal.inbound import SignalOptions
from sessionary.config.setting import Setting, ValueKind
from sessionary.engine.ports import Adapter
from sessionary.errors import BadInput

if TYPE_CHECKING:
    from sessionary.channels.signal.client import SignalDaemon

_NUMBER = re.compile(r"\+[1-9][0-9]{4,15}")


def address_of(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of the daemon."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadInput(f"{url!r} is no address.") from error
    if parts.scheme not in ("tcp", "http", "https") or not parts.hostname:
        raise BadInput(f"write http://host:port or tcp://host:port, not {url!r}.")
    ports = {"tcp": 7583, "http": 8080, "https": 443}
    return parts.scheme, parts.hostname, port or ports[parts.scheme]


def _number(text: str) -> str:
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return text


def _daemon(text: str) -> str:
    address_of(text)
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalSettings(SignalOptions):
    """The table `[channels.signal]`; signal-cli keeps the account's keys."""

    account: Annotated[
        str,
        ValueKind("the bot's number, like +4915112345678", _number),
        Setting("the bot's number", example="+4915112345678"),
    ]
    address: Annotated[
        str,
        ValueKind("http://host:port or tcp://host:port", _daemon, short="address"),
        Setting("where signal-cli's daemon listens: http://, https:// or tcp://"),
    ] = "http://127.0.0.1:8080"


def create(settings: SignalSettings) -> Adapter:
    """Return the adapter that `[channels.signal]` describes."""
    # Loads httpx2, which may be missing.
    from sessionary.channels.signal.adapter import SignalAdapter

    daemon = daemon_at(settings.address, settings.account, settings.largest_file)
    return SignalAdapter(daemon, settings.account, settings)


def daemon_at(address: str, account: str, largest_file: int) -> "SignalDaemon":
    """Return the connection to a daemon, by the address that it was started with."""
    from sessionary.channels.signal.client import HttpDaemon, TcpDaemon

    scheme, host, port = address_of(address)
    if scheme != "tcp":
        return HttpDaemon(address, account)
    # A file comes as one line of base64.
    longest_line = largest_file * 4 // 3 + MEGABYTE
    return TcpDaemon(host, port, account, longest_line=longest_line)


CHANNEL = ChannelKind(
    name="signal",
    title="Signal",
    settings=SignalSettings,
    create=create,
    extra="sessionary[signal]",
    documentation="docs/channels/signal.md",
)
