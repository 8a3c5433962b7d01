"""The Telegram channel: updates in, deliveries out, one bot."""

import asyncio
import hmac
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from sessionary.channels.base import ChannelAdapter, preview, printable, utf16_units
from sessionary.channels.files import FileRefused, FileTooLarge, IncomingFile, OutgoingFile
from sessionary.channels.telegram import inbound, outbound
from sessionary.channels.telegram.client import ChatMoved, TelegramClient, TelegramRefused
from sessionary.channels.telegram.settings import TelegramSettings
from sessionary.engine.ports import Capabilities, Receive
from sessionary.errors import NotAllowed, NotFound, RetryLater, SessionaryError, Unreachable
from sessionary.model.source import Channel, Source
from sessionary.model.turn import Delivery

SECRET_HEADER = "x-telegram-bot-api-secret-token"
# Telegram accepts about one message a second in a chat, and 20 a minute in a group.
DIRECT_PAUSES, GROUP_PAUSES = 1.1, 3.5
CAPABILITIES = Capabilities(
    longest_text=40_000,
    shows_typing=True,
    notes=(
        "Messages are Telegram messages: short paragraphs read best; tables are shown as plain text.",
        "You cannot see messages from before you were added, nor who else is in a group.",
    ),
)
logger = logging.getLogger(__name__)


