"""What goes out to channels: deliveries, what people see of a running turn, and long texts in pieces.

Deliveries are sent at least once, in order for each channel. The typing indicator and the partial reply are not
durable: the delivery replaces them.
"""

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from sessionary.actions import files, inbox, outbox
from sessionary.actions.outbox import DeliveryAdded
from sessionary.actions.sessions import read, routing
from sessionary.actions.sessions.routing import Move
from sessionary.engine.context import EngineContext, LiveEvent, WakeSignal
from sessionary.engine.ports import Adapter, Sender
from sessionary.errors import (
    NotAllowed,
    NotFound,
    RetryLater,
    SessionaryError,
    StoreUnavailable,
    Unreachable,
)
from sessionary.model.source import Channel
from sessionary.model.turn import Delivery
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals
from sessionary.store.tables.deliveries import SendClaim, SentMark
from sessionary.store.tables.deliveries import get as _delivery

# A claim lasts longer than an attempt to send by this factor.
CLAIM_FACTOR = 4 / 3
# How many deliveries of one platform are sent at once: as many as turns that may end at once.
MAX_SENDING = 64
LONGEST_REASON = 500
# The longest pause that a platform can ask for: less than `actions.sweep.LONGEST_WAIT`.
LONGEST_WAIT_SECONDS = 24 * 3600.0
log = logging.getLogger(__name__)


