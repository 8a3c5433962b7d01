"""The loop that shows in a channel that an answer is being written, and how it grows.

Nothing durable passes here: what is shown is replaced by the delivery, which comes without it too.
"""

import asyncio
import logging
from functools import partial

from sessionary.actions import read
from sessionary.engine.context import EngineContext
from sessionary.engine.events import LiveEvent
from sessionary.engine.ports import Adapter, Shows
from sessionary.errors import SessionaryError
from sessionary.model.source import Channel
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals

TYPING_SECONDS = 4.0
log = logging.getLogger("sessionary.showing")


class Showing:
    """Accompanies the turns of this process in the channels that can show them."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._turns: dict[str, asyncio.Task[None]] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether any channel can show something."""
        return any(
            adapter.capabilities.shows_typing or isinstance(adapter, Shows)
            for adapter in self._context.adapters.values()
        )

    async def run(self) -> None:
        """Go on until cancelled."""
        try:
            with self._context.bus.listen() as events:
                while True:
                    live = await events.get()
                    if live is None:  # some were lost: an end may be among them
                        self._leave_all()
                    elif live.kind == "began":
                        self._begin(live)
                    elif live.kind in ("ended", "lost"):
                        self._leave(live.turn_id)
        finally:
            tasks = list(self._turns.values())
            self._leave_all()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, live: LiveEvent) -> None:
        task = asyncio.create_task(self._accompany(live.session_id, live.turn_id))
        self._turns[live.turn_id] = task
        task.add_done_callback(partial(self._left, live.turn_id))

    def _leave(self, turn_id: str) -> None:
        task = self._turns.pop(turn_id, None)
        if task is not None:
            task.cancel()

    def _leave_all(self) -> None:
        for turn_id in tuple(self._turns):
            self._leave(turn_id)

    def _left(self, turn_id: str, task: "asyncio.Task[None]") -> None:
        self._turns.pop(turn_id, None)
        if not task.cancelled() and task.exception() is not None:
            log.warning("a turn is not shown any more", exc_info=task.exception())

    async def _accompany(self, session_id: str, turn_id: str) -> None:
        context = self._context
        channel = await context.store.read(
            _channel_of, session_id, turn_id=turn_id, profile=context.profile
        )
        adapter = None if channel is None else context.adapters.get(channel.platform)
        if channel is None or adapter is None:
            return
        # Both end together: what is left alone would go on for ever.
        async with asyncio.TaskGroup() as both:
            both.create_task(self._type(adapter, channel))
            both.create_task(self._show(adapter, channel, session_id, turn_id))

    async def _type(self, adapter: Adapter, channel: Channel) -> None:
        while adapter.capabilities.shows_typing:
            try:
                await adapter.typing(channel)
            except SessionaryError as error:  # the words may be shown all the same
                log.info("%s does not show typing: %s", channel.platform, error)
            await asyncio.sleep(TYPING_SECONDS)

    async def _show(
        self, adapter: Adapter, channel: Channel, session_id: str, turn_id: str
    ) -> None:
        shown = ""
        while isinstance(adapter, Shows):
            await asyncio.sleep(self._context.settings.show_seconds)
            live = self._context.bus.partial_text(session_id)
            said = "" if live is None or live.turn_id != turn_id else str(live.data)
            if said.strip() and said != shown:
                await adapter.show(channel, turn_id, said)
                shown = said


def _channel_of(tx: Tx, session_id: str, *, turn_id: str, profile: str) -> Channel | None:
    """Where whoever asked reads the answer; None for turns that nobody asked for."""
    try:
        head = read.head(tx, session_id, profile=profile)
    except SessionaryError:
        return None
    source = arrivals.source_of_turn(tx, turn_id, session_no=head.no)
    return None if source is None else source.channel
