"""From a delivery to what signal-cli is asked to send, and from its errors to ours. Pure."""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

from sessionary.channels.enclosures import Enclosure, files_of
from sessionary.channels.signal.inbound import group_of
from sessionary.channels.split import split_text, utf16_units
from sessionary.engine.ports import Capabilities
from sessionary.errors import NotAllowed, RetryLater, SessionaryError, Unreachable
from sessionary.model import codec
from sessionary.model.message import text_of
from sessionary.model.source import Channel
from sessionary.model.terminal import one_line
from sessionary.model.turn import Delivery

LONGEST = 2000
NOTHING = "(An empty message.)"
LONGEST_WAIT_SECONDS = 24 * 3600.0

CAPABILITIES = Capabilities(
    # Ten messages: we cut between code fences ourselves, so a delivery may be longer than one.
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
    """Whom signal-cli is to write to: a group by its internal id, a person by UUID or number."""
    group = group_of(channel.chat_id)
    return {"groupId": group} if group is not None else {"recipient": [channel.chat_id]}


def texts(delivery: Delivery) -> list[str]:
    """The words of a delivery, cut into messages; empty when it has only files."""
    said = "".join(char for char in codec.storable_text(text_of(delivery.parts)) if _is_shown(char))
    pieces = split_text(said, LONGEST, measure=utf16_units)
    return pieces or ([] if files_of(delivery.parts) else [NOTHING])


def data_uri(file: Enclosure) -> str:
    """A file as signal-cli takes it from a program that shares no disk with it."""
    name = _DATA_NAME.sub("_", file.name)
    return f"data:{file.media_type};filename={name};base64,{base64.b64encode(file.data).decode()}"


def timestamp_of(result: Any) -> str | None:
    """The time that names a message that was sent."""
    found = result.get("timestamp") if isinstance(result, dict) else None
    return str(found) if isinstance(found, int) else None


def error_of(error: Mapping[str, Any], *, chat: str = "") -> SessionaryError:
    """What an error of signal-cli means for whoever called."""
    code, said = error.get("code"), one_line(str(error.get("message") or "no reason given"), 200)
    reason = f"signal-cli: {said}"
    for result in _results(error.get("data")):
        if (found := _of_result(result, chat)) is not None:
            return found
    if code == RATE_LIMITED or _TOO_MANY.search(said):
        return RetryLater(reason, after=60.0)
    if _ACCOUNT.search(said):
        return NotAllowed(f"{reason}; register or link the account again")
    if code == UNTRUSTED:
        return Unreachable(_untrusted(reason), chat)
    if code == IO_ERROR:
        # The network of Signal: whether a message went out is not known.
        return SessionaryError(reason, committed="unknown")
    return Unreachable(reason, chat)


def _of_result(result: Mapping[str, Any], chat: str) -> SessionaryError | None:
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
            return RetryLater(words, after=min(after, LONGEST_WAIT_SECONDS))
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


def _results(data: Any) -> Iterator[Mapping[str, Any]]:
    response = data.get("response") if isinstance(data, dict) else None
    results = response.get("results") if isinstance(response, dict) else None
    for each in results if isinstance(results, list) else ():
        if isinstance(each, dict):
            yield each


def _is_shown(char: str) -> bool:
    return char >= " " or char in "\n\t"
