"""Signal: an account that signal-cli's daemon holds."""

import re
from collections.abc import Mapping

from sessionary.channels.base import read_megabytes, read_options
from sessionary.channels.files import MEGABYTE
from sessionary.channels.signal.adapter import SignalAdapter
from sessionary.channels.signal.client import HttpDaemon, SignalDaemon, TcpDaemon, address_of
from sessionary.channels.signal.inbound import SignalOptions
from sessionary.config.table import Table
from sessionary.errors import BadInput

ADDRESS = "http://127.0.0.1:8080"
_NUMBER = re.compile(r"\+[1-9][0-9]{4,15}")


def build(table: Table, _: Mapping[str, str]) -> SignalAdapter:
    """Return the adapter that `[channels.signal]` describes; signal-cli keeps the account's keys."""
    account = table.text("account") or ""
    if not _NUMBER.fullmatch(account):
        raise BadInput("[channels.signal]: account must be the bot's number, like +4915112345678.")
    default = SignalOptions()
    largest_file = read_megabytes(table, "largest_file_mb", default.largest_file)
    options = read_options(table, default, largest_file=largest_file)
    address = table.text("address", ADDRESS) or ADDRESS
    return SignalAdapter(daemon_at(address, account, options.largest_file), account, options)


def daemon_at(address: str, account: str, largest_file: int) -> SignalDaemon:
    """Return the connection to a daemon, by the address that it was started with."""
    scheme, host, port = address_of(address)
    if scheme != "tcp":
        return HttpDaemon(address, account)
    # A file comes as one line of base64.
    longest_line = largest_file * 4 // 3 + MEGABYTE
    return TcpDaemon(host, port, account, longest_line=longest_line)