class Outbox:
    """Sends the deliveries of the platforms with these senders."""

    def __init__(
        self,
        context: EngineContext,
        senders: Mapping[str, Sender],
        *,
        poll_seconds: float | None = None,
    ) -> None:
        """`poll_seconds`: how often to look for what another process wrote, if not as often as the settings say."""
        self._context = context
        self._poll_seconds = poll_seconds or context.settings.poll_seconds
        self._senders = senders
        self._prefixes = tuple(str(Channel(name, "-"))[:-1] for name in senders)
        self._wake: WakeSignal | None = None
        # By platform: one that does not answer must not block the others.
        self._sending: dict[str, set[asyncio.Task[bool]]] = {}
        self._claimed_until: dict[str, float] = {}
        # By platform: how many turns are about to end with a delivery for this process.
        self._reserved: Counter[str] = Counter()
        # Platforms for which more was due than could be sent at once.
        self._full: set[str] = set()
        self._is_open = False
        # What was sent and is not marked yet; one task at a time marks it, for all.
        self._sent: list[SentMark] = []
        self._is_marking = False
        self._last_added: DeliveryAdded | None = None

    async def run(self) -> None:
        """Send until cancelled; attempts that have begun are finished first."""
        if not self._senders:
            return
        self._wake = WakeSignal(
            self._context.store,
            self._note_added,
            seconds=self._poll_seconds,
        )
        self._is_open = True
        try:
            while True:
                more = [await self._send_due(sender) for sender in self._senders.values()]
                if not any(more):
                    await self._wake.wait()
        finally:
            self._is_open = False
            self._wake.close()
            sending = [task for tasks in self._sending.values() for task in tasks]
            await asyncio.gather(*sending, return_exceptions=True)

    def _note_added(self, event: object) -> bool:
        if not isinstance(event, DeliveryAdded) or not event.channel.startswith(self._prefixes):
            return False
        self._last_added = event
        return True

    def reserve(self, platform: str) -> SendClaim | None:
        """Reserve the sending of a delivery that is about to be written; None if this process cannot send it now.

        The caller must call `send` afterwards, also if the delivery was not written: that frees the reservation.
        """
        sending = len(self._sending.get(platform, ())) + self._reserved[platform]
        if not self._is_open or platform not in self._senders or sending >= MAX_SENDING:
            return None
        self._reserved[platform] += 1
        seconds = self._context.settings.send_seconds * CLAIM_FACTOR
        until = self._context.clock.now() + timedelta(seconds=seconds)
        return SendClaim(self._context.holder, until)

    def send(self, platform: str, claimed: Sequence[Delivery]) -> None:
        """Send the delivery that was written with a claim of `reserve`, if it was."""
        self._reserved[platform] -= 1
        self._start(self._senders[platform], claimed)

    async def finish(self, *, seconds: float) -> None:
        """Wait up to `seconds` for the deliveries of turns that ended while the engine was stopping."""
        sending = [task for tasks in self._sending.values() for task in tasks]
        if sending:
            await asyncio.wait(sending, timeout=seconds)

    async def _send_due(self, sender: Sender) -> bool:
        """Begin to send what is due, up to the limit; return whether more may be due already."""
        context = self._context
        sending = self._sending.setdefault(sender.platform, set())
        free = MAX_SENDING - len(sending) - self._reserved[sender.platform]
        if free <= 0:
            self._full.add(sender.platform)  # the first that finishes wakes the loop
            return False
        try:
            claim = context.store.write(
                outbox.claim,
                holder=context.holder,
                seconds=context.settings.send_seconds * CLAIM_FACTOR,
                now=context.clock.now(),
                limit=free,
                platform=sender.platform,
                profile=context.profile,
            )
            claimed = await claim.handoff(lambda deliveries: self._start(sender, deliveries))
        except (RetryLater, StoreUnavailable) as error:
            log.warning("the outbox cannot be read: %s", error)
            return False
        return len(claimed) == free

    def _start(self, sender: Sender, claimed: Sequence[Delivery]) -> None:
        sending = self._sending.setdefault(sender.platform, set())
        until = time.monotonic() + self._context.settings.send_seconds * CLAIM_FACTOR
        for delivery in claimed:
            self._claimed_until[delivery.id] = until
            task = asyncio.create_task(self._send(sender, delivery))
            sending.add(task)
            task.add_done_callback(partial(self._finished, delivery))

    def _finished(self, delivery: Delivery, task: "asyncio.Task[bool]") -> None:
        platform = delivery.channel.platform
        self._sending[platform].discard(task)
        if not task.cancelled() and task.exception() is not None:
            # It is sent again when its claim has run out, marked as possibly a duplicate.
            log.warning("a delivery could not be marked", exc_info=task.exception())
        elif not task.cancelled() and not task.result() and platform not in self._full:
            return
        self._full.discard(platform)
        if self._wake is not None:
            self._wake.wake()

    async def _send(self, sender: Sender, delivery: Delivery) -> bool:
        """Send a delivery and record the outcome; return whether more may be due now."""
        context = self._context
        try:
            async with asyncio.timeout(context.settings.send_seconds):
                sent = await sender.send(delivery)
        except (RetryLater, StoreUnavailable) as error:
            # Not before the platform says; and later each time, or a short outage would use up all attempts.
            wait = max(getattr(error, "after", 0.0), self._backoff(delivery))
            await self._retry_or_abandon(delivery, min(wait, LONGEST_WAIT_SECONDS), str(error))
        except NotAllowed as error:
            await self._wait_for_owner(delivery, str(error))
        except Unreachable as error:
            await self._abandon(delivery, str(error))
        except TimeoutError:
            await self._retry_or_abandon(
                delivery, self._backoff(delivery), "the platform did not answer", unclear=True
            )
        except (
            Exception
        ) as error:  # an adapter is foreign code: any failure is a failure of this delivery only
            if not isinstance(error, SessionaryError):
                log.exception("delivery %s failed", delivery.id)
            reason = f"{type(error).__name__}: {error}"
            await self._retry_or_abandon(delivery, self._backoff(delivery), reason, unclear=True)
        else:
            mark = SentMark(delivery.id, context.clock.now(), sent.platform_message_id)
            return await self._mark_sent(mark)
        return True

    async def _mark_sent(self, mark: SentMark) -> bool:
        """Mark a delivery as sent, and with it those that are sent meanwhile; return whether more may be due now."""
        self._sent.append(mark)
        if self._is_marking:
            return False  # the task that is marking marks this one next
        self._is_marking = True
        is_more_due = False
        try:
            while self._sent:
                marks, self._sent = self._sent, []
                ids = [mark.id for mark in marks]
                last_added = self._last_added
                try:
                    is_more_due |= await self._record(
                        outbox.mark_all_sent, marks, ids, holder=self._context.holder
                    )
                    # What was added meanwhile waited for these, and on PostgreSQL their marks may not have seen it.
                    is_more_due |= self._last_added is not last_added
                except (RetryLater, StoreUnavailable) as error:
                    # They are sent again when their claims have run out, marked as possibly duplicates.
                    log.warning("deliveries %s could not be marked: %s", ", ".join(ids), error)
        finally:
            self._is_marking = False
        return is_more_due

    async def _retry_or_abandon(
        self, delivery: Delivery, seconds: float, reason: str, *, unclear: bool = False
    ) -> None:
        if delivery.attempts >= self._context.settings.send_attempts:
            await self._abandon(delivery, f"given up after {delivery.attempts} tries: {reason}")
            return
        await self._reschedule(delivery, seconds, reason, unclear=unclear)

    async def _wait_for_owner(self, delivery: Delivery, reason: str) -> None:
        """Wait without counting the attempt while the platform refuses our credentials."""
        log.warning("delivery %s to %s waits: %s", delivery.id, delivery.channel, reason)
        pause = self._context.settings.longest_backoff
        await self._reschedule(delivery, pause, reason, counted=False)

    async def _reschedule(
        self, delivery: Delivery, seconds: float, reason: str, **how: bool
    ) -> None:
        await self._record(
            outbox.mark_failed,
            delivery.id,
            [delivery.id],
            holder=self._context.holder,
            not_before=self._context.clock.now() + timedelta(seconds=seconds),
            reason=reason[:LONGEST_REASON],
            **how,
        )

    async def _abandon(self, delivery: Delivery, reason: str) -> None:
        log.warning("delivery %s to %s abandoned: %s", delivery.id, delivery.channel, reason)
        holder = self._context.holder
        await self._record(
            outbox.abandon,
            delivery.id,
            [delivery.id],
            holder=holder,
            reason=reason[:LONGEST_REASON],
        )

    async def _record(
        self, action: Callable[..., bool], what: Any, ids: Sequence[str], **facts: Any
    ) -> bool:
        """Record the outcome of attempts to send these deliveries, retrying while the store is away.

        When the last claim runs out first, they are sent again, marked as possibly duplicates.
        """
        pause = self._context.settings.poll_seconds
        until = max(self._claimed_until.get(id, 0.0) for id in ids)
        try:
            while True:
                try:
                    return await self._context.store.write(action, what, **facts)
                except (RetryLater, StoreUnavailable) as error:
                    if time.monotonic() + pause >= until:
                        raise
                    log.warning("deliveries %s cannot be marked now: %s", ", ".join(ids), error)
                    await asyncio.sleep(pause)
        finally:
            for id in ids:
                self._claimed_until.pop(id, None)

    def _backoff(self, delivery: Delivery) -> float:
        longest = min(2.0 ** min(delivery.attempts, 20), self._context.settings.longest_backoff)
        return longest * self._context.rng.uniform(0.5, 1.0)


