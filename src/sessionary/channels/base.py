"""What all channel adapters share: receiving messages, sending deliveries in pieces, streaming replies, backoff.

The adapter of a platform is a subclass of `ChannelAdapter` with the code that talks to the platform.
"""

import asyncio
import contextlib
import json
import logging
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Generic, TypeVar

from msgspec.structs import replace

from sessionary.channels import files
from sessionary.channels.files import (
    MEGABYTE,
    FailureCounter,
    FileRefused,
    FileTooLarge,
    IncomingFile,
    LatestDict,
    OutgoingFile,
)
from sessionary.config.engine import ChannelTable
from sessionary.config.setting import NUMBER, Setting, choice, scaled
from sessionary.engine import commands
from sessionary.engine.outbox import Measure, split_text
from sessionary.engine.ports import (
    Capabilities,
    Challenge,
    DeliveryServices,
    PressResult,
    Receive,
    Sent,
    Webhook,
)
from sessionary.errors import (
    BadInput,
    NotAllowed,
    NotFound,
    RetryLater,
    SessionaryError,
    StoreUnavailable,
    Unreachable,
)
from sessionary.model import codec, transcript
from sessionary.model.message import Attachment, Message, Part, Role, Text, text_of
from sessionary.model.question import Card, MessageEdit, card_of, edit_of, visible
from sessionary.model.source import Channel, Source
from sessionary.model.terminal import one_line
from sessionary.model.turn import Delivery

# How long to wait before trying an unavailable store again.
STORE_WAIT_SECONDS = 1.0
# A task that still runs is cancelled again: on Python 3.11, `asyncio.wait_for` loses a cancellation if what it waits
# for ends in the same moment. Discord's library waits so for a connection.
CANCEL_AGAIN_SECONDS = 3.0
# After a connection that lasted this long, connect again without a growing pause.
STEADY_SECONDS = 60.0
MAX_SEND_PAUSE_SECONDS = 300.0
MAX_UNFINISHED = 1000
logger = logging.getLogger(__name__)

T = TypeVar("T")
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelOptions(ChannelTable):
    """What all adapters need to know; each platform declares which of these are settings.

    In groups the agent answers the messages that are addressed to it, or all (`always`, `always_in`). With `observe` it
    is also given what people wrote to each other before. With `stream` a reply is shown while it is being written.
    """

    always: bool = False
    always_in: frozenset[str] = frozenset()
    observe: bool = False
    stream: bool = False
    show_seconds: float = 1.5
    largest_file: int = 10 * MEGABYTE
    largest_sent: int = 10 * MEGABYTE
    pause_seconds: float = 1.0


