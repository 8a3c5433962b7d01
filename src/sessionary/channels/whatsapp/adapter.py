"""The WhatsApp channel: posts of the Cloud API in, the Graph API out."""

import asyncio
import hmac
import json
import logging
import re
from collections.abc import Mapping
from typing import Any

from sessionary.channels.base import (
    CardPiece,
    ChannelAdapter,
    ReceivedMessage,
    WithdrawnMessage,
    button_labels,
    has_long_labels,
    utf16_units,
)
from sessionary.channels.files import (
    MEGABYTE,
    FileRefused,
    FileTooLarge,
    IncomingFile,
    LatestDict,
    OutgoingFile,
)
from sessionary.channels.whatsapp import inbound
from sessionary.channels.whatsapp.client import GraphClient, reason_of
from sessionary.channels.whatsapp.inbound import (
    PLATFORM,
    ButtonReply,
    FailedDelivery,
    WhatsAppOptions,
)
from sessionary.config.secret import Secret
from sessionary.engine.ports import Capabilities, Receive
from sessionary.errors import NotAllowed, RetryLater, SessionaryError, Unreachable
from sessionary.model.message import Attachment
from sessionary.model.question import Card
from sessionary.model.source import Channel, Source
from sessionary.model.turn import Delivery

CONCURRENT_DOWNLOADS = 4
MAX_CHATS = 1000
LONGEST = 4096
MAX_PRESSES = 1000
# What WhatsApp accepts in a message with buttons, or with a list.
LONGEST_BODY = 1024
_MOST_BUTTONS, _LONGEST_BUTTON = 3, 20
_MOST_ROWS, _LONGEST_ROW, _LONGEST_DESCRIPTION = 10, 24, 72
_ANSWER_ABOVE = "Please answer the question above."
_LARGEST_IMAGE = 5 * MEGABYTE
# What WhatsApp shows as it is; anything else is a document.
_SHOWN = {
    "image": ("jpeg", "png"),
    "audio": ("aac", "amr", "mpeg", "mp4", "ogg"),
    "video": ("mp4", "3gpp"),
}
CAPABILITIES = Capabilities(
    # Ten messages: the adapter splits between code fences, so a delivery may be longer than one message.
    longest_text=10 * LONGEST,
    shows_typing=True,
    buttons=True,
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
logger = logging.getLogger(__name__)


class WhatsAppAdapter(ChannelAdapter):
    """One number of the Cloud API. What is not durable when we answer, WhatsApp posts again."""

    platform = PLATFORM
    capabilities = CAPABILITIES
    options: WhatsAppOptions
    longest_message = LONGEST
    # As Meta documents it.
    webhook_bytes = 3 * MEGABYTE
    measure = staticmethod(utf16_units)

    def __init__(
        self,
        graph: GraphClient,
        app_secret: Secret,
        verify_token: Secret,
        options: WhatsAppOptions | None = None,
    ) -> None:
        super().__init__(options or WhatsAppOptions())
        self._graph = graph
        self._app_secret = app_secret
        self._verify_token = verify_token
        self._downloads = asyncio.Semaphore(CONCURRENT_DOWNLOADS)
        # The last message of each chat: the typing indicator is shown below a message.
        self._latest: LatestDict[str, str] = LatestDict(MAX_CHATS)
        # The presses that were handled: nobody is told twice about one that is posted again.
        self._presses: LatestDict[str, None] = LatestDict(MAX_PRESSES)
        self.webhook = self.handle_webhook
        self.challenge = self.answer_challenge

    async def run(self, receive: Receive) -> None:
        """Accept posts until cancelled, or until the token is refused.

        WhatsApp keeps what it cannot post, and posts it again for days.
        """
        with self.receiving(receive):
            await self._check_token()
            await self.wait_until_refused()

    async def _check_token(self) -> None:
        """Return once WhatsApp knows our number; raise `NotAllowed` if it refuses us."""
        while True:
            try:
                logger.info("whatsapp: writing as %s", await self._who())
            except NotAllowed:
                raise
            except Unreachable as error:
                raise NotAllowed(
                    f"WhatsApp has no number {self._graph.number_id}: {error}"
                ) from error
            except SessionaryError as error:
                logger.warning("whatsapp: %s", error)
                await asyncio.sleep(error.after if isinstance(error, RetryLater) else 10.0)
            else:
                return

    def answer_challenge(self, query: Mapping[str, str]) -> str | None:
        """Return what WhatsApp wants to read back if it knows our verify token."""
        given = query.get("hub.verify_token", "").encode()
        is_ours = hmac.compare_digest(given, self._verify_token.reveal().encode())
        if query.get("hub.mode") == "subscribe" and is_ours:
            return query.get("hub.challenge")
        logger.warning("whatsapp: a verification with a wrong token was refused")
        return None

    def signature_problem(self, headers: Mapping[str, str], body: bytes) -> str | None:
        signature = headers.get("x-hub-signature-256", "")
        is_valid = inbound.is_signed(body, signature, self._app_secret.reveal())
        return None if is_valid else "its signature is not valid"

    def decode_post(self, body: bytes) -> Any:
        return json.loads(body)  # one that is not an object has no events

    async def handle_payload(self, payload: Any, receive: Receive) -> None:
        for event in list(inbound.events(payload, self._graph.number_id)):
            match event:
                case ReceivedMessage(source=source):
                    if await self.admit(event, receive):
                        self._latest[source.chat_id or ""] = source.platform_message_id or ""
                case WithdrawnMessage(source, message_id):
                    await self.observe(source, f"(took back the message {message_id})", receive)
                case ButtonReply(source, data):
                    await self._handle_press(source, data, receive)
                case FailedDelivery(delivery_id=id, error=error):
                    reason = reason_of(error)
                    logger.warning("whatsapp: delivery %s was not delivered: %s", id, reason)
                    if self.services is not None and id is not None:
                        await self.services.bounced(id, reason)

    async def _handle_press(self, source: Source, data: str, receive: Receive) -> None:
        """Answer a question with a button; if that changes nothing, tell whoever pressed it."""
        result = await self.press(source, data, receive)
        id, chat = source.platform_message_id or "", source.chat_id or ""
        if result.is_changed:
            self._latest[chat] = id
        elif id not in self._presses and await receive.admits(source):
            try:
                await self._post(chat, "text", {"body": result.text, "preview_url": False})
            except SessionaryError as error:
                logger.warning("whatsapp: a person could not be told: %s", error)
        self._presses[id] = None

    async def fetch_file(self, file: IncomingFile, source: Source) -> bytes:
        limit = self.options.largest_file
        async with self._downloads:
            found = await self._graph.find(file.id)
            if found.size is not None and found.size > limit:
                raise FileTooLarge(f"{found.size} bytes")
            return await self._graph.download(found.url, limit)

    def split(self, text: str) -> list[str]:
        return super().split(formatted(text))

    def pieces(self, delivery: Delivery) -> list[str | CardPiece | Attachment]:
        found = super().pieces(delivery)
        last = found[-1] if found else None
        if not isinstance(last, CardPiece):
            return found
        is_group = recipient(delivery.channel.chat_id)["recipient_type"] == "group"
        if is_group or buttons_of(last.card) is None:
            return [*found[:-1], *super().split(f"{last.text}\n\n{last.card.lines()}")]
        if self.measure(last.text) > LONGEST_BODY:
            return [*found[:-1], last.text, CardPiece(_ANSWER_ABOVE, last.card)]
        return found

    async def send_text(self, delivery: Delivery, text: str, index: int) -> str:
        return await self._send(delivery, "text", {"body": text, "preview_url": False})

    async def send_card(self, delivery: Delivery, text: str, card: Card, index: int) -> str:
        try:
            content = {"body": {"text": text}, **(buttons_of(card) or {})}
            return await self._send(delivery, "interactive", content)
        except Unreachable as error:
            # The question must be answerable, also where a person's app or WhatsApp itself accepts no buttons.
            logger.info("whatsapp does not accept buttons, they are sent as a text: %s", error)
            return await self.send_text(delivery, f"{text}\n\n{card.lines()}", index)

    async def send_file(self, delivery: Delivery, file: OutgoingFile, index: int) -> str:
        try:
            media_id = await self._graph.upload(file.data, file.media_type, file.name)
        except Unreachable as error:  # because of the file, not of the person
            raise FileRefused(str(error)) from error
        form = file.media_type.partition("/")[2]
        is_too_large = file.kind == "image" and len(file.data) > _LARGEST_IMAGE
        if form in _SHOWN.get(file.kind, ()) and not is_too_large:
            return await self._send(delivery, file.kind, {"id": media_id})
        return await self._send(delivery, "document", {"id": media_id, "filename": file.name})

    async def _send(self, delivery: Delivery, kind: str, content: dict[str, Any]) -> str:
        # WhatsApp sends this id back when the delivery fails.
        about = {"biz_opaque_callback_data": delivery.id}
        return await self._post(delivery.channel.chat_id, kind, content, **about)

    async def _post(self, chat_id: str, kind: str, content: dict[str, Any], **about: str) -> str:
        message = {
            "messaging_product": PLATFORM,
            **about,
            **recipient(chat_id),
            "type": kind,
            kind: content,
        }
        return await self._graph.post(message, chat=str(Channel(PLATFORM, chat_id))) or ""

    async def typing(self, channel: Channel) -> None:
        """Mark the last message as read, and show that a reply is being written."""
        latest = self._latest.get(channel.chat_id)
        if latest is not None:
            shown = {"status": "read", "message_id": latest, "typing_indicator": {"type": "text"}}
            await self._graph.post({"messaging_product": PLATFORM, **shown})

    async def close(self) -> None:
        await self._graph.close()

    async def check(self) -> str:
        return f"WhatsApp knows this number as {await self._who()}."

    async def _who(self) -> str:
        number = await self._graph.number()
        name = number.get("verified_name") or "without a name"
        return f"{name} ({number.get('display_phone_number') or self._graph.number_id})"


def recipient(chat_id: str) -> dict[str, str]:
    """Return the recipient's fields: a number, a group, or a person without a number."""
    person = _PERSON.fullmatch(chat_id)
    if person is not None:
        return {"recipient_type": "individual", "to": person[1]}
    if re.fullmatch(r"[A-Z]{2}\.[A-Za-z0-9.]+", chat_id):
        return {"recipient_type": "individual", "recipient": chat_id}
    return {"recipient_type": "group", "to": chat_id}


def buttons_of(card: Card) -> dict[str, Any] | None:
    """Return the part of a message that lets people choose: buttons, or a list; None if the options fit neither."""
    labels = button_labels(card, _LONGEST_DESCRIPTION)
    if (
        len(labels) > _MOST_ROWS
        or has_long_labels(card, _LONGEST_DESCRIPTION)
        or len(set(labels)) < len(labels)
    ):
        return None
    if len(labels) <= _MOST_BUTTONS and not has_long_labels(card, _LONGEST_BUTTON):
        replies = [
            {"id": card.button(number), "title": label} for number, label in enumerate(labels, 1)
        ]
        buttons = [{"type": "reply", "reply": reply} for reply in replies]
        return {"type": "button", "action": {"buttons": buttons}}
    rows = []
    titles = button_labels(card, _LONGEST_ROW)
    for number, (title, label) in enumerate(zip(titles, labels, strict=True), 1):
        row = {"id": card.button(number), "title": title}
        rows.append(row if title == label else {**row, "description": label})
    sections = [{"title": "Answers", "rows": rows}]
    return {"type": "list", "action": {"button": "Answer", "sections": sections}}


def formatted(text: str) -> str:
    """Return Markdown's bold, struck and headings in WhatsApp's notation; code stays as it is."""
    pieces = _CODE.split(text)
    for index in range(0, len(pieces), 2):
        plain = _HEADING.sub(r"**\1**", pieces[index])
        pieces[index] = _STRUCK.sub(r"~\1~", _BOLD.sub(r"*\1*", plain))
    return "".join(pieces)