class PlatformServices:
    """The `DeliveryServices` of one platform's adapter."""

    def __init__(self, context: EngineContext, platform: str) -> None:
        self._context = context
        self._platform = platform

    async def blob(self, delivery: Delivery, name: str) -> bytes:
        """Return the bytes of a file, if the session that the delivery comes from has it."""
        return await self._context.store.read(_blob_of, delivery, name)

    async def message_id(self, delivery_id: str) -> str | None:
        """Return the id on the platform of the message that an earlier delivery was sent as."""
        context = self._context
        found = await context.store.read(_delivery, delivery_id, profile=context.profile)
        return None if found is None else found.platform_message_id

    async def bounced(self, delivery_id: str, reason: str) -> None:
        """Mark a delivery that was sent as abandoned, with the reason."""
        await self._context.store.write(
            outbox.bounce,
            delivery_id,
            profile=self._context.profile,
            platform=self._platform,
            reason=reason[:LONGEST_REASON],
        )

    async def moved(self, old: str, new: str) -> None:
        """Move the conversations of a chat to its new id."""
        move = Move(self._platform, old, new)
        context = self._context
        await context.store.write(
            routing.move_chat, move, profile=context.profile, moment=context.moment()
        )

    async def place(self) -> str | None:
        """Return how far the platform was read."""
        context = self._context
        return await context.store.read(inbox.get_position, self._platform, profile=context.profile)

    async def keep_place(self, place: str) -> None:
        """Remember that everything up to here is durable."""
        context = self._context
        await context.store.write(
            inbox.set_position, self._platform, place, profile=context.profile
        )

    async def chats(self, *, most: int) -> Sequence[Channel]:
        """Return the channels that have a conversation."""
        context = self._context
        return await context.store.read(
            inbox.list_channels, self._platform, profile=context.profile, limit=most
        )