class TelegramAdapter(ChannelAdapter):
    """One bot. Without a webhook it polls, and confirms an update once it is durable."""

    platform = "telegram"
    options: TelegramSettings
    # Telegram has no use for a message without content.
    empty_text = ""

    def __init__(self, settings: TelegramSettings) -> None:
        super().__init__(settings)
        self.capabilities = replace(CAPABILITIES, streams=settings.stream)
        self.client = TelegramClient(settings)
        # The route exists only where there is a secret to check.
        if settings.webhook_url and settings.webhook_secret:
            self.webhook = self.handle_webhook
        self._offset: int | None = None
        self._moved: dict[str, str] = {}
        self._quiet_until: dict[str, float] = {}

    async def run(self, receive: Receive) -> None:
        """Receive updates until cancelled."""
        with self.receiving(receive):
            await self._begin()
            while True:
                for update in await self.client.updates(self._offset):
                    await self._handle_update(update, receive)
                    self._offset = int(update["update_id"]) + 1
                self.backoff.reset()

    async def _begin(self) -> None:
        await self.client.me()
        url, secret = self.options.webhook_url, self.options.webhook_secret
        if url is not None and secret is not None:
            try:
                await self.client.set_webhook(url, secret.reveal())
            except TelegramRefused as error:
                raise NotAllowed(f"Telegram will not post to {url}: {error}.") from error
            self.backoff.reset()
            await asyncio.Event().wait()
        if (await self.client.webhook()).url:
            logger.warning("telegram posted this bot's messages elsewhere; now they are polled")
            await self.client.delete_webhook()

    async def handle_webhook(self, headers: Mapping[str, str], body: bytes) -> int:
        """Handle a post: its signature first; answer when its messages are durable."""
        secret = self.options.webhook_secret
        given = headers.get(SECRET_HEADER, "")
        if secret is None or not hmac.compare_digest(given.encode(), secret.reveal().encode()):
            logger.warning("telegram: a request with a wrong secret token was refused")
            return HTTPStatus.UNAUTHORIZED
        try:
            update = json.loads(body)
        except ValueError:
            return HTTPStatus.BAD_REQUEST
        if not isinstance(update, dict):
            return HTTPStatus.BAD_REQUEST
        return await self.handle_post(lambda receive: self._handle_update(update, receive))

    async def _handle_update(self, update: dict[str, Any], receive: Receive) -> None:
        moved = inbound.migration(update)
        if moved is not None:
            await self._follow(*moved)
            return
        received = inbound.read(update, await self.client.me(), self.options)
        if received is not None:
            await self.admit(received, receive)

    async def fetch_file(self, file: IncomingFile, source: Source) -> bytes:
        """Fetch a file."""
        try:
            return await self.client.fetch(file)
        except TelegramRefused as error:
            if "too big" in str(error):
                raise FileTooLarge(str(error)) from error
            raise NotFound(str(error)) from error
        except (RetryLater, NotAllowed):
            raise
        except SessionaryError as error:
            raise RetryLater(str(error), after=0.0) from error

    async def refuse(self, source: Source, reason: str) -> None:
        """Tell a person that their message cannot be stored."""
        try:
            text = f"Your message could not be taken in: {reason}"
            await self._send_text(source.chat_id or "", source.thread_id, text, is_plain=True)
        except SessionaryError as error:
            logger.warning("telegram: a person could not be told: %s", error)

    async def typing(self, channel: Channel) -> None:
        """Show for five seconds that a reply is being written."""
        await self.client.typing(self._chat(channel), thread=channel.thread_id)

    async def close(self) -> None:
        """Close connections."""
        await self.client.close()

    async def check(self) -> str:
        """Return who the bot is and how it gets its messages."""
        me, hook = await self.client.me(), await self.client.webhook()
        wanted = self.options.webhook_url
        lines = [f"The bot is @{me.username} ({me.id})."]
        if wanted is None:
            lines.append("Its messages are polled.")
            if hook.url:
                lines.append(f"Telegram now posts them to {hook.url}; serving will end that.")
        elif hook.url == wanted:
            lines.append(f"Telegram posts its messages to {wanted}.")
        else:
            lines.append(f"Telegram will be asked to post its messages to {wanted}.")
        if hook.problem:
            lines.append(f"The last posting failed: {hook.problem}.")
        lines.append(f"{hook.waiting} messages wait.")
        return " ".join(lines)

    def split(self, text: str) -> list[str]:
        """Split a text into messages that Telegram accepts."""
        return outbound.split(text)

    async def send_text(self, delivery: Delivery, text: str, index: int) -> str:
        """Send a text."""
        return await self._send(delivery.channel, text)

    async def send_file(self, delivery: Delivery, file: OutgoingFile, index: int) -> str:
        """Send a file."""
        return await self._send(delivery.channel, file)

    async def _send(self, channel: Channel, piece: str | OutgoingFile) -> str:
        chat = self._chat(channel)
        self._check_quiet(chat)
        try:
            return await self._send_to(chat, channel.thread_id, piece)
        except ChatMoved as error:
            await self._follow(chat, error.chat_id)
            self._moved[channel.chat_id] = error.chat_id
            return await self._send_to(error.chat_id, channel.thread_id, piece)
        except RetryLater as error:
            self._quiet_until[chat] = asyncio.get_running_loop().time() + error.after
            raise

    async def _send_to(self, chat: str, thread: str | None, piece: str | OutgoingFile) -> str:
        if isinstance(piece, str):
            return await self._send_text(chat, thread, piece)
        try:
            return await self.client.send_file(chat, piece, thread=thread)
        except TelegramRefused as error:
            raise FileRefused(f"Telegram says: {error}") from error

    async def _send_text(
        self, chat: str, thread: str | None, text: str, *, is_plain: bool = False
    ) -> str:
        """Send with markup; without it if Telegram does not accept it; in halves if it is too long."""
        markup = None if is_plain else outbound.markup_of(text)
        try:
            if markup is not None:
                return await self.client.send(chat, markup, thread=thread, markup=True)
        except TelegramRefused as error:
            logger.info("telegram does not accept a markup, it is sent plain: %s", error)
        try:
            return await self.client.send(chat, text, thread=thread, markup=False)
        except TelegramRefused as error:
            if "too long" in str(error) and len(text) > 1:
                ids = [await self._send_text(chat, thread, half) for half in outbound.halves(text)]
                return ids[0]
            if "empty" in str(error):
                return ""
            where = f"telegram:{chat}"
            raise Unreachable(f"Telegram does not take it: {error}.", where) from error

    async def edit_text(self, channel: Channel, message_id: str, text: str) -> None:
        """Replace the text of a message, with markup where Telegram accepts it."""
        chat, markup = self._chat(channel), outbound.markup_of(text)
        self._check_quiet(chat)
        if markup is not None:
            try:
                await self.client.edit(chat, message_id, markup, markup=True)
            except TelegramRefused as error:
                logger.info("telegram does not accept a markup, it is sent plain: %s", error)
            else:
                return
        await self._edit_plain(chat, message_id, text)

    async def show_partial(self, channel: Channel, message_id: str | None, text: str) -> str:
        """Write the beginning of a reply, without markup."""
        chat = self._chat(channel)
        shown = preview(printable(text), outbound.LONGEST, measure=utf16_units)
        if message_id is not None:
            await self._edit_plain(chat, message_id, shown)
            return message_id
        try:
            return await self.client.send(chat, shown, thread=channel.thread_id, markup=False)
        except (TelegramRefused, ChatMoved) as error:
            raise Unreachable(str(error)) from error

    async def _edit_plain(self, chat: str, message_id: str, text: str) -> None:
        try:
            await self.client.edit(chat, message_id, text, markup=False)
        except (TelegramRefused, ChatMoved) as error:
            raise Unreachable(str(error)) from error

    def edit_pause(self, channel: Channel) -> float:
        """Return the pause between edits: groups have a lower limit."""
        pauses = GROUP_PAUSES if channel.chat_id.startswith("-") else DIRECT_PAUSES
        return self.options.pause_seconds * pauses

    def _chat(self, channel: Channel) -> str:
        """Return the id that the chat has now."""
        return self._moved.get(channel.chat_id, channel.chat_id)

    async def _follow(self, old: str, new: str) -> None:
        """Continue the conversation of a group that has become a supergroup, under another id."""
        self._moved[old] = new
        if self.services is not None:
            await self.services.moved(old, new)
            logger.info("telegram: the group %s is now %s", old, new)

    def _check_quiet(self, chat: str) -> None:
        """Wait as long as Telegram asked: it counts requests that come too early against the bot."""
        rest = self._quiet_until.get(chat, 0) - asyncio.get_running_loop().time()
        if rest > 0:
            raise RetryLater(f"Telegram asked to wait {rest:.0f} seconds more.", after=rest)
        self._quiet_until.pop(chat, None)
