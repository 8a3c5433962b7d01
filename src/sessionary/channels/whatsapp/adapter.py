"""WhatsApp as a channel: posts of the Cloud API in, the Graph API out."""

import asyncio
import hmac
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import msgspec

from sessionary.channels.enclosures import Enclosure, Enclosures, FileRefused, files_of
from sessionary.channels.files import gone, too_large
from sessionary.channels.observed import Observed
from sessionary.channels.progress import Progress
from sessionary.channels.whatsapp import inbound, outbound
from sessionary.channels.whatsapp.client import Graph, TooLarge
from sessionary.channels.whatsapp.inbound import Failure, Heard, Rules, Withdrawn
from sessionary.config.secret import Secret
from sessionary.engine.ports import DeliveryServices, Receive, Sent
from sessionary.errors import (
    BadInput,
    NotAllowed,
    RetryLater,
    SessionaryError,
    StoreUnavailable,
    Unreachable,
)
from sessionary.model.message import Attachment, Text
from sessionary.model.source import Channel
from sessionary.model.turn import Delivery

TAKEN, BAD, FORGED, BUSY = 200, 400, 401, 503
FILES_AT_ONCE = 4
MOST_CHATS = 1000
log = logging.getLogger("sessionary.channels.whatsapp")


class WhatsAppAdapter:
    """One number of the Cloud API. What is not durable when we answer, WhatsApp posts again."""

    platform = inbound.PLATFORM
    capabilities = outbound.CAPABILITIES

    def __init__(
        self, graph: Graph, app_secret: Secret, verify_token: Secret, rules: Rules | None = None
    ) -> None:
        self._graph = graph
        self._app_secret = app_secret
        self._verify_token = verify_token
        self._rules = rules or Rules()
        self._receive: Receive | None = None
        self._refusal: asyncio.Future[None] | None = None
        self._fetching = asyncio.Semaphore(FILES_AT_ONCE)
        self._latest: OrderedDict[str, str] = OrderedDict()
        self._observed = Observed()
        self._progress = Progress()
        self._enclosures = Enclosures(self._rules.largest_sent)

    def attach(self, desk: DeliveryServices) -> None:
        """Know where files are, and who hears of a late failure."""
        self._enclosures.desk = desk

    async def run(self, receive: Receive) -> None:
        """Be open for posts until cancelled, or until the token is refused."""
        self._refusal = asyncio.get_running_loop().create_future()
        self._receive = receive
        try:
            await self._check_token()
            await self._refusal
        finally:
            # Closed: WhatsApp keeps what it cannot post, and posts it again for days.
            self._receive = None
            self._refusal.cancel()

    async def send(self, delivery: Delivery) -> Sent:
        """Write a delivery's messages; after a failure the next try goes on where this stopped."""
        try:
            return await self._send(delivery)
        except NotAllowed as error:
            if self._refusal is not None and not self._refusal.done():
                self._refusal.set_exception(NotAllowed(str(error)))
            raise

    async def typing(self, channel: Channel) -> None:
        """Mark what came as read, and show that an answer is being written."""
        latest = self._latest.get(channel.chat_id)
        if latest is None:
            return
        try:
            await self._graph.post(outbound.typing_message(latest))
        except SessionaryError as error:
            log.debug("whatsapp does not show typing: %s", error)

    async def close(self) -> None:
        """Let go of connections."""
        await self._graph.close()

    async def who(self) -> str:
        """The number and the name that WhatsApp knows us by."""
        number = await self._graph.number()
        name = number.get("verified_name") or "without a name"
        return f"{name} ({number.get('display_phone_number') or self._graph.number_id})"

    def challenge(self, query: Mapping[str, str]) -> str | None:
        """What to answer when WhatsApp asks whether this address is ours; None to refuse."""
        given = query.get("hub.verify_token", "").encode()
        is_ours = hmac.compare_digest(given, self._verify_token.reveal().encode())
        if query.get("hub.mode") == "subscribe" and is_ours:
            return query.get("hub.challenge")
        log.warning("whatsapp: a verification with a wrong token was refused")
        return None

    async def webhook(self, headers: Mapping[str, str], body: bytes) -> int:
        """Take a post in: refused when it is forged, taken when all in it is durable."""
        signature = {name.lower(): value for name, value in headers.items()}.get(
            "x-hub-signature-256", ""
        )
        if not inbound.is_signed(body, signature, self._app_secret.reveal()):
            log.warning("whatsapp: a post without a good signature was refused, nothing was read")
            return FORGED
        try:
            payload = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            log.warning("whatsapp: a signed post is not JSON")
            return BAD
        try:
            for event in inbound.events(payload, self._graph.number_id):
                await self._take(event)
        except (RetryLater, StoreUnavailable, NotAllowed) as error:
            log.warning("whatsapp: a post cannot be taken now, it will come again: %s", error)
            return BUSY
        return TAKEN

    async def _check_token(self) -> None:
        """Return once WhatsApp knows our number; raise `NotAllowed` if it refuses us."""
        while True:
            try:
                log.info("whatsapp: writing as %s", await self.who())
            except NotAllowed:
                raise
            except Unreachable as error:
                raise NotAllowed(
                    f"WhatsApp has no number {self._graph.number_id}: {error}"
                ) from error
            except SessionaryError as error:
                log.warning("whatsapp: %s", error)
                await asyncio.sleep(getattr(error, "after", 10.0))
            else:
                return

    async def _send(self, delivery: Delivery) -> Sent:
        chat = str(delivery.channel)
        sent = self._progress.sent(delivery.id)
        texts, files = outbound.texts(delivery), files_of(delivery.parts)
        for text in texts[len(sent) :]:
            message = outbound.text_message(text, delivery)
            sent.append(await self._graph.post(message, chat=chat) or "")
        for file in files[max(0, len(sent) - len(texts)) :]:
            message = await self._file_message(file, delivery)
            sent.append(await self._graph.post(message, chat=chat) or "")
        self._progress.finish(delivery.id)
        return Sent(sent[-1] or None)

    async def _file_message(self, file: Attachment, delivery: Delivery) -> dict[str, object]:
        async def give(found: Enclosure) -> dict[str, object]:
            try:
                media_id = await self._graph.upload(found.data, found.media_type, found.name)
            except Unreachable as error:  # it concerns the file, not the person
                raise FileRefused(str(error)) from error
            return outbound.file_message(media_id, found, delivery)

        async def say(words: str) -> dict[str, object]:
            return outbound.text_message(words, delivery)

        return await self._enclosures.hand_over(delivery, file, give=give, say=say)

    async def _take(self, event: inbound.Event) -> None:
        match event:
            case Heard():
                await self._hear(event)
            case Withdrawn():
                await self._withdraw(event)
            case Failure():
                await self._fail(event)

    def _door(self) -> Receive:
        if self._receive is None:
            raise RetryLater("the channel is not running", after=10.0)
        return self._receive

    async def _withdraw(self, withdrawn: Withdrawn) -> None:
        source = withdrawn.source
        if await self._door().admits(source):
            words = f"(took back the message {withdrawn.message_id})"
            where, speaker = source.chat_id or "", source.speaker or ""
            self._observed.note(where, speaker, words, id=source.platform_message_id)

    async def _hear(self, heard: Heard) -> None:
        receive, source = self._door(), heard.source
        where, rules = source.chat_id or "", self._rules
        if not heard.is_addressed and not rules.always:
            if rules.observe and await receive.admits(source):
                speaker, id = source.speaker or "", source.platform_message_id
                self._observed.note(where, speaker, heard.text, id=id)
            return
        is_known = heard.media is None or await receive.admits(source)
        file, files = await self._fetch(heard) if is_known else (None, ())
        said = inbound.message_of(heard, file)
        try:
            taken = await self._observed.give(
                where, said, lambda whole: receive(source, whole, files=files)
            )
        except BadInput as error:
            log.warning("whatsapp: a message cannot be stored: %s", error)
            return
        if taken:
            self._remember(where, source.platform_message_id or "")

    async def _fetch(self, heard: Heard) -> tuple[Attachment | Text | None, Sequence[bytes]]:
        """The file of a message, or words that say why it is missing."""
        media, largest = heard.media, self._rules.largest_file
        if media is None:
            return None, ()
        try:
            async with self._fetching:
                found = await self._graph.find(media.id)
                if found.size is not None and found.size > largest:
                    return too_large(media.label, largest, found.size), ()
                data = await self._graph.download(found.url, largest)
        except TooLarge:
            return too_large(media.label, largest), ()
        except Unreachable as error:
            return gone(media.label, str(error)), ()
        return inbound.attachment_of(media, data), (data,)

    async def _fail(self, failure: Failure) -> None:
        reason = outbound.reason_of(failure.error)
        log.warning("whatsapp: delivery %s was not delivered: %s", failure.delivery_id, reason)
        desk = self._enclosures.desk
        if desk is not None and failure.delivery_id is not None:
            await desk.bounced(failure.delivery_id, reason)

    def _remember(self, chat: str, message_id: str) -> None:
        self._latest[chat] = message_id
        self._latest.move_to_end(chat)
        while len(self._latest) > MOST_CHATS:
            self._latest.popitem(last=False)
