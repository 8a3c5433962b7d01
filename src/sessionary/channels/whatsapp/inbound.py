"""From what WhatsApp posts to what the house hears. Pure."""

import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sessionary.channels.files import attachment
from sessionary.model.message import Attachment, Message, Part, Role, Text, Unknown
from sessionary.model.source import ChatType, Source
from sessionary.model.terminal import one_line

PLATFORM = "whatsapp"
DEFAULT_LARGEST_FILE = 16 * 1024 * 1024
DEFAULT_LARGEST_SENT = 16 * 1024 * 1024
_MEDIA = ("image", "audio", "video", "document", "sticker")
# A thumb under a message and the house-keeping of WhatsApp itself ask for no answer.
_NOT_SAID = ("reaction", "system")
_LONGEST_NAME = 100
_NOT_DIGITS = re.compile(r"\D")

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rules:
    """When the agent is spoken to in groups, and how large a file may be."""

    always: bool = False
    observe: bool = False
    largest_file: int = DEFAULT_LARGEST_FILE
    largest_sent: int = DEFAULT_LARGEST_SENT


@dataclass(frozen=True, slots=True)
class Media:
    """A file that WhatsApp keeps for us; its id leads to its bytes."""

    id: str
    kind: str
    media_type: str = "application/octet-stream"
    name: str | None = None

    @property
    def label(self) -> str:
        """What to call it: its name, else its kind."""
        return one_line(self.name or self.kind, _LONGEST_NAME)


@dataclass(frozen=True, slots=True)
class Heard:
    """One message of a person."""

    source: Source
    parts: tuple[Part, ...]
    media: Media | None = None
    replies_to: str | None = None
    is_addressed: bool = True
    extra: Json = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The words."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A person took a message back."""

    source: Source
    message_id: str


@dataclass(frozen=True, slots=True)
class Failure:
    """WhatsApp took a message of ours, and could not deliver it after all."""

    recipient: str
    delivery_id: str | None
    error: Json


Event = Heard | Withdrawn | Failure


def is_signed(body: bytes, signature: str, secret: str) -> bool:
    """Whether the raw body was signed with the app's secret."""
    made = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(f"sha256={made}".encode(), signature.encode())


def events(payload: Any, phone_number_id: str) -> Iterator[Event]:
    """What a post tells us about one of our numbers, in its order."""
    for entry in _objects(_object(payload).get("entry")):
        for change in _objects(entry.get("changes")):
            value = _object(change.get("value"))
            ours = _object(value.get("metadata"))
            if change.get("field") != "messages" or ours.get("phone_number_id") != phone_number_id:
                continue
            yield from _said(value, _digits(ours.get("display_phone_number")))
            yield from _failures(value)


def message_of(heard: Heard, file: Attachment | Text | None) -> Message:
    """What was said, with the file that came along, or with why it did not."""
    parts = heard.parts if file is None else (*heard.parts, file)
    replies = {} if heard.replies_to is None else {"replies_to": heard.replies_to}
    return Message(
        Role.USER,
        parts or (Text(""),),
        platform_message_id=heard.source.platform_message_id,
        extra={**heard.extra, **replies},
    )


def attachment_of(media: Media, data: bytes) -> Attachment:
    """The attachment that these bytes are."""
    name = None if media.name is None else media.label
    return attachment(data, media.media_type, name)


def _said(value: Json, our_number: str) -> Iterator[Heard | Withdrawn]:
    names = {_wa_id(each): each for each in _objects(value.get("contacts"))}
    for message in _objects(value.get("messages")):
        kind = _text(message.get("type")) or "unknown"
        if kind in _NOT_SAID or not _text(message.get("id")):
            continue
        contacts = list(names.values())
        known = names.get(_text(message.get("from"))) or (contacts[0] if contacts else {})
        source = _source(message, known)
        if source.chat_id is None:
            continue
        if kind == "revoke":
            taken_back = _text(_object(message.get("revoke")).get("original_message_id"))
            yield Withdrawn(source, taken_back)
        else:
            yield _heard(message, kind, source, our_number)


