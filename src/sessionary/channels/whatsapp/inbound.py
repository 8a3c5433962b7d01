"""Read messages, presses of buttons and failures from what WhatsApp posts, and check its signatures."""

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from sessionary.channels.base import (
    GroupOptions,
    Json,
    LargestFile,
    LargestSent,
    ReceivedMessage,
    WithdrawnMessage,
    object_list,
    object_value,
    text_value,
)
from sessionary.channels.files import BYTES, MEGABYTE, IncomingFile
from sessionary.model.message import FORWARDED, REPLIES_TO, Part, Text, Unknown, text_of
from sessionary.model.question import read_button
from sessionary.model.source import ChatType, Source
from sessionary.model.terminal import one_line

PLATFORM = "whatsapp"
_MEDIA = ("image", "audio", "video", "document", "sticker")
# Reactions and notices of WhatsApp itself need no answer.
_NOT_ANSWERED = ("reaction", "system")
_PRESSES = ("button_reply", "list_reply")
_MAX_NAME = 100
_NOT_DIGITS = re.compile(r"\D")


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatsAppOptions(GroupOptions):
    """How the bot behaves."""

    largest_file: LargestFile = 16 * MEGABYTE
    largest_sent: LargestSent = 16 * MEGABYTE


@dataclass(frozen=True, slots=True)
class FailedDelivery:
    """WhatsApp accepted a message of ours, and could not deliver it after all."""

    recipient: str
    delivery_id: str | None
    error: Json


@dataclass(frozen=True, slots=True)
class ButtonReply:
    """A person pressed a button of a question, or chose a row of its list."""

    source: Source
    data: str


Event = ReceivedMessage | WithdrawnMessage | ButtonReply | FailedDelivery


def is_signed(body: bytes, signature: str, secret: str) -> bool:
    """Return whether the raw body was signed with the app's secret."""
    made = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(f"sha256={made}".encode(), signature.encode())


def events(payload: Any, phone_number_id: str) -> Iterator[Event]:
    """Yield what a post says about one of our numbers, in its order."""
    for entry in object_list(object_value(payload).get("entry")):
        for change in object_list(entry.get("changes")):
            value = object_value(change.get("value"))
            ours = object_value(value.get("metadata"))
            if change.get("field") != "messages" or ours.get("phone_number_id") != phone_number_id:
                continue
            yield from _messages(value, _digits(ours.get("display_phone_number")))
            yield from _failures(value)


def _messages(
    value: Json, our_number: str
) -> Iterator[ReceivedMessage | WithdrawnMessage | ButtonReply]:
    names = {text_value(each.get("wa_id")): each for each in object_list(value.get("contacts"))}
    for message in object_list(value.get("messages")):
        kind = text_value(message.get("type")) or "unknown"
        if kind in _NOT_ANSWERED or not text_value(message.get("id")):
            continue
        contacts = list(names.values())
        known = names.get(text_value(message.get("from"))) or (contacts[0] if contacts else {})
        source = _source(message, known)
        if source.chat_id is None:
            continue
        if kind == "revoke":
            withdrawn = text_value(object_value(message.get("revoke")).get("original_message_id"))
            yield WithdrawnMessage(source, withdrawn)
        elif (data := _pressed(message, kind)) is not None:
            yield ButtonReply(source, data)
        else:
            yield _message(message, kind, source, our_number)


def _pressed(message: Json, kind: str) -> str | None:
    """Return what the button or the row of a question carries; None if this is not the press of one."""
    if kind != "interactive" or _is_forwarded(message):
        return None
    about = object_value(message.get(kind))
    form = text_value(about.get("type"))
    data = text_value(object_value(about.get(form)).get("id")) if form in _PRESSES else ""
    return None if read_button(data) is None else data


def _is_forwarded(message: Json) -> bool:
    context = object_value(message.get("context"))
    return bool(context.get("forwarded") or context.get("frequently_forwarded"))


