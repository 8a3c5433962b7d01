"""What is sent by signal-cli, and its errors as ours."""

import base64
import re
from typing import Any

from sessionary.channels.base import Json, object_list, object_value, split_text, utf16_units
from sessionary.channels.files import OutgoingFile
from sessionary.channels.signal.inbound import group_of
from sessionary.engine.ports import Capabilities
from sessionary.errors import NotAllowed, RetryLater, SessionaryError, Unreachable
from sessionary.model.source import Channel
from sessionary.model.terminal import one_line

LONGEST = 2000
MAX_WAIT_SECONDS = 24 * 3600.0

CAPABILITIES = Capabilities(
    # Ten messages: the adapter splits between code fences, so a delivery may be longer than one message.
    longest_text=10 * LONGEST,
    shows_typing=True,
    notes=(
        (
            "You are on Signal. You see only what is said to you here: you cannot search the "
            "history, list a group's members or change a group."
        ),
        "Write plain text: Markdown is not shown as formatting. Keep answers short.",
    ),
)

USER_ERROR, IO_ERROR, UNTRUSTED, RATE_LIMITED, CAPTCHA = -1, -3, -4, -5, -6
_ACCOUNT = re.compile(
    r"\[40[13]\]|Authorization failed|^User .* is not registered|account does not exist"
    r"|valid account parameter"
)
_TOO_MANY = re.compile(r"\[4(?:13|29)\]|rate.?limit", re.IGNORECASE)
_DATA_NAME = re.compile(r"[^\w.\- ]")


def recipient(channel: Channel) -> dict[str, Any]:
    """Return the recipient's parameters: a group by its internal id, a person by UUID or number."""
    group = group_of(channel.chat_id)
    return {"groupId": group} if group is not None else {"recipient": [channel.chat_id]}


def split(text: str) -> list[str]:
    """Split a text into messages that Signal accepts."""
    return split_text(text, LONGEST, measure=utf16_units)


def data_uri(file: OutgoingFile) -> str:
    """Return a file as signal-cli accepts it from a program on another disk."""
    name = _DATA_NAME.sub("_", file.name)
    return f"data:{file.media_type};filename={name};base64,{base64.b64encode(file.data).decode()}"


def timestamp_of(result: Any) -> str | None:
    """Return the time that Signal names the sent message by."""
    found = result.get("timestamp") if isinstance(result, dict) else None
    return str(found) if isinstance(found, int) else None


def error_of(error: Json, *, chat: str = "") -> SessionaryError:
    """Return an error of signal-cli as ours."""
    code, text = error.get("code"), one_line(str(error.get("message") or "no reason given"), 200)
    reason = f"signal-cli: {text}"
    for result in object_list(
        object_value(object_value(error.get("data")).get("response")).get("results")
    ):
        if (found := _of_result(result, chat)) is not None:
            return found
    if code == RATE_LIMITED or _TOO_MANY.search(text):
        return RetryLater(reason, after=60.0)
    if _ACCOUNT.search(text):
        return NotAllowed(f"{reason}; register or link the account again")
    if code == UNTRUSTED:
        return Unreachable(_untrusted(reason), chat)
    if code == IO_ERROR:
        # Signal's network: whether a message was sent is not known.
        return SessionaryError(reason, committed="unknown")
    return Unreachable(reason, chat)


def _of_result(result: Json, chat: str) -> SessionaryError | None:
    match result.get("type"):
        case "UNREGISTERED_FAILURE":
            return Unreachable("Signal: this person is not registered with Signal any more", chat)
        case "IDENTITY_FAILURE":
            return Unreachable(_untrusted("Signal: this person's safety number has changed"), chat)
        case "RATE_LIMIT_FAILURE":
            wait = result.get("retryAfterSeconds")
            after = float(wait) if isinstance(wait, int | float) and wait > 0 else 60.0
            hint = "; solve the captcha: signal-cli submitRateLimitChallenge"
            words = f"Signal takes no more messages for now{hint if result.get('token') else ''}"
            return RetryLater(words, after=min(after, MAX_WAIT_SECONDS))
        case "NETWORK_FAILURE":
            return RetryLater("Signal cannot be reached from where signal-cli runs", after=10.0)
        case "INVALID_PRE_KEY_FAILURE":
            return RetryLater("Signal: this person's keys cannot be used now", after=60.0)
        case _:
            return None


def _untrusted(reason: str) -> str:
    return (
        f"{reason}; compare it with them, then run signal-cli trust, and send this anew "
        "or redirect it"
    )
