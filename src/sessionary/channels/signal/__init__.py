"""Signal: an account that signal-cli's daemon holds."""

import re
from dataclasses import dataclass
from typing import Annotated

from sessionary.channels.files import MEGABYTE
from sessionary.channels.signal.adapter import SignalAdapter
from sessionary.channels.signal.client import HttpDaemon, SignalDaemon, TcpDaemon, address_of
from sessionary.channels.signal.inbound import SignalOptions
from sessionary.config.setting import Setting, ValueKind

_NUMBER = re.compile(r"\+[1-9][0-9]{4,15}")


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


SETTINGS = SignalSettings


def build(settings: SignalSettings) -> SignalAdapter:
    """Return the adapter that `[channels.signal]` describes."""
    daemon = daemon_at(settings.address, settings.account, settings.largest_file)
    return SignalAdapter(daemon, settings.account, settings)


def daemon_at(address: str, account: str, largest_file: int) -> SignalDaemon:
    """Return the connection to a daemon, by the address that it was started with."""
    scheme, host, port = address_of(address)
    if scheme != "tcp":
        return HttpDaemon(address, account)
    # A file comes as one line of base64.
    longest_line = largest_file * 4 // 3 + MEGABYTE
    return TcpDaemon(host, port, account, longest_line=longest_line)