def _message(message: Json, kind: str, source: Source, our_number: str) -> ReceivedMessage:
    extra: dict[str, Any] = {}
    if kind == "edit":
        edit = object_value(message.get("edit"))
        extra["edits"] = text_value(edit.get("original_message_id"))
        message = {"context": message.get("context"), **object_value(edit.get("message"))}
        kind = text_value(message.get("type")) or "unknown"
    context = object_value(message.get("context"))
    parts, files = _content(message, kind)
    if _is_forwarded(message):
        # Nobody has typed it here: it answers no question.
        extra[FORWARDED] = True
    if replied := text_value(context.get("id")):
        extra[REPLIES_TO] = replied
    if "edits" in extra:
        parts = (Text("[an earlier message, changed to:]"), *parts)
    text = text_of(parts)
    received = ReceivedMessage(source=source, parts=parts, text=text, files=files, extra=extra)
    if source.chat_type == ChatType.DM:
        return received
    is_reply = bool(our_number) and _digits(context.get("from")) == our_number
    is_named = bool(our_number) and f"@{our_number}" in text
    parts = tuple(_unnamed(part, our_number) for part in parts)
    is_addressed = is_reply or is_named or text.lstrip().startswith("/")
    return replace(received, parts=parts, text=text_of(parts), is_addressed=is_addressed)


def _unnamed(part: Part, our_number: str) -> Part:
    """Return the text without our number at its beginning: `@15550100 /new` is a command."""
    if not isinstance(part, Text) or not our_number:
        return part
    return Text(re.sub(rf"^\s*@{our_number}[,:]?\s*", "", part.text, count=1))


def _source(message: Json, contact: Json) -> Source:
    phone = text_value(message.get("from")) or text_value(contact.get("wa_id"))
    other = text_value(message.get("from_user_id")) or text_value(contact.get("user_id"))
    person, group = phone or other, text_value(message.get("group_id"))
    name = text_value(object_value(contact.get("profile")).get("name"))
    alternative = other if other != person else None
    return Source(
        PLATFORM,
        group or person,
        chat_type=ChatType.GROUP if group else ChatType.DM,
        user_id=person,
        user_name=name or None,
        user_id_alt=alternative or None,
        platform_message_id=text_value(message.get("id")),
    )


def _content(message: Json, kind: str) -> tuple[tuple[Part, ...], tuple[IncomingFile, ...]]:
    """Return the parts of a message, and the file that is still to be fetched."""
    about = object_value(message.get(kind))
    if kind == "text":
        return (Text(text_value(about.get("body"))),), ()
    if kind in _MEDIA and text_value(about.get("id")):
        caption = text_value(about.get("caption"))
        name = text_value(about.get("filename"))
        file = IncomingFile(
            text_value(about["id"]),
            one_line(name, _MAX_NAME) if name else None,
            text_value(about.get("mime_type")) or BYTES,
            kind=kind,
        )
        return ((Text(caption),) if caption else ()), (file,)
    kept = Unknown({"type": f"{PLATFORM}.{kind}", PLATFORM: dict(message)})
    return (Text(_described(kind, message, about)), kept), ()


def _described(kind: str, message: Json, about: Json) -> str:
    """Describe what has no text; the data itself is kept beside it."""
    match kind:
        case "button":
            return text_value(about.get("text"))
        case "interactive":
            answer = object_value(about.get(text_value(about.get("type"))))
            return (
                text_value(answer.get("title"))
                or text_value(answer.get("body"))
                or "[a form, filled in]"
            )
        case "location":
            given = (about.get(name) for name in ("name", "address", "latitude", "longitude"))
            return f"[location: {_listed(given)}]"
        case "contacts":
            people = object_list(message.get("contacts"))
            names = (object_value(each.get("name")).get("formatted_name") for each in people)
            return f"[contact: {_listed(names)}]"
        case _:
            return f"[a message of the kind {one_line(kind, 40)!r}, which is not shown here]"


def _listed(values: Iterable[Any]) -> str:
    return one_line(", ".join(text_value(value) for value in values if value), 2 * _MAX_NAME)


def _failures(value: Json) -> Iterator[FailedDelivery]:
    for status in object_list(value.get("statuses")):
        if status.get("status") == "failed":
            errors = object_list(status.get("errors"))
            yield FailedDelivery(
                text_value(status.get("recipient_id")),
                text_value(status.get("biz_opaque_callback_data")) or None,
                errors[0] if errors else {},
            )


def _digits(value: Any) -> str:
    return _NOT_DIGITS.sub("", text_value(value))
