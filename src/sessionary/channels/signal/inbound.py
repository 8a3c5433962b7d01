"""From what signal-cli tells us to what the house hears. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sessionary.channels.files import attachment
from sessionary.model.message import Message, Part, Role, Text, Unknown
from sessionary.model.source import ChatType, Source
from sessionary.model.terminal import one_line

PLATFORM = "signal"
GROUP = "group:"
DEFAULT_LARGEST_FILE = 16 * 1024 * 1024
DEFAULT_LARGEST_SENT = 100 * 1024 * 1024
LONG_TEXT = "text/x-signal-plain"
EDITED = "[an earlier message, changed to:]"
_LONGEST_NAME = 100
_LONGEST_QUOTE = 300
# What a message may be instead of words; kept as it came.
_WORDLESS = ("sticker", "contacts", "payment", "pollCreate", "pollVote", "pollTerminate")
_SAYS_NOTHING = ("UPDATE", "QUIT")

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rules:
    """When the agent is spoken to in groups, and how large a file may be."""

    always: bool = False
    observe: bool = False
    largest_file: int = DEFAULT_LARGEST_FILE
    largest_sent: int = DEFAULT_LARGEST_SENT


@dataclass(frozen=True, slots=True)
class Me:
    """Our own account: its number, and its UUID once it is known."""

    number: str
    uuid: str | None = None

    def is_(self, number: Any, uuid: Any) -> bool:
        """Whether a number or a UUID is ours."""
        return number == self.number or (self.uuid is not None and uuid == self.uuid)


@dataclass(frozen=True, slots=True)
class File:
    """A file that signal-cli keeps for us."""

    id: str
    size: int | None
    media_type: str = "application/octet-stream"
    name: str | None = None

    @property
    def label(self) -> str:
        """What to call it: its name, else its type."""
        return one_line(self.name or self.media_type, _LONGEST_NAME)


@dataclass(frozen=True, slots=True)
class Heard:
    """One message of a person."""

    source: Source
    parts: tuple[Part, ...]
    files: tuple[File, ...] = ()
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
    timestamp: str


def event(params: Json, me: Me) -> Heard | Withdrawn | None:
    """What a notification tells us; None for receipts, typing, calls and our own devices' news."""
    # A subscription wraps what the automatic mode tells plainly.
    told = _object(params.get("result")) or params
    account = told.get("account")
    envelope = _object(told.get("envelope"))
    if account is not None and account not in (me.number, me.uuid):
        return None
    edit = _object(envelope.get("editMessage"))
    data = _object(edit.get("dataMessage")) or _object(envelope.get("dataMessage"))
    if not data or me.is_(envelope.get("sourceNumber"), envelope.get("sourceUuid")):
        return None
    source = _source(envelope, data)
    if source.person is None or source.platform_message_id is None:
        return None
    if withdrawn := _object(data.get("remoteDelete")):
        return Withdrawn(source, _text(withdrawn.get("timestamp")))
    heard = _heard(data, source, me)
    if heard is None or not edit:
        return heard
    of = _text(edit.get("targetSentTimestamp"))
    parts = (Text(EDITED), *heard.parts)
    return Heard(source, parts, heard.files, heard.is_addressed, {**heard.extra, "edits": of})


def trouble(params: Json) -> str | None:
    """What signal-cli could not read, or None."""
    told = _object(params.get("result")) or params
    error = _object(told.get("exception")) or _object(told.get("error"))
    return one_line(_text(error.get("message")) or "no reason given", 200) if error else None


def message_of(heard: Heard, files: tuple[Part, ...]) -> Message:
    """What was said, with the files that came along, or with why they did not."""
    return Message(
        Role.USER,
        (*heard.parts, *files),
        platform_message_id=heard.source.platform_message_id,
        extra=heard.extra,
    )


def attachment_of(file: File, data: bytes) -> Part:
    """The part that these bytes are: a long text comes as a file too."""
    if file.media_type == LONG_TEXT:
        return Text(data.decode("utf-8", "replace"))
    name = None if file.name is None else file.label
    return attachment(data, file.media_type, name)


def group_of(chat_id: str) -> str | None:
    """The internal id of the group that a chat is, or None for a person."""
    return chat_id.removeprefix(GROUP) if chat_id.startswith(GROUP) else None


