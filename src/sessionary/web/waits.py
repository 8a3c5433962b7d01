"""Requests that wait for the outcome of an arrival: one task looks for all of them."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from sessionary.actions.sessions.log import SessionChanged
from sessionary.errors import RetryLater, StoreUnavailable
from sessionary.model.turn import ArrivalState, TurnState
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals, turns
from sessionary.web.context import WebContext

MAX_SECONDS = 60.0
# Commits that follow each other closely share one look.
_PAUSE_SECONDS = 0.02


class ArrivalWaits:
    """Wakes a request when its arrival was answered, refused, or its turn ended otherwise.

    Commits of this process wake the look, however many requests wait; it is repeated every second, because the
    turn may run in another process.
    """

    def __init__(self, context: WebContext) -> None:
        self._context = context
        # By profile and arrival.
        self._waiting: dict[tuple[str, str], set[asyncio.Future[None]]] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = context.store.listen(self._on_commit)
        self._is_closed = False

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    async def wait(self, id: str, *, profile: str, seconds: float, gone: Any) -> None:
        """Return when the arrival has its outcome, the time is over, or `gone` is done."""
        if self._is_closed:
            return
        self._loop = asyncio.get_running_loop()
        key, over = (profile, id), self._loop.create_future()
        self._waiting.setdefault(key, set()).add(over)
        self._changed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            await asyncio.wait({over, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            of_arrival = self._waiting.get(key, set())
            of_arrival.discard(over)
            if not of_arrival:
                self._waiting.pop(key, None)

    def close(self) -> None:
        """Let every request answer now: the server stops."""
        self._is_closed = True
        self._release(self._waiting)

    def stop_listening(self) -> None:
        self._stop()
        if self._task is not None:
            self._task.cancel()

    def _on_commit(self, events: Sequence[Any]) -> None:
        # This runs in the thread that committed; the loop may be gone already.
        loop = self._loop if self._waiting else None
        if loop is not None and any(isinstance(event, SessionChanged) for event in events):
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._changed.set)

    async def _watch(self) -> None:
        while self._waiting:
            with suppress(TimeoutError):
                await asyncio.wait_for(
                    self._changed.wait(), self._context.settings.limits.check_seconds
                )
            self._changed.clear()
            with suppress(RetryLater, StoreUnavailable):  # the next look tries again
                self._release(await self._context.store.read(find_over, list(self._waiting)))
            await asyncio.sleep(_PAUSE_SECONDS)

    def _release(self, keys: Iterable[tuple[str, str]]) -> None:
        for key in keys:
            for over in self._waiting.get(key, ()):
                if not over.done():
                    over.set_result(None)


def find_over(tx: Tx, keys: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those of these arrivals (profile and id) that wait for nothing more, or are not there."""
    return [(profile, id) for profile, id in keys if _is_over(tx, id, profile=profile)]


def _is_over(tx: Tx, id: str, *, profile: str) -> bool:
    found = arrivals.get(tx, id, profile=profile)
    if found is None:
        return True
    if found.state is ArrivalState.WAITING:
        return False
    turn = None if found.turn_id is None else turns.get(tx, found.turn_id, profile=profile)
    return turn is None or turn[0].state is not TurnState.RUNNING
