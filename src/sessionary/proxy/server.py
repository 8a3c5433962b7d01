"""The proxy's server: takes requests for the configured upstreams and passes them on byte for byte."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Struct

from sessionary.errors import Conflict, SessionaryError
from sessionary.proxy.copy import KNOWN_CODINGS, ExchangeCopy
from sessionary.proxy.reading import Interface, interface_of
from sessionary.proxy.upstream import Connection, ConnectionPool, Upstream
from sessionary.proxy.wire import (
    MOST_HEAD_BYTES,
    Body,
    Malformed,
    RequestHead,
    ResponseHead,
    chunk,
    encode_head,
    parse_request,
)

_READ_BYTES = 64 * 1024
_BACKLOG = 1024
# A body of this size or less is passed on before the response is awaited.
_SMALL_BODY = 64 * 1024
_HIGH_WATER = 256 * 1024
_HEAD_SECONDS = 10.0
_KEEP_ALIVE_SECONDS = 75.0
_STALL_SECONDS = 60.0
_LINGER_SECONDS = 1.0
STATUS_PATH = b"/-/status"
TOKEN_HEADER = b"x-sessionary-token"
TOKEN_PREFIX = b"sessionary_"
_OURS = b"x-sessionary-"
_LOOPBACK = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})
_FRIENDLY_SITES = frozenset({b"none", b"same-origin"})
_REASONS = {
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    413: b"Content Too Large",
    421: b"Misdirected Request",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
    505: b"HTTP Version Not Supported",
}
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
log = logging.getLogger(__name__)


class Refused(Exception):
    """A request that is answered by the proxy itself; `after` says in how many seconds it may succeed."""

    def __init__(
        self, status: int, message: str, *, code: str = "", after: int | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code or "sessionary_proxy"
        self.after = after


class ServerOptions(Struct, frozen=True, kw_only=True):
    """Where the proxy listens and whom it serves."""

    host: str = "127.0.0.1"
    port: int = 0
    allowed_hosts: frozenset[str] = frozenset()
    needs_token: bool = False
    connections: int = 512
    idle_seconds: float = 600.0


class UpstreamRoute(Struct, frozen=True):
    """Where a request goes, under which path there, and with which token of ours it came."""

    upstream: Upstream
    target: bytes
    token: str | None

    @property
    def path(self) -> str:
        """The path without the query."""
        return self.target.partition(b"?")[0].decode("ascii")


class Recording:
    """What the server tells of the exchanges that pass. This one records nothing: a bare reverse proxy."""

    needs_body = False

    async def check_token(self, token: str | None) -> str | None:
        """Return the profile of a token; None if it is not valid."""
        return "" if token is None else None

    def open(self, route: UpstreamRoute, head: RequestHead, profile: str) -> ExchangeCopy | None:
        """Return a copy for an exchange that is to be recorded."""
        return None

    async def admit(
        self, route: UpstreamRoute, copy: ExchangeCopy | None, *, is_whole: bool
    ) -> None:
        """Raise `Refused` if a request may not be passed on: a budget is used up."""

    def begin(self, copy: ExchangeCopy) -> None:
        """Note that a request is complete."""

    async def end(self, copy: ExchangeCopy) -> None:
        """Make an exchange durable, and release its copy then; returns when its last bytes may be passed on."""

    def status(self) -> Mapping[str, object]:
        """How recording is doing."""
        return {}


class _ClientReader(asyncio.StreamReader):
    """Tells when the client has gone, also while nobody reads."""

    def __init__(self) -> None:
        super().__init__(limit=2 * MOST_HEAD_BYTES)
        self.on_gone: Callable[[], None] | None = None
        self.is_gone = False

    def feed_eof(self) -> None:
        super().feed_eof()
        self._note_gone()

    def set_exception(self, exc: BaseException) -> None:
        super().set_exception(exc)  # type: ignore[arg-type]  # typeshed asks for less than the class takes
        self._note_gone()

    def _note_gone(self) -> None:
        self.is_gone = True
        if self.on_gone is not None:
            self.on_gone()


class ProxyServer:
    """Serves the upstreams on one address until it is closed."""

    def __init__(
        self, upstreams: Mapping[str | None, Upstream], recording: Recording, options: ServerOptions
    ) -> None:
        self._upstreams = upstreams
        self._recording = recording
        self._options = options
        self._hosts = _LOOPBACK | {host.lower().encode() for host in options.allowed_hosts}
        self._pool = ConnectionPool()
        self._clients: dict[asyncio.Task[None], _Client] = {}
        self._is_closing = False
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(_ClientReader(), self._accept, loop=loop)

        host, port = self._options.host.strip("[]"), self._options.port
        try:
            self._server = await loop.create_server(protocol, host, port, backlog=_BACKLOG)
        except (OSError, OverflowError) as error:
            raise Conflict(
                f"Port {port} of {host} cannot be used: {getattr(error, 'strerror', None) or error}. "
                "Choose another, or 0 for any free one."
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self, *, seconds: float) -> None:
        """Accept nothing more; let what runs finish for a while, then break it off."""
        if self._server is not None:
            self._server.close()
        self._is_closing = True
        for task, client in self._clients.items():
            if client.is_idle:
                task.cancel()
        if self._clients:
            await asyncio.wait(self._clients, timeout=seconds)
        for task in self._clients:
            task.cancel()
        if self._clients:
            await asyncio.wait(self._clients)
        self._pool.close()

    @property
    def pool(self) -> ConnectionPool:
        """The connections to upstreams."""
        return self._pool

    @property
    def recording(self) -> Recording:
        """What is told of the exchanges."""
        return self._recording

    @property
    def idle_seconds(self) -> float:
        """How long an upstream may send nothing."""
        return self._options.idle_seconds

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(reader, _ClientReader)
        client = _Client(reader, writer)
        task = asyncio.create_task(self._serve(client))
        self._clients[task] = client
        task.add_done_callback(self._clients.pop)

    async def _serve(self, client: "_Client") -> None:
        """Serve a connection."""
        try:
            if len(self._clients) > self._options.connections:
                client.refuse(Refused(503, "The proxy has too many connections; try again."), None)
                return
            while await self._serve_request(client) and not self._is_closing:
                pass
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the client has gone, or is too slow
        except Exception:
            log.exception("A connection of the proxy failed")
        finally:
            await client.close()

    async def _serve_request(self, client: "_Client") -> bool:
        """Serve one request; return whether the connection can be used for another."""
        try:
            head = await client.read_head()
        except Malformed as error:
            client.refuse(Refused(error.status, str(error)), None)
            return False
        if head is None:
            return False
        interface = None
        try:
            self._check_caller(head)
            if head.target == STATUS_PATH:
                await self._check_token(None, head)
                return client.answer(200, self._recording.status(), keeps_alive=False)
            route = self._route(head)
            interface = interface_of(head.method.decode(), route.path)
            profile = await self._check_token(route.token, head)
            return await _Exchange(self, client, head, route, profile).run()
        except Malformed as error:
            client.refuse(Refused(error.status, str(error)), interface)
        except Refused as error:
            client.refuse(error, interface or _interface_of_path(head.target))
        return False

    def _check_caller(self, head: RequestHead) -> None:
        """Refuse what web pages send, and names that are not ours: DNS rebinding."""
        host = head.value(b"host")
        if host is None and head.minor == 1:
            raise Refused(400, "The request has no Host.")
        if host is not None and _without_port(host.lower()) not in self._hosts:
            raise Refused(
                421, "This proxy does not answer to that name; see allowed_hosts in [proxy]."
            )
        site = head.value(b"sec-fetch-site")
        if head.values(b"origin") or (site is not None and site not in _FRIENDLY_SITES):
            raise Refused(403, "Web pages may not use this proxy.")

    async def _check_token(self, token: str | None, head: RequestHead) -> str:
        """Return the profile to record in."""
        given = head.value(TOKEN_HEADER)
        shown = token or (None if given is None else given.decode("latin-1"))
        profile = await self._recording.check_token(shown)
        if profile is None or (shown is None and self._options.needs_token):
            raise Refused(
                401,
                "This proxy needs a token of Sessionary (sessionary tokens add): in the header "
                "X-Sessionary-Token, or as the first part of the path.",
            )
        return profile

    def _route(self, head: RequestHead) -> UpstreamRoute:
        """Find the upstream of a path, and the path there."""
        path, mark, query = head.target.partition(b"?")
        if b"#" in path or b"\\" in path or path.startswith(b"//"):
            raise Refused(400, "The path is malformed.")
        # An encoded slash may stand in the name of a model, but must not lead out of the path for any reader.
        if any(each in (b".", b"..") for each in re.split(rb"[/\\]", unquote_to_bytes(path))):
            raise Refused(400, "The path is malformed.")
        token = None
        first, slash, rest = path[1:].partition(b"/")
        if first.startswith(TOKEN_PREFIX):
            token = first.decode("ascii")
            first, slash, rest = rest.partition(b"/")
            path = b"/" + first + slash + rest
        upstream = self._upstreams.get(first.decode("ascii"))
        if upstream is not None:
            path = slash + rest
        else:
            upstream = self._upstreams.get(None)
        if upstream is None:
            names = ", ".join(sorted(f"/{name}/" for name in self._upstreams if name))
            raise Refused(404, f"The path names no upstream of this proxy; there are {names}.")
        return UpstreamRoute(upstream, upstream.base_path + (path or b"/") + mark + query, token)


def _interface_of_path(target: bytes) -> Interface | None:
    path = target.partition(b"?")[0].decode("ascii")
    # Errors of other paths of Anthropic, such as token counts, have its shape too.
    return Interface.MESSAGES if "/v1/messages" in path else interface_of("POST", path)


def _without_port(host: bytes) -> bytes:
    name, colon, port = host.rpartition(b":")
    return name if colon and port.isdigit() and not name.endswith(b":") else host


class _Client:
    """A client's connection."""

    def __init__(self, reader: _ClientReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._is_first = True
        # Whether it waits for a request, and nothing is lost if it is closed.
        self.is_idle = True

    async def read_head(self) -> RequestHead | None:
        """Read the head of the next request; None if there is none."""
        wait = _HEAD_SECONDS if self._is_first else _KEEP_ALIVE_SECONDS
        self._is_first, self.is_idle = False, True
        try:
            async with asyncio.timeout(wait):
                raw = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        except asyncio.LimitOverrunError as error:
            raise Malformed("The head of the request is too long.", 431) from error
        if len(raw) > MOST_HEAD_BYTES:
            raise Malformed("The head of the request is too long.", 431)
        self.is_idle = False
        return parse_request(raw)

    async def write(self, data: bytes) -> None:
        """Write; a client that accepts nothing for long is cut off."""
        self.writer.write(data)
        if self.writer.transport.get_write_buffer_size() > _HIGH_WATER:
            async with asyncio.timeout(_STALL_SECONDS):
                await self.writer.drain()

    def refuse(self, error: Refused, interface: Interface | None) -> None:
        """Answer with an error in the shape of the interface; the connection is to be closed."""
        more: list[tuple[bytes, bytes]] = []
        if error.after is not None:
            # Clients that retry by themselves would ask in vain.
            more = [(b"Retry-After", b"%d" % error.after), (b"x-should-retry", b"false")]
        self.answer(error.status, _error_body(error, interface), keeps_alive=False, more=more)

    def answer(
        self,
        status: int,
        value: Mapping[str, object],
        *,
        keeps_alive: bool,
        more: list[tuple[bytes, bytes]] | None = None,
    ) -> bool:
        """Answer with JSON; return whether the connection stays open."""
        body = msgspec.json.encode(value)
        headers = [
            (b"Content-Type", b"application/json"),
            (b"Content-Length", b"%d" % len(body)),
            *(more or ()),
        ]
        if not keeps_alive:
            headers.append((b"Connection", b"close"))
        first = b"HTTP/1.1 %d %b" % (status, _REASONS.get(status, b"OK"))
        if not self.writer.transport.is_closing():
            self.writer.write(encode_head(first, headers) + body)
        return keeps_alive

    async def close(self) -> None:
        """Close; what the client still sends is read for a moment, or it would lose our answer."""
        try:
            if not self.writer.transport.is_closing():
                if self.writer.can_write_eof():
                    self.writer.write_eof()
                async with asyncio.timeout(_LINGER_SECONDS):
                    while await self.reader.read(_READ_BYTES):
                        pass
        except (OSError, TimeoutError, RuntimeError, asyncio.IncompleteReadError):
            pass
        finally:
            self.writer.close()


def _error_body(error: Refused, interface: Interface | None) -> dict[str, object]:
    """An error as the clients of an interface expect it."""
    message = str(error)
    if interface is not None and interface.is_anthropic:
        kind = _ANTHROPIC_TYPES.get(error.status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}
    kind = "insufficient_quota" if error.status == 429 else "invalid_request_error"
    if error.status >= 500:
        kind = "server_error"
    found = {"message": message, "type": kind, "param": None, "code": error.code}
    return {"error": found}


class _Exchange:
    """One request and its response."""

    def __init__(
        self,
        server: ProxyServer,
        client: _Client,
        head: RequestHead,
        route: UpstreamRoute,
        profile: str,
    ) -> None:
        self._server = server
        self._client = client
        self._head = head
        self._route = route
        self._recording = server.recording
        self._body = Body(head.framing)
        self._copy = self._recording.open(route, head, profile)
        self._connection: Connection | None = None
        self._has_answered = False
        self._has_more = False
        self._is_ended = False

    async def run(self) -> bool:
        """Pass the request on and the response back; return whether the client's connection stays open."""
        copy = self._copy
        try:
            return await self._run()
        except Exception:
            if self._has_answered:
                # Its end must not look like that of the response.
                self._client.writer.transport.abort()
            raise
        finally:
            self._client.reader.on_gone = None
            if self._connection is not None:
                self._connection.close()
            if copy is not None and not self._is_ended:
                if copy.is_begun or copy.status:
                    copy.broken = copy.broken or self._why_broken()
                    await self._end()
                else:
                    copy.release()

    def _why_broken(self) -> str:
        return "the client broke off" if self._client.reader.is_gone else "the upstream broke off"

    async def _run(self) -> bool:
        whole: bytes | None = None
        if self._recording.needs_body and self._copy is not None:
            whole = await self._read_whole_body(self._copy)
        await self._recording.admit(self._route, self._copy, is_whole=whole is not None)
        await self._connect()
        assert self._connection is not None
        self._client.reader.on_gone = self._on_gone
        if self._client.reader.is_gone:
            return False
        self._connection.writer.write(self._request_head())
        if whole is not None:
            self._connection.writer.write(whole)
            self._begin()
            return await self._respond(None)
        if self._body.done:
            self._begin()
            return await self._respond(None)
        await self._continue()
        framing = self._head.framing
        if isinstance(framing, int) and framing <= _SMALL_BODY:
            await self._upload()
            return await self._respond(None)
        upload = asyncio.create_task(self._upload())
        upload.add_done_callback(self._uploaded)
        try:
            return await self._respond(upload)
        except Refused:
            if upload.done() and isinstance(upload.exception(), Malformed | TimeoutError):
                await upload  # raises why there is no answer
            raise
        finally:
            if not upload.done():
                upload.cancel()
            await asyncio.gather(upload, return_exceptions=True)

    def _uploaded(self, upload: "asyncio.Task[None]") -> None:
        """Do not wait for the answer to a request that cannot be completed."""
        if not upload.cancelled() and upload.exception() is not None:
            self._on_gone()

    def _on_gone(self) -> None:
        if self._connection is not None:
            self._connection.close()

    async def _connect(self) -> None:
        upstream = self._route.upstream
        try:
            self._connection = await self._server.pool.connect(upstream)
        except TimeoutError as error:
            raise Refused(504, f"The upstream {upstream.label} did not answer in time.") from error
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise Refused(
                502, f"The upstream {upstream.label} cannot be reached ({why})."
            ) from error

    def _request_head(self) -> bytes:
        head, upstream = self._head, self._route.upstream
        headers: list[tuple[bytes, bytes]] = [(b"Host", upstream.authority)]
        for name, value in head.end_to_end((b"host", b"expect", b"accept-encoding")):
            if not name.lower().startswith(_OURS):
                headers.append((name, value))
        headers.append((b"Accept-Encoding", self._accepted_codings()))
        if self._body.is_chunked:
            headers.append((b"Transfer-Encoding", b"chunked"))
        first = b"%b %b HTTP/1.1" % (head.method, self._route.target)
        return encode_head(first, headers)

    def _accepted_codings(self) -> bytes:
        """The codings that the client accepts; of an exchange that is recorded, only those that can be read."""
        given = b", ".join(self._head.values(b"accept-encoding"))
        if self._copy is None:
            return given or b"identity"
        kept = [
            each.strip()
            for each in given.split(b",")
            if each.partition(b";")[0].strip().lower() in KNOWN_CODINGS
        ]
        return b", ".join(kept) or b"identity"

    async def _continue(self) -> None:
        """Ask a client for the body that waits to be asked."""
        if self._head.minor == 1 and b"100-continue" in self._head.tokens(b"expect"):
            await self._client.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _pieces(self) -> AsyncIterator[bytes]:
        """The bytes of the request's body as they come; the copy gets what they contain."""
        reader = self._client.reader
        while not self._body.done:
            async with asyncio.timeout(_STALL_SECONDS):
                data = await reader.read(min(_READ_BYTES, self._body.wanted))
            if not data:
                raise ConnectionResetError("the client broke off within its request")
            content = self._body.feed(data)
            # A request that follows at once behind chunks would have to be put back: its client sends it again.
            self._has_more = self._body.consumed < len(data)
            if self._copy is not None and not self._is_ended:
                self._copy.request.add(content)
            yield data[: self._body.consumed]

    async def _read_whole_body(self, copy: ExchangeCopy) -> bytes:
        """Read the body before it is passed on: what it says decides whether it may be."""
        await self._continue()
        pieces = []
        async for piece in self._pieces():
            pieces.append(piece)
            if copy.request.size > copy.request.limit:
                raise Refused(413, "The request is too long to be checked against the budgets.")
            if copy.request.is_cut:
                raise Refused(503, "Too much passes to check this against the budgets; try again.")
        return b"".join(pieces)

    async def _upload(self) -> None:
        """Pass the body on as it comes."""
        assert self._connection is not None
        writer = self._connection.writer
        async for piece in self._pieces():
            if writer.is_closing():
                raise ConnectionResetError("the upstream broke off within the request")
            writer.write(piece)
            if writer.transport.get_write_buffer_size() > _HIGH_WATER:
                async with asyncio.timeout(self._server.idle_seconds):
                    await writer.drain()
        self._begin()

    def _begin(self) -> None:
        if self._copy is not None and not self._copy.is_begun:
            self._copy.is_begun = True
            self._recording.begin(self._copy)

    async def _respond(self, upload: "asyncio.Task[None] | None") -> bool:
        connection, client = self._connection, self._client
        assert connection is not None
        try:
            head = await self._within(connection.read_head())
            body = Body(head.framing(self._head.method))
        except (OSError, asyncio.IncompleteReadError, Malformed) as error:
            if client.reader.is_gone:
                return False
            label = self._route.upstream.label
            why = str(error) if isinstance(error, Malformed) else "it closed the connection"
            raise self._broken(502, f"The upstream {label} gave no answer: {why}") from error
        except TimeoutError as error:
            label = self._route.upstream.label
            raise self._broken(504, f"The upstream {label} did not answer in time.") from error
        is_early = upload is not None and not upload.done()
        keeps_alive = self._head.keeps_alive and not (is_early or self._has_more)
        copy = self._copy
        if copy is not None:
            media_type = (head.values(b"content-type") or [b""])[0]
            copy.begin_response(head.status, media_type, head.tokens(b"content-encoding"))
        keeps_alive = await self._pass_back(head, body, keeps_alive=keeps_alive)
        if body.done and head.keeps_alive and not is_early and connection.is_open:
            self._connection = None
            self._server.pool.give_back(self._route.upstream, connection)
        return keeps_alive

    def _broken(self, status: int, message: str) -> Refused:
        if self._copy is not None:
            self._copy.broken = message
        return Refused(status, message)

    async def _within(self, action: Awaitable[ResponseHead]) -> ResponseHead:
        async with asyncio.timeout(self._server.idle_seconds):
            return await action

    async def _pass_back(self, head: ResponseHead, body: Body, *, keeps_alive: bool) -> bool:
        """Pass the response back as it comes, but for its last bytes, which wait until it is durable."""
        connection, client, copy = self._connection, self._client, self._copy
        assert connection is not None
        is_old = self._head.minor == 0
        is_unclear = not body.done and body.is_until_close
        # A body without a length is sent in chunks, unless the client does not know them.
        makes_chunks = is_unclear and not is_old
        takes_chunks_off = body.is_chunked and is_old
        if (is_unclear and is_old) or takes_chunks_off:
            keeps_alive = False
        if body.done and copy is not None:
            await self._finish()
        is_chunked = makes_chunks or body.is_chunked
        await client.write(
            self._response_head(head, is_chunked=is_chunked, keeps_alive=keeps_alive)
        )
        self._has_answered = True
        if body.done:
            return keeps_alive
        while not body.done:
            try:
                async with asyncio.timeout(self._server.idle_seconds):
                    data = await connection.read()
            except OSError:  # it was broken off, or nothing came for too long
                data = None
            if client.reader.is_gone:
                return False
            if not data:
                if data is None or not body.end():
                    # Broken off: the client must see that, so its connection is closed without an end.
                    client.writer.transport.abort()
                    return False
                if copy is not None:
                    await self._finish()
                if makes_chunks:
                    await client.write(chunk(b""))
                break
            content = body.feed(data)
            # What comes behind the last event of a stream says nothing.
            if copy is not None and not self._is_ended and (copy.add(content) or body.done):
                await self._finish()
            if makes_chunks:
                await client.write(chunk(content))
            elif takes_chunks_off:
                await client.write(content)
            else:
                await client.write(data if body.consumed == len(data) else data[: body.consumed])
        if client.writer.transport.get_write_buffer_size():
            async with asyncio.timeout(_STALL_SECONDS):
                await client.writer.drain()
        return keeps_alive

    def _response_head(self, head: ResponseHead, *, is_chunked: bool, keeps_alive: bool) -> bytes:
        headers = head.end_to_end()
        if is_chunked and self._head.minor == 1:
            headers.append((b"Transfer-Encoding", b"chunked"))
        if not keeps_alive:
            headers.append((b"Connection", b"close"))
        elif self._head.minor == 0:
            headers.append((b"Connection", b"keep-alive"))
        return encode_head(b"HTTP/1.1 %d %b" % (head.status, head.reason), headers)

    async def _finish(self) -> None:
        """Note that the client gets all of the response now."""
        if self._copy is not None and not self._is_ended:
            self._copy.is_whole = True
            await self._end()

    async def _end(self) -> None:
        assert self._copy is not None
        self._is_ended = True
        self._begin()  # if it was answered before it was read to its end
        try:
            await self._recording.end(self._copy)
        except SessionaryError:
            log.exception("An exchange that passed the proxy was not recorded")