def _blob_of(tx: Tx, delivery: Delivery, name: str) -> bytes:
    if delivery.session_id is None:
        raise NotFound(f"Delivery {delivery.id} comes from no session.")
    head = read.get_head(tx, delivery.session_id, profile=delivery.profile)
    return files.read_blob(tx, name, session_no=head.no)


TYPING_SECONDS = 4.0


class TurnStatusDisplay:
    """Shows the turns of this process in the channels that can."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._turns: dict[str, asyncio.Task[None]] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether any channel can show something."""
        return any(
            adapter.capabilities.shows_typing or adapter.capabilities.streams
            for adapter in self._context.adapters.values()
        )

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            with self._context.bus.listen() as events:
                while True:
                    live = await events.get()
                    if live is None:  # some were lost: an end may be among them
                        self._end_all()
                    elif live.kind == "began":
                        self._begin(live)
                    elif live.kind in ("ended", "lost"):
                        self._end(live.turn_id)
        finally:
            tasks = list(self._turns.values())
            self._end_all()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, live: LiveEvent) -> None:
        task = asyncio.create_task(self._show_turn(live.session_id, live.turn_id))
        self._turns[live.turn_id] = task
        task.add_done_callback(partial(self._ended, live.turn_id))

    def _end(self, turn_id: str) -> None:
        task = self._turns.pop(turn_id, None)
        if task is not None:
            task.cancel()

    def _end_all(self) -> None:
        for turn_id in tuple(self._turns):
            self._end(turn_id)

    def _ended(self, turn_id: str, task: "asyncio.Task[None]") -> None:
        self._turns.pop(turn_id, None)
        if not task.cancelled() and task.exception() is not None:
            log.warning("a turn is no longer shown in its channel", exc_info=task.exception())

    async def _show_turn(self, session_id: str, turn_id: str) -> None:
        context = self._context
        channel = await context.store.read(
            _channel_of, session_id, turn_id=turn_id, profile=context.profile
        )
        adapter = None if channel is None else context.adapters.get(channel.platform)
        if channel is None or adapter is None:
            return
        # When one fails, both end.
        async with asyncio.TaskGroup() as both:
            both.create_task(self._show_typing(adapter, channel))
            both.create_task(self._show_text(adapter, channel, session_id, turn_id))

    async def _show_typing(self, adapter: Adapter, channel: Channel) -> None:
        while adapter.capabilities.shows_typing:
            try:
                await adapter.typing(channel)
            except SessionaryError as error:  # the partial reply may be shown all the same
                log.debug("%s does not show typing: %s", channel.platform, error)
            await asyncio.sleep(TYPING_SECONDS)

    async def _show_text(
        self, adapter: Adapter, channel: Channel, session_id: str, turn_id: str
    ) -> None:
        shown = ""
        while adapter.capabilities.streams:
            await asyncio.sleep(self._context.settings.show_seconds)
            live = self._context.bus.partial_text(session_id)
            text = "" if live is None or live.turn_id != turn_id else str(live.data)
            if text.strip() and text != shown:
                await adapter.show(channel, turn_id, text)
                shown = text