def _source(envelope: Json, data: Json) -> Source:
    number, uuid = _text(envelope.get("sourceNumber")), _text(envelope.get("sourceUuid"))
    if not number and not uuid:
        number = _text(envelope.get("source"))
    group = _object(data.get("groupInfo"))
    group_id = _text(group.get("groupId"))
    sent = _text(data.get("timestamp")) or _text(envelope.get("timestamp"))
    person = uuid or number
    return Source(
        PLATFORM,
        f"{GROUP}{group_id}" if group_id else person,
        chat_type=ChatType.GROUP if group_id else ChatType.DM,
        chat_name=_text(group.get("groupName")) or None,
        chat_id_alt=group_id or None,
        user_id=number or uuid,
        user_id_alt=(uuid if number else None) or None,
        user_name=_text(envelope.get("sourceName")) or None,
        # The time at which someone wrote is all that names a message here.
        platform_message_id=f"{person}/{sent}" if sent else None,
    )


def _heard(data: Json, source: Source, me: Me) -> Heard | None:
    if _object(data.get("groupInfo")).get("type") in _SAYS_NOTHING or data.get("reaction"):
        return None
    words = _words(data, me)
    parts: list[Part] = [Text(words)] if words else []
    for kind in _WORDLESS:
        if data.get(kind):
            parts += [Text(_described(kind, data)), _kept(kind, data[kind])]
    quote = _object(data.get("quote"))
    if quote and not words.lstrip().startswith("/"):
        parts.extend(_quoted(quote, me))
    files = tuple(_files(data))
    if data.get("viewOnce") and files:
        parts, files = [*parts, Text("[a file to be seen once, left out]")], ()
    if not parts and not files:
        return None
    extra: dict[str, Any] = {}
    if quote:
        author = _text(quote.get("authorUuid")) or _text(quote.get("authorNumber"))
        extra["replies_to"] = f"{author}/{_text(quote.get('id'))}"
    if data.get("expiresInSeconds"):
        extra["expires_in_seconds"] = data["expiresInSeconds"]
    mentioned = any(me.is_(each.get("number"), each.get("uuid")) for each in _mentions(data))
    is_reply = me.is_(quote.get("authorNumber"), quote.get("authorUuid"))
    is_command = words.lstrip().startswith("/")
    is_addressed = source.chat_type == ChatType.DM or mentioned or is_reply or is_command
    return Heard(source, tuple(parts), files, is_addressed, extra)


def _words(data: Json, me: Me) -> str:
    """The text with names where it mentions people; our own in front goes, so that `/new` works."""
    units = _text(data.get("message")).encode("utf-16-le", "surrogatepass")
    mentions = sorted(_mentions(data), key=lambda each: _whole(each.get("start")), reverse=True)
    for each in mentions:
        start, length = _whole(each.get("start")), _whole(each.get("length"))
        is_first = not units[: start * 2].strip(b" \x00")
        is_ours = me.is_(each.get("number"), each.get("uuid"))
        name = _text(each.get("name")) or _text(each.get("number")) or _text(each.get("uuid"))
        shown = "" if is_ours and is_first else f"@{one_line(name, _LONGEST_NAME)}"
        end = units[(start + length) * 2 :]
        units = units[: start * 2] + shown.encode("utf-16-le", "surrogatepass") + end
    text = units.decode("utf-16-le", "surrogatepass")
    return text.lstrip(" ,:") if mentions and text[:1] in " ,:" else text


def _quoted(quote: Json, me: Me) -> Iterator[Text]:
    said = one_line(_text(quote.get("text")), _LONGEST_QUOTE)
    if said:
        is_ours = me.is_(quote.get("authorNumber"), quote.get("authorUuid"))
        author = "you" if is_ours else _text(quote.get("authorName")) or "someone"
        yield Text(f"(In reply to what {author} wrote: «{said}»)")


def _described(kind: str, data: Json) -> str:
    match kind:
        case "sticker":
            return "[a sticker]"
        case "contacts":
            people = [_object(each.get("name")) for each in _objects(data.get(kind))]
            names = (_text(each.get("display")) or _text(each.get("given")) for each in people)
            return f"[contact: {one_line(', '.join(names), 200)}]"
        case "pollCreate":
            return f"[a poll: {one_line(_text(_object(data.get(kind)).get('question')), 200)}]"
        case _:
            return f"[a message of the kind {kind!r}, which is not shown here]"


def _kept(kind: str, value: Any) -> Unknown:
    return Unknown({"type": f"{PLATFORM}.{kind.lower()}", PLATFORM: value})


def _files(data: Json) -> Iterator[File]:
    for each in _objects(data.get("attachments")):
        size = each.get("size")
        yield File(
            _text(each.get("id")),
            size if isinstance(size, int) else None,
            _text(each.get("contentType")) or "application/octet-stream",
            _text(each.get("filename")) or None,
        )


def _mentions(data: Json) -> list[Json]:
    return list(_objects(data.get("mentions")))


def _whole(value: Any) -> int:
    return max(0, value) if isinstance(value, int) else 0


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> Iterator[Json]:
    return (
        (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())
    )
