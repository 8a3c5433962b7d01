"""signal-cli's daemon at a socket: one line of JSON is one message."""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec

from sessionary.channels.signal.client import CALL_SECONDS, Json, away, decoded, lost, result_of
from sessionary.errors import RetryLater

CONNECT_SECONDS = 10.0


class TcpDaemon:
    """Two connections: what comes in may wait for the store without holding up what goes out."""

    def __init__(self, host: str, port: int, account: str, *, longest_line: int) -> None:
        self._host, self._port = host, port
        self._account = account
        self._longest_line = longest_line
        self._ids = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[Json]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()

    async def call(self, method: str, params: Mapping[str, Any], *, chat: str = "") -> Any:
        """Ask for something; its result."""
        writer = await self._connected()
        id, line = self._request(method, params)
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._waiting[id] = answer
        try:
            writer.write(line)
            await writer.drain()
            async with asyncio.timeout(CALL_SECONDS):
                told = await answer
        except (OSError, TimeoutError) as error:
            raise lost(error) from error
        finally:
            self._waiting.pop(id, None)
            answer.cancel()
        return result_of(told, chat=chat)

    async def notifications(self) -> AsyncGenerator[Json, None]:
        """Messages as they come. The daemon fetches none while nobody has subscribed."""
        reader, writer = await self._open()
        try:
            id, line = self._request("subscribeReceive", {})
            writer.write(line)
            while told := await reader.readline():
                found = decoded(told)
                if found.get("id") == id:
                    _check_subscription(found)
                elif found.get("method") == "receive" and isinstance(found.get("params"), dict):
                    yield found["params"]
        except (OSError, ValueError) as error:
            raise away(error) from error
        finally:
            await _hang_up(writer)
        raise away()

    async def close(self) -> None:
        """Let go of connections."""
        reading, self._reading = self._reading, None
        writer, self._writer = self._writer, None
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        if writer is not None:
            await _hang_up(writer)

    def _request(self, method: str, params: Mapping[str, Any]) -> tuple[str, bytes]:
        id = f"sessionary-{next(self._ids)}"
        given = {"account": self._account, **params}
        asked = {"jsonrpc": "2.0", "method": method, "params": given, "id": id}
        return id, msgspec.json.encode(asked) + b"\n"

    async def _connected(self) -> asyncio.StreamWriter:
        async with self._connecting:
            if self._writer is None or self._reading is None or self._reading.done():
                await self.close()
                reader, self._writer = await self._open()
                self._reading = asyncio.create_task(self._read(reader))
            return self._writer

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(
                    self._host, self._port, limit=self._longest_line
                )
        except (OSError, TimeoutError) as error:
            raise away(error) from error
        raw = writer.get_extra_info("socket")
        # A daemon on another machine may vanish without a word.
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return reader, writer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Give answers to whoever waits for them; messages come by the other connection."""
        broken: BaseException | None = None
        try:
            while line := await reader.readline():
                found = decoded(line)
                answer = self._waiting.get(str(found.get("id")))
                if answer is not None and not answer.done():
                    answer.set_result(found)
        except (OSError, ValueError) as error:
            broken = error
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(ConnectionError(str(broken or "closed")))


def _check_subscription(answer: Json) -> None:
    """A daemon without that command tells of messages by itself."""
    error = answer.get("error")
    if isinstance(error, dict) and "account" in str(error.get("message")):
        result_of(answer, chat="")


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, RetryLater):
        await writer.wait_closed()
