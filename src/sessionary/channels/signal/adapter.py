"""Signal as a channel: signal-cli's daemon tells what comes, and is asked to send."""

import asyncio
import base64
import binascii
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from sessionary.channels.enclosures import Enclosures, files_of
from sessionary.channels.files import gone, too_large
from sessionary.channels.observed import Observed
from sessionary.channels.progress import Progress
from sessionary.channels.signal import inbound, outbound
from sessionary.channels.signal.client import Daemon
from sessionary.channels.signal.inbound import File, Heard, Me, Rules, Withdrawn
from sessionary.engine.ports import DeliveryServices, Receive, Sent
from sessionary.errors import (
    BadInput,
    NotAllowed,
    RetryLater,
    SessionaryError,
    StoreUnavailable,
    Unreachable,
)
from sessionary.model.message import Attachment, Message, Part
from sessionary.model.source import Channel, Source
from sessionary.model.turn import Delivery

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0
STEADY_SECONDS = 60.0
FETCH_TRIES = 5
BUSY_SECONDS = 1.0
IN_HAND_SECONDS = 5.0
log = logging.getLogger("sessionary.channels.signal")
T = TypeVar("T")


class SignalAdapter:
    """One account. The daemon offers nothing twice: a message is kept in hand until it is stored."""

    platform = inbound.PLATFORM
    capabilities = outbound.CAPABILITIES

    def __init__(self, daemon: Daemon, account: str, rules: Rules | None = None) -> None:
        self._daemon = daemon
        self._me = Me(account)
        self._rules = rules or Rules()
        self._refusal: asyncio.Future[None] | None = None
        self._observed = Observed()
        self._progress = Progress()
        self._enclosures = Enclosures(self._rules.largest_sent)

    def attach(self, desk: DeliveryServices) -> None:
        """Know where the bytes of files are."""
        self._enclosures.desk = desk

    async def run(self, receive: Receive) -> None:
        """Listen to the daemon until cancelled or refused; connect again when it was away."""
        self._refusal = asyncio.get_running_loop().create_future()
        listening = asyncio.ensure_future(self._listen(receive))
        try:
            await asyncio.wait({listening, self._refusal}, return_when=asyncio.FIRST_COMPLETED)
            for ended in (listening, self._refusal):
                if ended.done():
                    ended.result()
        finally:
            self._refusal.cancel()
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def send(self, delivery: Delivery) -> Sent:
        """Write a delivery's messages; after a failure the next try goes on where this stopped."""
        try:
            return await self._send(delivery)
        except NotAllowed as error:
            if self._refusal is not None and not self._refusal.done():
                self._refusal.set_exception(NotAllowed(str(error)))
            raise

    async def typing(self, channel: Channel) -> None:
        """Show that an answer is being written."""
        try:
            await self._daemon.call("sendTyping", outbound.recipient(channel))
        except SessionaryError as error:
            log.debug("signal does not show typing: %s", error)

    async def close(self) -> None:
        """Let go of connections."""
        await self._daemon.close()

    async def who(self) -> str:
        """Our number, and the daemon's version; learns our UUID on the way."""
        version = await self._daemon.call("version", {})
        asked = {"recipient": [self._me.number]}
        found = await self._daemon.call("getUserStatus", asked)
        status = found[0] if isinstance(found, list) and found else {}
        status = status if isinstance(status, dict) else {}
        if status.get("isRegistered") is False:
            raise NotAllowed(f"{self._me.number} is not registered with Signal")
        uuid = status.get("uuid")
        self._me = Me(self._me.number, uuid if isinstance(uuid, str) else None)
        number = version.get("version") if isinstance(version, dict) else None
        return f"{self._me.number} (signal-cli {number or 'of an unknown version'})"

    async def _listen(self, receive: Receive) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            began = time.monotonic()
            try:
                await self._connect(receive)
            except (NotAllowed, asyncio.CancelledError):
                raise
            except SessionaryError as error:
                if time.monotonic() - began > STEADY_SECONDS:
                    pause = FIRST_PAUSE_SECONDS
                log.warning("signal: %s; connecting again in %.1f s", error, pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _connect(self, receive: Receive) -> None:
        """Take in what one connection brings."""
        if self._me.uuid is None:
            await self._introduce()
        async with contextlib.aclosing(self._daemon.notifications()) as notifications:
            async for params in notifications:
                await _finished(self._take(params, receive))

    async def _introduce(self) -> None:
        try:
            log.info("signal: writing as %s", await self.who())
        except NotAllowed:
            raise
        except SessionaryError as error:
            # Signal may be away while the daemon is there: messages can come all the same.
            log.warning("signal: our own account is not known yet: %s", error)

    async def _take(self, params: Mapping[str, Any], receive: Receive) -> None:
        if (trouble := inbound.trouble(params)) is not None:
            log.warning("signal-cli could not read a message: %s", trouble)
        match inbound.event(params, self._me):
            case Heard() as heard:
                await self._hear(heard, receive)
            case Withdrawn(source=source) as withdrawn if await _admits(receive, source):
                where, speaker = source.chat_id or "", source.speaker or ""
                words = f"(took back {withdrawn.timestamp})"
                self._observed.note(where, speaker, words, id=source.platform_message_id)
            case _:
                pass

    async def _hear(self, heard: Heard, receive: Receive) -> None:
        source, rules = heard.source, self._rules
        where = source.chat_id or ""
        if not heard.is_addressed and not rules.always:
            if rules.observe and await _admits(receive, source):
                speaker, id = source.speaker or "", source.platform_message_id
                self._observed.note(where, speaker, heard.text, id=id)
            return
        parts, files = [], []
        known = heard.files if heard.files and await _admits(receive, source) else ()
        for file in known:
            part, data = await self._fetch(file, heard)
            parts.append(part)
            files += [data] if isinstance(part, Attachment) else []
        said = inbound.message_of(heard, tuple(parts))
        await self._observed.give(where, said, lambda whole: _stored(receive, heard, whole, files))

    async def _fetch(self, file: File, heard: Heard) -> tuple[Part, bytes]:
        """A file that came along, or words that say why it is missing."""
        largest = self._rules.largest_file
        if file.size is not None and file.size > largest:
            return too_large(file.label, largest, file.size), b""
        try:
            data = await self._bytes_of(file, heard)
        except SessionaryError as error:
            return gone(file.label, str(error)), b""
        if len(data) > largest:
            return too_large(file.label, largest, len(data)), b""
        return inbound.attachment_of(file, data), data

    async def _bytes_of(self, file: File, heard: Heard) -> bytes:
        assert heard.source.channel is not None
        to = outbound.recipient(heard.source.channel)
        whom = {"groupId": to["groupId"]} if "groupId" in to else {"recipient": to["recipient"][0]}
        for tries in range(1, FETCH_TRIES + 1):
            try:
                found = await self._daemon.call("getAttachment", {"id": file.id, **whom})
                return base64.b64decode(found["data"], validate=True)
            except (KeyError, TypeError, binascii.Error) as error:
                raise Unreachable("signal-cli gave no bytes") from error
            except (Unreachable, NotAllowed):
                raise
            except SessionaryError as error:
                if tries == FETCH_TRIES:
                    raise
                await asyncio.sleep(min(getattr(error, "after", 1.0), 1.0))
        raise AssertionError("the last try returns or raises")

    async def _send(self, delivery: Delivery) -> Sent:
        sent = self._progress.sent(delivery.id)
        texts, files = outbound.texts(delivery), files_of(delivery.parts)
        for text in texts[len(sent) :]:
            sent.append(await self._post(delivery, {"message": text}))
        for file in files[max(0, len(sent) - len(texts)) :]:
            sent.append(await self._post(delivery, await self._file(file, delivery)))
        self._progress.finish(delivery.id)
        return Sent(sent[-1] or None)

    async def _post(self, delivery: Delivery, what: Mapping[str, Any]) -> str:
        channel = delivery.channel
        asked = {**outbound.recipient(channel), **what}
        result = await self._daemon.call("send", asked, chat=str(channel))
        return outbound.timestamp_of(result) or ""

    async def _file(self, file: Attachment, delivery: Delivery) -> Mapping[str, Any]:
        found = await self._enclosures.find(delivery, file)
        if isinstance(found, str):
            return {"message": found}
        return {"message": "", "attachments": [outbound.data_uri(found)]}


async def _stored(receive: Receive, heard: Heard, said: Message, files: list[bytes]) -> bool:
    """Hand a message to the house; whether it was taken in."""
    try:
        return bool(await _patiently(lambda: receive(heard.source, said, files=files)))
    except BadInput as error:
        log.warning("signal: a message cannot be stored: %s", error)
        return False


async def _admits(receive: Receive, source: Source) -> bool:
    return await _patiently(lambda: receive.admits(source))


async def _patiently(do: Callable[[], Awaitable[T]]) -> T:
    """Nobody offers a message again: it waits in our hand while the house is busy."""
    while True:
        try:
            return await do()
        except (RetryLater, StoreUnavailable) as error:
            log.warning("signal: a message cannot be stored now: %s", error)
            await asyncio.sleep(getattr(error, "after", BUSY_SECONDS))


async def _finished(taking: Coroutine[Any, Any, None]) -> None:
    """Take a message in; whoever stops us meanwhile waits until it is stored, but not for ever."""
    task = asyncio.ensure_future(taking)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        _, late = await asyncio.wait({task}, timeout=IN_HAND_SECONDS)
        if late:
            log.warning("signal: a message could not be stored before the end, and is lost")
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
