"""Read messages from what Discord's gateway delivers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from sessionary.channels.base import GroupOptions, LargestFile, LargestSent, ReceivedMessage, Stream
from sessionary.channels.files import MEGABYTE, IncomingFile
from sessionary.config.setting import Setting
from sessionary.model.message import FORWARDED, REPLIES_TO, Text
from sessionary.model.source import ChatType, Source

PLATFORM = "discord"
FORWARDED_NOTE = "(A forwarded message:)"


@dataclass(frozen=True, slots=True)
class DiscordPlace:
    """Where a message was written; without a guild it is a direct message."""

    channel_id: str
    channel_name: str | None = None
    topic: str | None = None
    parent_id: str | None = None
    guild_id: str | None = None
    guild_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscordMessage:
    """A message, a slash command or the press of a button, as the gateway delivered it."""

    message_id: str
    place: DiscordPlace
    text: str
    author_id: str
    author_name: str | None = None
    author_is_bot: bool = False
    mentions: frozenset[str] = frozenset()
    # The author of the message that is answered, and its id.
    replies_to: str | None = None
    replied_id: str | None = None
    files: tuple[IncomingFile, ...] = ()
    is_command: bool = False
    is_forwarded: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """A connection began that does not resume an earlier one: messages may have been missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscordOptions(GroupOptions):
    """How the bot behaves."""

    always_in: Annotated[
        frozenset[str],
        Setting("ids of channels and threads in which every message is answered"),
    ] = frozenset()
    stream: Stream = False
    commands: Annotated[
        bool, Setting("offer the commands in Discord's own menu", name="slash_commands")
    ] = True
    largest_file: LargestFile = 10 * MEGABYTE
    largest_sent: LargestSent = 10 * MEGABYTE
    # Discord accepts about five messages or edits in five seconds in a channel.
    show_seconds: float = 1.5


@dataclass(frozen=True, slots=True)
class DiscordBot:
    """The bot's own ids: its account, and the roles that mean it alone."""

    id: str
    roles: frozenset[str] = frozenset()


def read(
    message: DiscordMessage, bot: DiscordBot, options: DiscordOptions
) -> ReceivedMessage | None:
    """Return a person's message; None for our own, and for other bots': two that answer each other never stop."""
    if is_ignored(message, bot):
        return None
    text = words_of(message, bot)
    # A forwarded text is no command of whoever forwards it.
    begin = (Text(FORWARDED_NOTE),) if message.is_forwarded else ()
    forwarded = {FORWARDED: True} if message.is_forwarded else {}
    replied = {} if message.replied_id is None else {REPLIES_TO: message.replied_id}
    return ReceivedMessage(
        source=source_of(message),
        parts=(*begin, Text(text)) if text else begin,
        text=message.text,
        files=message.files,
        is_addressed=is_addressed(message, bot, options),
        # What nobody has typed here answers no question.
        extra={**forwarded, **replied},
    )


def source_of(message: DiscordMessage) -> Source:
    """Return where a message came from. A thread belongs to the channel in which it was opened."""
    place = message.place
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
        user_id=message.author_id,
        user_name=message.author_name,
        platform_message_id=message.message_id,
        extra=extra,
    )


def is_ignored(message: DiscordMessage, bot: DiscordBot) -> bool:
    """Return whether we or another bot wrote it."""
    return message.author_is_bot or message.author_id == bot.id


def is_addressed(message: DiscordMessage, bot: DiscordBot, options: DiscordOptions) -> bool:
    """Return whether a message is for the agent."""
    if message.place.guild_id is None or message.is_command or options.always:
        return True
    if {message.place.channel_id, message.place.parent_id} & options.always_in:
        return True
    return bool(message.mentions & {bot.id, *bot.roles}) or message.replies_to == bot.id


def words_of(message: DiscordMessage, bot: DiscordBot) -> str:
    """Return the text without the bot's mention at its beginning: `@bot /new` is a command."""
    ids = "|".join(re.escape(each) for each in sorted({bot.id, *bot.roles}))
    begin = re.compile(rf"^\s*<@[!&]?(?:{ids})>[,:]?\s*")
    return begin.sub("", message.text, count=1)


def _chat_type(*, is_dm: bool, is_thread: bool) -> ChatType:
    if is_dm:
        return ChatType.DM
    return ChatType.THREAD if is_thread else ChatType.CHANNEL


def _chat_name(place: DiscordPlace) -> str | None:
    if place.guild_id is None:
        return None
    names = [place.guild_name, f"#{place.channel_name}" if place.channel_name else None]
    return " ".join(name for name in names if name) or None
