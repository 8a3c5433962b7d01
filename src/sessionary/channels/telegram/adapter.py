"""The channel itself: updates in, deliveries out, one bot."""

import asyncio
import hmac
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sessionary.channels.enclosures import Enclosure, Enclosures, FileRefused
from sessionary.channels.files import Failures, attachment, gone, too_large
from sessionary.channels.growing import Growing, preview
from sessionary.channels.observed import Observed
from sessionary.channels.progress import Progress
from sessionary.channels.split import utf16_units
from sessionary.channels.telegram import inbound, outbound
from sessionary.channels.telegram.client import Client, Moved, Refused
from sessionary.channels.telegram.inbound import FileRef, Incoming
from sessionary.channels.telegram.outbound import Piece
from sessionary.channels.telegram.settings import TelegramSettings
from sessionary.engine.ports import Capabilities, DeliveryServices, Receive, Sent
from sessionary.errors import BadInput, NotAllowed, RetryLater, SessionaryError, Unreachable
from sessionary.model.message import Attachment, Part
from sessionary.model.source import Channel, ChatType
from sessionary.model.turn import Delivery

SECRET_HEADER = "x-telegram-bot-api-secret-token"
LONGEST_PAUSE_SECONDS = 300.0
# Telegram takes about one message a second in a chat, and 20 a minute in a group.
DIRECT_PAUSES, GROUP_PAUSES = 1.1, 3.5
_LONGEST_DELIVERY = 40_000
_NOTES = (
    "Messages are Telegram messages: short paragraphs read best; tables are shown as plain text.",
    "You cannot see messages from before you were added, nor who else is in a group.",
)
_OK, _BAD, _NOT_SIGNED, _LATER = 200, 400, 401, 503
log = logging.getLogger("sessionary.telegram")

Wire = dict[str, Any]


