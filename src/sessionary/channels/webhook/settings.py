"""The settings of the webhook channel, with templates that pick a message from a body."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sessionary.channels.base import ChannelOptions, read_megabytes
from sessionary.channels.callback import check_address
from sessionary.channels.files import MEGABYTE
from sessionary.config.secret import Secret
from sessionary.config.table import Table
from sessionary.errors import BadInput

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]+)\}|[{}]")
_MAX_TEXT = 1_000_000


class BodyTemplate:
    """A text with fields in braces, like `Push to {repository.name}`; `{a.0.b}` goes into objects and lists."""

    def __init__(self, written: str) -> None:
        self.written = written
        for found in _PIECE.finditer(written):
            if found[0] in ("{", "}"):
                raise BadInput(f"{written!r}: a brace stands alone; write {{{{ or }}}} for one.")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BodyTemplate) and other.written == self.written

    def __hash__(self) -> int:
        return hash(self.written)

    def fill(self, body: Any) -> str:
        """Return the text with the values of the body; an error names what is missing."""
        filled = _PIECE.sub(lambda found: self._piece(found, body), self.written)
        if len(filled) > _MAX_TEXT:
            raise BadInput(f"{self.written!r} has more than {_MAX_TEXT:,} characters.")
        return filled

    def _piece(self, found: "re.Match[str]", body: Any) -> str:
        if found[0] in ("{{", "}}"):
            return found[0][0]
        value = body
        for step in found[1].strip().split("."):
            value = _down(value, step)
        if value is None:
            raise BadInput(f"The body has nothing at {found[0]}.")
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _down(value: Any, step: str) -> Any:
    if isinstance(value, dict):
        return value.get(step)
    if isinstance(value, list) and step.isdecimal() and len(step) < 10 and int(step) < len(value):
        return value[int(step)]
    return None


@dataclass(frozen=True, slots=True)
class BodyFields:
    """Where in a body the parts of a message are."""

    chat: BodyTemplate = field(default_factory=lambda: BodyTemplate("{chat_id}"))
    person: BodyTemplate = field(default_factory=lambda: BodyTemplate("{person_id}"))
    text: BodyTemplate = field(default_factory=lambda: BodyTemplate("{text}"))
    message_id: BodyTemplate = field(default_factory=lambda: BodyTemplate("{message_id}"))
    name: BodyTemplate | None = None
    thread: BodyTemplate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings(ChannelOptions):
    """How requests are signed, what they contain, and where replies go."""

    secret: Secret
    call_back: str | None = None
    fields: BodyFields = field(default_factory=BodyFields)
    signature_header: str = "x-sessionary-signature"
    signature_prefix: str = "sha256="
    timestamp_header: str = "x-sessionary-timestamp"
    window_seconds: float = 300.0
    largest_sent: int = 5 * MEGABYTE

    @property
    def signs_time(self) -> bool:
        """Whether the time of a request is signed too."""
        return bool(self.timestamp_header)


def read(table: Table, environ: Mapping[str, str]) -> WebhookSettings:
    """Read the table `[channels.webhook]`."""
    fields, url = table.table("fields"), table.text("call_back")
    known = BodyFields()
    settings = WebhookSettings(
        secret=table.required_secret("secret", environ),
        call_back=None if url is None else check_address(url, "[channels.webhook]: call_back"),
        fields=BodyFields(
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
        largest_sent=read_megabytes(table, "largest_sent_mb", 5 * MEGABYTE),
        window_seconds=table.number("window_seconds", 300),
    )
    fields.refuse_unknown()
    if not settings.signature_header:
        raise BadInput("[channels.webhook]: signature_header must be the name of a header.")
    return settings


def _template(table: Table, name: str) -> BodyTemplate | None:
    written = table.text(name)
    return None if written is None else BodyTemplate(written)
