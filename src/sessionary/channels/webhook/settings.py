"""What the configuration says of the webhook channel."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from sessionary.channels.enclosures import largest_sent
from sessionary.channels.webhook.template import Template
from sessionary.config.secret import Secret
from sessionary.config.table import Table
from sessionary.errors import BadInput

LARGEST_SENT = 5 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Fields:
    """Where in a body the parts of a message are."""

    chat: Template = field(default_factory=lambda: Template("{chat_id}"))
    person: Template = field(default_factory=lambda: Template("{person_id}"))
    text: Template = field(default_factory=lambda: Template("{text}"))
    message_id: Template = field(default_factory=lambda: Template("{message_id}"))
    name: Template | None = None
    thread: Template | None = None


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """How requests are signed, what they hold, and where answers go."""

    secret: Secret
    call_back: str | None = None
    fields: Fields = field(default_factory=Fields)
    signature_header: str = "x-sessionary-signature"
    signature_prefix: str = "sha256="
    timestamp_header: str = "x-sessionary-timestamp"
    window_seconds: float = 300.0
    pause_seconds: float = 1.0
    largest_sent: int = LARGEST_SENT

    @property
    def signs_time(self) -> bool:
        """Whether the time of a request is signed with it."""
        return bool(self.timestamp_header)


def read(table: Table, environ: Mapping[str, str]) -> WebhookSettings:
    """The settings in a table of the configuration."""
    fields = table.table("fields")
    known = Fields()
    settings = WebhookSettings(
        secret=table.required_secret("secret", environ),
        call_back=_address(table.text("call_back")),
        fields=Fields(
            chat=_template(fields, "chat") or known.chat,
            person=_template(fields, "person") or known.person,
            text=_template(fields, "text") or known.text,
            message_id=_template(fields, "message_id") or known.message_id,
            name=_template(fields, "name"),
            thread=_template(fields, "thread"),
        ),
        signature_header=(table.text("signature_header", "x-sessionary-signature") or "").lower(),
        signature_prefix=table.text("signature_prefix", "sha256=") or "",
        timestamp_header=(table.text("timestamp_header", "x-sessionary-timestamp") or "").lower(),
        largest_sent=largest_sent(table, LARGEST_SENT),
        window_seconds=table.number("window_seconds", 300),
    )
    fields.refuse_unknown()
    if not settings.signature_header:
        raise BadInput("[channels.webhook]: signature_header must be the name of a header.")
    return settings


def _template(table: Table, name: str) -> Template | None:
    written = table.text(name)
    return None if written is None else Template(written)


def _address(url: str | None) -> str | None:
    if url is None:
        return None
    found = urlsplit(url)
    if found.scheme not in ("http", "https") or not found.hostname or found.username is not None:
        raise BadInput(f"[channels.webhook]: call_back = {url!r}: write https://host/path.")
    return url
