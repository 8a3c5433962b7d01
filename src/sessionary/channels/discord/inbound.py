"""From what Discord says to what the house hears. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sessionary.channels.files import MEGABYTE, File
from sessionary.model.message import Message, Part, Role, Text
from sessionary.model.source import ChatType, Source

PLATFORM = "discord"
DEFAULT_LARGEST_FILE = 10 * MEGABYTE
# Discord takes about five messages or edits in five seconds in a channel.
SHOW_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was said; without a guild it is a direct message."""

    channel_id: str
    channel_name: str | None = None
    topic: str | None = None
    parent_id: str | None = None
    guild_id: str | None = None
    guild_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A message or a slash command, as the gateway told of it."""

    message_id: str
    place: Place
    text: str
    author_id: str
    author_name: str | None = None
    author_is_bot: bool = False
    mentions: frozenset[str] = frozenset()
    replies_to: str | None = None
    files: tuple[File, ...] = ()
    is_command: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """A connection began that goes on with none before it: something may have been missed."""


@dataclass(frozen=True, slots=True)
class Rules:
    """When the agent is spoken to, and what is done with the rest."""

    always: bool = False
    always_in: frozenset[str] = frozenset()
    observe: bool = False
    commands: bool = True
    largest_file: int = DEFAULT_LARGEST_FILE
    largest_sent: int = DEFAULT_LARGEST_FILE
    stream: bool = False
    show_seconds: float = SHOW_SECONDS


@dataclass(frozen=True, slots=True)
class Me:
    """The bot's own ids: its account, and the roles that stand for it alone."""

    id: str
    roles: frozenset[str] = frozenset()


def source_of(heard: Heard) -> Source:
    """Where a message came from. A thread belongs to the channel that it hangs on."""
    place = heard.place
    is_dm = place.guild_id is None
    is_thread = place.parent_id is not None
    extra: Mapping[str, Any] = {} if is_dm else {"guild_id": place.guild_id}
    return Source(
        PLATFORM,
        place.parent_id or place.channel_id,
        chat_type=_chat_type(is_dm=is_dm, is_thread=is_thread),
        chat_name=_chat_name(place),
        chat_topic=place.topic,
        thread_id=place.channel_id if is_thread else None,
        user_id=heard.author_id,
        user_name=heard.author_name,
        platform_message_id=heard.message_id,
        extra=extra,
    )


def is_ignored(heard: Heard, me: Me) -> bool:
    """Our own messages, and other bots': two that answer each other never stop."""
    return heard.author_is_bot or heard.author_id == me.id


def is_addressed(heard: Heard, me: Me, rules: Rules) -> bool:
    """Whether this is said to the agent."""
    if heard.place.guild_id is None or heard.is_command or rules.always:
        return True
    if {heard.place.channel_id, heard.place.parent_id} & rules.always_in:
        return True
    return bool(heard.mentions & {me.id, *me.roles}) or heard.replies_to == me.id


def message_of(heard: Heard, me: Me, files: tuple[Part, ...] = ()) -> Message:
    """What was said, and what came with it."""
    words = words_of(heard, me)
    said: tuple[Part, ...] = (Text(words),) if words or not files else ()
    return Message(Role.USER, said + files, platform_message_id=heard.message_id)


def words_of(heard: Heard, me: Me) -> str:
    """The text without the mention of the bot that it begins with: `@bot /new` is a command."""
    ids = "|".join(re.escape(each) for each in sorted({me.id, *me.roles}))
    begin = re.compile(rf"^\s*<@[!&]?(?:{ids})>[,:]?\s*")
    return begin.sub("", heard.text, count=1)


def _chat_type(*, is_dm: bool, is_thread: bool) -> ChatType:
    if is_dm:
        return ChatType.DM
    return ChatType.THREAD if is_thread else ChatType.CHANNEL


def _chat_name(place: Place) -> str | None:
    if place.guild_id is None:
        return None
    names = [place.guild_name, f"#{place.channel_name}" if place.channel_name else None]
    return " ".join(name for name in names if name) or None
