"""How platforms post to a webhook: again and again, until it is answered with 200."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from sessionary.errors import SessionaryError

_TAKEN = 200
_AGAIN_SECONDS = 0.01


class Posted(Protocol):
    """Whoever is posted to: an adapter, or a server that has one."""

    async def handle_webhook(self, headers: Mapping[str, str], body: bytes) -> int:
        """Take a post; the status of the answer."""


class Poster:
    """Posts bodies one after the other in tasks of its own; can be told to pause."""

    def __init__(self, post: Callable[[bytes], Awaitable[int]]) -> None:
        self.statuses: list[int] = []
        self._post = post
        self._taken: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._may_post = asyncio.Event()
        self._may_post.set()
        self._one_at_a_time = asyncio.Lock()

    def post(self, number: int, body: bytes) -> None:
        """Begin to post a message."""
        task = asyncio.create_task(self._until_taken(number, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def is_taken(self, number: int) -> bool:
        """Whether a message was answered with 200."""
        return number in self._taken

    def pause(self) -> None:
        """Post nothing for a while."""
        self._may_post.clear()

    def go_on(self) -> None:
        """Post again."""
        self._may_post.set()

    async def close(self) -> None:
        """Give up what was not taken."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _until_taken(self, number: int, body: bytes) -> None:
        async with self._one_at_a_time:
            while True:
                await self._may_post.wait()
                try:
                    status = await self._post(body)
                except SessionaryError as error:
                    status = error.http_status
                self.statuses.append(status)
                if status == _TAKEN:
                    self._taken.add(number)
                    return
                await asyncio.sleep(_AGAIN_SECONDS)
