"""The feed of changes: what was added and changed, in order, from any process."""

import time
from collections import deque
from typing import TYPE_CHECKING, Self

from sessionary.actions.feed import FeedProgress
from sessionary.client.async_runtime import AsyncChangeSignal, finish
from sessionary.client.feed import POLL_SECONDS, FeedStep, last_position, read_steps
from sessionary.client.values import Change
from sessionary.errors import BadInput

if TYPE_CHECKING:
    from sessionary.client.async_client import AsyncSessionary


class AsyncSubscription:
    """Yields every change after a position, and waits for the next. Close it, or use it in `async with`."""

    def __init__(
        self,
        client: "AsyncSessionary",
        *,
        after: int | None,
        session_id: str | None,
        timeout: float | None,
    ) -> None:
        if after is not None and after < 0:
            raise BadInput(f"A position in the feed is a whole number from 0 on, not {after}.")
        self._client = client
        self._after = after
        self._session_id = session_id
        self._timeout = timeout
        self._progress: FeedProgress | None = None
        self._signal: AsyncChangeSignal | None = None
        self._ready: deque[FeedStep] = deque()
        self._is_closed = False

    @property
    def position(self) -> int | None:
        """Where `subscribe(after=…)` goes on with what was not given yet; None before the start."""
        return self._after if self._progress is None else self._progress.position

    async def start(self) -> None:
        """Find out where the feed is now: changes from here on are given. Iterating does this by itself."""
        if self._progress is not None:
            return
        store = self._client.app.store
        last = await finish(store.read(last_position))
        if self._after is not None and self._after > last:
            raise BadInput(
                f"The position {self._after} is not of this store, whose feed ends at {last}."
            )
        self._signal = AsyncChangeSignal(store)
        self._progress = FeedProgress(last if self._after is None else self._after)

    async def aclose(self) -> None:
        """Stop; the iteration ends."""
        self._is_closed = True
        if self._signal is not None:
            self._signal.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        await self.start()
        assert self._progress is not None
        assert self._signal is not None
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        while not self._is_closed:
            while self._ready:
                step = self._ready.popleft()
                self._progress.mark_handled([step.feed])
                if step.change is not None:
                    return step.at(self._progress.position)
            app = self._client.app
            steps = await finish(
                app.store.read(
                    read_steps, self._progress, profile=app.profile, session_id=self._session_id
                )
            )
            if steps:
                self._progress.add([each.feed for each in steps])
                self._ready.extend(steps)
                continue
            left = POLL_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                break
            await self._signal.wait(min(left, POLL_SECONDS))
        await self.aclose()
        raise StopAsyncIteration

    def __repr__(self) -> str:
        return f"<{type(self).__name__} after {self.position}>"
