"""The webhook channel: signed JSON in, signed call-backs out; templates pick a message from a body."""

import json
import re
from dataclasses import dataclass, field
from typing import Annotated, Any

from sessionary.channels.base import ChannelOptions, LargestSent
from sessionary.channels.callback import address_to_call
from sessionary.channels.files import MEGABYTE
from sessionary.channels.registry import ChannelKind
from sessionary.config.secret import Secret
from sessionary.config.setting import MAX_SECONDS, MAY_BE_EMPTY, Setting, ValueKind
from sessionary.engine.ports import Adapter
from sessionary.errors import BadInput


def _header(text: str) -> str:
    if not text:
        raise ValueError(text)
    return text.lower()


HEADER = ValueKind("the name of a header", _header)
HEADER_OR_NONE = ValueKind("the name of a header, or nothing", str.lower)
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


_TEMPLATE = ValueKind(
    "a text with fields in braces", BodyTemplate, write=lambda template: template.written
)
Template = Annotated[BodyTemplate, _TEMPLATE]


@dataclass(frozen=True, slots=True)
class BodyFields:
    """Where in a body the parts of a message are."""

    chat: Annotated[Template, Setting("the chat")] = field(
        default_factory=lambda: BodyTemplate("{chat_id}")
    )
    person: Annotated[Template, Setting("who wrote it")] = field(
        default_factory=lambda: BodyTemplate("{person_id}")
    )
    text: Annotated[Template, Setting("the text")] = field(
        default_factory=lambda: BodyTemplate("{text}")
    )
    message_id: Annotated[Template, Setting("what tells two messages apart")] = field(
        default_factory=lambda: BodyTemplate("{message_id}")
    )
    name: Annotated[Template | None, Setting("the person's name", example="{sender.name}")] = None
    thread: Annotated[Template | None, Setting("the thread", example="{thread_id}")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings(ChannelOptions):
    """How requests are signed, what they contain, and where replies go."""

    secret: Annotated[
        Secret, Setting("what requests and call-backs are signed with", example="WEBHOOK_SECRET")
    ]
    call_back: Annotated[
        str | None,
        ValueKind(
            "an address to call back, such as https://host/path",
            address_to_call,
            short="address",
            schema={"type": "string", "format": "uri"},
        ),
        Setting("where answers are posted", example="https://example.org/answers"),
    ] = None
    fields: Annotated[BodyFields, Setting("where in a body the parts of a message are")] = field(
        default_factory=BodyFields
    )
    signature_header: Annotated[
        str, HEADER, MAY_BE_EMPTY, Setting("the header with the signature")
    ] = "x-sessionary-signature"
    signature_prefix: Annotated[
        str, MAY_BE_EMPTY, Setting("what stands before the signature in that header")
    ] = "sha256="
    timestamp_header: Annotated[
        str,
        HEADER_OR_NONE,
        MAY_BE_EMPTY,
        Setting('the header with the time, which is signed too; or ""'),
    ] = "x-sessionary-timestamp"
    window_seconds: Annotated[float, Setting("how old a request may be", gt=0, le=MAX_SECONDS)] = (
        300.0
    )
    largest_sent: LargestSent = 5 * MEGABYTE

    @property
    def signs_time(self) -> bool:
        """Whether the time of a request is signed too."""
        return bool(self.timestamp_header)


def create(settings: WebhookSettings) -> Adapter:
    """Return the adapter that `[channels.webhook]` describes."""
    # Imported here, because it imports this module.
    from sessionary.channels.webhook.adapter import WebhookAdapter

    return WebhookAdapter(settings)


CHANNEL = ChannelKind(
    name="webhook",
    title="Webhook",
    settings=WebhookSettings,
    create=create,
    documentation="docs/channels/webhook.md",
)
