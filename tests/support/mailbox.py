"""E-mail as a platform of the adapter suite: real IMAP from dovecot, real SMTP from aiosmtpd."""

import asyncio
import email
import email.policy
import uuid
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Any, Self, cast

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from sessionary.channels import registry
from sessionary.channels.files import MEGABYTE
from sessionary.engine.ports import Adapter
from sessionary.model.source import Channel
from tests.support.dovecot import Dovecot
from tests.support.external_server import port_of, reserved_port
from tests.support.proxy import Proxy

DOMAIN = "example.org"
LARGEST_FILE = 100_000
_REFUSALS = {429: "450 4.7.1 Slow down, try again in {wait:g} seconds", 500: "451 4.3.0 I am ill"}


@dataclass(slots=True)
class Taken:
    """A mail that the server took from us."""

    to: str
    mail: EmailMessage

    @property
    def text(self) -> str:
        """Its words."""
        body = self.mail.get_body(("plain",))
        assert body is not None
        return str(body.get_content()).replace("\r\n", "\n").rstrip("\n")


class MailPlatform:
    """A mail server with one mailbox for the bot; Ada writes to it in one thread."""

    name = "email"
    acknowledges = True
    largest_file: int | None = LARGEST_FILE
    largest_sent = LARGEST_FILE

    def __init__(self, dovecot: Dovecot) -> None:
        user = f"bot-{uuid.uuid4().hex[:8]}"
        self.address = f"{user}@{DOMAIN}"
        self.known = f"ada@{DOMAIN}"
        self.root = f"<root-{user}@{DOMAIN}>"
        self.chat = Channel("email", self.known, self.root)
        self.sent: list[Taken] = []
        # Held until the end, also while nobody can reach the platform.
        self._reservations = (reserved_port(), reserved_port())
        imap_port, self._smtp_port = map(port_of, self._reservations)
        self.imap = Proxy(imap_port, target=dovecot.port)
        self._dovecot = dovecot
        self.password = uuid.uuid4().hex
        self._box = dovecot.add_user(self.address, self.password)
        self._smtp: asyncio.Server | None = None
        self._refusals: list[str] = []
        self._to_lose = 0
        self._written = 0

    async def __aenter__(self) -> Self:
        await self.go_online()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.go_offline()
        for reservation in self._reservations:
            reservation.close()

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration of this mailbox; its password is in `PASSWORD`."""
        return {
            "address": self.address,
            "password_env": "PASSWORD",
            "imap_host": "127.0.0.1",
            "imap_port": self.imap.port,
            "imap_security": "none",
            "smtp_host": "127.0.0.1",
            "smtp_port": self._smtp_port,
            "smtp_security": "none",
            "trust_from": True,
            "largest_file_bytes": LARGEST_FILE,
            "largest_sent_mb": LARGEST_FILE / MEGABYTE,
            # The server tells of a new mail half a second late; looking more often is quicker.
            "idle_seconds": 0.1,
        }

    def adapter(self, **settings: Any) -> Adapter:
        """The adapter that the configuration of this mailbox would make."""
        values = {**self.settings, **settings}
        return registry.build("email", values, {"PASSWORD": self.password})

    async def says(
        self, text: str, *, number: int, person: str | None = None, file: bytes | None = None
    ) -> None:
        """Ada writes, or someone else, in the thread that has been going on."""
        mail = EmailMessage()
        mail["From"] = f"Ada <{self.known}>" if person is None else f"{person}@{DOMAIN}"
        mail["To"] = self.address
        mail["Subject"] = "Re: our talk"
        mail["Message-ID"] = f"<n{number}-{self.root[1:]}"
        mail["In-Reply-To"] = mail["References"] = self.root
        mail.set_content(text, cte="base64")
        if file is not None:
            mail.add_attachment(file, maintype="image", subtype="png", filename="picture.png")
        self.deliver(mail.as_bytes(), number)

    def deliver(self, raw: bytes, number: int) -> None:
        """Put a mail into the mailbox, as a mail server does."""
        self._written += 1
        name = f"{1_700_000_000 + self._written}.M{self._written}N{number}N.test"
        written = self._box / "tmp" / name
        written.write_bytes(raw)
        self._dovecot.own(written)
        written.rename(self._box / "new" / name)

    def acknowledged(self, number: int) -> bool:
        """Whether the mail is marked as seen in the mailbox."""
        found = [path.name for path in (self._box / "cur").glob(f"*N{number}N.test*")]
        return bool(found) and all("S" in name.partition(":2,")[2] for name in found)

    def seen(self) -> list[str]:
        """What Ada was sent."""
        return [taken.text for taken in self.sent if taken.to == self.known]

    def given(self) -> list[tuple[str, bytes]]:
        """The files that Ada was sent."""
        mails = [taken.mail for taken in self.sent if taken.to == self.known]
        files = [file for mail in mails for file in mail.iter_attachments()]
        return [(str(file.get_filename()), file.get_content()) for file in files]

    def fetched(self) -> int:
        """How many mails with a large file the bot can have read."""
        return self.imap.passed // LARGEST_FILE

    def refuse(self, status: int, *, retry_after: float | None = None, times: int = 1) -> None:
        """Answer the next mails with an error."""
        answer = _REFUSALS.get(status) or f"{status} 5.1.1 No"
        self._refusals += [answer.format(wait=retry_after or 1)] * times

    def lose_answers(self, times: int = 1) -> None:
        """Take the next mails, and break the connection instead of answering."""
        self._to_lose += times

    def revoke(self) -> None:
        """The password is another one now."""
        self.password = f"another-{self.password}"
        self._dovecot.set_password(self.address, self.password)

    async def go_offline(self) -> None:
        """Be unreachable."""
        await self.imap.close()
        if self._smtp is not None:
            self._smtp.close()
            self._smtp = None

    async def go_online(self) -> None:
        """Be reachable, on the same ports each time."""
        await self.imap.open()
        loop = asyncio.get_running_loop()
        self._smtp = await loop.create_server(self._speaker, "127.0.0.1", self._smtp_port)

    def _speaker(self) -> SMTP:
        return SMTP(
            self,
            hostname="mail.test",
            loop=asyncio.get_running_loop(),
            authenticator=self._authenticate,
            auth_require_tls=False,
            enable_SMTPUTF8=True,
        )

    def _authenticate(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any
    ) -> AuthResult:
        given = cast(LoginPassword, data)
        is_good = given.password == self.password.encode()
        return AuthResult(success=is_good, handled=False)

    async def handle_DATA(  # noqa: N802 - the library calls it so
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        """Take a mail, or say why not."""
        if not session.authenticated:
            return "530 5.7.0 Authentication required"
        if self._refusals:
            return self._refusals.pop(0)
        raw = envelope.original_content or b""
        mail = email.message_from_bytes(raw, policy=email.policy.default)
        self.sent += [Taken(to, mail) for to in envelope.rcpt_tos]
        if self._to_lose:
            self._to_lose -= 1
            assert isinstance(server.transport, asyncio.Transport)
            server.transport.abort()
        return "250 OK"
