"""A runner that misbehaves as a test tells it: hangs, floods, raises, gives rubbish."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from sessionary.engine.ports import Delta, TurnRequest


class UnrulyRunner:
    """Goes through a list: a text is said, an exception raised, anything else given as it is."""

    HANG = object()
    """Wait for ever."""
    STUBBORN = object()
    """Wait for ever, and do not even go when cancelled."""

    def __init__(self, deeds: Iterable[Any]) -> None:
        self.deeds = deeds
        self.hanging = 0
        self.cancelled = 0
        self.given = 0
        self.let_go = asyncio.Event()

    async def run(self, request: TurnRequest) -> AsyncIterator[Any]:
        """Do what is on the list."""
        assert request.turn_id
        for deed in self.deeds:
            self.given += 1
            if deed is self.HANG or deed is self.STUBBORN:
                await self._hang(stubborn=deed is self.STUBBORN)
            elif isinstance(deed, BaseException):
                raise deed
            else:
                yield Delta(deed) if isinstance(deed, str) else deed

    async def close(self) -> None:
        """Nothing is held."""

    async def _hang(self, *, stubborn: bool) -> None:
        self.hanging += 1
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                if not stubborn:
                    raise
