"""The door of the house as an adapter sees it."""

from collections.abc import Awaitable, Sequence
from typing import Protocol

from sessionary.engine import intake
from sessionary.engine.context import EngineContext
from sessionary.engine.intake import Received
from sessionary.model.entry import Message
from sessionary.model.source import Source


class _TakesIn(Protocol):
    def __call__(
        self, source: Source, said: Message, *, files: Sequence[bytes] = ()
    ) -> Awaitable[Received]: ...


class Entrance:
    """Lets messages in, and says before that who may enter."""

    def __init__(self, context: EngineContext, take_in: _TakesIn) -> None:
        self._context = context
        self._take_in = take_in

    async def __call__(
        self, source: Source, said: Message, /, *, files: Sequence[bytes] = ()
    ) -> str:
        """Take a message in; its arrival's id, or "" for someone who may not enter."""
        return (await self._take_in(source, said, files=files)).arrival_id or ""

    async def admits(self, source: Source, /) -> bool:
        """Whether this person may enter."""
        return await self._context.store.read(intake.may_enter, self._context, source)