def _channel_of(tx: Tx, session_id: str, *, turn_id: str, profile: str) -> Channel | None:
    """Return the channel of the message that the turn answers; None for a turn without one."""
    try:
        head = read.get_head(tx, session_id, profile=profile)
    except SessionaryError:
        return None
    source = arrivals.last_source_of_turn(tx, turn_id, session_no=head.no)
    return None if source is None else source.channel


# How a text is measured: platforms count characters, UTF-16 units or bytes.
Measure = Callable[[str], int]
# The line that opens or closes a code block. Backticks that open and close in one line are inline code.
_FENCE = re.compile(r"^(`{3,}(?=[^`\n]*$)|~{3,})([^\n]*)$")
_MAX_LANGUAGE = 32
# Fences are not repeated in each piece if they would take more than this share of it.
_MAX_SHARE_OF_FENCES = 0.25
# Do not split a text before this share of what fits.
_SMALLEST_SHARE = 0.5


def split_text(text: str, longest: int, *, measure: Measure = len) -> list[str]:
    """Split a text into pieces of at most `longest` units, as `measure` counts them.

    It is split between paragraphs, else lines, else words. A code block that is split is closed in one piece and
    opened again in the next.
    """
    rest = text.strip("\n")
    pieces: list[str] = []
    fence = ""
    while rest:
        opened = f"{fence}\n" if fence else ""
        space = longest - measure(opened) - (measure(_fence_mark(fence)) + 1 if fence else 0)
        if measure(opened + rest) <= longest:
            pieces.append(opened + rest)
            break
        head, line, rest = _split_once(rest, max(1, space - 8), measure)
        fence = _open_fence(opened + head + line)
        if 2 * measure(fence) > longest * _MAX_SHARE_OF_FENCES:
            fence = ""  # opening and closing it in every piece would leave too little space for the text
        closing = f"\n{_fence_mark(fence)}" if fence else ""
        pieces.append(opened + head.rstrip("\n") + closing)
        rest = rest if fence else rest.lstrip("\n")
    return [piece for piece in pieces if piece.strip()]


def _fence_mark(fence: str) -> str:
    """Return the backticks or tildes of a fence, without its language."""
    match = _FENCE.match(fence)
    return match[1] if match else ""


def _split_once(text: str, space: int, measure: Measure) -> tuple[str, str, str]:
    """Return the part of a text that fits, the rest of the line if a line had to be cut, and the rest of the text."""
    limit = min(len(text), space)
    while limit > 1 and measure(text[:limit]) > space:
        limit -= max(1, (measure(text[:limit]) - space) // 2)
    limit = max(1, limit)
    for mark in ("\n\n", "\n"):
        position = text.rfind(mark, int(limit * _SMALLEST_SHARE), limit)
        if position > 0:
            return text[:position], "", text[position + len(mark) :]
    position = text.rfind(" ", int(limit * _SMALLEST_SHARE), limit)
    if position > 0:
        head, rest = text[:position], text[position + 1 :]
    else:
        head, rest = text[:limit], text[limit:]
    return head, rest.partition("\n")[0], rest


def _open_fence(text: str) -> str:
    """Return the opening line of the code fence that is still open at the end of a text, or nothing."""
    opened = ""
    for line in text.split("\n"):
        match = _FENCE.match(line.strip())
        if match is None:
            continue
        if not opened:
            language = match[2] if len(match[2]) <= _MAX_LANGUAGE else ""
            opened = f"{match[1]}{language}"
        elif match[1].startswith(_fence_mark(opened)) and not match[2].strip():
            opened = ""
    return opened
