"""A TCP server on loopback for fakes: it can go offline and come back on the same port."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Self

from tests.support.external_server import port_of, reserved_port

LINE_LIMIT = 64 * 1024
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
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, limit=self._line_limit
        )

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
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

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
