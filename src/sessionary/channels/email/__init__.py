"""E-mail: IMAP with IDLE to receive, SMTP to send."""

from collections.abc import Mapping

from sessionary.channels.base import read_megabytes
from sessionary.channels.email.adapter import EmailAdapter, EmailOptions
from sessionary.channels.email.client import MailAccount
from sessionary.channels.email.imap import read_server
from sessionary.channels.email.inbound import DEFAULT_LARGEST_FILE, DEFAULT_LARGEST_MAIL, MailRules
from sessionary.channels.email.outbound import DEFAULT_LARGEST_SENT
from sessionary.config.table import Table
from sessionary.errors import BadInput

_IMAP_PORTS = {"tls": 993, "starttls": 143, "none": 143}
_SMTP_PORTS = {"tls": 465, "starttls": 587, "none": 25}


def build(table: Table, environ: Mapping[str, str]) -> EmailAdapter:
    """Return the adapter that `[channels.email]` describes."""
    address = (table.text("address") or "").strip().lower()
    if "@" not in address:
        raise BadInput("[channels.email]: set address, the bot's own e-mail address.")
    account = MailAccount(
        address=address,
        user=table.text("user") or address,
        password=table.required_secret("password", environ),
        imap=read_server(table, "imap", ports=_IMAP_PORTS),
        smtp=read_server(table, "smtp", ports=_SMTP_PORTS),
        folder=table.text("folder") or "INBOX",
    )
    authserv_id = table.text("authserv_id")
    if not table.flag("trust_from", default=False) and authserv_id is None:
        raise BadInput(
            "[channels.email]: anyone can write any sender into a mail. Set authserv_id to the "
            "name that your mail server puts into Authentication-Results, or trust_from = true."
        )
    options = EmailOptions(
        rules=MailRules(
            address,
            authserv_id=authserv_id,
            largest_file=table.whole("largest_file_bytes") or DEFAULT_LARGEST_FILE,
        ),
        name=table.text("name"),
        largest_mail=table.whole("largest_mail_bytes") or DEFAULT_LARGEST_MAIL,
        largest_sent=read_megabytes(table, "largest_sent_mb", DEFAULT_LARGEST_SENT),
        idle_seconds=table.number("idle_seconds", 240),
        poll_seconds=table.number("poll_seconds", 30),
    )
    return EmailAdapter(account, options)
