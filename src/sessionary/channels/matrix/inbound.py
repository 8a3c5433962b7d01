"""From what Matrix says to what the house hears. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sessionary.channels.files import File
from sessionary.model.message import Part, Text
from sessionary.model.source import ChatType, Source
from sessionary.model.terminal import one_line

PLATFORM = "matrix"
DEFAULT_LARGEST_FILE = 10 * 1024 * 1024
DEFAULT_LARGEST_SENT = 50 * 1024 * 1024
_MEDIA = frozenset({"m.image", "m.file", "m.audio", "m.video"})
_TEXTS = frozenset({"m.text", "m.emote"})
_LONGEST_TEXT = 65_536

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Room:
    """What is known of a room as a message comes from it."""

    id: str
    name: str | None = None
    topic: str | None = None
    is_direct: bool = False


@dataclass(frozen=True, slots=True)
class Me:
    """The bot's own id and name."""

    id: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """When the agent is spoken to, and what is done with the rest."""

    always: bool = False
    observe: bool = False
    invites_from: frozenset[str] = frozenset()
    largest_file: int = DEFAULT_LARGEST_FILE
    largest_sent: int = DEFAULT_LARGEST_SENT

    def may_invite(self, person: str) -> bool:
        """Whether an invitation of this person is accepted; `*:server` stands for all there."""
        server = person.partition(":")[2]
        return bool({person, f"*:{server}"} & self.invites_from)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A message, taken apart."""

    event_id: str
    sender: str
    words: str
    thread: str | None
    answers: str | None
    corrects: str | None
    mentions: frozenset[str]
    file: File | None


def read(event: Event, me: Me) -> Heard | None:
    """What someone said; None for everything else, and for what other bots and we say."""
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
    said = _table(content, "m.new_content") if corrects else content
    is_thread = relation.get("rel_type") == "m.thread"
    return Heard(
        event_id=event_id,
        sender=sender,
        words=_words(said),
        thread=_text(relation, "event_id") if is_thread else None,
        answers=_answered(relation, is_thread=is_thread),
        corrects=corrects,
        mentions=_mentions(said),
        file=_file(content) if kind in _MEDIA else None,
    )


def is_encrypted(event: Event) -> bool:
    """Whether this is a message that only the devices of the room can read."""
    return event.get("type") == "m.room.encrypted"


def fresh(events: Sequence[Event], me: Me) -> list[Event]:
    """Of a room that was not followed until now: what came since we were invited or last spoke."""
    begin = 0
    for index, event in enumerate(events):
        is_ours = event.get("sender") == me.id and event.get("type") == "m.room.message"
        if is_ours or _lets_us_in(event, me):
            begin = index + 1
    return list(events[begin:])


def joined_itself(events: Sequence[Event], me: Me) -> bool:
    """Whether these events show how we came into the room."""
    return any(_is_our_join(event, me) for event in events)


def is_addressed(heard: Heard, room: Room, me: Me, rules: Rules) -> bool:
    """Whether this is said to the agent; an answer to its own message is the caller's to know."""
    if room.is_direct or rules.always or heard.words.startswith("/"):
        return True
    return me.id in heard.mentions or me.id in heard.words or _names(heard.words, me)


def source_of(heard: Heard, room: Room, name: str | None) -> Source:
    """Where a message came from."""
    in_group = ChatType.THREAD if heard.thread else ChatType.GROUP
    return Source(
        PLATFORM,
        room.id,
        chat_type=ChatType.DM if room.is_direct else in_group,
        chat_name=None if room.is_direct else room.name,
        chat_topic=room.topic,
        thread_id=heard.thread,
        user_id=heard.sender,
        user_name=name,
        platform_message_id=heard.event_id,
    )


def parts_of(heard: Heard, me: Me) -> tuple[Part, ...]:
    """The words of a message, without the name of the bot that they begin with."""
    parts: list[Part] = []
    if heard.corrects is not None:
        parts.append(Text("(An earlier message, corrected:)", extra={"edits": heard.corrects}))
    words = _without_address(heard.words, me)
    if words or heard.file is None:
        parts.append(Text(words))
    return tuple(parts)


def _words(content: Mapping[str, Any]) -> str:
    body = (_text(content, "body") or "")[:_LONGEST_TEXT]
    name = _text(content, "filename")
    if content.get("msgtype") in _MEDIA:
        # A caption stands in the body only beside a file name of its own.
        return body if name is not None and name != body else ""
    if _table(_table(content, "m.relates_to"), "m.in_reply_to") and body.startswith("> "):
        # Older programs repeat what they answer above the answer.
        quoted, _, rest = body.partition("\n\n")
        if all(line.startswith(">") for line in quoted.split("\n")):
            return rest
    return body


def _without_address(words: str, me: Me) -> str:
    names = "|".join(re.escape(each) for each in (me.name, _local(me.id)) if each)
    # The whole id comes first: its beginning is the short name, and then a colon.
    begin = re.compile(
        rf"^\s*(?:{re.escape(me.id)}|@?(?:{names}))(?:[:,]\s*|\s+(?=/)|$)", re.IGNORECASE
    )
    return begin.sub("", words, count=1)


def _names(words: str, me: Me) -> bool:
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
    """What is answered; in a thread the last message is named for programs without threads."""
    if is_thread and relation.get("is_falling_back"):
        return None
    return _text(_table(relation, "m.in_reply_to"), "event_id")


def _file(content: Mapping[str, Any]) -> File | None:
    url = _text(content, "url")
    if url is None or not url.startswith("mxc://"):
        return None
    info = _table(content, "info")
    size = info.get("size")
    name = _text(content, "filename") or _text(content, "body") or "file"
    return File(
        one_line(name.replace("\\", "/").rpartition("/")[2], 100) or "file",
        size if type(size) is int and size >= 0 else 0,
        url,
        one_line(_text(info, "mimetype") or "application/octet-stream", 100),
    )


def _lets_us_in(event: Event, me: Me) -> bool:
    """An invitation, or our joining without one: what was said between the two is to us too."""
    if not _is_about_us(event, me):
        return False
    membership = _table(event, "content").get("membership")
    before = _table(_table(event, "unsigned"), "prev_content").get("membership")
    return membership == "invite" or (membership == "join" and before not in ("invite", "join"))


def _is_our_join(event: Event, me: Me) -> bool:
    return _is_about_us(event, me) and _table(event, "content").get("membership") == "join"


def _is_about_us(event: Event, me: Me) -> bool:
    return event.get("type") == "m.room.member" and event.get("state_key") == me.id


def _table(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name)
    return value if isinstance(value, Mapping) else {}


def _text(data: Mapping[str, Any], name: str) -> str | None:
    value = data.get(name)
    return value if isinstance(value, str) and value else None
