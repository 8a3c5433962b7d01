"""Read messages from a room's events."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from sessionary.channels.base import GroupOptions, LargestFileBytes, LargestSent, ReceivedMessage
from sessionary.channels.files import BYTES, MEGABYTE, IncomingFile
from sessionary.config.setting import Setting
from sessionary.model.message import REPLIES_TO, Part, Text
from sessionary.model.source import ChatType, Source
from sessionary.model.terminal import one_line

PLATFORM = "matrix"
_MEDIA = frozenset({"m.image", "m.file", "m.audio", "m.video"})
_TEXTS = frozenset({"m.text", "m.emote"})
_MAX_TEXT = 65_536

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MatrixRoom:
    """What is known of a room when a message comes from it."""

    id: str
    name: str | None = None
    topic: str | None = None
    is_direct: bool = False


@dataclass(frozen=True, slots=True)
class MatrixBot:
    """The bot's own id and name."""

    id: str
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixOptions(GroupOptions):
    """How the bot behaves."""

    invites_from: Annotated[
        frozenset[str], Setting("whose invitations are accepted: ids, or *:server")
    ] = frozenset()
    largest_file: LargestFileBytes = 10 * MEGABYTE
    largest_sent: LargestSent = 50 * MEGABYTE

    def may_invite(self, person: str) -> bool:
        """Return whether an invitation of this person is accepted; `*:server` means everyone there."""
        server = person.partition(":")[2]
        return bool({person, f"*:{server}"} & self.invites_from)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixMessage:
    """The fields of a message event."""

    event_id: str
    sender: str
    words: str
    thread: str | None
    answers: str | None
    corrects: str | None
    mentions: frozenset[str]
    file: IncomingFile | None


def read(event: Event, me: MatrixBot) -> MatrixMessage | None:
    """Return a person's message; None for everything else, and for our own and other bots' messages."""
    content = event.get("content")
    if event.get("type") != "m.room.message" or not isinstance(content, Mapping):
        return None
    kind, sender, event_id = content.get("msgtype"), event.get("sender"), event.get("event_id")
    if kind not in _TEXTS | _MEDIA or sender == me.id:
        return None
    if not isinstance(sender, str) or not isinstance(event_id, str):
        return None
    relation = _table(content, "m.relates_to")
    corrects = _text(relation, "event_id") if relation.get("rel_type") == "m.replace" else None
    current = _table(content, "m.new_content") if corrects else content
    is_thread = relation.get("rel_type") == "m.thread"
    return MatrixMessage(
        event_id=event_id,
        sender=sender,
        words=_words(current),
        thread=_text(relation, "event_id") if is_thread else None,
        answers=_answered(relation, is_thread=is_thread),
        corrects=corrects,
        mentions=_mentions(current),
        file=_file(content) if kind in _MEDIA else None,
    )


def is_encrypted(event: Event) -> bool:
    """Return whether only the devices in the room can read this message."""
    return event.get("type") == "m.room.encrypted"


def unread(events: Sequence[Event], me: MatrixBot) -> list[Event]:
    """Return the events of a newly joined room since we were invited or last wrote there."""
    begin = 0
    for index, event in enumerate(events):
        is_ours = event.get("sender") == me.id and event.get("type") == "m.room.message"
        if is_ours or _admits_us(event, me):
            begin = index + 1
    return list(events[begin:])


def has_our_join(events: Sequence[Event], me: MatrixBot) -> bool:
    """Return whether we joined the room in these events."""
    return any(_is_our_join(event, me) for event in events)


def is_addressed(
    message: MatrixMessage, room: MatrixRoom, me: MatrixBot, options: MatrixOptions
) -> bool:
    """Return whether a message is for the agent; a reply to one of its messages is for the caller to know."""
    if room.is_direct or options.always or message.words.startswith("/"):
        return True
    return me.id in message.mentions or me.id in message.words or _names(message.words, me)


def source_of(message: MatrixMessage, room: MatrixRoom, name: str | None) -> Source:
    """Return where a message came from."""
    in_group = ChatType.THREAD if message.thread else ChatType.GROUP
    return Source(
        PLATFORM,
        room.id,
        chat_type=ChatType.DM if room.is_direct else in_group,
        chat_name=None if room.is_direct else room.name,
        chat_topic=room.topic,
        thread_id=message.thread,
        user_id=message.sender,
        user_name=name,
        platform_message_id=message.event_id,
    )


