"""Read messages from signal-cli's notifications."""

from collections.abc import Iterator
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
from sessionary.model.message import QUOTE, REPLIES_TO, Part, Text, Unknown, text_of
from sessionary.model.source import ChatType, Source
from sessionary.model.terminal import one_line

PLATFORM = "signal"
GROUP = "group:"
LONG_TEXT = "text/x-signal-plain"
EDITED = "[an earlier message, changed to:]"
_MAX_NAME = 100
_MAX_QUOTE = 300
# What a message may contain instead of text; kept as it came.
_OTHER_CONTENT = ("sticker", "contacts", "payment", "pollCreate", "pollVote", "pollTerminate")
_GROUP_CHANGES = ("UPDATE", "QUIT")


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalOptions(GroupOptions):
    """How the bot behaves."""

    largest_file: LargestFile = 16 * MEGABYTE
    largest_sent: LargestSent = 100 * MEGABYTE


@dataclass(frozen=True, slots=True)
class SignalAccount:
    """Our own account: its number, and its UUID once it is known."""

    number: str
    uuid: str | None = None

    def is_(self, number: Any, uuid: Any) -> bool:
        """Return whether a number or a UUID is ours."""
        return number == self.number or (self.uuid is not None and uuid == self.uuid)


def event(params: Json, me: SignalAccount) -> ReceivedMessage | WithdrawnMessage | None:
    """Read a notification; None for receipts, typing, calls and what our own devices sent."""
    # A subscription wraps what the automatic mode sends as it is.
    content = object_value(params.get("result")) or params
    account = content.get("account")
    envelope = object_value(content.get("envelope"))
    if account is not None and account not in (me.number, me.uuid):
        return None
    edit = object_value(envelope.get("editMessage"))
    data = object_value(edit.get("dataMessage")) or object_value(envelope.get("dataMessage"))
    if not data or me.is_(envelope.get("sourceNumber"), envelope.get("sourceUuid")):
        return None
    source = _source(envelope, data)
    if source.person is None or source.platform_message_id is None:
        return None
    if withdrawn := object_value(data.get("remoteDelete")):
        return WithdrawnMessage(source, text_value(withdrawn.get("timestamp")))
    received = _message(data, source, me)
    if received is None or not edit:
        return received
    parts = (Text(EDITED), *received.parts)
    extra = {**received.extra, "edits": text_value(edit.get("targetSentTimestamp"))}
    return replace(received, parts=parts, text=text_of(parts), extra=extra)


def problem(params: Json) -> str | None:
    """Return why signal-cli could not read a message, or None."""
    content = object_value(params.get("result")) or params
    error = object_value(content.get("exception")) or object_value(content.get("error"))
    return one_line(text_value(error.get("message")) or "no reason given", 200) if error else None


def group_of(chat_id: str) -> str | None:
    """Return the internal id of a group; None if the chat is a person."""
    return chat_id.removeprefix(GROUP) if chat_id.startswith(GROUP) else None


def _source(envelope: Json, data: Json) -> Source:
    number, uuid = text_value(envelope.get("sourceNumber")), text_value(envelope.get("sourceUuid"))
    if not number and not uuid:
        number = text_value(envelope.get("source"))
    group = object_value(data.get("groupInfo"))
    group_id = text_value(group.get("groupId"))
    sent = text_value(data.get("timestamp")) or text_value(envelope.get("timestamp"))
    person = uuid or number
    return Source(
        PLATFORM,
        f"{GROUP}{group_id}" if group_id else person,
        chat_type=ChatType.GROUP if group_id else ChatType.DM,
        chat_name=text_value(group.get("groupName")) or None,
        chat_id_alt=group_id or None,
        user_id=number or uuid,
        user_id_alt=(uuid if number else None) or None,
        user_name=text_value(envelope.get("sourceName")) or None,
        # Signal names a message by its author and time.
        platform_message_id=f"{person}/{sent}" if sent else None,
    )


