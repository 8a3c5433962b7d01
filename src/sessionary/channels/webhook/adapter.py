"""The webhook channel: signed requests in, signed call-backs out."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from sessionary.channels import callback
from sessionary.channels.base import ChannelAdapter, attachments_of
from sessionary.channels.files import OutgoingFile
from sessionary.channels.webhook import BodyFields, WebhookSettings
from sessionary.engine.ports import Capabilities, Receive, Sent
from sessionary.errors import BadInput, NotAllowed, RetryLater, SessionaryError, Unreachable
from sessionary.model.message import Message, Role, Text, text_of
from sessionary.model.question import card_of, edit_of
from sessionary.model.source import Source
from sessionary.model.turn import Delivery

_REFUSED = (401, 403)
_RETRY = (429, 503)
_MAX_ID = 500
_MAX_DIGITS = 15


class WebhookAdapter(ChannelAdapter):
    """Any program that can sign a request; the form of its bodies is configured."""

    platform = "webhook"
    capabilities = Capabilities(longest_text=1_000_000)
    options: WebhookSettings

    def __init__(self, settings: WebhookSettings, now: Callable[[], float] = time.time) -> None:
        super().__init__(settings)
        self._now = now
        self.webhook = self.handle_webhook

    async def run(self, receive: Receive) -> None:
        with self.receiving(receive):
            await asyncio.Event().wait()

    def signature_problem(self, headers: Mapping[str, str], body: bytes) -> str | None:
        return signature_problem(self.options, headers, body, self._now())

    def decode_post(self, body: bytes) -> Any:
        return body  # read as a whole, so that every problem with it has the same status

    async def handle_payload(self, payload: Any, receive: Receive) -> None:
        await receive(*read_body(payload, self.options.fields))

    async def send(self, delivery: Delivery) -> Sent:
        """Call the program back."""
        url = self.options.call_back
        if url is None:
            raise Unreachable("No call_back is configured; the answer is in the session.")
        edit = edit_of(delivery.parts)
        if edit is not None and not edit.instead:
            return Sent(None)  # the program knows it: it has answered
        files = [await self.open_file(delivery, each) for each in attachments_of(delivery.parts)]
        body = body_of(delivery, files)
        headers = sign(self.options, body, self._now())
        headers |= {"content-type": "application/json", "x-sessionary-delivery": delivery.id}
        try:
            status, wait = await asyncio.to_thread(callback.post, url, headers, body)
            _check(status, wait or 0.0, urlsplit(url).hostname or url)
        except RetryLater as error:
            raise self.retry_later(delivery, error) from error
        return Sent(delivery.id)

    async def check(self) -> str:
        """Return what is expected of requests; nothing is sent, because a program would take it for real."""
        options = self.options
        signed = "its time and its body" if options.signs_time else "its body"
        url = options.call_back
        to = "nowhere (set call_back)" if url is None else urlsplit(url).hostname or url
        return (
            f"Requests come to /api/v1/channels/webhook/webhook with {options.signature_header}: "
            f"{options.signature_prefix}<hex of HMAC-SHA256 over {signed}>. Answers go to {to}."
        )


def _check(status: int, wait: float, host: str) -> None:
    if 200 <= status < 300:
        return
    answer = f"{host} answered {status}"
    if status in _REFUSED:
        raise NotAllowed(f"{answer}: it does not know our signature. Compare the secrets.")
    if status in _RETRY:
        raise RetryLater(f"{answer}.", after=wait)
    if status >= 500:
        raise SessionaryError(f"{answer}.", committed="unknown")
    raise Unreachable(f"{answer}.", host)


def read_body(body: bytes, fields: BodyFields) -> tuple[Source, Message]:
    """Return who wrote what; an error names what is missing. Only the configured fields are looked at."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadInput("The body is not JSON.") from error
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


def _id(text: str, name: str) -> str:
    if not text or len(text) > _MAX_ID:
        raise BadInput(f"The {name} must have 1 to {_MAX_ID} characters.")
    return text


def body_of(delivery: Delivery, files: Sequence[OutgoingFile | str] = ()) -> bytes:
    """Return what is posted for a delivery; its id is the same in every attempt."""
    missing = [each for each in files if isinstance(each, str)]
    card, edit = card_of(delivery.parts), edit_of(delivery.parts)
    text = text_of(delivery.parts) if edit is None else edit.instead
    texts = [text, "" if card is None else card.lines(), *missing]
    body: dict[str, Any] = {
        "delivery_id": delivery.id,
        "session_id": delivery.session_id,
        "chat_id": delivery.channel.chat_id,
        "thread_id": delivery.channel.thread_id,
        "text": "\n\n".join(each for each in texts if each),
        "attempt": delivery.attempts,
        "maybe_twice": delivery.maybe_twice,
    }
    if card is not None:
        body["question"] = {
            "id": card.question_id,
            "code": card.code,
            "options": list(card.options),
        }
    if sent := [each for each in files if isinstance(each, OutgoingFile)]:
        body["files"] = [
            {
                "name": each.name,
                "media_type": each.media_type,
                "size": len(each.data),
                "data": base64.b64encode(each.data).decode(),
            }
            for each in sent
        ]
    # Escaped, because UTF-8 cannot hold half a character.
    return json.dumps(body, ensure_ascii=True).encode()


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
    """Return why a request is refused; None if its signature is valid and recent. Header names are in lower case."""
    given = headers.get(settings.signature_header)
    if given is None:
        return "it is not signed"
    stamp = headers.get(settings.timestamp_header, "") if settings.signs_time else ""
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
