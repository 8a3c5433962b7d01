"""Signal: an account that signal-cli's daemon holds."""

import re
from collections.abc import Mapping

from sessionary.channels.enclosures import largest_sent
from sessionary.channels.files import MEGABYTE
from sessionary.channels.signal.adapter import SignalAdapter
from sessionary.channels.signal.client import Daemon, address_of
from sessionary.channels.signal.http import HttpDaemon
from sessionary.channels.signal.inbound import DEFAULT_LARGEST_FILE, DEFAULT_LARGEST_SENT, Rules
from sessionary.channels.signal.tcp import TcpDaemon
from sessionary.config.table import Table
from sessionary.engine.ports import Adapter
from sessionary.errors import BadInput

ADDRESS = "http://127.0.0.1:8080"
_NUMBER = re.compile(r"\+[1-9][0-9]{4,15}")


def build(table: Table, _: Mapping[str, str]) -> SignalAdapter:
    """The adapter that `[channels.signal]` describes; the account's keys are signal-cli's."""
    account = table.text("account") or ""
    if not _NUMBER.fullmatch(account):
        raise BadInput("[channels.signal]: account must be the bot's number, like +4915112345678.")
    most = table.number("largest_file_mb", DEFAULT_LARGEST_FILE / MEGABYTE)
    rules = Rules(
        always=table.word("answer", "mentioned", ("mentioned", "always")) == "always",
        observe=table.flag("observe", default=False),
        largest_file=round(most * MEGABYTE),
        largest_sent=largest_sent(table, DEFAULT_LARGEST_SENT),
    )
    address = table.text("address", ADDRESS) or ADDRESS
    return SignalAdapter(daemon_at(address, account, rules.largest_file), account, rules)


def daemon_at(address: str, account: str, largest_file: int) -> Daemon:
    """The wire to a daemon, by the address that it was started with."""
    scheme, host, port = address_of(address)
    if scheme != "tcp":
        return HttpDaemon(address, account)
    # A file comes as one line of base64.
    longest_line = largest_file * 4 // 3 + MEGABYTE
    return TcpDaemon(host, port, account, longest_line=longest_line)


async def check(adapter: Adapter) -> str:
    """Ask the daemon for its version and for our account."""
    assert isinstance(adapter, SignalAdapter)
    return f"Signal knows this account as {await adapter.who()}."