def _heard(message: Json, kind: str, source: Source, our_number: str) -> Heard:
    extra: dict[str, Any] = {}
    if kind == "edit":
        edit = _object(message.get("edit"))
        extra["edits"] = _text(edit.get("original_message_id"))
        message = {"context": message.get("context"), **_object(edit.get("message"))}
        kind = _text(message.get("type")) or "unknown"
    context = _object(message.get("context"))
    parts, media = _content(message, kind)
    if context.get("forwarded") or context.get("frequently_forwarded"):
        extra["forwarded"] = True
    heard = Heard(
        source,
        (Text("[an earlier message, changed to:]"), *parts) if "edits" in extra else parts,
        media,
        _text(context.get("id")) or None,
        extra=extra,
    )
    if source.chat_type == ChatType.DM:
        return heard
    is_reply = bool(our_number) and _digits(context.get("from")) == our_number
    is_named = bool(our_number) and f"@{our_number}" in heard.text
    is_command = heard.text.lstrip().startswith("/")
    return Heard(
        source,
        tuple(_unnamed(part, our_number) for part in heard.parts),
        media,
        heard.replies_to,
        is_addressed=is_reply or is_named or is_command,
        extra=extra,
    )


def _unnamed(part: Part, our_number: str) -> Part:
    """The text without our number that it begins with: `@15550100 /new` is a command."""
    if not isinstance(part, Text) or not our_number:
        return part
    return Text(re.sub(rf"^\s*@{our_number}[,:]?\s*", "", part.text, count=1))


def _source(message: Json, contact: Json) -> Source:
    phone = _text(message.get("from")) or _text(contact.get("wa_id"))
    other = _text(message.get("from_user_id")) or _text(contact.get("user_id"))
    person, group = phone or other, _text(message.get("group_id"))
    name = _text(_object(contact.get("profile")).get("name"))
    alternative = other if other != person else None
    return Source(
        PLATFORM,
        group or person,
        chat_type=ChatType.GROUP if group else ChatType.DM,
        user_id=person,
        user_name=name or None,
        user_id_alt=alternative or None,
        platform_message_id=_text(message.get("id")),
    )


def _content(message: Json, kind: str) -> tuple[tuple[Part, ...], Media | None]:
    """The parts of a message, and the file that is still to be fetched."""
    about = _object(message.get(kind))
    if kind == "text":
        return (Text(_text(about.get("body"))),), None
    if kind in _MEDIA and _text(about.get("id")):
        caption = _text(about.get("caption"))
        media = Media(
            _text(about["id"]),
            kind,
            _text(about.get("mime_type")) or "application/octet-stream",
            _text(about.get("filename")) or None,
        )
        return ((Text(caption),) if caption else ()), media
    kept = Unknown({"type": f"{PLATFORM}.{kind}", PLATFORM: dict(message)})
    return (Text(_described(kind, message, about)), kept), None


def _described(kind: str, message: Json, about: Json) -> str:
    """Words for what has none of its own; the data itself stands beside them."""
    match kind:
        case "button":
            return _text(about.get("text"))
        case "interactive":
            answer = _object(about.get(_text(about.get("type"))))
            return _text(answer.get("title")) or _text(answer.get("body")) or "[a form, filled in]"
        case "location":
            given = (about.get(name) for name in ("name", "address", "latitude", "longitude"))
            return f"[location: {_listed(given)}]"
        case "contacts":
            people = _objects(message.get("contacts"))
            names = (_object(each.get("name")).get("formatted_name") for each in people)
            return f"[contact: {_listed(names)}]"
        case _:
            return f"[a message of the kind {one_line(kind, 40)!r}, which is not shown here]"


def _listed(values: Iterator[Any]) -> str:
    return one_line(", ".join(_text(value) for value in values if value), 2 * _LONGEST_NAME)


def _failures(value: Json) -> Iterator[Failure]:
    for status in _objects(value.get("statuses")):
        if status.get("status") == "failed":
            errors = list(_objects(status.get("errors")))
            yield Failure(
                _text(status.get("recipient_id")),
                _text(status.get("biz_opaque_callback_data")) or None,
                errors[0] if errors else {},
            )


def _wa_id(contact: Json) -> str:
    return _text(contact.get("wa_id"))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _digits(value: Any) -> str:
    return _NOT_DIGITS.sub("", _text(value))


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> Iterator[Json]:
    return (
        (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())
    )
