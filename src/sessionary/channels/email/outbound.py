"""The mail that is sent for a delivery, and SMTP."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.errors import MessageError
from email.headerregistry import Address as MailAddress
from email.message import EmailMessage
from email.policy import SMTP

import aiosmtplib

from sessionary.channels.base import answer_lost, printable
from sessionary.channels.email.imap import MailAccount
from sessionary.channels.email.inbound import bare_subject
from sessionary.channels.files import OutgoingFile
from sessionary.engine.ports import Capabilities
from sessionary.errors import NotAllowed, RetryLater, SessionaryError, Unreachable
from sessionary.model.terminal import one_line
from sessionary.model.turn import Delivery

EMPTY_TEXT = "(An empty message.)"
DEFAULT_SUBJECT = "A message from your agent"
_MAX_REFERENCES = 20
# Lines as long as SMTP allows: folding a long id would encode it, and mail programs would not find it.
_POLICY = SMTP.clone(max_line_length=998, cte_type="7bit")
SEND_SECONDS = 30.0
_AUTHENTICATION = frozenset({530, 534, 535, 538})
_FIRST_PERMANENT = 500
_WAIT = re.compile(r"\b(\d{1,6})\s*(second|sec|minute|min|hour|s\b|m\b|h\b)", re.IGNORECASE)
_UNITS = {"s": 1, "m": 60, "h": 3600}
_DEFAULT_WAIT = 60.0

CAPABILITIES = Capabilities(
    longest_text=200_000,
    notes=(
        "You answer by e-mail, as plain text: no tables, no HTML, links written out.",
        "People read it later and cannot see you typing: answer completely, do not ask back.",
        "You see the mails of this thread only; you cannot search the mailbox or write to others.",
    ),
)


@dataclass(frozen=True, slots=True)
class MailThread:
    """What a reply has to name, so that mail programs show it below the mail that it answers."""

    subject: str = ""
    references: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class MailSender:
    """Whom our mails are from."""

    address: str
    name: str | None = None


def compose(
    delivery: Delivery,
    text: str,
    me: MailSender,
    thread: MailThread,
    files: Sequence[OutgoingFile | str] = (),
) -> EmailMessage:
    """Return the mail for a delivery, with its text as people read it here.

    It has the same id in every attempt, so that a copy is recognised.
    """
    mail = EmailMessage(policy=_POLICY)
    mail["From"] = MailAddress(display_name=me.name or "", addr_spec=me.address)
    mail["To"] = _address(delivery.channel.chat_id, str(delivery.channel))
    mail["Subject"] = _subject(thread)
    mail["Date"] = delivery.created_at
    mail["Message-ID"] = message_id(delivery.id, me.address)
    if delivery.channel.thread_id is not None:
        chain = _chain(delivery.channel.thread_id, thread.references)
        mail["In-Reply-To"] = chain[-1]
        mail["References"] = " ".join(chain)
        mail["Auto-Submitted"] = "auto-replied"
    else:
        mail["Auto-Submitted"] = "auto-generated"
    # Other programs look at the first, and we at the second when one sends our own mail back.
    mail["X-Auto-Response-Suppress"] = "All"
    mail["X-Loop"] = me.address
    # The text that replaces a file comes last.
    texts = [text, *(each for each in files if isinstance(each, str))]
    whole = printable("\n\n".join(each for each in texts if each))
    mail.set_content(whole if whole.strip() or files else EMPTY_TEXT)
    for file in files:
        if isinstance(file, OutgoingFile):
            kind, _, form = file.media_type.partition("/")
            mail.add_attachment(file.data, maintype=kind, subtype=form, filename=file.name)
    return mail


def message_id(delivery_id: str, address: str) -> str:
    """Return the id of a delivery's mail."""
    return f"<{delivery_id}@{address.rpartition('@')[2]}>"


def _subject(thread: MailThread) -> str:
    subject = one_line(bare_subject(thread.subject), 200)
    if thread.references or subject:
        return f"Re: {subject}" if subject else "Re:"
    return DEFAULT_SUBJECT


def _chain(root: str, references: Sequence[str]) -> list[str]:
    ids = list(dict.fromkeys([root, *references]))
    return ids[:1] + ids[1:][-_MAX_REFERENCES:]


def _address(text: str, channel: str) -> MailAddress:
    try:
        return MailAddress(addr_spec=text)
    except (MessageError, ValueError, IndexError) as error:
        raise Unreachable(f"{one_line(text, 80)!r} is not an e-mail address.", channel) from error


async def send(account: MailAccount, mail: EmailMessage, *, to: str, channel: str) -> None:
    """Hand a mail to the SMTP server."""
    raw = mail.as_bytes()
    async with _connect(account, channel) as smtp:
        try:
            await smtp.mail(account.address)
            await smtp.rcpt(to)
        except (aiosmtplib.SMTPServerDisconnected, aiosmtplib.SMTPTimeoutError) as error:
            raise RetryLater(f"The mail server does not answer: {error}", after=10) from error
        # From here on it is unclear after a broken connection whether the mail was accepted.
        await smtp.data(raw)


async def check_smtp(account: MailAccount) -> None:
    """Log in at the SMTP server, and send nothing."""
    async with _connect(account, account.smtp.host):
        pass


@asynccontextmanager
async def _connect(account: MailAccount, channel: str) -> AsyncIterator[aiosmtplib.SMTP]:
    """Log in at the SMTP server, and raise its errors as ours."""
    server = account.smtp
    smtp = aiosmtplib.SMTP(
        hostname=server.host,
        port=server.port,
        use_tls=server.security == "tls",
        start_tls=server.security == "starttls",
        timeout=SEND_SECONDS,
    )
    try:
        try:
            await smtp.connect()
            if smtp.is_ehlo_or_helo_needed:
                await smtp.ehlo()
            if not smtp.supports_extension("auth"):
                raise NotAllowed(f"The mail server {server.host} offers no way to log in.")
            await smtp.login(account.user, account.password.reveal())
        except aiosmtplib.SMTPResponseException:
            raise
        except aiosmtplib.SMTPException as error:
            reason = f"The mail server {server.host}:{server.port} cannot be reached: {error}"
            raise RetryLater(reason, after=10) from error
        yield smtp
    except aiosmtplib.SMTPResponseException as error:
        raise _error_of(error, channel) from error
    except aiosmtplib.SMTPException as error:
        raise answer_lost("The mail server", error) from error
    finally:
        smtp.close()


def _error_of(error: aiosmtplib.SMTPResponseException, channel: str) -> SessionaryError:
    text = " ".join(error.message.split())[:200]
    if error.code in _AUTHENTICATION:
        return NotAllowed(
            f"The mail server refuses the password: {error.code} {text}. Nothing is lost; correct "
            "it and start again."
        )
    if error.code >= _FIRST_PERMANENT:
        return Unreachable(f"The mail server refuses the mail: {error.code} {text}", channel)
    return RetryLater(f"The mail server says: {error.code} {text}", after=wait_in(text))


def wait_in(text: str) -> float:
    """Return how long a server asks us to wait; SMTP has no field for it, only text."""
    found = _WAIT.search(text)
    if found is None:
        return _DEFAULT_WAIT
    return max(1.0, float(int(found[1]) * _UNITS[found[2][0].lower()]))
