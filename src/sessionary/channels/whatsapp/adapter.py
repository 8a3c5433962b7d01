"""The WhatsApp channel: posts of the Cloud API in, the Graph API out."""

import asyncio
import hmac
import logging
from collections import OrderedDict
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from sessionary.channels.base import ChannelAdapter, ReceivedMessage, WithdrawnMessage
from sessionary.channels.files import FileRefused, FileTooLarge, IncomingFile, OutgoingFile
from sessionary.channels.whatsapp import inbound, outbound
from sessionary.channels.whatsapp.client import GraphClient
from sessionary.channels.whatsapp.inbound import FailedDelivery, WhatsAppOptions
from sessionary.config.secret import Secret
from sessionary.engine.ports import Receive
from sessionary.errors import NotAllowed, RetryLater, SessionaryError, Unreachable
from sessionary.model.source import Channel, Source
from sessionary.model.turn import Delivery

CONCURRENT_DOWNLOADS = 4
MAX_CHATS = 1000
logger = logging.getLogger(__name__)


class WhatsAppAdapter(ChannelAdapter):
    """One number of the Cloud API. What is not durable when we answer, WhatsApp posts again."""

    platform = inbound.PLATFORM
    capabilities = outbound.CAPABILITIES
    options: WhatsAppOptions

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
        self._latest: OrderedDict[str, str] = OrderedDict()
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

    async def handle_webhook(self, headers: Mapping[str, str], body: bytes) -> int:
        """Handle a post: its signature first; answer when its messages are durable."""
        given = {name.lower(): value for name, value in headers.items()}
        signature = given.get("x-hub-signature-256", "")
        if not inbound.is_signed(body, signature, self._app_secret.reveal()):
            logger.warning("whatsapp: a post without a valid signature was refused")
            return HTTPStatus.UNAUTHORIZED
        try:
            payload = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            logger.warning("whatsapp: a signed post is not JSON")
            return HTTPStatus.BAD_REQUEST
        events = list(inbound.events(payload, self._graph.number_id))
        if not events:
            return HTTPStatus.OK
        return await self.handle_post(lambda receive: self._handle(events, receive))

    async def _handle(self, events: list[inbound.Event], receive: Receive) -> None:
        for event in events:
            match event:
                case ReceivedMessage(source=source):
                    if await self.admit(event, receive):
                        self._remember(source.chat_id or "", source.platform_message_id or "")
                case WithdrawnMessage(source, message_id):
                    await self.observe(source, f"(took back the message {message_id})", receive)
                case FailedDelivery(delivery_id=id, error=error):
                    reason = outbound.reason_of(error)
                    logger.warning("whatsapp: delivery %s was not delivered: %s", id, reason)
                    if self.services is not None and id is not None:
                        await self.services.bounced(id, reason)

    async def fetch_file(self, file: IncomingFile, source: Source) -> bytes:
        """Fetch a file."""
        limit = self.options.largest_file
        async with self._downloads:
            found = await self._graph.find(file.id)
            if found.size is not None and found.size > limit:
                raise FileTooLarge(f"{found.size} bytes")
            return await self._graph.download(found.url, limit)

    def split(self, text: str) -> list[str]:
        """Split a text into messages that WhatsApp accepts."""
        return outbound.split(text)

    async def send_text(self, delivery: Delivery, text: str, index: int) -> str:
        """Send a text."""
        return await self._send(outbound.text_message(text, delivery), delivery)

    async def send_file(self, delivery: Delivery, file: OutgoingFile, index: int) -> str:
        """Upload a file and send it."""
        try:
            media_id = await self._graph.upload(file.data, file.media_type, file.name)
        except Unreachable as error:  # because of the file, not of the person
            raise FileRefused(str(error)) from error
        return await self._send(outbound.file_message(media_id, file, delivery), delivery)

    async def _send(self, message: dict[str, Any], delivery: Delivery) -> str:
        return await self._graph.post(message, chat=str(delivery.channel)) or ""

    async def typing(self, channel: Channel) -> None:
        """Mark the last message as read, and show that a reply is being written."""
        latest = self._latest.get(channel.chat_id)
        if latest is not None:
            await self._graph.post(outbound.typing_message(latest))

    async def close(self) -> None:
        """Close connections."""
        await self._graph.close()

    async def check(self) -> str:
        """Show the token; return the number and its name."""
        return f"WhatsApp knows this number as {await self._who()}."

    async def _who(self) -> str:
        number = await self._graph.number()
        name = number.get("verified_name") or "without a name"
        return f"{name} ({number.get('display_phone_number') or self._graph.number_id})"

    def _remember(self, chat: str, message_id: str) -> None:
        self._latest[chat] = message_id
        self._latest.move_to_end(chat)
        while len(self._latest) > MAX_CHATS:
            self._latest.popitem(last=False)
