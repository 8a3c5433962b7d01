"""Waking a loop of the event loop from a commit in another thread."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from sessionary.store.database import Store


class Wake:
    """A loop's alarm clock: rings after a commit that concerns it, and after a while anyway."""

    def __init__(self, store: Store, concerns: Callable[[Any], bool], *, seconds: float) -> None:
        self._seconds = seconds
        self._concerns = concerns
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._stop = store.listen(self._saw)

    def ring(self) -> None:
        """Wake the loop now."""
        self._event.set()

    async def pause(self) -> None:
        """Sleep until something concerns the loop, or until it is time to look anyway."""
        # Not wait_for: under 3.11 it can swallow a cancellation that comes with the event.
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await self._event.wait()
        self._event.clear()

    def close(self) -> None:
        """Listen no longer."""
        self._stop()

    def _saw(self, events: Sequence[Any]) -> None:
        # This runs in the thread that committed; the loop may be gone already.
        if any(self._concerns(event) for event in events):
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._event.set)
