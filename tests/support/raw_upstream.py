"""A fake model API that answers with exactly the bytes that a test gives, in exactly these pieces."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from tests.support.tcp_server import TcpServer

CUT = b"<cut>"


@dataclass(frozen=True, slots=True)
class RawRequest:
    """A request as it came: its head, and its body without chunks."""

    head: bytes
    body: bytes

    @property
    def target(self) -> str:
        """The path with its query."""
        return self.head.split(b" ", 2)[1].decode()

    @property
    def headers(self) -> dict[str, str]:
        """The headers by their names in lower case."""
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        pairs = (line.partition(":") for line in lines if line)
        return {name.lower(): value.strip() for name, _, value in pairs}

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


# What to write, piece by piece: `CUT` breaks the connection off, an event is waited for.
Piece = bytes | asyncio.Event
Script = list[Piece]


def whole(
    body: bytes, *, status: str = "200 OK", media_type: str = "application/json", more: str = ""
) -> Script:
    """A response with a length."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return [head.encode() + body]


def chunk(data: bytes) -> bytes:
    """A chunk as it is on the wire."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def streamed(pieces: list[bytes], *, more: str = "", is_whole: bool = True) -> Script:
    """A response of server-sent events, each piece a chunk that is sent alone."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n{more}\r\n"
    end = [chunk(b"")] if is_whole else [CUT]
    return [head.encode(), *map(chunk, pieces), *end]


@dataclass
class RawUpstream:
    """Answers each request with the next script, or with what `answer` makes of it."""

    scripts: list[Script] = field(default_factory=list)
    answer: Callable[[RawRequest], Script] | None = None
    requests: list[RawRequest] = field(default_factory=list)
    # Set when a client has closed its connection in the middle of an answer.
    left: asyncio.Event = field(default_factory=asyncio.Event)
    _server: TcpServer | None = None

    async def __aenter__(self) -> Self:
        self._server = TcpServer(self._serve, line_limit=2**20)
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *failure: object) -> None:
        assert self._server is not None
        await self._server.__aexit__(*failure)

    @property
    def url(self) -> str:
        """Its address."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.port}"

    async def go_offline(self) -> None:
        """Refuse connections from now on."""
        assert self._server is not None
        await self._server.go_offline()

    def will(self, *scripts: Script) -> None:
        """Answer the next requests like this."""
        self.scripts += scripts

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            request = RawRequest(head.removesuffix(b"\r\n\r\n"), await _body(reader, head))
            self.requests.append(request)
            script = self.answer(request) if self.answer is not None else self.scripts.pop(0)
            for piece in script:
                if isinstance(piece, asyncio.Event):
                    await self._wait(piece, reader)
                elif piece is CUT:
                    writer.transport.abort()
                    return
                else:
                    writer.write(piece)
                    await writer.drain()
                    # A reader gets it alone, if it is quick.
                    await asyncio.sleep(0)
            if b"connection: close" in b"".join(p for p in script if isinstance(p, bytes)).lower():
                return

    async def _wait(self, event: asyncio.Event, reader: asyncio.StreamReader) -> None:
        """Wait for the event, or until the client has gone."""
        waiting, gone = asyncio.create_task(event.wait()), asyncio.create_task(reader.read(1))
        await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            self.left.set()
        waiting.cancel()
        gone.cancel()
        await asyncio.gather(waiting, gone, return_exceptions=True)


async def _line(reader: asyncio.StreamReader) -> bytes:
    line = await reader.readline()
    if not line:
        raise ConnectionResetError("the client broke off within a chunk")
    return line


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    lower = head.lower()
    if b"transfer-encoding: chunked" in lower:
        found = []
        while size := int(await _line(reader), 16):
            found.append(await reader.readexactly(size))
            await reader.readline()
        await reader.readline()
        return b"".join(found)
    _, name, rest = lower.partition(b"content-length:")
    return await reader.readexactly(int(rest.split()[0])) if name else b""
