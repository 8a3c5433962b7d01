"""The Signal channel: messages from signal-cli's daemon, which also sends."""

import asyncio
import base64
import binascii
import contextlib
import logging
import re
from collections.abc import Coroutine
from typing import Any

from sessionary.channels.base import (
    ChannelAdapter,
    Json,
    ReceivedMessage,
    WithdrawnMessage,
    object_list,
    object_value,
    until_first_ends,
    until_stored,
    utf16_units,
)
from sessionary.channels.files import IncomingFile, OutgoingFile
from sessionary.channels.signal import inbound
from sessionary.channels.signal.client import SignalDaemon
from sessionary.channels.signal.inbound import SignalAccount, SignalOptions
from sessionary.engine.ports import Capabilities, Receive
from sessionary.errors import NotAllowed, RetryLater, SessionaryError, Unreachable
from sessionary.model.message import Part, Text
from sessionary.model.source import Channel, Source
from sessionary.model.turn import Delivery

# How long a stop waits for the message that is just being stored.
STORE_AT_STOP_SECONDS = 5.0
LONGEST = 2000
_DATA_NAME = re.compile(r"[^\w.\- ]")
CAPABILITIES = Capabilities(
    # Ten messages: the adapter splits between code fences, so a delivery may be longer than one message.
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
logger = logging.getLogger(__name__)


class SignalAdapter(ChannelAdapter):
    """One account. The daemon offers nothing twice: a message is kept until it is stored."""

    platform = inbound.PLATFORM
    capabilities = CAPABILITIES
    options: SignalOptions
    longest_message = LONGEST
    measure = staticmethod(utf16_units)

    def __init__(
        self, daemon: SignalDaemon, account: str, options: SignalOptions | None = None
    ) -> None:
        super().__init__(options or SignalOptions())
        self._daemon = daemon
        self._me = SignalAccount(account)

    async def run(self, receive: Receive) -> None:
        """Listen to the daemon until cancelled or refused; connect again when it was away."""
        connecting = self.stay_connected(lambda: self._connect(receive))
        await until_first_ends(connecting, self.wait_until_refused())

    async def _connect(self, receive: Receive) -> None:
        """Handle what one connection brings."""
        try:
            if self._me.uuid is None:
                await self._introduce()
            async with contextlib.aclosing(self._daemon.notifications()) as notifications:
                async for params in notifications:
                    await _finish(self._handle(params, receive))
        except NotAllowed:
            raise
        except SessionaryError as error:
            logger.warning("signal: %s; connecting again", error)

    async def _introduce(self) -> None:
        try:
            logger.info("signal: writing as %s", await self._who())
        except NotAllowed:
            raise
        except SessionaryError as error:
            # Signal may be away while the daemon is there: messages can come all the same.
            logger.warning("signal: our own account is not known yet: %s", error)

    async def _handle(self, params: Json, receive: Receive) -> None:
        if (problem := inbound.problem(params)) is not None:
            logger.warning("signal-cli could not read a message: %s", problem)
        match inbound.event(params, self._me):
            case ReceivedMessage() as received:
                await until_stored(lambda: self.admit(received, receive), self.platform)
            case WithdrawnMessage(source, timestamp):
                text = f"(took back {timestamp})"
                await until_stored(lambda: self.observe(source, text, receive), self.platform)
            case _:
                pass

    async def fetch_file(self, file: IncomingFile, source: Source) -> bytes:
        assert source.channel is not None
        chat = recipient(source.channel)
        if "recipient" in chat:
            chat = {"recipient": chat["recipient"][0]}
        try:
            found = await self._daemon.call("getAttachment", {"id": file.id, **chat})
            return base64.b64decode(found["data"], validate=True)
        except (KeyError, TypeError, binascii.Error) as error:
            raise Unreachable("signal-cli gave no bytes") from error
        except Unreachable:
            raise
        except NotAllowed as error:  # the message comes only once: without its file
            raise Unreachable(str(error)) from error
        except SessionaryError as error:
            raise RetryLater(str(error), after=1.0) from error

    def part_of(self, file: IncomingFile, data: bytes) -> Part:
        """Return the part for a file; Signal sends a long text as a file too."""
        if file.media_type == inbound.LONG_TEXT:
            return Text(data.decode("utf-8", "replace"))
        return super().part_of(file, data)

    async def send_text(self, delivery: Delivery, text: str, index: int) -> str:
        return await self._send(delivery.channel, {"message": text})

    async def send_file(self, delivery: Delivery, file: OutgoingFile, index: int) -> str:
        name, data = _DATA_NAME.sub("_", file.name), base64.b64encode(file.data).decode()
        # As signal-cli accepts it from a program on another disk.
        uri = f"data:{file.media_type};filename={name};base64,{data}"
        return await self._send(delivery.channel, {"message": "", "attachments": [uri]})

    async def _send(self, channel: Channel, content: Json) -> str:
        params = {**recipient(channel), **content}
        result = await self._daemon.call("send", params, chat=str(channel))
        # Signal names a message by the time at which it was sent.
        timestamp = object_value(result).get("timestamp")
        return str(timestamp) if isinstance(timestamp, int) else ""

    async def typing(self, channel: Channel) -> None:
        await self._daemon.call("sendTyping", recipient(channel))

    async def close(self) -> None:
        await self._daemon.close()

    async def check(self) -> str:
        return f"Signal knows this account as {await self._who()}."

    async def _who(self) -> str:
        """Return our number and the daemon's version; learn our UUID."""
        version = await self._daemon.call("version", {})
        found = await self._daemon.call("getUserStatus", {"recipient": [self._me.number]})
        status = object_value(next(iter(object_list(found)), None))
        if status.get("isRegistered") is False:
            raise NotAllowed(f"{self._me.number} is not registered with Signal")
        uuid = status.get("uuid")
        self._me = SignalAccount(self._me.number, uuid if isinstance(uuid, str) else None)
        number = object_value(version).get("version")
        return f"{self._me.number} (signal-cli {number or 'of an unknown version'})"


async def _finish(handling: Coroutine[Any, Any, None]) -> None:
    """Handle a message; a stop meanwhile waits until it is stored, for a limited time."""
    task = asyncio.ensure_future(handling)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        _, late = await asyncio.wait({task}, timeout=STORE_AT_STOP_SECONDS)
        if late:
            logger.warning("signal: a message could not be stored before the end, and is lost")
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise


def recipient(channel: Channel) -> dict[str, Any]:
    """Return the recipient's parameters: a group by its internal id, a person by UUID or number."""
    group = inbound.group_of(channel.chat_id)
    return {"groupId": group} if group is not None else {"recipient": [channel.chat_id]}
