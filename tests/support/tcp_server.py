"""A TCP server on loopback for fakes: it can go offline and come back on the same port."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Self

from tests.support.external_server import port_of, reserved_port

LINE_LIMIT = 64 * 1024
# A connection that was accepted has its transport after at most three rounds of the event loop.
ACCEPT_ROUNDS = 3
ConnectionHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class TcpServer:
    """Serves on a port of its own on loopback; while offline it refuses connections.

    `handle` owns one connection; when it returns, fails or is cancelled, the connection is closed.
    """

    def __init__(self, handle: ConnectionHandler, *, line_limit: int = LINE_LIMIT) -> None:
        self.port = 0
        self._handle = handle
        self._line_limit = line_limit
        self._reservation: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._transports: set[asyncio.BaseTransport] = set()

    async def __aenter__(self) -> Self:
        self._reservation = reserved_port()
        self.port = port_of(self._reservation)
        await self.go_online()
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.go_offline()
        assert self._reservation is not None
        self._reservation.close()

    async def go_online(self) -> None:
        """Listen, on the same port as before."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, "127.0.0.1", self.port)

    async def go_offline(self) -> None:
        """Refuse connections and drop the open ones."""
        if self._server is None:
            return
        self._server.close()
        await self.cut()
        await self._server.wait_closed()
        self._server = None

    async def cut(self) -> None:
        """Drop the open connections."""
        for _ in range(ACCEPT_ROUNDS):
            await asyncio.sleep(0)
        transports, tasks = list(self._transports), list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for transport in transports:
            # Not closed: that would wait for a peer which may never read what was written.
            transport.abort()  # type: ignore[attr-defined]
        while self._transports & set(transports):  # noqa: ASYNC110 - it takes one round of the loop
            await asyncio.sleep(0)

    def _connection(self) -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(limit=self._line_limit)
        return _Connection(reader, self._serve, self._transports)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self._handle(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            # We cancelled it ourselves; asyncio would report the task as failed.
            writer.transport.abort()
        finally:
            self._open.discard(task)
            with contextlib.suppress(ConnectionError):
                writer.close()


class _Connection(asyncio.StreamReaderProtocol):
    """Notes its transport from the first moment until it is closed: the handler begins later and ends sooner."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        handle: ConnectionHandler,
        transports: set[asyncio.BaseTransport],
    ) -> None:
        super().__init__(reader, handle)
        self._transports = transports
        self._own: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._own = transport
        self._transports.add(transport)
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        if self._own is not None:
            self._transports.discard(self._own)
