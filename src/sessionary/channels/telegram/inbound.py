"""Read messages, and presses of buttons, from updates of the Bot API."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sessionary.channels.base import ReceivedMessage
from sessionary.channels.files import BYTES, IncomingFile
from sessionary.channels.telegram import TelegramSettings
from sessionary.model.message import FORWARDED, QUOTE, REPLIES_TO, Part, Text
from sessionary.model.question import read_button
from sessionary.model.source import ChatType, Source
from sessionary.model.terminal import one_line

Wire = Mapping[str, Any]

_MESSAGES = ("message", "edited_message", "channel_post", "edited_channel_post")
_PRESS = "callback_query"
# The updates that Telegram is asked for.
KINDS = (*_MESSAGES, _PRESS)
_CHAT_TYPES = {"private": ChatType.DM, "channel": ChatType.CHANNEL}
_FILES = ("document", "voice", "audio", "video", "video_note")
_MEDIA_TYPES = {
    "voice": "audio/ogg",
    "audio": "audio/mpeg",
    "video": "video/mp4",
    "video_note": "video/mp4",
}
# What marks a forwarded message; `forward_date` comes from Bot API servers of before 2024.
_FORWARDED = ("forward_origin", "forward_date")
_LONGEST_QUOTE = 500


@dataclass(frozen=True, slots=True)
class TelegramBot:
    """The bot's id and name."""

    id: int
    username: str


@dataclass(frozen=True, slots=True)
class TelegramPress:
    """A press of a button, with the id that Telegram wants to be answered.

    `source` is who pressed it, and the chat of its message; None if the button is not one of a question.
    """

    id: str
    source: Source | None
    data: str


def read_press(update: Wire) -> TelegramPress | None:
    """Return the button that a person has pressed; None for any other update."""
    query = update.get(_PRESS)
    if not isinstance(query, Mapping):
        return None
    data, message, person = query.get("data"), query.get("message"), _writer(query)
    chat = message.get("chat") if isinstance(message, Mapping) else None
    source = None
    if (
        isinstance(data, str)
        and read_button(data) is not None
        and person is not None
        and isinstance(message, Mapping)
        and isinstance(chat, Mapping)
    ):
        source = _source(message, chat, person, is_edit=False)
    return TelegramPress(str(query.get("id")), source, str(data))


def read(update: Wire, bot: TelegramBot, settings: TelegramSettings) -> ReceivedMessage | None:
    """Return a person's message; None for everything else, and for what the settings leave out."""
    kind = next((each for each in _MESSAGES if isinstance(update.get(each), Mapping)), None)
    if kind is None:
        return None
    wire: Wire = update[kind]
    chat, writer, is_edit = wire.get("chat"), _writer(wire), kind.startswith("edited")
    if not isinstance(chat, Mapping) or writer is None or writer.get("is_bot"):
        return None
    words, files = _words(wire), tuple(_files(wire))
    text = _without_mention(words, bot)
    if (not text and not files) or _is_for_another_bot(text, bot):
        return None
    is_direct = chat.get("type") == "private"
    if (is_edit and not settings.edits) or (settings.groups == "never" and not is_direct):
        return None
    parts: list[Part] = []
    # A command is read as a whole: a quote before it would hide it.
    quote = None if text.startswith("/") else _quote(wire)
    if quote is not None:
        parts.append(Text(quote, extra={QUOTE: True}))
    if is_edit:
        parts.append(Text("(An earlier message, corrected:)", extra={"edit": True}))
    if text:
        parts.append(Text(text))
    return ReceivedMessage(
        source=_source(wire, chat, writer, is_edit=is_edit),
        parts=tuple(parts),
        text=text or "(a file)",
        files=files,
        is_addressed=is_direct or settings.groups == "always" or _is_addressed(wire, words, bot),
        extra=_extra(wire),
    )


def migration(update: Wire) -> tuple[str, str] | None:
    """Return the old and the new id of a group that has become a supergroup."""
    wire = update.get("message")
    if not isinstance(wire, Mapping):
        return None
    here = str(wire["chat"]["id"])
    if "migrate_to_chat_id" in wire:
        return here, str(wire["migrate_to_chat_id"])
    if "migrate_from_chat_id" in wire:
        return str(wire["migrate_from_chat_id"]), here
    return None


def _source(wire: Wire, chat: Wire, writer: Wire, *, is_edit: bool) -> Source:
    number = str(wire.get("message_id"))
    thread = wire.get("message_thread_id") if wire.get("is_topic_message") else None
    return Source(
        "telegram",
        str(chat["id"]),
        chat_name=chat.get("title") or _name(chat),
        chat_type=_CHAT_TYPES.get(str(chat.get("type")), ChatType.GROUP),
        user_id=str(writer["id"]),
        user_name=writer.get("title") or _name(writer),
        thread_id=None if thread is None else str(thread),
        chat_topic=_topic(wire),
        # An edit is a new message to us; the original was stored under its own number.
        platform_message_id=f"{number}/edit/{wire.get('edit_date')}" if is_edit else number,
    )


