"""Read messages, slash commands and presses of buttons from Slack's events, and check Slack's signatures."""

import hashlib
import hmac
import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from sessionary.channels.base import (
    GroupOptions,
    LargestFile,
    LargestSent,
    ReceivedMessage,
    Stream,
    object_list,
    object_value,
)
from sessionary.channels.files import BYTES, MEGABYTE, IncomingFile
from sessionary.config.setting import Setting
from sessionary.model.message import FORWARDED, Text
from sessionary.model.source import ChatType, Source

PLATFORM = "slack"
OUR_COMMAND = "/sessionary"
SIGNATURE_WINDOW_SECONDS = 300
_MESSAGE_TYPES = frozenset({None, "file_share", "thread_broadcast", "me_message"})
_EVENTS = frozenset({"message", "app_mention"})
_TOKEN = re.compile(r"<([^<>\n]*)>")

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackMessage:
    """A message, a slash command or the press of a button, as Slack delivered it.

    The text of a press is what the button carries.
    """

    id: str
    channel_id: str
    text: str
    user_id: str
    user_name: str | None = None
    channel_kind: str | None = None
    thread: str | None = None
    parent_user: str | None = None
    is_bot: bool = False
    # Whether it was not written in a channel, where a question may begin a thread.
    is_command: bool = False
    is_forwarded: bool = False
    files: tuple[IncomingFile, ...] = ()

    @property
    def is_direct(self) -> bool:
        """Whether it is a direct chat; their ids begin with a D."""
        return self.channel_kind == "im" or self.channel_id.startswith("D")

    @property
    def room(self) -> str:
        """The channel, or the thread within it, in which others read this."""
        return self.channel_id if self.thread is None else f"{self.channel_id}/{self.thread}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackOptions(GroupOptions):
    """How the bot behaves."""

    always_in: Annotated[
        frozenset[str], Setting("ids of channels in which every message is answered")
    ] = frozenset()
    threads: Annotated[
        bool,
        Setting(
            "a question in a channel starts a thread, which is its own conversation",
            name="reply_in_thread",
        ),
    ] = True
    stream: Stream = False
    largest_file: LargestFile = 20 * MEGABYTE
    largest_sent: LargestSent = 100 * MEGABYTE
    # Slack accepts about 50 edits a minute from an app.
    show_seconds: float = 1.5


@dataclass(frozen=True, slots=True)
class SlackNames:
    """The names of a person and a chat that Slack's events name by ids only."""

    user: str | None = None
    chat: str | None = None
    topic: str | None = None


