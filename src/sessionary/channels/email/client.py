"""The mailbox, whose IMAP connection has a thread of its own, and SMTP."""

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.message import EmailMessage
from typing import TypeVar

import aiosmtplib

from sessionary.channels.email.imap import FetchedMail, ImapConnection, MailServer
from sessionary.config.secret import Secret
from sessionary.errors import NotAllowed, RetryLater, SessionaryError, Unreachable

SEND_SECONDS = 30.0
_AUTHENTICATION = frozenset({530, 534, 535, 538})
_FIRST_PERMANENT = 500
_WAIT = re.compile(r"\b(\d{1,6})\s*(second|sec|minute|min|hour|s\b|m\b|h\b)", re.IGNORECASE)
_UNITS = {"s": 1, "m": 60, "h": 3600}
_DEFAULT_WAIT = 60.0

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class MailAccount:
    """A mailbox, and its servers."""

    address: str
    user: str
    password: Secret
    imap: MailServer
    smtp: MailServer
    folder: str = "INBOX"


class Mailbox:
    """A mailbox with awaitable methods. Cancelling one breaks the connection."""

    def __init__(self, account: MailAccount) -> None:
        self._account = account
        self._connection: ImapConnection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sessionary-imap")

    async def open(self) -> int:
        """Log in; return how many mails the folder has."""
        return await self._run(self._open)

    async def unseen(self) -> list[int]:
        """Return the UIDs of new mails."""
        return await self._run(self._opened.unseen)

    async def fetch(self, uid: int, largest: int) -> FetchedMail | None:
        """Return a mail; None if it is gone."""
        return await self._run(lambda: self._opened.fetch(uid, largest))

    async def heads(self, root: str, most: int) -> list[bytes]:
        """Return the headers of the latest mails of a thread, the oldest first."""
        return await self._run(lambda: self._heads(root, most))

    async def mark_seen(self, uid: int) -> None:
        """Mark a mail as seen."""
        await self._run(lambda: self._opened.mark_seen(uid))

    async def wait(self, *, idle_seconds: float, poll_seconds: float) -> None:
        """Wait until the server reports something new, or it is time to poll."""
        seconds = idle_seconds if self._opened.can_idle else poll_seconds
        await self._run(lambda: self._opened.wait(seconds))

    @property
    def can_idle(self) -> bool:
        """Whether the server reports new mails by itself."""
        return self._opened.can_idle

    async def close(self) -> None:
        """Close the connection and end the thread."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.cut()
            connection.close()
        self._thread.shutdown(wait=False)

    @property
    def _opened(self) -> ImapConnection:
        if self._connection is None:
            raise RetryLater("The mailbox is not open.", after=1)
        return self._connection

    def _open(self) -> int:
        self._connection = ImapConnection(self._account.imap, self._account.folder)
        return self._connection.log_in(self._account.user, self._account.password.reveal())

    def _heads(self, root: str, most: int) -> list[bytes]:
        uids = self._opened.answering(root)[-most:]
        return [head for uid in uids if (head := self._opened.head(uid)) is not None]

    async def _run(self, do: Callable[[], Result]) -> Result:
        future = asyncio.get_running_loop().run_in_executor(self._thread, do)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if self._connection is not None:
                self._connection.cut()
            # Wait for the thread: it must not act on what comes after.
            await asyncio.gather(future, return_exceptions=True)
            raise


async def send(account: MailAccount, mail: EmailMessage, *, to: str, channel: str) -> None:
    """Hand a mail to the SMTP server."""
    smtp = _smtp(account)
    raw = mail.as_bytes()
    try:
        try:
            await _log_in(smtp, account)
            await smtp.mail(account.address)
            await smtp.rcpt(to)
        except (aiosmtplib.SMTPConnectError, aiosmtplib.SMTPServerDisconnected) as error:
            raise RetryLater(f"The mail server cannot be reached: {error}", after=10) from error
        except aiosmtplib.SMTPTimeoutError as error:
            raise RetryLater(f"The mail server does not answer: {error}", after=30) from error
        # From here on it is unclear after a broken connection whether the mail was accepted.
        await smtp.data(raw)
    except aiosmtplib.SMTPResponseException as error:
        raise _error_of(error, channel) from error
    except aiosmtplib.SMTPException as error:
        raise SessionaryError(
            f"The mail server did not answer: {error}", committed="unknown"
        ) from error
    finally:
        smtp.close()


async def check_smtp(account: MailAccount) -> None:
    """Log in at the SMTP server, and send nothing."""
    server = account.smtp
    smtp = _smtp(account)
    try:
        await _log_in(smtp, account)
    except aiosmtplib.SMTPResponseException as error:
        raise _error_of(error, server.host) from error
    except aiosmtplib.SMTPException as error:
        raise RetryLater(f"{server.host}:{server.port} cannot be reached: {error}") from error
    finally:
        smtp.close()


def _smtp(account: MailAccount) -> aiosmtplib.SMTP:
    server = account.smtp
    return aiosmtplib.SMTP(
        hostname=server.host,
        port=server.port,
        use_tls=server.security == "tls",
        start_tls=server.security == "starttls",
        timeout=SEND_SECONDS,
    )


async def _log_in(smtp: aiosmtplib.SMTP, account: MailAccount) -> None:
    await smtp.connect()
    if smtp.is_ehlo_or_helo_needed:
        await smtp.ehlo()
    if not smtp.supports_extension("auth"):
        raise NotAllowed(f"The mail server {account.smtp.host} offers no way to log in.")
    await smtp.login(account.user, account.password.reveal())


def _error_of(error: aiosmtplib.SMTPResponseException, channel: str) -> Exception:
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
