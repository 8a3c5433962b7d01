"""An answer that grows before one's eyes: one message, edited within the platform's limits.

The delivery then becomes this message's last edit. After a crash the message stays as it was,
and the delivery comes as a new one: what counts is in the outbox, not here.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from sessionary.channels.split import Measure, split_text
from sessionary.errors import SessionaryError, Unreachable
from sessionary.model.source import Channel

MOST = 500
_ROOM = 64
log = logging.getLogger("sessionary.channels")

# Writes a message into a channel, or another text into the message of this id; its id.
Put = Callable[[Channel, str | None, str], Awaitable[str]]


@dataclass(slots=True)
class _Growth:
    """The message of one turn."""

    number: str | None = None
    next_at: float = 0.0
    is_over: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Growing:
    """The messages that grow now."""

    def __init__(self, put: Put, *, pause_of: Callable[[Channel], float]) -> None:
        self._put = put
        self._pause_of = pause_of
        self._turns: OrderedDict[str, _Growth] = OrderedDict()
        self._showing: set[asyncio.Task[None]] = set()

    async def show(self, channel: Channel, turn_id: str, text: str) -> None:
        """Let the message of a turn say this, unless it is too early or already over.

        What is under way goes on when whoever awaits it is cancelled: a message that the platform
        has and we do not know of would stay there beside the delivery.
        """
        growth = self._turns.setdefault(turn_id, _Growth())
        while len(self._turns) > MOST:
            self._turns.popitem(last=False)
        task = asyncio.ensure_future(self._show(growth, channel, text))
        self._showing.add(task)
        task.add_done_callback(self._shown)
        await asyncio.shield(task)

    def _shown(self, task: "asyncio.Task[None]") -> None:
        self._showing.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.info("an answer was not shown while it grew", exc_info=task.exception())

    async def _show(self, growth: _Growth, channel: Channel, text: str) -> None:
        async with growth.lock:
            now = asyncio.get_running_loop().time()
            if growth.is_over or now < growth.next_at:
                return
            growth.next_at = now + self._pause_of(channel)
            try:
                growth.number = await self._put(channel, growth.number, text)
            except SessionaryError as error:
                # It is only a preview: whatever is wrong, the delivery will tell.
                log.info("%s: an answer is not shown while it grows: %s", channel.platform, error)
                growth.is_over = True

    async def finish(
        self, turn_id: str | None, edit: Callable[[str], Awaitable[None]]
    ) -> str | None:
        """Make a delivery the last edit of its turn's message; the id, or None to send it anew.

        What is to be tried later leaves the message as it is: the next try edits it again.
        """
        number = await self._end(turn_id)
        if turn_id is None or number is None:
            return None
        try:
            await edit(number)
        except Unreachable as error:
            log.info("a message that grew cannot be finished, it comes anew: %s", error)
            self._forget(turn_id)
            return None
        self._forget(turn_id)
        return number

    async def _end(self, turn_id: str | None) -> str | None:
        growth = None if turn_id is None else self._turns.get(turn_id)
        if growth is None:
            return None
        async with growth.lock:  # an edit under way would overwrite the delivery
            growth.is_over = True
            return growth.number

    def _forget(self, turn_id: str) -> None:
        if turn_id in self._turns:
            self._turns[turn_id].number = None


def preview(text: str, longest: int, *, measure: Measure | None = None) -> str:
    """As much of a growing text as one message holds, with a sign that it goes on."""
    words = text.strip() or "…"
    return f"{split_text(words, longest - _ROOM, measure=measure)[0]} …"