class TelegramAdapter:
    """One bot. Without a webhook it polls, and confirms an update once it is durable."""

    platform = "telegram"
    capabilities = Capabilities(
        longest_text=_LONGEST_DELIVERY,
        shows_typing=True,
        ids_needed_for_mentions=False,
        notes=_NOTES,
    )

    def __init__(self, settings: TelegramSettings) -> None:
        self.settings = settings
        self.client = Client(settings)
        # The route is mounted only where there is a secret to check.
        self.webhook: Callable[[Mapping[str, str], bytes], Awaitable[int]] | None = (
            self._webhook if settings.webhook_url and settings.webhook_secret else None
        )
        self._receive: Receive | None = None
        self._offset: int | None = None
        self._failures = 0
        self._lost = Failures()
        self._observed = Observed()
        self._moved: dict[str, str] = {}
        self._quiet_until: dict[str, float] = {}
        self._progress = Progress()
        self._enclosures = Enclosures(settings.largest_sent)
        self._growing = Growing(self._put_preview, pause_of=self._pause_of)

    def attach(self, desk: DeliveryServices) -> None:
        """Know where the bytes of files are."""
        self._enclosures.desk = desk

    async def run(self, receive: Receive) -> None:
        """Take updates in until cancelled."""
        self._receive = receive
        try:
            await self._begin()
            while True:
                await self._poll(receive)
                self._failures = 0
        except RetryLater as error:
            raise self._later(str(error), error.after) from error
        except SessionaryError as error:
            if error.committed == "unknown":
                raise self._later(str(error)) from error
            raise
        finally:
            self._receive = None

    async def send(self, delivery: Delivery) -> Sent:
        """Send a delivery; what was sent of a long one is not sent again by this process."""
        done = self._progress.sent(delivery.id)
        try:
            for piece in outbound.pieces(delivery.parts)[len(done) :]:
                if isinstance(piece, Attachment):
                    done.append(await self._send_file(delivery, piece))
                    continue
                grown = None if done else await self._grown(delivery, piece)
                done.append(grown or await self._send(delivery.channel, piece))
        except RetryLater as error:
            pause = self.settings.pause_seconds * 2.0 ** min(delivery.attempts, 10)
            wait = error.after or min(pause, LONGEST_PAUSE_SECONDS)
            raise RetryLater(str(error), after=wait) from error
        self._progress.finish(delivery.id)
        return Sent(next((number for number in done if number), None))

    async def typing(self, channel: Channel) -> None:
        """Show for five seconds that an answer is being written."""
        chat = self._moved.get(channel.chat_id, channel.chat_id)
        try:
            await self.client.typing(chat, thread=channel.thread_id)
        except SessionaryError as error:
            log.debug("telegram does not show typing: %s", error)

    async def show(self, channel: Channel, turn_id: str, text: str) -> None:
        """Let the answer grow in the chat, where that is wanted."""
        if self.settings.stream:
            await self._growing.show(channel, turn_id, text)

    async def close(self) -> None:
        """Let go of the connections."""
        await self.client.close()

    async def _begin(self) -> None:
        await self.client.me()
        settings = self.settings
        if settings.webhook_url is not None and settings.webhook_secret is not None:
            await self._set_hook(settings.webhook_url, settings.webhook_secret.reveal())
            await asyncio.Event().wait()
        if (await self.client.hook()).url:
            log.warning("telegram has posted this bot's messages elsewhere; now they are polled")
            await self.client.drop_hook()

    async def _set_hook(self, url: str, secret: str) -> None:
        try:
            await self.client.set_hook(url, secret)
        except Refused as error:
            raise NotAllowed(f"Telegram will not post to {url}: {error}.") from error
        self._failures = 0

    async def _poll(self, receive: Receive) -> None:
        for update in await self.client.updates(self._offset):
            await self._take(update, receive)
            self._offset = int(update["update_id"]) + 1

    async def _webhook(self, headers: Mapping[str, str], body: bytes) -> int:
        """One update as Telegram posts it; answered only when it is durable."""
        secret = self.settings.webhook_secret
        given = headers.get(SECRET_HEADER, "")
        if secret is None or not hmac.compare_digest(given.encode(), secret.reveal().encode()):
            log.warning("telegram: a request with a wrong secret token was refused")
            return _NOT_SIGNED
        if self._receive is None:
            return _LATER
        try:
            update = json.loads(body)
        except ValueError:
            return _BAD
        if not isinstance(update, dict):
            return _BAD
        try:
            await self._take(update, self._receive)
        except SessionaryError as error:
            # Whatever it was: what is not durable is not acknowledged.
            log.warning("telegram: a message could not be kept and comes again: %s", error)
            return _LATER
        return _OK

    async def _take(self, update: Wire, receive: Receive) -> None:
        moved = inbound.migration(update)
        if moved is not None:
            await self._follow(*moved)
            return
        incoming = inbound.read(update, await self.client.me())
        if incoming is None:
            return
        if not self._concerns(incoming):
            await self._observe(incoming, receive)
            return
        source = incoming.source
        parts, files = await self._fetched(incoming, receive)
        said = inbound.to_message(incoming, parts)
        try:
            await self._observed.give(
                str(source.channel), said, lambda whole: receive(source, whole, files=files)
            )
        except BadInput as error:
            # It would be refused for ever, and everything after it would wait.
            log.warning("telegram: a message was refused: %s", error)
            await self._tell(incoming, f"Your message could not be taken in: {error}")

    def _concerns(self, incoming: Incoming) -> bool:
        """Whether a message is for the agent."""
        if incoming.is_edit and not self.settings.edits:
            return False
        if incoming.source.chat_type == ChatType.DM:
            return True
        if self.settings.groups == "never":
            return False
        return self.settings.groups == "always" or incoming.is_addressed

    async def _observe(self, incoming: Incoming, receive: Receive) -> None:
        """Remember a line that was not for the agent, unless a stranger wrote it."""
        settings = self.settings
        is_heard = settings.observe and settings.groups != "never"
        is_new = not incoming.is_edit or settings.edits
        if is_heard and is_new and await receive.admits(incoming.source):
            source = incoming.source
            speaker, words = inbound.observed_line(incoming)
            self._observed.note(str(source.channel), speaker, words, id=source.platform_message_id)

    async def _fetched(
        self, incoming: Incoming, receive: Receive
    ) -> tuple[tuple[Part, ...], tuple[bytes, ...]]:
        """The files of a message: those that may come in, and a note for the others."""
        parts: list[Part] = []
        files: list[bytes] = []
        if incoming.files and not await receive.admits(incoming.source):
            return (), ()
        for file in incoming.files:
            part, data = await self._file(file)
            parts.append(part)
            if data is not None:
                files.append(data)
        return tuple(parts), tuple(files)

    async def _file(self, file: FileRef) -> tuple[Part, bytes | None]:
        limit = self.settings.largest_file
        if file.size is not None and file.size > limit:
            return too_large(file.label, limit, file.size), None
        try:
            data = await self.client.fetch(file)
        except Refused as error:
            is_size = "too big" in str(error)
            return too_large(file.label, limit) if is_size else gone(file.label), None
        except NotAllowed:
            raise
        except SessionaryError as error:
            # One that never comes must not hold up everything after it.
            if not self._lost.is_hopeless(file.file_id):
                raise
            return gone(file.label, str(error)), None
        if len(data) > limit:
            return too_large(file.label, limit, len(data)), None
        return attachment(data, file.media_type, file.name), data

    async def _grown(self, delivery: Delivery, piece: Piece) -> str | None:
        """Make the delivery the last edit of the message that grew; None when there is none."""
        chat = self._moved.get(delivery.channel.chat_id, delivery.channel.chat_id)

        async def edit(number: str) -> None:
            self._refuse_while_quiet(chat)
            if piece.markup is not None:
                try:
                    await self.client.edit(chat, number, piece.markup, markup=True)
                except Refused as error:
                    log.info("telegram does not take a markup, it goes out plain: %s", error)
                else:
                    return
            await self._put_text(chat, number, piece.plain)

        return await self._growing.finish(delivery.turn_id, edit)

    async def _put_preview(self, channel: Channel, number: str | None, text: str) -> str:
        chat = self._moved.get(channel.chat_id, channel.chat_id)
        shown = preview(outbound.sayable(text), outbound.LONGEST, measure=utf16_units)
        if number is not None:
            await self._put_text(chat, number, shown)
            return number
        try:
            return await self.client.send(chat, shown, thread=channel.thread_id, markup=False)
        except (Refused, Moved) as error:
            raise Unreachable(str(error)) from error

    async def _put_text(self, chat: str, number: str, text: str) -> None:
        try:
            await self.client.edit(chat, number, text, markup=False)
        except (Refused, Moved) as error:
            raise Unreachable(str(error)) from error

    def _pause_of(self, channel: Channel) -> float:
        pauses = GROUP_PAUSES if channel.chat_id.startswith("-") else DIRECT_PAUSES
        return self.settings.pause_seconds * pauses

    async def _send_file(self, delivery: Delivery, file: Attachment) -> str:
        to = delivery.channel
        return await self._enclosures.hand_over(
            delivery,
            file,
            give=lambda found: self._send(to, found),
            say=lambda words: self._send(to, Piece(words, None)),
        )

    async def _send(self, channel: Channel, piece: Piece | Enclosure) -> str:
        chat = self._moved.get(channel.chat_id, channel.chat_id)
        self._refuse_while_quiet(chat)
        try:
            return await self._put(chat, channel.thread_id, piece)
        except Moved as error:
            await self._follow(chat, error.chat_id)
            self._moved[channel.chat_id] = error.chat_id
            return await self._put(error.chat_id, channel.thread_id, piece)
        except RetryLater as error:
            self._quiet_until[chat] = asyncio.get_running_loop().time() + error.after
            raise

    async def _put(self, chat: str, thread: str | None, piece: Piece | Enclosure) -> str:
        if isinstance(piece, Piece):
            return await self._send_to(chat, thread, piece)
        try:
            return await self.client.send_file(chat, piece, thread=thread)
        except Refused as error:
            raise FileRefused(f"Telegram says: {error}") from error

    async def _send_to(self, chat: str, thread: str | None, piece: Piece) -> str:
        """Send with markup; without, if Telegram does not like it; in halves, if it is too long."""
        try:
            if piece.markup is not None:
                return await self.client.send(chat, piece.markup, thread=thread, markup=True)
        except Refused as error:
            log.info("telegram does not take a markup, it goes out plain: %s", error)
        try:
            return await self.client.send(chat, piece.plain, thread=thread, markup=False)
        except Refused as error:
            if "too long" in str(error) and len(piece.plain) > 1:
                numbers = [
                    await self._send_to(chat, thread, each) for each in outbound.halves(piece)
                ]
                return numbers[0]
            if "empty" in str(error):
                return ""
            where = f"telegram:{chat}"
            raise Unreachable(f"Telegram does not take it: {error}.", where) from error

    async def _follow(self, old: str, new: str) -> None:
        """A group has become a supergroup, under another id: its conversation goes on there."""
        self._moved[old] = new
        if self._enclosures.desk is not None:
            await self._enclosures.desk.moved(old, new)
            log.info("telegram: the group %s is now %s", old, new)

    def _refuse_while_quiet(self, chat: str) -> None:
        """Telegram counts requests that come too early against the bot."""
        rest = self._quiet_until.get(chat, 0) - asyncio.get_running_loop().time()
        if rest > 0:
            raise RetryLater(f"Telegram asked to wait {rest:.0f} seconds more.", after=rest)
        self._quiet_until.pop(chat, None)

    async def _tell(self, incoming: Incoming, text: str) -> None:
        source = incoming.source
        try:
            piece = Piece(text, None)
            await self._send_to(source.chat_id or "", source.thread_id, piece)
        except SessionaryError as error:
            log.warning("telegram: a person could not be told: %s", error)

    def _later(self, reason: str, wanted: float = 0.0) -> RetryLater:
        self._failures += 1
        pause = self.settings.pause_seconds * 2.0 ** min(self._failures - 1, 6)
        return RetryLater(reason, after=max(wanted, min(pause, 60.0)))