def _message(data: Json, source: Source, me: SignalAccount) -> ReceivedMessage | None:
    if object_value(data.get("groupInfo")).get("type") in _GROUP_CHANGES or data.get("reaction"):
        return None
    words = _words(data, me)
    parts: list[Part] = [Text(words)] if words else []
    for kind in _OTHER_CONTENT:
        if data.get(kind):
            parts += [Text(_described(kind, data)), _kept(kind, data[kind])]
    quote = object_value(data.get("quote"))
    if quote and not words.lstrip().startswith("/"):
        parts.extend(_quoted(quote, me))
    files = tuple(_files(data))
    if data.get("viewOnce") and files:
        parts, files = [*parts, Text("[a file to be seen once, left out]")], ()
    if not parts and not files:
        return None
    extra: dict[str, Any] = {}
    if quote:
        author = text_value(quote.get("authorUuid")) or text_value(quote.get("authorNumber"))
        sent = text_value(quote.get("id"))
        is_ours = me.is_(quote.get("authorNumber"), quote.get("authorUuid"))
        # Of our own messages, Signal tells us only the time.
        extra[REPLIES_TO] = sent if is_ours else f"{author}/{sent}"
    if data.get("expiresInSeconds"):
        extra["expires_in_seconds"] = data["expiresInSeconds"]
    mentioned = any(
        me.is_(each.get("number"), each.get("uuid")) for each in object_list(data.get("mentions"))
    )
    is_reply = me.is_(quote.get("authorNumber"), quote.get("authorUuid"))
    is_command = words.lstrip().startswith("/")
    is_addressed = source.chat_type == ChatType.DM or mentioned or is_reply or is_command
    return ReceivedMessage(
        source=source,
        parts=tuple(parts),
        text=text_of(tuple(parts)),
        files=files,
        is_addressed=is_addressed,
        extra=extra,
    )


def _words(data: Json, me: SignalAccount) -> str:
    """Return the text with names for mentions; ours at the beginning is dropped, so that `/new` works."""
    units = text_value(data.get("message")).encode("utf-16-le", "surrogatepass")
    mentions = sorted(
        object_list(data.get("mentions")), key=lambda each: _whole(each.get("start")), reverse=True
    )
    for each in mentions:
        start, length = _whole(each.get("start")), _whole(each.get("length"))
        is_first = not units[: start * 2].strip(b" \x00")
        is_ours = me.is_(each.get("number"), each.get("uuid"))
        name = (
            text_value(each.get("name"))
            or text_value(each.get("number"))
            or text_value(each.get("uuid"))
        )
        shown = "" if is_ours and is_first else f"@{one_line(name, _MAX_NAME)}"
        end = units[(start + length) * 2 :]
        units = units[: start * 2] + shown.encode("utf-16-le", "surrogatepass") + end
    text = units.decode("utf-16-le", "surrogatepass")
    return text.lstrip(" ,:") if mentions and text[:1] in " ,:" else text


def _quoted(quote: Json, me: SignalAccount) -> Iterator[Text]:
    text = one_line(text_value(quote.get("text")), _MAX_QUOTE)
    if text:
        is_ours = me.is_(quote.get("authorNumber"), quote.get("authorUuid"))
        author = "you" if is_ours else text_value(quote.get("authorName")) or "someone"
        yield Text(f"(In reply to what {author} wrote: «{text}»)", extra={QUOTE: True})


def _described(kind: str, data: Json) -> str:
    match kind:
        case "sticker":
            return "[a sticker]"
        case "contacts":
            people = [object_value(each.get("name")) for each in object_list(data.get(kind))]
            names = (
                text_value(each.get("display")) or text_value(each.get("given")) for each in people
            )
            return f"[contact: {one_line(', '.join(names), 200)}]"
        case "pollCreate":
            return f"[a poll: {one_line(text_value(object_value(data.get(kind)).get('question')), 200)}]"
        case _:
            return f"[a message of the kind {kind!r}, which is not shown here]"


def _kept(kind: str, value: Any) -> Unknown:
    return Unknown({"type": f"{PLATFORM}.{kind.lower()}", PLATFORM: value})


def _files(data: Json) -> Iterator[IncomingFile]:
    for each in object_list(data.get("attachments")):
        size, name = each.get("size"), text_value(each.get("filename"))
        yield IncomingFile(
            text_value(each.get("id")),
            one_line(name, _MAX_NAME) if name else None,
            text_value(each.get("contentType")) or BYTES,
            size if isinstance(size, int) else None,
        )


def _whole(value: Any) -> int:
    return max(0, value) if isinstance(value, int) else 0
