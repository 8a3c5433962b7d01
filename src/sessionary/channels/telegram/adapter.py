"""The Telegram channel: one bot of the Bot API. The only module that uses python-telegram-bot."""

import asyncio
import contextlib
import hmac
import json
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import httpx
from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup, WebhookInfo
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    NetworkError,
    TelegramError,
)
from telegram.request import HTTPXRequest

from sessionary.channels.base import CardPiece, ChannelAdapter, answer_lost, utf16_units
from sessionary.channels.files import (
    MEGABYTE,
    FileRefused,
    FileTooLarge,
    IncomingFile,
    OutgoingFile,
)
from sessionary.channels.telegram import TelegramSettings, inbound, outbound
from sessionary.channels.telegram.inbound import TelegramBot, TelegramPress
from sessionary.engine.ports import Capabilities, PressResult, Receive
from sessionary.errors import NotAllowed, NotFound, RetryLater, SessionaryError, Unreachable
from sessionary.model.question import Card
from sessionary.model.source import Channel, Source
from sessionary.model.terminal import one_line
from sessionary.model.turn import Delivery

SECRET_HEADER = "x-telegram-bot-api-secret-token"
# Telegram accepts about one message a second in a chat, and 20 a minute in a group.
DIRECT_PAUSES, GROUP_PAUSES = 1.1, 3.5
_TOO_MANY = 429
_DEFAULT_WAIT = 5.0
_READ_SECONDS = 20.0
_PICTURES = ("image/jpeg", "image/png", "image/webp")
_LARGEST_PICTURE = 10_000_000
CAPABILITIES = Capabilities(
    longest_text=40_000,
    shows_typing=True,
    buttons=True,
    edits=True,
    notes=(
        "Messages are Telegram messages: short paragraphs read best; tables are shown as plain text.",
        "You cannot see messages from before you were added, nor who else is in a group.",
    ),
)
logger = logging.getLogger(__name__)


class TelegramRefused(Exception):
    """Telegram does not accept this request as it is."""


class ChatMoved(Exception):
    """The group has another id now."""

    def __init__(self, chat_id: str) -> None:
        super().__init__(f"The group has moved to {chat_id}.")
        self.chat_id = chat_id