# Settings that several platforms have.
Megabytes = Annotated[int, scaled(NUMBER, MEGABYTE)]
LargestFile = Annotated[
    Megabytes,
    Setting("a larger file is skipped, and the person is told", name="largest_file_mb"),
]
LargestFileBytes = Annotated[
    int,
    Setting("a larger file is skipped, and the person is told", name="largest_file_bytes", gt=0),
]
LargestSent = Annotated[
    Megabytes,
    Setting(
        "a larger file from the agent is mentioned by name instead of sent",
        name="largest_sent_mb",
    ),
]
Observe = Annotated[
    bool,
    Setting("in groups, also pass on what people wrote to each other since the last message"),
]
Stream = Annotated[bool, Setting("show the answer while it is being written")]
Answer = Annotated[
    bool,
    choice(mentioned=False, always=True),
    Setting("in groups, answer when mentioned or replied to; or always", name="answer"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions(ChannelOptions):
    """The settings of platforms with group chats."""

    always: Answer = False
    observe: Observe = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """A person's message, as a platform delivered it.

    `text` is what the group buffer keeps if the message is not addressed to the agent. `room` is the part of the
    chat in which it was written, if that is not the source's channel.
    """

    source: Source
    parts: tuple[Part, ...]
    text: str
    files: tuple[IncomingFile, ...] = ()
    is_addressed: bool = True
    extra: Json = field(default_factory=dict)
    room: str | None = None


@dataclass(frozen=True, slots=True)
class WithdrawnMessage:
    """A person deleted a message for everyone."""

    source: Source
    message_id: str


@dataclass(frozen=True, slots=True)
class CardPiece:
    """The last piece of a question's text, and the buttons below it."""

    text: str
    card: Card


class ChannelAdapter:
    """The part of the `Adapter` port that is the same on every platform.

    A platform implements `run` and `send_text`, and whatever else it can do: `send_file`, `fetch_file`,
    `show_partial` and `edit_text`, `typing`. One that sends deliveries in another way overrides `send`.
    """

    platform: str
    capabilities: Capabilities
    options: ChannelOptions
    # Where the platform posts messages, and how we prove to it that the address is ours.
    webhook: Webhook | None = None
    challenge: Challenge | None = None
    # The most that the platform posts in one request: GitHub, for example, sends up to 25 MB.
    webhook_bytes: int = 25 * MEGABYTE
    # What is sent for a delivery without content.
    empty_text = "(An empty message.)"
    # How much text the platform accepts in one message, and in one that shows a partial reply.
    longest_message: int = sys.maxsize
    longest_preview: int | None = None
    # How long the label of a button may be. If an option is longer, all of them are in the text too, with numbers.
    longest_label: int = sys.maxsize

    def __init__(self, options: ChannelOptions) -> None:
        self.options = options
        self.services: DeliveryServices | None = None
        self.backoff = Backoff(options.pause_seconds)
        self._receive: Receive | None = None
        self._refused: asyncio.Future[None] | None = None
        self._group = GroupBuffer()
        # The messages that were sent of unfinished deliveries. After a restart a delivery is sent from its beginning,
        # and marked as perhaps sent twice.
        self._sent: LatestDict[str, list[str]] = LatestDict(MAX_UNFINISHED)
        self._file_failures = FailureCounter()
        self._streaming = StreamingMessages(self.show_partial, pause_of=self.edit_pause)

    # What a platform implements.

    async def run(self, receive: Receive) -> None:
        """Receive messages until cancelled."""
        raise NotImplementedError

    async def send_text(self, delivery: Delivery, text: str, index: int) -> str:
        """Send a piece of a delivery; return the id of the message on the platform."""
        raise NotImplementedError

    async def send_card(self, delivery: Delivery, text: str, card: Card, index: int) -> str:
        """Send a text with a button for each option of the card; return the id of the message on the platform.

        Only called if `capabilities.buttons` is set. What a button carries is `card.button(number)`; a press is given
        to `Receive.press`.
        """
        raise NotImplementedError

    async def edit_card(self, channel: Channel, message_id: str, text: str) -> None:
        """Replace a message with buttons by a text without; only called if `capabilities.edits` is set."""
        await self.edit_text(channel, message_id, text)

    async def send_file(self, delivery: Delivery, file: OutgoingFile, index: int) -> str:
        """Send a file of a delivery; raise `FileRefused` if the platform does not accept it."""
        raise NotImplementedError

    async def fetch_file(self, file: IncomingFile, source: Source) -> bytes:
        """Download a file that a person sent; raise `RetryLater` if it may be available later."""
        raise NotImplementedError

    async def edit_text(self, channel: Channel, message_id: str, text: str) -> None:
        """Replace the text of one of our messages."""
        raise NotImplementedError

    async def show_partial(self, channel: Channel, message_id: str | None, text: str) -> str:
        """Write a text without formatting into this message, or into a new one; return the message's id."""
        raise NotImplementedError

    async def typing(self, channel: Channel) -> None:
        """Show the typing indicator, where the platform has one."""

    async def close(self) -> None:
        """Close connections."""

    async def check(self) -> str:
        """Connect, and return the name of the bot's account; an error says what is missing and how to get it."""
        raise NotImplementedError

    @staticmethod
    def measure(text: str) -> int:
        """Return the length of a text as the platform counts it."""
        return len(text)

    def split(self, text: str) -> list[str]:
        """Split a text into pieces that the platform accepts."""
        return split_text(text, self.longest_message, measure=self.measure)

    def edit_pause(self, channel: Channel) -> float:
        """Return how many seconds the platform wants between two edits of a message."""
        return self.options.show_seconds

    def part_of(self, file: IncomingFile, data: bytes) -> Part:
        """Return the message part for a file that was received."""
        return files.attachment(data, file.media_type, file.name)

    async def refuse(self, source: Source, reason: str) -> None:
        """Tell a person that their message cannot be stored, where the platform allows it."""

    # Receiving.

    def attach(self, services: DeliveryServices, /) -> None:
        """Set the services that this adapter may call."""
        self.services = services

    @contextlib.contextmanager
    def receiving(self, receive: Receive) -> Iterator[None]:
        """Accept webhook posts inside the block; turn a connection failure into `RetryLater` with a growing pause."""
        began = time.monotonic()
        self._receive = receive
        try:
            yield
        except SessionaryError as error:
            if not isinstance(error, RetryLater) and error.committed != "unknown":
                raise
            if time.monotonic() - began > STEADY_SECONDS:
                self.backoff.reset()
            pause = self.backoff.next(error.after if isinstance(error, RetryLater) else 0.0)
            logger.warning("%s: %s; connecting again in %.1f s", self.platform, error, pause)
            raise RetryLater(str(error), after=pause) from error
        finally:
            self._receive = None

    async def stay_connected(self, connect: Callable[[], Awaitable[None]]) -> None:
        """Connect again whenever the connection ends; with growing pauses after short connections."""
        while True:
            began = time.monotonic()
            await connect()
            is_steady = time.monotonic() - began > STEADY_SECONDS
            if is_steady:
                self.backoff.reset()
            await asyncio.sleep(0 if is_steady else self.backoff.next())

    async def wait_until_refused(self) -> None:
        """Wait until cancelled; raise `NotAllowed` when the platform refuses our credentials in `send`."""
        self._refused = asyncio.get_running_loop().create_future()
        try:
            await self._refused
        finally:
            self._refused.cancel()

    async def handle_webhook(self, headers: Mapping[str, str], body: bytes) -> int | str:
        """Handle a post: check its signature, and answer when its messages are durable.

        What cannot be stored now is answered with 503, so that the platform posts it again.
        """
        problem = self.signature_problem({key.lower(): headers[key] for key in headers}, body)
        if problem is not None:
            logger.warning("%s: a post was refused: %s", self.platform, problem)
            return HTTPStatus.UNAUTHORIZED
        try:
            payload = self.decode_post(body)
        except (ValueError, RecursionError):
            logger.warning("%s: a signed post cannot be decoded", self.platform)
            return HTTPStatus.BAD_REQUEST
        try:
            return (
                await self.handle_payload(payload, self._receive or NotRunning()) or HTTPStatus.OK
            )
        except BadInput as error:
            logger.warning("%s: a signed post cannot be used: %s", self.platform, error)
            return HTTPStatus.UNPROCESSABLE_ENTITY
        except SessionaryError as error:
            logger.warning(
                "%s: a post was not stored and will be posted again: %s", self.platform, error
            )
            return HTTPStatus.SERVICE_UNAVAILABLE

    def signature_problem(self, headers: Mapping[str, str], body: bytes) -> str | None:
        """Return why a post is not the platform's, or None. The names of the headers are in lower case."""
        raise NotImplementedError

    def decode_post(self, body: bytes) -> Any:
        """Decode the body of a post; raise `ValueError` if it is malformed."""
        payload = json.loads(body)
        if not isinstance(payload, dict):
            raise ValueError("not an object")
        return payload

    async def handle_payload(self, payload: Any, receive: Receive) -> str | None:
        """Store the messages of a post; return what the platform wants to read back, if anything."""
        raise NotImplementedError

    async def admit(self, received: ReceivedMessage, receive: Receive) -> str | None:
        """Store a message to the agent. One that is not addressed to it goes to the group buffer, if `observe` is set.

        Return the arrival's id, "" if the sender may not write to the agent, or None if the message was not stored.
        """
        source = received.source
        room = received.room or str(source.channel)
        if not received.is_addressed and not self.options.always:
            if self.options.observe:
                await self.observe(source, received.text, receive, room=room)
            return None
        parts = received.parts
        data: tuple[bytes, ...] = ()
        if received.files and await receive.admits(source):
            fetched, data = await self._fetch_files(received)
            parts += fetched
        message = Message(
            Role.USER,
            parts or (Text(""),),
            platform_message_id=source.platform_message_id,
            extra=received.extra,
        )
        # The lines of the group are not added to a command.
        lines = () if commands.find(message.text) is not None else self._group.lines(room)
        try:
            arrival_id = await receive(source, with_group_lines(message, lines), files=data)
        except BadInput as error:
            # Do not raise: the platform would deliver it again forever, and all later messages would wait.
            logger.warning("%s: a message cannot be stored: %s", self.platform, error)
            await self.refuse(source, str(error))
            return None
        if arrival_id and lines:
            self._group.clear(room)
        return arrival_id

    async def press(self, source: Source, data: str, receive: Receive) -> PressResult:
        """Answer a question with a button; return what to tell whoever pressed it.

        The answer is durable then. What is raised can be repeated later: of two presses, the second changes nothing.
        """
        try:
            return await receive.press(source, data)
        except BadInput as error:
            # Do not raise: the platform would deliver it again forever, and all later messages would wait.
            logger.warning("%s: a button cannot be used: %s", self.platform, error)
            return PressResult(f"{error} Nothing was changed.")

    async def observe(
        self, source: Source, text: str, receive: Receive, *, room: str | None = None
    ) -> None:
        """Add a line to the group buffer, if its sender may write to the agent."""
        if await receive.admits(source):
            room = room or str(source.channel)
            self._group.add(room, source.speaker or "", text, id=source.platform_message_id)

    async def _fetch_files(
        self, received: ReceivedMessage
    ) -> tuple[tuple[Part, ...], tuple[bytes, ...]]:
        """Return a part for each file, and the bytes of those that were fetched.

        `RetryLater` is passed on to the caller, unless this file has failed too often.
        """
        parts: list[Part] = []
        kept: list[bytes] = []
        limit = self.options.largest_file
        for file in received.files:
            if file.size is not None and file.size > limit:
                parts.append(files.not_received_too_large(file.label, limit, file.size))
                continue
            try:
                data = await self.fetch_file(file, received.source)
            except NotAllowed:
                raise
            except FileTooLarge:
                parts.append(files.not_received_too_large(file.label, limit))
                continue
            except SessionaryError as error:  # store the message without the file
                if isinstance(error, RetryLater) and not self._file_failures.is_hopeless(file.id):
                    raise
                parts.append(files.not_received(file.label, str(error)))
                continue
            if len(data) > limit:  # larger than the platform said
                parts.append(files.not_received_too_large(file.label, limit, len(data)))
                continue
            part = self.part_of(file, data)
            parts.append(part)
            if isinstance(part, Attachment):
                kept.append(data)
        return tuple(parts), tuple(kept)

    # Sending.

    async def send(self, delivery: Delivery) -> Sent:
        """Send a delivery; after a failure the next attempt continues where this one stopped."""
        sent = self._sent[delivery.id] = self._sent.get(delivery.id) or []
        try:
            edit = edit_of(delivery.parts)
            if edit is not None and await self._edit_earlier(delivery, edit):
                return Sent(None)
            for index, piece in enumerate(self.pieces(delivery)):
                if index >= len(sent):
                    sent.append(await self._send_piece(delivery, piece, index))
        except RetryLater as error:
            raise self.retry_later(delivery, error) from error
        except NotAllowed as error:
            if self._refused is not None and not self._refused.done():
                self._refused.set_exception(NotAllowed(str(error)))
            raise
        self._sent.pop(delivery.id, None)
        return Sent(next((id for id in reversed(sent) if id), None))

    async def _edit_earlier(self, delivery: Delivery, edit: MessageEdit) -> bool:
        """Edit the message of an earlier delivery; return False if another message must be sent instead."""
        message_id = None
        if self.services is not None:
            message_id = await self.services.message_id(edit.delivery_id)
        if message_id is not None and self.capabilities.edits:
            text = self.split(printable(text_of(delivery.parts)))[-1]
            try:
                await self.edit_card(delivery.channel, message_id, text)
                return True
            except Unreachable as error:
                logger.info("%s: a message cannot be edited: %s", self.platform, error)
        return not edit.instead

    def retry_later(self, delivery: Delivery, error: RetryLater) -> RetryLater:
        """Return the error with the pause that the platform asked for, or one that grows with the attempts."""
        pause = Backoff(self.options.pause_seconds, MAX_SEND_PAUSE_SECONDS).at(delivery.attempts)
        return RetryLater(str(error), after=error.after or pause)

    def pieces(self, delivery: Delivery) -> list[str | CardPiece | Attachment]:
        """Return the messages to send for a delivery, at least one: its text in pieces, then its files.

        The buttons of a question are below the last piece of its text; on a platform without, their labels are there.
        """
        attachments = attachments_of(delivery.parts)
        edit, card = edit_of(delivery.parts), card_of(delivery.parts)
        text = text_of(delivery.parts) if edit is None else edit.instead
        has_buttons = card is not None and self.capabilities.buttons and bool(card.options)
        if card is not None and (not has_buttons or has_long_labels(card, self.longest_label)):
            text = f"{text}\n\n{card.lines()}".rstrip()
        texts = self.split(printable(text))
        if card is not None and has_buttons:
            *first, last = texts or [ChannelAdapter.empty_text]
            return [*first, CardPiece(last, card)]
        if not texts and not attachments:
            texts = self.split(self.empty_text)
        return [*texts, *attachments]

    async def _send_piece(
        self, delivery: Delivery, piece: str | CardPiece | Attachment, index: int
    ) -> str:
        if isinstance(piece, CardPiece):
            return await self.send_card(delivery, piece.text, piece.card, index)
        if isinstance(piece, str):
            streamed = None
            if index == 0:
                streamed = await self._streaming.finish(
                    delivery.turn_id, lambda id: self.edit_text(delivery.channel, id, piece)
                )
            return streamed or await self.send_text(delivery, piece, index)
        file = await self.open_file(delivery, piece)
        if isinstance(file, str):
            return await self.send_text(delivery, file, index)
        try:
            return await self.send_file(delivery, file, index)
        except FileRefused as error:
            logger.warning("%s does not accept a file: %s", self.platform, error)
            return await self.send_text(delivery, files.not_sent(piece, str(error)), index)

    async def open_file(self, delivery: Delivery, file: Attachment) -> OutgoingFile | str:
        """Return a file of a delivery, or the text to send instead if it cannot be sent."""
        limit = self.options.largest_sent
        if file.size is not None and file.size > limit:
            return files.not_sent_too_large(file, limit)
        try:
            data = b"" if self.services is None else await self.services.blob(delivery, file.blob)
        except NotFound:
            return files.not_sent(file, "its bytes are no longer kept")
        if not data:
            return files.not_sent(file, "it is empty")
        if len(data) > limit:  # larger than its entry says
            return files.not_sent_too_large(file, limit)
        return OutgoingFile(files.name_of(file), files.media_type_of(file), data)

    async def show(self, channel: Channel, turn_id: str, text: str) -> None:
        """Show the partial reply of a turn in a message; the delivery of the reply is the last edit of that message."""
        longest = self.longest_preview or self.longest_message
        shown = preview(printable(text), longest, measure=self.measure)
        await self._streaming.show(channel, turn_id, shown)


class NotRunning:
    """The `Receive` of an adapter that is not running."""

    async def __call__(
        self, source: Source, message: Message, /, *, files: Sequence[bytes] = ()
    ) -> str:
        raise RetryLater("the channel is not running")

    async def admits(self, source: Source, /) -> bool:
        raise RetryLater("the channel is not running")

    async def press(self, source: Source, data: str, /) -> PressResult:
        raise RetryLater("the channel is not running")


class Backoff:
    """Pauses that double with every failure, up to a limit."""

    def __init__(self, first: float = 1.0, longest: float = 60.0) -> None:
        self._first, self._longest = first, longest
        self._failures = 0

    def at(self, failures: int) -> float:
        """Return the pause after this many failures."""
        return min(self._longest, self._first * 2.0 ** min(failures, 30))

    def next(self, at_least: float = 0.0) -> float:
        """Count a failure; return how long to wait, at least as long as the platform asks for."""
        self._failures += 1
        return max(at_least, self.at(self._failures - 1))

    def reset(self) -> None:
        """Start again with the first pause, after a success."""
        self._failures = 0


class PendingQueue(Generic[T]):
    """Messages of a platform that delivers each only once: kept until handled, even if `run` is restarted."""

    def __init__(self, platform: str) -> None:
        self._platform = platform
        self._queue: asyncio.Queue[T] = asyncio.Queue()
        self._pending: T | None = None

    def put(self, item: T) -> None:
        """Add an item."""
        self._queue.put_nowait(item)

    async def handle_all(self, handle: Callable[[T], Awaitable[None]]) -> None:
        """Handle one item after the other; retry one that cannot be stored now."""
        while True:
            item = self._pending = self._pending or await self._queue.get()
            await until_stored(partial(handle, item), self._platform)
            self._pending = None


async def until_stored(store: Callable[[], Awaitable[T]], platform: str) -> T:
    """Store a message that the platform does not deliver again; retry while the store is busy or unavailable."""
    while True:
        try:
            return await store()
        except (RetryLater, StoreUnavailable) as error:
            logger.warning("%s: a message cannot be stored now: %s", platform, error)
            wait = error.after if isinstance(error, RetryLater) else STORE_WAIT_SECONDS
            await asyncio.sleep(wait)


async def until_first_ends(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run all of these until one ends or fails; then cancel the others."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        while running := [task for task in tasks if not task.done()]:
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=CANCEL_AGAIN_SECONDS)
        await asyncio.gather(*tasks, return_exceptions=True)


class GroupBuffer:
    """The last lines of each group that were not addressed to the agent.

    They are stored together with the next message to the agent. Until then they are only in memory, and a restart
    loses them.
    """

    MAX_LINES = 20
    MAX_ROOMS = 500
    MAX_IDS = 5000

    def __init__(self) -> None:
        self._lines: LatestDict[str, deque[str]] = LatestDict(self.MAX_ROOMS)
        self._ids: LatestDict[tuple[str, str], None] = LatestDict(self.MAX_IDS)

    def add(self, room: str, speaker: str, text: str, *, id: str | None = None) -> None:
        """Add a line, unless its id was added before: platforms may deliver a message again, with a link preview."""
        if id is not None:
            if (room, id) in self._ids:
                return
            self._ids[room, id] = None
        lines = self._lines.get(room) or deque(maxlen=self.MAX_LINES)
        lines.append(transcript.line(speaker, text))
        self._lines[room] = lines

    def lines(self, room: str) -> tuple[str, ...]:
        """Return the lines since the last message to the agent."""
        return tuple(self._lines.get(room, ()))

    def clear(self, room: str) -> None:
        """Delete the lines, once they are stored with a message."""
        self._lines.pop(room, None)


def with_group_lines(message: Message, lines: tuple[str, ...]) -> Message:
    """Return the message with the group's lines before it, marked as not addressed to the agent."""
    if not lines:
        return message
    return replace(message, parts=(*message.parts, transcript.note(lines)))


@dataclass(slots=True)
class StreamingMessage:
    """The message that shows the partial reply of one turn."""

    id: str | None = None
    next_edit_at: float = 0.0
    is_over: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class StreamingMessages:
    """Shows replies while they are written: one message per turn, edited as often as the platform allows.

    `put` writes a text into the message with this id, or into a new one, and returns its id. The delivery of the reply
    is the last edit. After a crash the message stays as it was, and the reply is sent as a new message.
    """

    MAX_TURNS = 500

    def __init__(
        self,
        put: Callable[[Channel, str | None, str], Awaitable[str]],
        *,
        pause_of: Callable[[Channel], float],
    ) -> None:
        self._put = put
        self._pause_of = pause_of
        self._turns: LatestDict[str, StreamingMessage] = LatestDict(self.MAX_TURNS)
        self._tasks: set[asyncio.Task[None]] = set()

    async def show(self, channel: Channel, turn_id: str, text: str) -> None:
        """Edit the message of a turn, unless it is too early or the turn is over.

        The edit is completed even if the caller is cancelled: otherwise a new message, whose id we would not know,
        would stay in the chat beside the delivery.
        """
        message = self._turns[turn_id] = self._turns.get(turn_id) or StreamingMessage()
        task = asyncio.ensure_future(self._show(message, channel, text))
        self._tasks.add(task)
        task.add_done_callback(self._shown)
        await asyncio.shield(task)

    def _shown(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.info("a partial reply was not shown", exc_info=task.exception())

    async def _show(self, message: StreamingMessage, channel: Channel, text: str) -> None:
        async with message.lock:
            now = asyncio.get_running_loop().time()
            if message.is_over or now < message.next_edit_at:
                return
            message.next_edit_at = now + self._pause_of(channel)
            try:
                message.id = await self._put(channel, message.id, text)
            except SessionaryError as error:
                # It is only a preview: the delivery will report what is wrong.
                logger.info("%s: a partial reply is not shown: %s", channel.platform, error)
                message.is_over = True

    async def finish(
        self, turn_id: str | None, edit: Callable[[str], Awaitable[None]]
    ) -> str | None:
        """Edit the message of a turn for the last time; return its id, or None if there is none to edit.

        If `edit` raises `RetryLater`, the next attempt edits the same message.
        """
        message = None if turn_id is None else self._turns.get(turn_id)
        if message is None:
            return None
        async with message.lock:  # wait for an edit in progress, which would overwrite the last one
            message.is_over = True
        id = message.id
        if id is None:
            return None
        try:
            await edit(id)
        except Unreachable as error:
            logger.info(
                "a partial reply cannot be edited, the reply is sent as a new message: %s", error
            )
            id = None
        message.id = None
        return id


def answer_lost(platform: str, error: BaseException) -> SessionaryError:
    """Return the error for a request that may have been accepted, because its answer never came."""
    reason = str(error) or type(error).__name__
    return SessionaryError(f"{platform} did not answer: {reason}.", committed="unknown")


def is_about_question(delivery: Delivery) -> bool:
    """Whether a delivery asks a question, or shows its outcome: it mentions nobody, whatever its arguments say."""
    return card_of(delivery.parts) is not None or edit_of(delivery.parts) is not None


def has_long_labels(card: Card, longest: int) -> bool:
    """Whether an option of a card is too long for a button."""
    return any(len(label) > longest for label in _labels(card))


def button_labels(card: Card, longest: int) -> list[str]:
    """Return the labels of a card's buttons. If one is too long, all have the number of their option in the text."""
    labels = _labels(card)
    if not has_long_labels(card, longest):
        return labels
    return [one_line(f"{number}. {label}", longest) for number, label in enumerate(labels, 1)]


def _labels(card: Card) -> list[str]:
    return [one_line(visible(option)) for option in card.options]


def attachments_of(parts: tuple[Part, ...]) -> list[Attachment]:
    """Return the files among the parts of a delivery."""
    return [part for part in parts if isinstance(part, Attachment)]


# Splitting texts.

_BEYOND_BASIC_PLANE = 0xFFFF
_ROOM_FOR_ELLIPSIS = 64


def preview(text: str, longest: int, *, measure: Measure = len) -> str:
    """Return as much of an unfinished text as fits into one message, with an ellipsis."""
    return f"{split_text(text.strip() or '…', longest - _ROOM_FOR_ELLIPSIS, measure=measure)[0]} …"


def printable(text: str) -> str:
    """Return the text without control characters, and with lone surrogates replaced."""
    return "".join(char for char in codec.storable_text(text) if char >= " " or char in "\n\t")


def utf16_units(text: str) -> int:
    """Return the length of a text as JavaScript and several platforms count it."""
    return len(text) + sum(1 for char in text if ord(char) > _BEYOND_BASIC_PLANE)


# Reading values of untrusted JSON.


def text_value(value: Any) -> str:
    """Return a text or a number as text; "" for anything else."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def object_value(value: Any) -> Json:
    """Return an object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def object_list(value: Any) -> list[Json]:
    """Return the objects in a list; nothing for anything else."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
