"""A platform's servers on loopback: HTTP and WebSockets on a port, ill when a test wants it."""

import asyncio
import collections
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Self

from aiohttp import web

from tests.support.external_server import port_of, reserved_port

HOST = "127.0.0.1"
Fault = Callable[[], web.StreamResponse | None]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Post:
    """A message of the bot, with all the fields that it sent."""

    id: str
    channel: str
    text: str
    body: dict[str, Any]


class PlatformServer:
    """Answers what its subclass routes; can go away and come back on the same port."""

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.port = 0
        self.is_revoked = False
        self.sockets: set[web.WebSocketResponse] = set()
        self._faults: collections.deque[Fault] = collections.deque()
        self._lost = 0
        self._app = web.Application(client_max_size=64 * 1024 * 1024)
        self._app.add_routes(self.routes())
        self._runner = web.AppRunner(self._app, access_log=None, shutdown_timeout=0.1)
        self._reservation: socket.socket | None = None
        self._site: web.TCPSite | None = None

    def routes(self) -> list[web.RouteDef]:
        """The paths of the platform."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        self._reservation = reserved_port()
        self.port = port_of(self._reservation)
        await self._runner.setup()
        await self.go_online()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.go_offline()
        await self._runner.cleanup()
        assert self._reservation is not None
        self._reservation.close()

    async def go_offline(self) -> None:
        """Be unreachable: nobody listens, and what was connected is cut."""
        if self._site is not None:
            await self._site.stop()
            self._site = None
        assert self._runner.server is not None
        for each in list(self._runner.server.connections):
            if each.transport is not None:
                each.transport.abort()
        self.sockets.clear()
        await asyncio.sleep(0)

    async def go_online(self) -> None:
        """Be reachable again."""
        self._site = web.TCPSite(self._runner, HOST, self.port, reuse_address=True)
        await self._site.start()

    @property
    def is_online(self) -> bool:
        """Whether anybody listens."""
        return self._site is not None

    def revoke(self) -> None:
        """From now on the bot's token is not good any more."""
        self.is_revoked = True

    def refuse_with(self, answer: Fault, times: int) -> None:
        """Answer the next sendings of messages with an error."""
        self._faults.extend([answer] * times)

    @property
    def pending_refusals(self) -> int:
        """How many of the errors that were ordered nobody has got yet."""
        return len(self._faults)

    def let_pass(self, times: int) -> None:
        """Take the next sendings; what is ordered after this concerns those after them."""
        self._faults.extend([lambda: None] * times)

    def lose_answers(self, times: int = 1) -> None:
        """Accept the next sendings, and break the connection instead of answering."""
        self._lost += times

    def fault(self) -> web.StreamResponse | None:
        """The error that this sending is answered with, if one was ordered."""
        return self._faults.popleft()() if self._faults else None

    def is_lost(self, request: web.Request) -> bool:
        """Whether the answer to this sending gets lost; then the connection is cut."""
        if self._lost <= 0:
            return False
        self._lost -= 1
        if request.transport is not None:
            request.transport.abort()
        return True

    def forget(self) -> None:
        """Delete everything that the bot has written."""
        self.posts.clear()

    def rewrite(self, id: str, text: str) -> bool:
        """Put another text into a message of the bot; False when it is not there."""
        for index, post in enumerate(self.posts):
            if post.id == id:
                self.posts[index] = replace(post, text=text)
                return True
        return False

    def texts(self, channel: str) -> list[str]:
        """What the bot wrote into a channel, in order."""
        return [post.text for post in self.posts if post.channel == channel]
