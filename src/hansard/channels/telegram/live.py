"""An answer that grows before one's eyes: one message, edited within the rate limit.

The delivery then becomes this message's last edit. After a crash the message stays as it was,
and the delivery comes as a new one: what counts is in the outbox, not here.
"""

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass, field

from hansard.channels.split import split_text, utf16_units
from hansard.channels.telegram import outbound
from hansard.channels.telegram.client import Client, Moved, Refused
from hansard.errors import HansardError

MOST = 500
# Telegram takes about one message a second in a chat, and 20 a minute in a group.
DIRECT_PAUSES, GROUP_PAUSES = 1.1, 3.5
_ROOM = 64
log = logging.getLogger("hansard.telegram")


@dataclass(slots=True)
class _Growth:
    """The message of one turn."""

    number: str | None = None
    next_at: float = 0.0
    is_over: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Growing:
    """The messages that grow now."""

    def __init__(self, client: Client, *, pause_seconds: float) -> None:
        self._client = client
        self._pause = pause_seconds
        self._turns: OrderedDict[str, _Growth] = OrderedDict()

    async def show(self, chat: str, thread: str | None, turn_id: str, text: str) -> None:
        """Let the message of a turn say this, unless it is too early or already over."""
        growth = self._turns.setdefault(turn_id, _Growth())
        while len(self._turns) > MOST:
            self._turns.popitem(last=False)
        async with growth.lock:
            now = asyncio.get_running_loop().time()
            if growth.is_over or now < growth.next_at:
                return
            pauses = GROUP_PAUSES if chat.startswith("-") else DIRECT_PAUSES
            growth.next_at = now + self._pause * pauses
            try:
                await self._put(growth, chat, thread, _preview(text))
            except (HansardError, Refused, Moved) as error:
                # It is only a preview: whatever is wrong, the delivery will tell.
                log.info("telegram: an answer is not shown while it grows: %s", error)
                growth.is_over = True

    async def take(self, turn_id: str | None) -> str | None:
        """End the growth of a turn's message; its number, for the delivery to be its last edit."""
        growth = None if turn_id is None else self._turns.get(turn_id)
        if growth is None:
            return None
        async with growth.lock:  # an edit under way would overwrite the delivery
            growth.is_over = True
            return growth.number

    def forget(self, turn_id: str | None) -> None:
        """The delivery is there."""
        if turn_id is not None and turn_id in self._turns:
            self._turns[turn_id].number = None

    async def _put(self, growth: _Growth, chat: str, thread: str | None, text: str) -> None:
        if growth.number is None:
            growth.number = await self._client.send(chat, text, thread=thread, markup=False)
        else:
            await self._client.edit(chat, growth.number, text, markup=False)


def _preview(text: str) -> str:
    words = outbound.sayable(text).strip() or "…"
    first = split_text(words, outbound.LONGEST - _ROOM, measure=utf16_units)
    return f"{first[0]} …"
