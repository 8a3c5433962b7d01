"""E-mail: IMAP with IDLE to receive, SMTP to send."""

from collections.abc import Mapping

from sessionary.channels.email import server
from sessionary.channels.email.adapter import EmailAdapter, Options, who
from sessionary.channels.email.client import Account
from sessionary.channels.email.inbound import DEFAULT_LARGEST_FILE, DEFAULT_LARGEST_MAIL, Rules
from sessionary.channels.email.outbound import DEFAULT_LARGEST_SENT
from sessionary.channels.enclosures import largest_sent
from sessionary.config.table import Table
from sessionary.engine.ports import Adapter
from sessionary.errors import BadInput

_IMAP_PORTS = {"tls": 993, "starttls": 143, "none": 143}
_SMTP_PORTS = {"tls": 465, "starttls": 587, "none": 25}


def build(table: Table, environ: Mapping[str, str]) -> Adapter:
    """The mailbox that the settings describe."""
    address = (table.text("address") or "").strip().lower()
    if "@" not in address:
        raise BadInput("[channels.email]: set address, the bot's own e-mail address.")
    account = Account(
        address=address,
        user=table.text("user") or address,
        password=table.required_secret("password", environ),
        imap=server.read(table, "imap", ports=_IMAP_PORTS),
        smtp=server.read(table, "smtp", ports=_SMTP_PORTS),
        folder=table.text("folder") or "INBOX",
    )
    options = Options(
        rules=_rules(table, address),
        name=table.text("name"),
        largest_mail=table.whole("largest_mail_bytes") or DEFAULT_LARGEST_MAIL,
        largest_sent=largest_sent(table, DEFAULT_LARGEST_SENT),
        idle_seconds=table.number("idle_seconds", 240),
        poll_seconds=table.number("poll_seconds", 30),
    )
    return EmailAdapter(account, options)


async def check(adapter: Adapter) -> str:
    """Enter both servers, and say who the bot is."""
    assert isinstance(adapter, EmailAdapter)
    return await who(adapter)


def _rules(table: Table, address: str) -> Rules:
    authserv_id = table.text("authserv_id")
    if not table.flag("trust_from", default=False) and authserv_id is None:
        raise BadInput(
            "[channels.email]: anyone can write any sender into a mail. Set authserv_id to the "
            "name that your mail server puts into Authentication-Results, or trust_from = true."
        )
    return Rules(
        address,
        authserv_id=authserv_id,
        largest_file=table.whole("largest_file_bytes") or DEFAULT_LARGEST_FILE,
    )