class TelegramAdapter(ChannelAdapter):
    """One bot. Without a webhook it polls, and confirms an update once it is durable.

    A request that never reached Telegram raises `RetryLater` of 0 seconds: `send` and `run` choose the pause.
    """

    platform = "telegram"
    options: TelegramSettings
    # Telegram has no use for a message without content.
    empty_text = ""
    longest_message = outbound.LONGEST
    longest_label = outbound.LONGEST_LABEL
    # Far more than an update has.
    webhook_bytes = MEGABYTE
    measure = staticmethod(utf16_units)

    def __init__(self, settings: TelegramSettings) -> None:
        super().__init__(settings)
        self.capabilities = replace(CAPABILITIES, streams=settings.stream)
        # The route exists only where there is a secret to check.
        if settings.webhook_url and settings.webhook_secret:
            self.webhook = self.handle_webhook
        self._bot: Bot | None = None
        self._requests: tuple[_TelegramRequest, ...] = ()
        self._account: TelegramBot | None = None
        self._offset: int | None = None
        self._moved: dict[str, str] = {}
        self._quiet_until: dict[str, float] = {}

    # Receiving.

    async def run(self, receive: Receive) -> None:
        with self.receiving(receive):
            await self._begin()
            seconds = self.options.poll_seconds
            while True:
                async with self._calling() as bot:
                    # The offset tells Telegram that all updates before it are stored.
                    updates = await bot.get_updates(
                        offset=self._offset,
                        timeout=seconds,
                        allowed_updates=inbound.KINDS,
                        read_timeout=seconds + 10,
                    )
                for update in updates:
                    await self.handle_payload(update.to_dict(), receive)
                    self._offset = update.update_id + 1
                self.backoff.reset()

    async def _begin(self) -> None:
        """Check the token; then wait for posts until cancelled, or end an earlier webhook and return to poll."""
        await self._me()
        url, secret = self.options.webhook_url, self.options.webhook_secret
        if url is not None and secret is not None:
            try:
                async with self._calling() as bot:
                    await bot.set_webhook(
                        url, secret_token=secret.reveal(), allowed_updates=inbound.KINDS
                    )
            except TelegramRefused as error:
                raise NotAllowed(f"Telegram will not post to {url}: {error}.") from error
            self.backoff.reset()
            await asyncio.Event().wait()
        if (await self._webhook_info()).url:
            logger.warning("telegram posted this bot's messages elsewhere; now they are polled")
            async with self._calling() as bot:
                await bot.delete_webhook(drop_pending_updates=False)

    def signature_problem(self, headers: Mapping[str, str], body: bytes) -> str | None:
        secret, given = self.options.webhook_secret, headers.get(SECRET_HEADER, "")
        if secret is None or not hmac.compare_digest(given.encode(), secret.reveal().encode()):
            return "its secret token is wrong"
        return None

    async def handle_payload(self, payload: Any, receive: Receive) -> None:
        """Handle an update, posted or polled."""
        moved = inbound.migration(payload)
        if moved is not None:
            await self._follow(*moved)
            return
        press = inbound.read_press(payload)
        if press is not None:
            await self._handle_press(press, receive)
            return
        received = inbound.read(payload, await self._me(), self.options)
        if received is not None:
            await self.admit(received, receive)

    async def _handle_press(self, press: TelegramPress, receive: Receive) -> None:
        """Answer a question with a button, and show whoever pressed it what became of it."""
        result = PressResult("", is_changed=True)
        if press.source is not None:
            result = await self.press(press.source, press.data, receive)
        try:
            async with self._calling() as bot:
                await bot.answer_callback_query(
                    press.id,
                    text=one_line(result.text, outbound.LONGEST_TOAST) or None,
                    show_alert=None if result.is_changed else True,
                )
        except (SessionaryError, TelegramRefused) as error:
            # What was pressed is stored. Telegram can show this for some seconds only; the card shows it too.
            logger.info("telegram: the outcome of a button was not shown: %s", error)

    async def fetch_file(self, file: IncomingFile, source: Source) -> bytes:
        try:
            async with self._calling() as bot:
                found = await bot.get_file(file.id)
                try:
                    return bytes(await found.download_as_bytearray())
                except InvalidToken as error:
                    # The token was valid a moment ago: it is the file that is gone.
                    raise NotFound("the file is gone") from error
        except TelegramRefused as error:
            if "too big" in str(error):
                raise FileTooLarge(str(error)) from error
            raise NotFound(str(error)) from error
        except (RetryLater, NotAllowed, NotFound):
            raise
        except SessionaryError as error:
            raise RetryLater(str(error), after=0.0) from error

    async def refuse(self, source: Source, reason: str) -> None:
        try:
            text = f"Your message could not be taken in: {reason}"
            await self._send_text(source.chat_id or "", source.thread_id, text, is_plain=True)
        except SessionaryError as error:
            logger.warning("telegram: a person could not be told: %s", error)

    # Sending.

    async def send_text(self, delivery: Delivery, text: str, index: int) -> str:
        return await self._send(delivery.channel, text)

    async def send_file(self, delivery: Delivery, file: OutgoingFile, index: int) -> str:
        return await self._send(delivery.channel, file)

    async def send_card(self, delivery: Delivery, text: str, card: Card, index: int) -> str:
        return await self._send(delivery.channel, CardPiece(text, card))

    async def _send(self, channel: Channel, piece: str | CardPiece | OutgoingFile) -> str:
        chat, thread = self._chat(channel), channel.thread_id
        self._check_quiet(chat)
        try:
            return await self._send_piece_to(chat, thread, piece)
        except ChatMoved as error:
            await self._follow(chat, error.chat_id)
            self._moved[channel.chat_id] = error.chat_id
            return await self._send_piece_to(error.chat_id, thread, piece)
        except RetryLater as error:
            self._quiet_until[chat] = asyncio.get_running_loop().time() + error.after
            raise

    async def _send_piece_to(
        self, chat: str, thread: str | None, piece: str | CardPiece | OutgoingFile
    ) -> str:
        if isinstance(piece, str):
            return await self._send_text(chat, thread, piece)
        if isinstance(piece, CardPiece):
            return await self._send_text(chat, thread, piece.text, keyboard=_keyboard(piece.card))
        if piece.media_type in _PICTURES and len(piece.data) <= _LARGEST_PICTURE:
            # A size or shape that Telegram does not show can still be sent as a document.
            with contextlib.suppress(TelegramRefused):
                async with self._calling() as bot:
                    sent = await bot.send_photo(
                        photo=piece.data, filename=piece.name, **_address(chat, thread)
                    )
                return str(sent.message_id)
        try:
            async with self._calling() as bot:
                sent = await bot.send_document(
                    document=piece.data,
                    filename=piece.name,
                    disable_content_type_detection=True,
                    **_address(chat, thread),
                )
        except TelegramRefused as error:
            raise FileRefused(f"Telegram says: {error}") from error
        return str(sent.message_id)

    async def _send_text(
        self,
        chat: str,
        thread: str | None,
        text: str,
        *,
        is_plain: bool = False,
        keyboard: InlineKeyboardMarkup | None = None,
    ) -> str:
        """Send with markup; without it if Telegram does not accept it; in halves if it is too long.

        Return the id of the message with the keyboard, or of the first one.
        """
        markup = None if is_plain else outbound.markup_of(text)
        try:
            if markup is not None:
                return await self._post(chat, thread, markup, has_markup=True, keyboard=keyboard)
        except TelegramRefused as error:
            logger.info("telegram does not accept a markup, it is sent plain: %s", error)
        try:
            return await self._post(chat, thread, text, keyboard=keyboard)
        except TelegramRefused as error:
            if "too long" in str(error) and len(text) > 1:
                *halves, last = outbound.halves(text)
                ids = [await self._send_text(chat, thread, half) for half in halves]
                ids.append(await self._send_text(chat, thread, last, keyboard=keyboard))
                return ids[0] if keyboard is None else ids[-1]
            if "empty" in str(error) and keyboard is None:
                return ""
            where = f"telegram:{chat}"
            raise Unreachable(f"Telegram does not take it: {error}.", where) from error

    async def _post(
        self,
        chat: str,
        thread: str | None,
        text: str,
        *,
        has_markup: bool = False,
        keyboard: InlineKeyboardMarkup | None = None,
    ) -> str:
        async with self._calling() as bot:
            mode = "MarkdownV2" if has_markup else None
            sent = await bot.send_message(
                text=text, parse_mode=mode, reply_markup=keyboard, **_address(chat, thread)
            )
        return str(sent.message_id)

    async def edit_card(self, channel: Channel, message_id: str, text: str) -> None:
        if channel.chat_id in self._moved:
            # The same number may be another message of ours in the new chat.
            raise Unreachable(f"The messages of telegram:{channel.chat_id} have other ids now.")
        # Telegram removes a keyboard that is not sent again.
        await self.edit_text(channel, message_id, text)

    async def edit_text(self, channel: Channel, message_id: str, text: str) -> None:
        chat, markup = self._chat(channel), outbound.markup_of(text)
        self._check_quiet(chat)
        if markup is not None:
            try:
                await self._edit(chat, message_id, markup, has_markup=True)
            except TelegramRefused as error:
                logger.info("telegram does not accept a markup, it is sent plain: %s", error)
            else:
                return
        await self.show_partial(channel, message_id, text)

    async def show_partial(self, channel: Channel, message_id: str | None, text: str) -> str:
        chat = self._chat(channel)
        try:
            if message_id is None:
                return await self._post(chat, channel.thread_id, text)
            await self._edit(chat, message_id, text)
        except (TelegramRefused, ChatMoved) as error:
            raise Unreachable(str(error)) from error
        return message_id

    async def _edit(self, chat: str, number: str, text: str, *, has_markup: bool = False) -> None:
        """Replace a message's text; that it has this text already, after a lost answer, is no error."""
        try:
            async with self._calling() as bot:
                await bot.edit_message_text(
                    text,
                    chat_id=_chat_id(chat),
                    message_id=int(number),
                    parse_mode="MarkdownV2" if has_markup else None,
                )
        except TelegramRefused as error:
            if "message is not modified" not in str(error).lower():
                raise
        except ChatMoved as error:
            raise Unreachable(f"{error} Its messages have other ids there.") from error

    def edit_pause(self, channel: Channel) -> float:
        """Return the pause between edits: groups have a lower limit."""
        pauses = GROUP_PAUSES if channel.chat_id.startswith("-") else DIRECT_PAUSES
        return self.options.pause_seconds * pauses

    async def typing(self, channel: Channel) -> None:
        """Show for five seconds that a reply is being written."""
        async with self._calling() as bot:
            to = _address(self._chat(channel), channel.thread_id)
            await bot.send_chat_action(action="typing", **to)

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

    # The connection.

    async def check(self) -> str:
        me, hook = await self._me(), await self._webhook_info()
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
        if hook.last_error_message:
            lines.append(f"The last posting failed: {hook.last_error_message}.")
        lines.append(f"{hook.pending_update_count} messages wait.")
        return " ".join(lines)

    async def _me(self) -> TelegramBot:
        """Return who the bot is."""
        if self._account is None:
            async with self._calling() as bot:
                found = await bot.get_me()
            self._account = TelegramBot(found.id, found.username or "")
        return self._account

    async def _webhook_info(self) -> WebhookInfo:
        async with self._calling() as bot:
            return await bot.get_webhook_info()

    async def close(self) -> None:
        requests, self._requests, self._bot = self._requests, (), None
        for request in requests:
            await request.shutdown()

    @contextlib.asynccontextmanager
    async def _calling(self) -> AsyncIterator[Bot]:
        """Connect if needed, and raise the library's errors as ours."""
        if self._bot is None:
            calls = _TelegramRequest(read_timeout=_READ_SECONDS)
            polls = _TelegramRequest(connection_pool_size=2)
            for request in (calls, polls):
                await request.initialize()
            self._requests = (calls, polls)
            base = self.options.base_url
            self._bot = Bot(
                self.options.token.reveal(),
                base_url=f"{base}/bot",
                base_file_url=f"{base}/file/bot",
                request=calls,
                get_updates_request=polls,
            )
        try:
            yield self._bot
        except _Flood as error:
            raise RetryLater(f"{error}.", after=error.seconds) from error
        except _NotSent as error:
            raise RetryLater(f"{error}.", after=0.0) from error
        except InvalidToken as error:
            raise NotAllowed(
                "Telegram refuses the bot's token. Get a new one from @BotFather (/token)."
            ) from error
        except Forbidden as error:
            reason = f"Telegram does not let the bot write there: {error.message}."
            raise Unreachable(reason) from error
        except ChatMigrated as error:
            raise ChatMoved(str(error.new_chat_id)) from error
        except Conflict as error:
            raise RetryLater(
                f"Another program takes this bot's messages: {error.message}.", after=30.0
            ) from error
        except BadRequest as error:
            raise TelegramRefused(error.message) from error
        except TelegramError as error:
            raise answer_lost("Telegram", error) from error


