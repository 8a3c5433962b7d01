"""Posts to a webhook as platforms do: each message again and again until it is answered with 200."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from sessionary.errors import SessionaryError

_ACCEPTED = 200
_RETRY_SECONDS = 0.01


class WebhookTarget(Protocol):
    """What is posted to: an adapter, or a server that has one."""

    async def handle_webhook(self, headers: Mapping[str, str], body: bytes) -> int | str:
        """Handle a post and return the status of the answer."""


class WebhookPoster:
    """Posts bodies one after the other in background tasks; can be paused."""

    def __init__(self, post: Callable[[bytes], Awaitable[int]]) -> None:
        self.statuses: list[int] = []
        self._post = post
        self._accepted: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._may_post = asyncio.Event()
        self._may_post.set()
        self._one_at_a_time = asyncio.Lock()

    def post(self, number: int, body: bytes) -> None:
        """Begin to post a message."""
        task = asyncio.create_task(self._until_accepted(number, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def is_accepted(self, number: int) -> bool:
        """Whether a message was answered with 200."""
        return number in self._accepted

    def pause(self) -> None:
        """Post nothing until `resume`."""
        self._may_post.clear()

    def resume(self) -> None:
        """Post again."""
        self._may_post.set()

    async def close(self) -> None:
        """Cancel every post that was not accepted."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _until_accepted(self, number: int, body: bytes) -> None:
        async with self._one_at_a_time:
            while True:
                await self._may_post.wait()
                try:
                    status = await self._post(body)
                except SessionaryError as error:
                    status = error.http_status
                self.statuses.append(status)
                if status == _ACCEPTED:
                    self._accepted.add(number)
                    return
                await asyncio.sleep(_RETRY_SECONDS)
