"""E-mail: IMAP with IDLE to receive, SMTP to send."""

from dataclasses import dataclass
from typing import Annotated, Literal

from sessionary.channels.base import ChannelOptions, LargestFileBytes, LargestSent
from sessionary.channels.email.inbound import (
    DEFAULT_LARGEST_FILE,
    DEFAULT_LARGEST_MAIL,
    DEFAULT_LARGEST_SENT,
)
from sessionary.channels.registry import ChannelKind
from sessionary.config.secret import Secret
from sessionary.config.setting import Seconds, Setting, ValueKind
from sessionary.engine.ports import Adapter

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_HIGHEST_PORT = 65_535
Security = Annotated[
    Literal["tls", "starttls", "none"], Setting("how it is encrypted; none only on loopback")
]


def _mail_address(text: str) -> str:
    if "@" not in text:
        raise ValueError(text)
    return text.strip().lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailSettings(ChannelOptions):
    """The table `[channels.email]`."""

    address: Annotated[
        str,
        ValueKind("an e-mail address", _mail_address, schema={"type": "string", "format": "email"}),
        Setting("the bot's own e-mail address", example="bot@example.org"),
    ]
    name: Annotated[str | None, Setting("the display name in answers", example="Sessionary")] = None
    user: Annotated[str | None, Setting("the login name; default: the address", example="bot")] = (
        None
    )
    password: Annotated[Secret, Setting("the password", example="MAIL_PASSWORD")]
    imap_host: Annotated[
        str, Setting("the server that receives your mail", example="imap.example.org")
    ]
    imap_port: Annotated[
        int | None,
        Setting("default: 993, or 143 without tls", gt=0, le=_HIGHEST_PORT, example=993),
    ] = None
    imap_security: Security = "tls"
    smtp_host: Annotated[
        str, Setting("the server that sends your mail", example="smtp.example.org")
    ]
    smtp_port: Annotated[
        int | None,
        Setting("default: 465, 587 with starttls", gt=0, le=_HIGHEST_PORT, example=465),
    ] = None
    smtp_security: Security = "tls"
    folder: Annotated[str, Setting("the folder to watch")] = "INBOX"
    authserv_id: Annotated[
        str | None,
        Setting(
            "accept only mail for which this server reports dmarc=pass, or dkim=pass for the "
            "sender's own domain",
            example="mx.example.org",
        ),
    ] = None
    trust_from: Annotated[
        bool, Setting("accept every sender; for servers that reject forged mail themselves")
    ] = False
    largest_file: LargestFileBytes = DEFAULT_LARGEST_FILE
    largest_mail: Annotated[
        int,
        Setting("of a larger mail only the beginning is read", name="largest_mail_bytes", gt=0),
    ] = DEFAULT_LARGEST_MAIL
    largest_sent: LargestSent = DEFAULT_LARGEST_SENT
    idle_seconds: Annotated[Seconds, Setting("how long one IDLE lasts")] = 240.0
    poll_seconds: Annotated[Seconds, Setting("how often a server without IDLE is polled")] = 30.0

    def check(self) -> None:
        """Refuse senders that nobody checks, and a password in the clear."""
        if not self.trust_from and self.authserv_id is None:
            raise ValueError(
                "anyone can write any sender into a mail. Set authserv_id to the name that your "
                "mail server puts into Authentication-Results, or trust_from = true."
            )
        for name, host, security in (
            ("imap", self.imap_host, self.imap_security),
            ("smtp", self.smtp_host, self.smtp_security),
        ):
            if security == "none" and host not in _LOOPBACK:
                raise ValueError(
                    f"{name}_security = 'none' would send the password in the clear to {host}; "
                    "use 'tls' or 'starttls'."
                )


def create(settings: EmailSettings) -> Adapter:
    """Return the adapter that `[channels.email]` describes."""
    # Loads aiosmtplib, which may be missing.
    from sessionary.channels.email.adapter import EmailAdapter

    return EmailAdapter(settings)


CHANNEL = ChannelKind(
    name="email",
    title="E-mail",
    settings=EmailSettings,
    create=create,
    extra="sessionary[email]",
    documentation="docs/channels/email.md",
)