def read_event(payload: Json) -> SlackMessage | None:
    """Return the message of an event; None if it has none that concerns us.

    An edited message has the id of the original: new only if that was not received.
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
    if event.get("subtype") not in _MESSAGE_TYPES or not _are_texts(channel, user, ts):
        return None
    return SlackMessage(
        id=str(ts),
        channel_id=str(channel),
        channel_kind=kind,
        text=_text(event.get("text")),
        user_id=str(user),
        thread=event.get("thread_ts"),
        parent_user=event.get("parent_user_id"),
        is_bot=bool(event.get("bot_id")),
        is_forwarded=any(
            each.get("is_msg_unfurl") for each in object_list(event.get("attachments"))
        ),
        files=tuple(_files(event.get("files"))),
    )


def read_command(form: Json) -> SlackMessage | None:
    """Read a slash command: one of ours by its own name, or `/sessionary name words`."""
    command, words = form.get("command"), _text(form.get("text")).strip()
    ids = (form.get("channel_id"), form.get("user_id"), form.get("trigger_id"))
    if not _are_texts(command, *ids):
        return None
    text = f"/{words or 'help'}" if command == OUR_COMMAND else f"{command} {words}".strip()
    return SlackMessage(
        id=str(form["trigger_id"]),
        channel_id=str(form["channel_id"]),
        text=text,
        user_id=str(form["user_id"]),
        user_name=form.get("user_name"),
        is_command=True,
    )


def read_press(payload: Json) -> SlackMessage | None:
    """Read the press of a button; None for other interactions."""
    user, channel = object_value(payload.get("user")), object_value(payload.get("channel"))
    message = object_value(payload.get("message"))
    pressed = next(iter(object_list(payload.get("actions"))), {})
    ids = (user.get("id"), channel.get("id"), payload.get("trigger_id"))
    if payload.get("type") != "block_actions" or not _are_texts(pressed.get("value"), *ids):
        return None
    thread = message.get("thread_ts")
    # A message that was answered in a thread is the first of the thread, not in it.
    is_in_thread = _are_texts(thread) and thread != message.get("ts")
    return SlackMessage(
        id=str(payload["trigger_id"]),
        channel_id=str(channel["id"]),
        channel_kind="mpim" if _text(channel.get("name")).startswith("mpdm-") else None,
        text=str(pressed["value"]),
        user_id=str(user["id"]),
        user_name=_text(user.get("username")) or _text(user.get("name")) or None,
        thread=str(thread) if is_in_thread else None,
        is_command=True,
    )


def source_of(message: SlackMessage, options: SlackOptions, names: SlackNames) -> Source:
    """Return where a message came from. In a channel each question begins a thread, if so configured."""
    thread = message.thread
    if thread is None and options.threads and not message.is_direct and not message.is_command:
        thread = message.id
    return Source(
        PLATFORM,
        message.channel_id,
        chat_type=_chat_type(message),
        chat_name=f"#{names.chat}" if names.chat and not message.is_direct else None,
        chat_topic=names.topic,
        thread_id=thread,
        user_id=message.user_id,
        user_name=names.user or message.user_name,
        platform_message_id=message.id,
    )


def received(
    message: SlackMessage, bot_id: str, options: SlackOptions, names: SlackNames
) -> ReceivedMessage:
    """Return the message with the names of who wrote it and where."""
    text = words_of(message, bot_id)
    return ReceivedMessage(
        source=source_of(message, options, names),
        parts=(Text(text),) if text else (),
        text=as_typed(message.text),
        files=message.files,
        is_addressed=is_addressed(message, bot_id, options),
        room=message.room,
        # What is written above a forwarded message may belong to that: it answers no question.
        extra={FORWARDED: True} if message.is_forwarded else {},
    )


def is_ignored(message: SlackMessage, bot_id: str) -> bool:
    """Return whether we or another bot wrote it: two bots that answer each other never stop."""
    return message.is_bot or message.user_id == bot_id


def is_addressed(message: SlackMessage, bot_id: str, options: SlackOptions) -> bool:
    """Return whether a message is for the agent."""
    if (
        message.is_direct
        or message.is_command
        or options.always
        or message.channel_id in options.always_in
    ):
        return True
    mentions = (f"<@{bot_id}>", f"<@{bot_id}|")
    return any(each in message.text for each in mentions) or message.parent_user == bot_id


def words_of(message: SlackMessage, bot_id: str) -> str:
    """Return the text as it was typed, without the bot's mention at its beginning."""
    begin = re.compile(rf"^\s*<@{re.escape(bot_id)}(?:\|[^>]*)?>[,:]?\s*")
    return as_typed(begin.sub("", message.text, count=1))


def as_typed(text: str) -> str:
    """Undo Slack's notation of links, channels and escapes. People stay `<@id>`, to be mentioned."""
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


def _chat_type(message: SlackMessage) -> ChatType:
    if message.is_direct:
        return ChatType.DM
    return ChatType.GROUP if message.channel_kind == "mpim" else ChatType.CHANNEL


def _files(given: Any) -> list[IncomingFile]:
    return [
        IncomingFile(
            id=str(each.get("url_private_download") or each.get("url_private") or ""),
            name=str(each.get("name") or each.get("id") or "file"),
            media_type=str(each.get("mimetype") or BYTES),
            size=each["size"] if isinstance(each.get("size"), int) else 0,
        )
        for each in object_list(given)
    ]


def _are_texts(*values: Any) -> bool:
    return all(isinstance(value, str) and value for value in values)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """Return the signature that Slack puts on a body at a time."""
    signed = b"v0:" + timestamp.encode() + b":" + body
    return "v0=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def signature_problem(
    secret: str, headers: Mapping[str, str], body: bytes, *, now: float
) -> str | None:
    """Return why a request is not Slack's, or None. The body is the raw one; header names are in lower case."""
    timestamp = headers.get("x-slack-request-timestamp", "")
    signature = headers.get("x-slack-signature", "")
    if not (timestamp.isascii() and timestamp.isdigit()) or not signature:
        return "it is not signed"
    wanted = sign(secret, timestamp, body)
    if not hmac.compare_digest(wanted.encode(), signature.encode("utf-8", "replace")):
        return "its signature is wrong"
    if abs(now - int(timestamp)) > SIGNATURE_WINDOW_SECONDS:
        return "it is too old"
    return None