class _Flood(TelegramError):
    def __init__(self, seconds: float) -> None:
        super().__init__(f"Telegram asks to wait {seconds:.0f} seconds")
        self.seconds = seconds


class _NotSent(TelegramError):
    """No connection was made: nothing has reached Telegram."""


class _TelegramRequest(HTTPXRequest):
    """Recognises what was never sent, and what Telegram wants to be sent later."""

    async def do_request(self, *args: Any, **given: Any) -> tuple[int, bytes]:
        try:
            status, payload = await super().do_request(*args, **given)
        except NetworkError as error:
            if isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout):
                raise _NotSent("Telegram cannot be reached") from error
            if isinstance(error.__cause__, httpx.PoolTimeout):
                raise _NotSent("too many requests are under way") from error
            raise
        if status == _TOO_MANY:
            try:
                seconds = float(json.loads(payload)["parameters"]["retry_after"])
            except (ValueError, KeyError, TypeError):
                seconds = _DEFAULT_WAIT
            raise _Flood(seconds)
        return status, payload


def _keyboard(card: Card) -> InlineKeyboardMarkup:
    """Return a button for each option of a card."""
    return InlineKeyboardMarkup(
        [
            [InlineKeyboardButton(label, callback_data=data) for label, data in row]
            for row in outbound.button_rows(card)
        ]
    )


def _address(chat: str, thread: str | None) -> dict[str, Any]:
    """Return the arguments that name a chat."""
    return {
        "chat_id": _chat_id(chat),
        "message_thread_id": None if thread is None else int(thread),
    }


def _chat_id(chat: str) -> int | str:
    """Return a chat's id as Telegram has it; a public channel may be named with @."""
    try:
        return chat if chat.startswith("@") else int(chat)
    except ValueError as error:
        raise Unreachable(f"{chat[:40]!a} is not the id of a chat of Telegram.") from error
