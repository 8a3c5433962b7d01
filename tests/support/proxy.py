"""A TCP proxy that can be closed, for tests of what happens when the network is gone."""

import asyncio
import contextlib

_AT_ONCE = 64 * 1024


class Proxy:
    """Forwards everything to the target until it is closed; its owner has reserved the port."""

    def __init__(self, port: int, *, target: int) -> None:
        self.port = port
        self.passed = 0
        self._target = target
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        """Accept connections; after a `close`, on the same port as before."""
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", self.port)

    async def close(self) -> None:
        """Cut every connection, and accept none."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._open):
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            onward, back = await asyncio.open_connection("127.0.0.1", self._target)
            self._open.add(back)
            back_again = self._pour(onward, writer, counted=True)
            await asyncio.gather(self._pour(reader, back), back_again)
            self._open.discard(back)
        except OSError:
            writer.transport.abort()
        finally:
            self._open.discard(writer)

    async def _pour(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counted: bool = False
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_AT_ONCE):
                self.passed += len(data) if counted else 0
                writer.write(data)
                await writer.drain()
        writer.close()
