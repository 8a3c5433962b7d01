"""The loop that shows a running turn in its channel: the typing indicator and the partial reply.

Nothing here is durable: the delivery replaces what is shown, and comes without it too.
"""

import asyncio
import logging
from functools import partial

from sessionary.actions.sessions import read
from sessionary.engine.context import EngineContext, LiveEvent
from sessionary.engine.ports import Adapter
from sessionary.errors import SessionaryError
from sessionary.model.source import Channel
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals

TYPING_SECONDS = 4.0
log = logging.getLogger(__name__)


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
        head = read.head(tx, session_id, profile=profile)
    except SessionaryError:
        return None
    source = arrivals.source_of_turn(tx, turn_id, session_no=head.no)
    return None if source is None else source.channel
