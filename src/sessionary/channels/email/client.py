"""What touches the wire: the mailbox in threads of its own, SMTP beside it."""

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.message import EmailMessage
from typing import TypeVar

import aiosmtplib

from sessionary.channels.email.imap import Connection, Fetched
from sessionary.channels.email.server import Server
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
class Account:
    """Whose mailbox it is, and where."""

    address: str
    user: str
    password: Secret
    imap: Server
    smtp: Server
    folder: str = "INBOX"


class Mailbox:
    """A mailbox that can be awaited. Cancelling a wait breaks the connection."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._connection: Connection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sessionary-imap")

    async def open(self) -> int:
        """Enter; how many mails the folder holds."""
        return await self._run(self._enter)

    async def unseen(self) -> list[int]:
        """The numbers of the mails that are new."""
        return await self._run(self._here.unseen)

    async def fetch(self, uid: int, largest: int) -> Fetched | None:
        """A mail, or None when it is gone."""
        return await self._run(lambda: self._here.fetch(uid, largest))

    async def heads(self, root: str, most: int) -> list[bytes]:
        """The headers of the latest mails of a thread, the oldest first."""
        return await self._run(lambda: self._heads(root, most))

    async def mark_seen(self, uid: int) -> None:
        """A mail need not be offered again."""
        await self._run(lambda: self._here.mark_seen(uid))

    async def wait(self, *, idle_seconds: float, poll_seconds: float) -> None:
        """Until something is new, as far as the server tells."""
        seconds = idle_seconds if self._here.can_idle else poll_seconds
        await self._run(lambda: self._here.wait(seconds))

    @property
    def can_idle(self) -> bool:
        """Whether the server tells of new mails by itself."""
        return self._here.can_idle

    async def close(self) -> None:
        """Let go of the connection and of the thread."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.cut()
            connection.close()
        self._thread.shutdown(wait=False)

    @property
    def _here(self) -> Connection:
        if self._connection is None:
            raise RetryLater("The mailbox is not open.", after=1)
        return self._connection

    def _enter(self) -> int:
        self._connection = Connection(self._account.imap, self._account.folder)
        return self._connection.log_in(self._account.user, self._account.password.reveal())

    def _heads(self, root: str, most: int) -> list[bytes]:
        uids = self._here.answering(root)[-most:]
        return [head for uid in uids if (head := self._here.head(uid)) is not None]

    async def _run(self, do: Callable[[], Result]) -> Result:
        future = asyncio.get_running_loop().run_in_executor(self._thread, do)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if self._connection is not None:
                self._connection.cut()
            # The thread ends before we say that we have: it must not act on what comes after.
            await asyncio.gather(future, return_exceptions=True)
            raise


async def send(account: Account, mail: EmailMessage, *, to: str, channel: str) -> None:
    """Hand a mail to the server that sends it on."""
    server = account.smtp
    smtp = aiosmtplib.SMTP(
        hostname=server.host,
        port=server.port,
        use_tls=server.security == "tls",
        start_tls=server.security == "starttls",
        timeout=SEND_SECONDS,
    )
    raw = mail.as_bytes()
    try:
        try:
            await _introduce(smtp, account)
            await smtp.mail(account.address)
            await smtp.rcpt(to)
        except (aiosmtplib.SMTPConnectError, aiosmtplib.SMTPServerDisconnected) as error:
            raise RetryLater(f"The mail server cannot be reached: {error}", after=10) from error
        except aiosmtplib.SMTPTimeoutError as error:
            raise RetryLater(f"The mail server does not answer: {error}", after=30) from error
        # From here on a broken connection leaves it open whether the mail was taken.
        await smtp.data(raw)
    except aiosmtplib.SMTPResponseException as error:
        raise _translated(error, channel) from error
    except aiosmtplib.SMTPException as error:
        raise SessionaryError(
            f"The mail server did not answer: {error}", committed="unknown"
        ) from error
    finally:
        smtp.close()


async def check_smtp(account: Account) -> None:
    """Log in at the server that sends, and send nothing."""
    server = account.smtp
    smtp = aiosmtplib.SMTP(
        hostname=server.host,
        port=server.port,
        use_tls=server.security == "tls",
        start_tls=server.security == "starttls",
        timeout=SEND_SECONDS,
    )
    try:
        await _introduce(smtp, account)
    except aiosmtplib.SMTPResponseException as error:
        raise _translated(error, server.host) from error
    except aiosmtplib.SMTPException as error:
        raise RetryLater(f"{server.host}:{server.port} cannot be reached: {error}") from error
    finally:
        smtp.close()


async def _introduce(smtp: aiosmtplib.SMTP, account: Account) -> None:
    await smtp.connect()
    if smtp.is_ehlo_or_helo_needed:
        await smtp.ehlo()
    if not smtp.supports_extension("auth"):
        raise NotAllowed(f"The mail server {account.smtp.host} offers no way to log in.")
    await smtp.login(account.user, account.password.reveal())


def _translated(error: aiosmtplib.SMTPResponseException, channel: str) -> Exception:
    said = " ".join(error.message.split())[:200]
    if error.code in _AUTHENTICATION:
        return NotAllowed(
            f"The mail server refuses the password: {error.code} {said}. Nothing is lost; correct "
            "it and start again."
        )
    if error.code >= _FIRST_PERMANENT:
        return Unreachable(f"The mail server refuses the mail: {error.code} {said}", channel)
    return RetryLater(f"The mail server says: {error.code} {said}", after=wait_in(said))


def wait_in(said: str) -> float:
    """How long a server asks us to wait; SMTP has no field for it, only words."""
    found = _WAIT.search(said)
    if found is None:
        return _DEFAULT_WAIT
    return max(1.0, float(int(found[1]) * _UNITS[found[2][0].lower()]))
