"""The only module that uses python-telegram-bot: its calls, and its errors as ours."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
from telegram import Bot
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

from sessionary.channels.files import IncomingFile, OutgoingFile
from sessionary.channels.telegram.inbound import TelegramBot
from sessionary.channels.telegram.settings import TelegramSettings
from sessionary.errors import NotAllowed, RetryLater, SessionaryError, Unreachable

KINDS = ("message", "edited_message", "channel_post", "edited_channel_post")
_TOO_MANY = 429
_NOT_MODIFIED = "message is not modified"
_PICTURES = ("image/jpeg", "image/png", "image/webp")
_LARGEST_PICTURE = 10_000_000
_DEFAULT_WAIT = 5.0
_READ_SECONDS = 20.0


class TelegramRefused(Exception):
    """Telegram does not accept this request as it is."""


class ChatMoved(Exception):
    """The group has another id now."""

    def __init__(self, chat_id: str) -> None:
        super().__init__(f"The group has moved to {chat_id}.")
        self.chat_id = chat_id


@dataclass(frozen=True, slots=True)
class WebhookInfo:
    """Where Telegram posts updates, if anywhere, and how many are waiting."""

    url: str
    waiting: int
    problem: str | None


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
            raise _Flood(_wanted_wait(payload))
        return status, payload


class TelegramClient:
    """A bot of the Bot API, connected on first use.

    A request that never reached Telegram raises `RetryLater` of 0 seconds: the caller chooses the pause.
    """

    def __init__(self, settings: TelegramSettings) -> None:
        self._settings = settings
        self._bot: Bot | None = None
        self._requests: tuple[_TelegramRequest, ...] = ()
        self._me: TelegramBot | None = None

    async def me(self) -> TelegramBot:
        """Return who the bot is."""
        if self._me is None:
            with _translate_errors():
                found = await (await self._connected()).get_me()
            self._me = TelegramBot(found.id, found.username or "")
        return self._me

    async def updates(self, offset: int | None) -> list[dict[str, Any]]:
        """Return the next updates. The offset tells Telegram that all updates before it are stored."""
        bot = await self._connected()
        seconds = self._settings.poll_seconds
        with _translate_errors():
            found = await bot.get_updates(
                offset=offset,
                timeout=seconds,
                allowed_updates=KINDS,
                read_timeout=seconds + 10,
            )
        return [each.to_dict() for each in found]

    async def set_webhook(self, url: str, secret: str) -> None:
        """Make Telegram post updates."""
        bot = await self._connected()
        with _translate_errors():
            await bot.set_webhook(url, secret_token=secret, allowed_updates=KINDS)

    async def delete_webhook(self) -> None:
        """Make Telegram keep updates until we poll."""
        bot = await self._connected()
        with _translate_errors():
            await bot.delete_webhook(drop_pending_updates=False)

    async def webhook(self) -> WebhookInfo:
        """Return where Telegram posts updates."""
        bot = await self._connected()
        with _translate_errors():
            found = await bot.get_webhook_info()
        return WebhookInfo(found.url, found.pending_update_count, found.last_error_message)

    async def send(self, chat: str, text: str, *, thread: str | None, markup: bool) -> str:
        """Send a text; return the message's id."""
        bot = await self._connected()
        with _translate_errors():
            sent = await bot.send_message(
                chat_id=_number(chat),
                text=text,
                message_thread_id=None if thread is None else int(thread),
                parse_mode="MarkdownV2" if markup else None,
            )
        return str(sent.message_id)

    async def send_file(self, chat: str, file: OutgoingFile, *, thread: str | None) -> str:
        """Send a file, as a picture if it is one; return the message's id."""
        bot = await self._connected()
        to: dict[str, Any] = {
            "chat_id": _number(chat),
            "message_thread_id": None if thread is None else int(thread),
        }
        if file.media_type in _PICTURES and len(file.data) <= _LARGEST_PICTURE:
            try:
                with _translate_errors():
                    sent = await bot.send_photo(photo=file.data, filename=file.name, **to)
                return str(sent.message_id)
            except TelegramRefused:
                pass  # a size or shape that Telegram does not show: it can still be sent as a document
        with _translate_errors():
            sent = await bot.send_document(
                document=file.data,
                filename=file.name,
                disable_content_type_detection=True,
                **to,
            )
        return str(sent.message_id)

    async def edit(self, chat: str, number: str, text: str, *, markup: bool) -> None:
        """Replace a message's text; that it has this text already, after a lost answer, is no error."""
        bot = await self._connected()
        try:
            with _translate_errors():
                await bot.edit_message_text(
                    text,
                    chat_id=_number(chat),
                    message_id=int(number),
                    parse_mode="MarkdownV2" if markup else None,
                )
        except TelegramRefused as error:
            if _NOT_MODIFIED not in str(error).lower():
                raise

    async def typing(self, chat: str, *, thread: str | None) -> None:
        """Show for five seconds that something is being written."""
        bot = await self._connected()
        with _translate_errors():
            await bot.send_chat_action(
                chat_id=_number(chat),
                action="typing",
                message_thread_id=None if thread is None else int(thread),
            )

    async def fetch(self, file: IncomingFile) -> bytes:
        """Return the bytes of a file."""
        bot = await self._connected()
        with _translate_errors():
            found = await bot.get_file(file.id)
            try:
                return bytes(await found.download_as_bytearray())
            except InvalidToken as error:
                # The token was valid a moment ago: it is the file that is gone.
                raise TelegramRefused("the file is gone") from error

    async def close(self) -> None:
        """Close connections."""
        requests, self._requests, self._bot = self._requests, (), None
        for request in requests:
            await request.shutdown()

    async def _connected(self) -> Bot:
        if self._bot is None:
            base = self._settings.base_url
            calls, polls = (
                _TelegramRequest(read_timeout=_READ_SECONDS),
                _TelegramRequest(connection_pool_size=2),
            )
            for request in (calls, polls):
                await request.initialize()
            self._requests = (calls, polls)
            self._bot = Bot(
                self._settings.token.reveal(),
                base_url=f"{base}/bot",
                base_file_url=f"{base}/file/bot",
                request=calls,
                get_updates_request=polls,
            )
        return self._bot


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except _Flood as error:
        raise RetryLater(f"{error}.", after=error.seconds) from error
    except _NotSent as error:
        raise RetryLater(f"{error}.", after=0.0) from error
    except InvalidToken as error:
        raise NotAllowed(
            "Telegram refuses the bot's token. Get a new one from @BotFather (/token)."
        ) from error
    except Forbidden as error:
        raise Unreachable(f"Telegram does not let the bot write there: {error.message}.") from error
    except ChatMigrated as error:
        raise ChatMoved(str(error.new_chat_id)) from error
    except Conflict as error:
        raise RetryLater(
            f"Another program takes this bot's messages: {error.message}.", after=30.0
        ) from error
    except BadRequest as error:
        raise TelegramRefused(error.message) from error
    except TelegramError as error:
        # A server error or a missing answer: the request may have been accepted.
        reason = error.message or type(error).__name__
        raise SessionaryError(f"Telegram did not answer: {reason}.", committed="unknown") from error


def _wanted_wait(payload: bytes) -> float:
    try:
        return float(json.loads(payload)["parameters"]["retry_after"])
    except (ValueError, KeyError, TypeError):
        return _DEFAULT_WAIT


def _number(chat: str) -> int | str:
    """Return a chat's id as Telegram has it; a public channel may be named with @."""
    try:
        return chat if chat.startswith("@") else int(chat)
    except ValueError as error:
        raise Unreachable(f"{chat[:40]!a} is not the id of a chat of Telegram.") from error