def _writer(wire: Wire) -> Wire | None:
    found = wire.get("from") or wire.get("sender_chat")
    return found if isinstance(found, Mapping) and "id" in found else None


def _name(who: Wire) -> str | None:
    full = " ".join(str(who[each]) for each in ("first_name", "last_name") if who.get(each))
    return full or who.get("username")


def _topic(wire: Wire) -> str | None:
    root = wire.get("reply_to_message")
    if isinstance(root, Mapping) and isinstance(root.get("forum_topic_created"), Mapping):
        name = root["forum_topic_created"].get("name")
        return None if name is None else str(name)
    return None


def _words(wire: Wire) -> str:
    for name in ("text", "caption"):
        if isinstance(wire.get(name), str):
            return str(wire[name])
    if isinstance(wire.get("sticker"), Mapping):
        return f"[sticker {wire['sticker'].get('emoji', '')}]"
    if isinstance(wire.get("location"), Mapping):
        place = wire["location"]
        return f"[location {place.get('latitude')}, {place.get('longitude')}]"
    if isinstance(wire.get("contact"), Mapping):
        return f"[contact {_name(wire['contact'])}, {wire['contact'].get('phone_number')}]"
    return ""


def _files(wire: Wire) -> Iterator[IncomingFile]:
    photos = wire.get("photo")
    if isinstance(photos, list | tuple) and photos:
        best = max(photos, key=lambda each: int(each.get("width", 0)) * int(each.get("height", 0)))
        yield IncomingFile(best["file_id"], None, "image/jpeg", best.get("file_size"))
    for kind in _FILES:
        found = wire.get(kind)
        if isinstance(found, Mapping) and "file_id" in found:
            media = found.get("mime_type") or _MEDIA_TYPES.get(kind, BYTES)
            yield IncomingFile(
                found["file_id"], found.get("file_name"), media, found.get("file_size")
            )


def _extra(wire: Wire) -> dict[str, Any]:
    """Return what matters for questions: whether nobody has typed the message here, and which one it replies to."""
    extra: dict[str, Any] = {}
    if any(wire.get(name) for name in _FORWARDED):
        extra[FORWARDED] = True
    replied = _replied(wire)
    if replied is not None and "message_id" in replied:
        extra[REPLIES_TO] = str(replied["message_id"])
    return extra


def _replied(wire: Wire) -> Wire | None:
    """Return the message that is answered; in a topic, its first message is named without being answered."""
    replied = wire.get("reply_to_message")
    if not isinstance(replied, Mapping) or "forum_topic_created" in replied:
        return None
    return replied


def _quote(wire: Wire) -> str | None:
    """Return the beginning of the message that is answered, on one line, with its author."""
    replied = _replied(wire)
    if replied is None:
        return None
    chosen = wire.get("quote")
    words = chosen.get("text") if isinstance(chosen, Mapping) else None
    words = words or _words(replied)
    if not words:
        return None
    who = _writer(replied)
    name = "someone" if who is None else (who.get("title") or _name(who) or "someone")
    return f"(In reply to {one_line(name, 60)}: “{one_line(words, _LONGEST_QUOTE)}”)"


def _is_addressed(wire: Wire, words: str, bot: TelegramBot) -> bool:
    replied = wire.get("reply_to_message")
    if isinstance(replied, Mapping) and (_writer(replied) or {}).get("id") == bot.id:
        return True
    if words.startswith("/"):
        return True
    return any(_names(entity, words, bot) for entity in _entities(wire))


def _entities(wire: Wire) -> Iterator[Wire]:
    for name in ("entities", "caption_entities"):
        found = wire.get(name)
        if isinstance(found, list | tuple):
            yield from (each for each in found if isinstance(each, Mapping))


def _names(entity: Wire, words: str, bot: TelegramBot) -> bool:
    if entity.get("type") == "text_mention":
        return bool((entity.get("user") or {}).get("id") == bot.id)
    if entity.get("type") != "mention":
        return False
    # Telegram counts in UTF-16 units.
    units = words.encode("utf-16-le", "surrogatepass")
    start = int(entity.get("offset", 0)) * 2
    named = units[start : start + int(entity.get("length", 0)) * 2]
    return named.decode("utf-16-le", "replace").casefold() == f"@{bot.username}".casefold()


def _without_mention(words: str, bot: TelegramBot) -> str:
    """Return the text without the bot's name at its beginning: `@bot /new` is a command too."""
    first, _, rest = words.partition(" ")
    return rest.lstrip() if first.casefold() == f"@{bot.username}".casefold() else words


def _is_for_another_bot(text: str, bot: TelegramBot) -> bool:
    if not text.startswith("/"):
        return False
    _, at, name = text.split(None, 1)[0].partition("@")
    return bool(at) and name.casefold() != bot.username.casefold()
