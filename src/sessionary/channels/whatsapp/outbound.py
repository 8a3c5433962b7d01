"""What is sent to WhatsApp, and its errors as ours."""

import re
from collections.abc import Mapping
from typing import Any

from sessionary.channels.base import split_text, utf16_units
from sessionary.channels.files import OutgoingFile
from sessionary.channels.whatsapp.inbound import PLATFORM
from sessionary.engine.ports import Capabilities
from sessionary.errors import NotAllowed, RetryLater, SessionaryError, Unreachable
from sessionary.model.terminal import one_line
from sessionary.model.turn import Delivery

LONGEST = 4096
_LARGEST_IMAGE = 5 * 1024 * 1024
MAX_WAIT_SECONDS = 24 * 3600.0

CAPABILITIES = Capabilities(
    # Ten messages: the adapter splits between code fences, so a delivery may be longer than one message.
    longest_text=10 * LONGEST,
    shows_typing=True,
    notes=(
        (
            "You are on WhatsApp. You see only what is said to you here: you cannot search the "
            "history, see who is online, or write to someone who has not written for 24 hours."
        ),
        (
            "Formatting is *bold*, _italic_, ~struck~, `code` and ``` blocks. Tables and headings "
            "are not shown; keep answers short, people read them on a telephone."
        ),
    ),
)

_PERSON = re.compile(r"\+?([0-9]+)(?:_[0-9]+)?(?::[0-9]+)?(?:@(?:s\.whatsapp\.net|c\.us))?")
_CODE = re.compile(r"(```.*?```|`[^`\n]+`)", re.DOTALL)
_BOLD = re.compile(r"\*\*(?=\S)([^*\n]+?)(?<=\S)\*\*")
_STRUCK = re.compile(r"~~(?=\S)([^~\n]+?)(?<=\S)~~")
_HEADING = re.compile(r"^#{1,6}[ \t]+(\S[^\n]*?)[ \t]*#*$", re.MULTILINE)

# What WhatsApp's error codes mean for the owner of the bot.
_MEANINGS = {
    131047: (
        "more than 24 hours have passed since this person last wrote, and WhatsApp then takes only "
        "an approved template; once they write again, send it anew or redirect it"
    ),
    470: "the 24 hours in which this person may be answered are over",
    131026: "the number is not on WhatsApp, blocked the bot, or has an app that is too old",
    131030: "the number is not among those that the test number may write to; add it in the app",
    131021: "the bot cannot write to its own number",
    131049: "WhatsApp holds it back, to spare this person messages",
    131050: "this person wants no such messages from the bot",
    130472: "this person's number is part of an experiment of WhatsApp",
    130497: "this account may not write to people in that country",
    131042: "the account's payment method does not work; see the WhatsApp Manager",
    131045: "the number is not registered with the Cloud API yet",
    133010: "the number is not registered with the Cloud API yet",
    131037: "the number's display name is not approved yet",
}
_TEMPLATES = range(132000, 133000)
_REFUSED = {0, 3, 10, 190, 368, 131005, 131031, *range(200, 300)}
_WAITS = {4: 60.0, 613: 60.0, 80007: 60.0, 130429: 5.0, 131056: 6.0, 131048: 3600.0, 133016: 3600.0}
_TEMPORARY = {1: 10.0, 2: 10.0, 131000: 10.0, 131016: 30.0, 131057: 60.0, 133004: 30.0}
_LATER = (408, 425, 429)
_UNAUTHORIZED = (401, 403)
_SERVER_ERROR = 500


def recipient(chat_id: str) -> dict[str, str]:
    """Return the recipient's fields: a number, a group, or a person without a number."""
    person = _PERSON.fullmatch(chat_id)
    if person is not None:
        return {"recipient_type": "individual", "to": person[1]}
    if re.fullmatch(r"[A-Z]{2}\.[A-Za-z0-9.]+", chat_id):
        return {"recipient_type": "individual", "recipient": chat_id}
    return {"recipient_type": "group", "to": chat_id}


