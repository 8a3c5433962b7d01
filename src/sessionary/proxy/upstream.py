"""The APIs that requests are passed on to, and the connections to them that are used again."""

import asyncio
import ssl
import time
from functools import cache, cached_property
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from sessionary.proxy.wire import MOST_HEAD_BYTES, Malformed, ResponseHead, parse_response

CONNECT_SECONDS = 15.0
# When the next of several addresses is tried too: IPv6 is often there and leads nowhere.
_NEXT_ADDRESS_SECONDS = 0.25
# Servers close connections that nobody uses; one that is closed at that moment would lose a request.
_REUSED_SECONDS = 20.0
_MOST_IDLE = 64
_READ_BYTES = 64 * 1024


class Upstream(Struct, frozen=True, dict=True):
    """An API: its name in our paths (None: paths without one), its address, and whose prices count."""

    name: str | None
    url: str
    provider: str | None = None

    @property
    def label(self) -> str:
        """What people call it."""
        return self.name or self.host

    @cached_property
    def host(self) -> str:
        """The host to connect to."""
        return urlsplit(self.url).hostname or ""

    @cached_property
    def port(self) -> int:
        """The port to connect to."""
        return urlsplit(self.url).port or (443 if self.is_tls else 80)

    @cached_property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.url.startswith("https:")

    @cached_property
    def authority(self) -> bytes:
        """What its requests have as their Host."""
        return urlsplit(self.url).netloc.encode("ascii")

    @cached_property
    def base_path(self) -> bytes:
        """What stands before the paths of its requests."""
        return urlsplit(self.url).path.rstrip("/").encode("ascii")


@cache
def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class _CountingReader(asyncio.StreamReader):
    """Knows how many bytes came."""

    def __init__(self) -> None:
        super().__init__(limit=2 * MOST_HEAD_BYTES)
        self.fed = 0

    def feed_data(self, data: Any) -> None:
        self.fed += len(data)
        super().feed_data(data)


class Connection:
    """A connection to an upstream."""

    def __init__(
        self, reader: _CountingReader, transport: asyncio.Transport, writer: asyncio.StreamWriter
    ) -> None:
        self._reader = reader
        self._transport = transport
        self._taken = 0
        self.writer = writer
        self.idle_since = 0.0

    @property
    def is_open(self) -> bool:
        """Whether it can be used for one more request: nothing came that nobody has asked for."""
        is_clean = self._reader.fed == self._taken and not self._reader.at_eof()
        return is_clean and not self._transport.is_closing()

    @property
    def is_fresh(self) -> bool:
        """Whether it has not waited too long."""
        return time.monotonic() - self.idle_since < _REUSED_SECONDS

    async def read(self) -> bytes:
        """Read what there is; nothing at the end."""
        data = await self._reader.read(_READ_BYTES)
        self._taken += len(data)
        return data

    async def read_head(self) -> ResponseHead:
        """Read the head of the response; interim responses are left out."""
        while True:
            try:
                raw = await self._reader.readuntil(b"\r\n\r\n")
            except asyncio.LimitOverrunError as error:
                raise Malformed("The head of the response is too long.") from error
            self._taken += len(raw)
            if len(raw) > MOST_HEAD_BYTES:
                raise Malformed("The head of the response is too long.")
            head = parse_response(raw)
            if head.status == 101:
                raise Malformed("The upstream wants to speak something else than HTTP.")
            if head.status >= 200:
                return head

    def close(self) -> None:
        """Close it at once: the upstream stops working on a request that is not finished."""
        self._transport.abort()


class ConnectionPool:
    """Connections to the upstreams that wait to be used again."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, int, bool], list[Connection]] = {}
        self._is_closed = False

    async def connect(self, upstream: Upstream) -> Connection:
        """Return a connection; raises OSError or TimeoutError if there can be none."""
        idle = self._idle.get(_address(upstream), [])
        while idle:
            found = idle.pop()
            if found.is_open and found.is_fresh:
                return found
            found.close()
        loop = asyncio.get_running_loop()
        reader = _CountingReader()
        async with asyncio.timeout(CONNECT_SECONDS):
            transport, protocol = await loop.create_connection(
                lambda: asyncio.StreamReaderProtocol(reader, loop=loop),
                upstream.host,
                upstream.port,
                ssl=_tls() if upstream.is_tls else None,
                happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS,
            )
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        return Connection(reader, transport, writer)

    def give_back(self, upstream: Upstream, connection: Connection) -> None:
        """Keep a connection for the next request."""
        idle = self._idle.setdefault(_address(upstream), [])
        connection.idle_since = time.monotonic()
        if len(idle) >= _MOST_IDLE or self._is_closed or not connection.is_open:
            connection.close()
        else:
            idle.append(connection)

    def close(self) -> None:
        """Close all connections that wait."""
        self._is_closed = True
        for idle in self._idle.values():
            for each in idle:
                each.close()
        self._idle.clear()


def _address(upstream: Upstream) -> tuple[str, int, bool]:
    return upstream.host, upstream.port, upstream.is_tls
