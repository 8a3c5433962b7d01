"""A runner that misbehaves in the way a test chooses: it hangs, floods, raises, yields rubbish."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from sessionary.engine.ports import Delta, TurnRequest


class MisbehavingRunner:
    """Goes through a list: yields a text as a delta, raises an exception, yields anything else as it is."""

    HANG = object()
    """Wait for ever."""
    HANG_UNCANCELLABLE = object()
    """Wait for ever, ignoring cancellation."""

    def __init__(self, script: Iterable[Any]) -> None:
        self.script = script
        self.hanging = 0
        self.cancelled = 0
        self.taken = 0
        self.release = asyncio.Event()

    async def run(self, request: TurnRequest) -> AsyncIterator[Any]:
        """Go through the script."""
        assert request.turn_id
        for item in self.script:
            self.taken += 1
            if item is self.HANG or item is self.HANG_UNCANCELLABLE:
                await self._hang(uncancellable=item is self.HANG_UNCANCELLABLE)
            elif isinstance(item, BaseException):
                raise item
            else:
                yield Delta(item) if isinstance(item, str) else item

    async def close(self) -> None:
        """There is nothing to close."""

    async def _hang(self, *, uncancellable: bool) -> None:
        self.hanging += 1
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                if not uncancellable:
                    raise