def split(text: str) -> list[str]:
    """Format a text and split it into messages that WhatsApp accepts."""
    return split_text(formatted(text), LONGEST, measure=utf16_units)


def text_message(text: str, delivery: Delivery) -> dict[str, Any]:
    """Return a text message."""
    return _addressed(delivery) | {"type": "text", "text": {"body": text, "preview_url": False}}


def file_message(media_id: str, file: OutgoingFile, delivery: Delivery) -> dict[str, Any]:
    """Return the message for a file that was uploaded."""
    kind = kind_of(file.media_type)
    if kind == "image" and len(file.data) > _LARGEST_IMAGE:
        kind = "document"
    about = {"id": media_id}
    if kind == "document":
        about["filename"] = file.name
    return _addressed(delivery) | {"type": kind, kind: about}


def kind_of(media_type: str) -> str:
    """Return as what WhatsApp shows a file; anything that it cannot show is a document."""
    shown = {
        "image": ("jpeg", "png"),
        "audio": ("aac", "amr", "mpeg", "mp4", "ogg"),
        "video": ("mp4", "3gpp"),
    }
    kind, _, form = media_type.partition(";")[0].strip().lower().partition("/")
    return kind if form in shown.get(kind, ()) else "document"


def typing_message(message_id: str) -> dict[str, Any]:
    """Return the request that marks a message as read and shows the typing indicator."""
    return {
        "messaging_product": PLATFORM,
        "status": "read",
        "message_id": message_id,
        "typing_indicator": {"type": "text"},
    }


def formatted(text: str) -> str:
    """Return Markdown's bold, struck and headings in WhatsApp's notation; code stays as it is."""
    pieces = _CODE.split(text)
    for index in range(0, len(pieces), 2):
        plain = _HEADING.sub(r"**\1**", pieces[index])
        pieces[index] = _STRUCK.sub(r"~\1~", _BOLD.sub(r"*\1*", plain))
    return "".join(pieces)


def error_of(status: int, answer: Any, headers: Mapping[str, str], *, chat: str) -> SessionaryError:
    """Return the error of a refused request as ours."""
    error = answer.get("error") if isinstance(answer, dict) else None
    about = error if isinstance(error, dict) else {}
    code = about.get("code") if isinstance(about.get("code"), int) else None
    reason = reason_of(about) if about else f"WhatsApp answered {status}"
    if code in _WAITS or status in _LATER:
        return RetryLater(reason, after=_wait(headers, _WAITS.get(code or -1, 30.0)))
    if code in _REFUSED or (code is None and status in _UNAUTHORIZED):
        return NotAllowed(f"{reason}; renew the access token or its permissions")
    if code in _TEMPORARY or (about and status >= _SERVER_ERROR):
        return RetryLater(reason, after=_wait(headers, _TEMPORARY.get(code or -1, 10.0)))
    if status >= _SERVER_ERROR:
        return SessionaryError(reason, committed="unknown")
    return Unreachable(reason, chat)


def reason_of(error: Mapping[str, Any]) -> str:
    """Return one line for the owner: WhatsApp's message, and what it means."""
    code = error.get("code")
    data = error.get("error_data")
    details = data.get("details") if isinstance(data, dict) else None
    text = details or error.get("message") or error.get("title") or "no reason given"
    meaning = _MEANINGS.get(code) if isinstance(code, int) else None
    if meaning is None and code in _TEMPLATES:
        meaning = "the template was not taken; see it in the WhatsApp Manager"
    line = f"WhatsApp #{code}: {one_line(str(text), 200)}"
    return line if meaning is None else f"{line} ({meaning})"


def _addressed(delivery: Delivery) -> dict[str, Any]:
    # WhatsApp sends this id back when the delivery fails.
    named = {"messaging_product": PLATFORM, "biz_opaque_callback_data": delivery.id}
    return named | recipient(delivery.channel.chat_id)


def _wait(headers: Mapping[str, str], otherwise: float) -> float:
    try:
        wait = float(headers.get("retry-after", ""))
    except ValueError:
        return otherwise
    return min(max(wait, 0.0), MAX_WAIT_SECONDS)