def received(
    message: MatrixMessage,
    room: MatrixRoom,
    me: MatrixBot,
    *,
    name: str | None,
    is_addressed: bool,
) -> ReceivedMessage:
    """Return the message with the sender's name."""
    return ReceivedMessage(
        source=source_of(message, room, name),
        parts=parts_of(message, me),
        text=message.words,
        files=() if message.file is None else (message.file,),
        is_addressed=is_addressed,
        extra={} if message.answers is None else {REPLIES_TO: message.answers},
    )


def parts_of(message: MatrixMessage, me: MatrixBot) -> tuple[Part, ...]:
    """Return the text of a message without the bot's name at its beginning."""
    parts: list[Part] = []
    if message.corrects is not None:
        parts.append(Text("(An earlier message, corrected:)", extra={"edits": message.corrects}))
    words = _without_address(message.words, me)
    if words or message.file is None:
        parts.append(Text(words))
    return tuple(parts)


def _words(content: Mapping[str, Any]) -> str:
    body = (_text(content, "body") or "")[:_MAX_TEXT]
    name = _text(content, "filename")
    if content.get("msgtype") in _MEDIA:
        # The body is a caption only if the file has a name of its own.
        return body if name is not None and name != body else ""
    if _table(_table(content, "m.relates_to"), "m.in_reply_to") and body.startswith("> "):
        # Older clients quote the message above their reply to it.
        quoted, _, rest = body.partition("\n\n")
        if all(line.startswith(">") for line in quoted.split("\n")):
            return rest
    return body


def _without_address(words: str, me: MatrixBot) -> str:
    names = "|".join(re.escape(each) for each in (me.name, _local(me.id)) if each)
    # The whole id comes first, because it begins with the short name.
    begin = re.compile(
        rf"^\s*(?:{re.escape(me.id)}|@?(?:{names}))(?:[:,]\s*|\s+(?=/)|$)", re.IGNORECASE
    )
    return begin.sub("", words, count=1)


def _names(words: str, me: MatrixBot) -> bool:
    return _without_address(words, me) != words


def _local(user_id: str) -> str:
    return user_id[1:].partition(":")[0]


def _mentions(content: Mapping[str, Any]) -> frozenset[str]:
    named = _table(content, "m.mentions").get("user_ids")
    found = {each for each in named if isinstance(each, str)} if isinstance(named, list) else set()
    linked = re.findall(
        r"https://matrix\.to/#/(@[^\"'?\s]+)", _text(content, "formatted_body") or ""
    )
    return frozenset(found | set(linked))


def _answered(relation: Mapping[str, Any], *, is_thread: bool) -> str | None:
    """Return the message that is answered; in a thread the last one is named for clients without threads."""
    if is_thread and relation.get("is_falling_back"):
        return None
    return _text(_table(relation, "m.in_reply_to"), "event_id")


def _file(content: Mapping[str, Any]) -> IncomingFile | None:
    url = _text(content, "url")
    if url is None or not url.startswith("mxc://"):
        return None
    info = _table(content, "info")
    size = info.get("size")
    name = _text(content, "filename") or _text(content, "body") or "file"
    return IncomingFile(
        url,
        one_line(name.replace("\\", "/").rpartition("/")[2], 100) or "file",
        one_line(_text(info, "mimetype") or BYTES, 100),
        size if type(size) is int and size >= 0 else 0,
    )


def _admits_us(event: Event, me: MatrixBot) -> bool:
    """Return whether this is our invitation, or our join without one: what comes after it is new to us."""
    if not _is_about_us(event, me):
        return False
    membership = _table(event, "content").get("membership")
    before = _table(_table(event, "unsigned"), "prev_content").get("membership")
    return membership == "invite" or (membership == "join" and before not in ("invite", "join"))


def _is_our_join(event: Event, me: MatrixBot) -> bool:
    return _is_about_us(event, me) and _table(event, "content").get("membership") == "join"


def _is_about_us(event: Event, me: MatrixBot) -> bool:
    return event.get("type") == "m.room.member" and event.get("state_key") == me.id


def _table(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name)
    return value if isinstance(value, Mapping) else {}


def _text(data: Mapping[str, Any], name: str) -> str | None:
    value = data.get(name)
    return value if isinstance(value, str) and value else None
