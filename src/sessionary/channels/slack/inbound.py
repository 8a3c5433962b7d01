"""From what Slack says to what the house hears. Pure."""

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sessionary.channels.files import MEGABYTE, File
from sessionary.model.message import Message, Part, Role, Text
from sessionary.model.source import ChatType, Source

PLATFORM = "slack"
DEFAULT_LARGEST_FILE = 20 * MEGABYTE
DEFAULT_LARGEST_SENT = 100 * MEGABYTE
# Slack takes about 50 edits a minute from an app.
SHOW_SECONDS = 1.5
UMBRELLA = "/sessionary"
_SPOKEN = frozenset({None, "file_share", "thread_broadcast", "me_message"})
_EVENTS = frozenset({"message", "app_mention"})
_TOKEN = re.compile(r"<([^<>\n]*)>")

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A message or a slash command, as Slack told of it."""

    id: str
    channel_id: str
    text: str
    user_id: str
    user_name: str | None = None
    channel_kind: str | None = None
    thread: str | None = None
    parent_user: str | None = None
    is_bot: bool = False
    is_command: bool = False
    files: tuple[File, ...] = ()

    @property
    def is_direct(self) -> bool:
        """Whether this is a direct chat; such ids begin with a D."""
        return self.channel_kind == "im" or self.channel_id.startswith("D")

    @property
    def room(self) -> str:
        """The channel, or the thread within it, in which others hear this."""
        return self.channel_id if self.thread is None else f"{self.channel_id}/{self.thread}"


@dataclass(frozen=True, slots=True)
class Rules:
    """When the agent is spoken to, where it answers, and what is done with the rest."""

    always: bool = False
    always_in: frozenset[str] = frozenset()
    observe: bool = False
    threads: bool = True
    largest_file: int = DEFAULT_LARGEST_FILE
    largest_sent: int = DEFAULT_LARGEST_SENT
    stream: bool = False
    show_seconds: float = SHOW_SECONDS


@dataclass(frozen=True, slots=True)
class Me:
    """The bot's own id."""

    user_id: str


@dataclass(frozen=True, slots=True)
class Names:
    """What people call those whom Slack names by ids only."""

    user: str | None = None
    chat: str | None = None
    topic: str | None = None


def read_event(payload: Json) -> Heard | None:
    """The message of an event, or None when it holds none that concerns us.

    An edited message comes under its own id: new only if it was not heard before.
    """
    event = payload.get("event")
    if payload.get("type") != "event_callback" or not isinstance(event, dict):
        return None
    channel, kind = event.get("channel"), event.get("channel_type")
    if event.get("subtype") == "message_changed":
        event = event.get("message")
    if not isinstance(event, dict) or event.get("type") not in _EVENTS:
        return None
    user, ts = event.get("user"), event.get("ts")
    if event.get("subtype") not in _SPOKEN or not _are_texts(channel, user, ts):
        return None
    return Heard(
        id=str(ts),
        channel_id=str(channel),
        channel_kind=kind,
        text=_text(event.get("text")),
        user_id=str(user),
        thread=event.get("thread_ts"),
        parent_user=event.get("parent_user_id"),
        is_bot=bool(event.get("bot_id")),
        files=tuple(_files(event.get("files"))),
    )


def read_command(form: Json) -> Heard | None:
    """A slash command: one of ours by its own name, or `/sessionary name words`."""
    command, words = form.get("command"), _text(form.get("text")).strip()
    ids = (form.get("channel_id"), form.get("user_id"), form.get("trigger_id"))
    if not _are_texts(command, *ids):
        return None
    text = f"/{words or 'help'}" if command == UMBRELLA else f"{command} {words}".strip()
    return Heard(
        id=str(form["trigger_id"]),
        channel_id=str(form["channel_id"]),
        text=text,
        user_id=str(form["user_id"]),
        user_name=form.get("user_name"),
        is_command=True,
    )


def source_of(heard: Heard, rules: Rules, names: Names) -> Source:
    """Where a message came from. In a channel each question begins a thread, if so configured."""
    thread = heard.thread
    if thread is None and rules.threads and not heard.is_direct and not heard.is_command:
        thread = heard.id
    return Source(
        PLATFORM,
        heard.channel_id,
        chat_type=_chat_type(heard),
        chat_name=f"#{names.chat}" if names.chat and not heard.is_direct else None,
        chat_topic=names.topic,
        thread_id=thread,
        user_id=heard.user_id,
        user_name=names.user or heard.user_name,
        platform_message_id=heard.id,
    )


def is_ignored(heard: Heard, me: Me) -> bool:
    """Our own messages, and other bots': two that answer each other never stop."""
    return heard.is_bot or heard.user_id == me.user_id


def is_addressed(heard: Heard, me: Me, rules: Rules) -> bool:
    """Whether this is said to the agent."""
    if heard.is_direct or heard.is_command or rules.always or heard.channel_id in rules.always_in:
        return True
    mentions = (f"<@{me.user_id}>", f"<@{me.user_id}|")
    return any(each in heard.text for each in mentions) or heard.parent_user == me.user_id


def message_of(heard: Heard, me: Me, files: tuple[Part, ...] = ()) -> Message:
    """What was said, and what came with it."""
    words = words_of(heard, me)
    said: tuple[Part, ...] = (Text(words),) if words or not files else ()
    return Message(Role.USER, said + files, platform_message_id=heard.id)


def words_of(heard: Heard, me: Me) -> str:
    """The text as it was typed, without the mention of the bot that it begins with."""
    begin = re.compile(rf"^\s*<@{re.escape(me.user_id)}(?:\|[^>]*)?>[,:]?\s*")
    return as_typed(begin.sub("", heard.text, count=1))


def as_typed(text: str) -> str:
    """Slack's notation undone: links, channels, escapes. People stay `<@id>`, to be mentioned."""
    return html.unescape(_TOKEN.sub(_typed, text)) if "<" in text or "&" in text else text


def _typed(found: re.Match[str]) -> str:
    target, _, label = found[1].partition("|")
    if target.startswith("@"):
        return f"&lt;{target}&gt;"
    if target.startswith("#"):
        return f"#{label}" if label else f"&lt;{target}&gt;"
    if target.startswith("!"):
        return label or f"@{target[1:].partition('^')[0]}"
    address = target.removeprefix("mailto:")
    return f"{label} ({target})" if label and label not in target else address


def _chat_type(heard: Heard) -> ChatType:
    if heard.is_direct:
        return ChatType.DM
    return ChatType.GROUP if heard.channel_kind == "mpim" else ChatType.CHANNEL


def _files(given: Any) -> list[File]:
    found = [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []
    return [
        File(
            name=str(each.get("name") or each.get("id") or "file"),
            size=each["size"] if isinstance(each.get("size"), int) else 0,
            url=str(each.get("url_private_download") or each.get("url_private") or ""),
            media_type=str(each.get("mimetype") or "application/octet-stream"),
        )
        for each in found
    ]


def _are_texts(*values: Any) -> bool:
    return all(isinstance(value, str) and value for value in values)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
