"""The bodies of the webhook channel, and their signatures."""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Any

from sessionary.channels.files import OutgoingFile
from sessionary.channels.webhook.settings import BodyFields, WebhookSettings
from sessionary.errors import BadInput
from sessionary.model import message as parts_of
from sessionary.model.message import Message, Role, Text
from sessionary.model.source import Source
from sessionary.model.turn import Delivery

_MAX_ID = 500
_MAX_DIGITS = 15


def read(body: bytes, fields: BodyFields) -> tuple[Source, Message]:
    """Return who wrote what; an error names what is missing. Only the configured fields are looked at."""
    found = _parsed(body)
    source = Source(
        "webhook",
        _id(fields.chat.fill(found), "chat"),
        user_id=_id(fields.person.fill(found), "person"),
        user_name=None if fields.name is None else fields.name.fill(found),
        thread_id=None if fields.thread is None else _id(fields.thread.fill(found), "thread"),
        platform_message_id=_id(fields.message_id.fill(found), "message_id"),
    )
    parts = (Text(fields.text.fill(found)),)
    return source, Message(Role.USER, parts, platform_message_id=source.platform_message_id)


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadInput("The body is not JSON.") from error


def _id(text: str, name: str) -> str:
    if not text or len(text) > _MAX_ID:
        raise BadInput(f"The {name} must have 1 to {_MAX_ID} characters.")
    return text


def body_of(delivery: Delivery, files: Sequence[OutgoingFile | str] = ()) -> bytes:
    """Return what is posted for a delivery; its id is the same in every attempt."""
    missing = [each for each in files if isinstance(each, str)]
    texts = [parts_of.text_of(delivery.parts), *missing]
    body: dict[str, Any] = {
        "delivery_id": delivery.id,
        "session_id": delivery.session_id,
        "chat_id": delivery.channel.chat_id,
        "thread_id": delivery.channel.thread_id,
        "text": "\n\n".join(each for each in texts if each),
        "attempt": delivery.attempts,
        "maybe_twice": delivery.maybe_twice,
    }
    if sent := [each for each in files if isinstance(each, OutgoingFile)]:
        body["files"] = [_file(each) for each in sent]
    # Escaped, because UTF-8 cannot hold half a character.
    return json.dumps(body, ensure_ascii=True).encode()


def _file(file: OutgoingFile) -> dict[str, Any]:
    data = base64.b64encode(file.data).decode()
    return {"name": file.name, "media_type": file.media_type, "size": len(file.data), "data": data}


def sign(settings: WebhookSettings, body: bytes, at: float) -> dict[str, str]:
    """Return the headers that sign a body."""
    stamp = str(int(at))
    headers = {settings.signature_header: settings.signature_prefix + _mac(settings, body, stamp)}
    if settings.signs_time:
        headers[settings.timestamp_header] = stamp
    return headers


def signature_problem(
    settings: WebhookSettings, headers: Mapping[str, str], body: bytes, now: float
) -> str | None:
    """Return why a request is refused; None if its signature is valid and recent."""
    lower = {name.lower(): value for name, value in headers.items()}
    given = lower.get(settings.signature_header)
    if given is None:
        return "it is not signed"
    stamp = lower.get(settings.timestamp_header, "") if settings.signs_time else ""
    if settings.signs_time and not (stamp.isdecimal() and len(stamp) <= _MAX_DIGITS):
        return "its time is missing"
    wanted = settings.signature_prefix + _mac(settings, body, stamp)
    if not hmac.compare_digest(given.strip().encode(), wanted.encode()):
        return "its signature is wrong"
    if settings.signs_time and abs(now - int(stamp)) > settings.window_seconds:
        return "it is too old or from the future"
    return None


def _mac(settings: WebhookSettings, body: bytes, stamp: str) -> str:
    signed = f"{stamp}.".encode() + body if settings.signs_time else body
    return hmac.new(settings.secret.reveal().encode(), signed, hashlib.sha256).hexdigest()
