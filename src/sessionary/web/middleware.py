"""Middleware for every path: checks of host, origin and size, and the headers of every response."""

import asyncio
import contextlib
import ipaddress
from collections.abc import Iterable, Mapping

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sessionary.config.server import Limits, WebSettings
from sessionary.web import connections
from sessionary.web.connections import CONNECTION, BodyBudget, LimitedConnection, classify_peer
from sessionary.web.context import HEADERS, LOOPBACK, PREFIX
from sessionary.web.problems import SAFE, RequestRefused, refusal_response

API = "/api/"
SMALL = ("/api/v1/login", "/login")
WEBHOOKS = f"{PREFIX}/channels/"
CLIENT = "sessionary.client"
# A body of this size or less is not counted with the others: it costs no more than a connection.
UNCOUNTED_BYTES = 64 * 1024
_FRIENDLY = frozenset({"same-origin", "none"})
_RawHeaders = tuple[tuple[bytes, bytes], ...]
# Encoded once, not for each response; names in lower case, as ASGI has them.
_HEADERS: _RawHeaders = tuple(
    (name.lower().encode(), value.encode()) for name, value in HEADERS.items()
)
_API_HEADERS: _RawHeaders = (*_HEADERS, (b"cache-control", b"no-store"))
_CLOSE = (b"connection", b"close")


class RequestGuard:
    """Lets a request pass that is addressed to us, comes from our own pages or from a program."""

    def __init__(
        self, app: ASGIApp, settings: WebSettings, webhook_bytes: Mapping[str, int]
    ) -> None:
        self._app = app
        self._settings = settings
        self._webhook_bytes = webhook_bytes
        self._hosts = LOOPBACK | {host.lower() for host in settings.allowed_hosts}
        self._budget = BodyBudget(settings.limits.bodies_bytes)
        # Anyone may send a body to a webhook, so authenticated requests must not share its budget.
        self._webhook_budget = BodyBudget(settings.limits.bodies_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = self._body(scope, receive)
        guarded = body.lingering(send, _API_HEADERS if scope["path"].startswith(API) else _HEADERS)
        try:
            headers = Headers(scope=scope)
            self._check(scope, headers)
            body.check_length(headers)
        except RequestRefused as error:
            response = refusal_response(error, is_write=scope["method"] not in SAFE)
            await response(scope, receive, guarded)
            return
        try:
            await self._app(scope, body.receive, guarded)
        finally:
            await body.release()

    def _body(self, scope: Scope, receive: Receive) -> "_LimitedBody":
        path: str = scope["path"]
        budget = self._webhook_budget if path.startswith(WEBHOOKS) else self._budget
        # Nobody collects the body of a request that only reads: it takes no memory, whatever comes.
        counted = None if scope["method"] in SAFE else budget
        return _LimitedBody(receive, self._most_bytes(path), self._settings.limits, counted)

    def _most_bytes(self, path: str) -> int:
        limits = self._settings.limits
        if path in SMALL:
            return limits.small_body_bytes
        if path.startswith(WEBHOOKS):
            channel = path.removeprefix(WEBHOOKS).partition("/")[0]
            return min(limits.body_bytes, self._webhook_bytes.get(channel, limits.body_bytes))
        return limits.body_bytes

    def _check(self, scope: Scope, headers: Headers) -> None:
        connection: LimitedConnection | None = scope.get(CONNECTION)
        if connection is not None:
            path = scope["path"]
            # At a webhook nobody looks whether a token or a cookie is good.
            is_checked = not path.startswith(WEBHOOKS)
            is_shown = "authorization" in headers or "cookie" in headers
            connection.check(path, has_credential=is_checked and is_shown)
        scope[CLIENT] = self._client(scope, headers)
        host, scheme = self._address(scope, headers)
        if not is_known(host, self._hosts):
            raise RequestRefused(421, "This server does not answer to that name.")
        scope["sessionary.origin"] = f"{scheme}://{host}"
        unsafe = scope["method"] not in SAFE or scope["path"].endswith("/events")
        if not unsafe:
            return
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"{scheme}://{host}":
            raise RequestRefused(403, "The request comes from another site.")
        site = headers.get("sec-fetch-site")
        if site is not None and site not in _FRIENDLY:
            raise RequestRefused(403, "The request comes from another site.")

    def _address(self, scope: Scope, headers: Headers) -> tuple[str, str]:
        """The name we were called by, and how: a proxy's word counts only if it is configured."""
        hosts = headers.getlist("host")
        host, scheme = (hosts[0] if len(hosts) == 1 else ""), str(scope["scheme"])
        client = scope.get("client")
        if client is not None and self._is_trusted(client[0]):
            host = headers.get("x-forwarded-host", host)
            scheme = headers.get("x-forwarded-proto", scheme)
        return host.lower(), scheme

    def _client(self, scope: Scope, headers: Headers) -> str:
        """The address that a request came from: behind proxies, the last that is not one of them."""
        client = scope.get("client")
        peer = "" if client is None else client[0]
        hops = ",".join(headers.getlist("x-forwarded-for")).split(",")
        while self._is_trusted(peer) and hops:
            hop = _address_of(hops.pop())
            if hop is None:  # the proxy does not say who it was: then it answers for them
                break
            peer = hop
        return classify_peer(peer, ())[0]

    def _is_trusted(self, peer: str) -> bool:
        return classify_peer(peer, self._settings.trusted_proxies)[1]


def is_known(host: str, known: Iterable[str]) -> bool:
    """Whether a Host header names us; a port is no part of the name."""
    name = host if host in known else _without_port(host)
    return name in known


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() and not name.endswith(":") else host


def _address_of(hop: str) -> str | None:
    """The address in a part of X-Forwarded-For, without the port that some proxies add; or None."""
    text = hop.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return None
    return text


class _LimitedBody:
    """A body that is refused as soon as it is known to be too large, and read when there is room."""

    def __init__(
        self, receive: Receive, limit: int, limits: Limits, budget: BodyBudget | None
    ) -> None:
        self._receive = receive
        self._limit = limit
        self._wait_seconds = limits.bodies_wait_seconds
        self._budget = budget
        self._size = 0
        self._is_whole = False

    def check_length(self, headers: Headers) -> None:
        length = headers.get("content-length")
        if length is not None and (not length.isdecimal() or int(length[:20]) > self._limit):
            raise _too_large(self._limit)

    async def receive(self) -> Message:
        message = await self._next()
        if message["type"] == "http.request" and self._budget is not None:
            before, more = self._size, len(message.get("body", b""))
            self._size += more
            if self._size > self._limit:
                raise _too_large(self._limit)
            if self._size > UNCOUNTED_BYTES:
                size = more if before > UNCOUNTED_BYTES else self._size
                await self._budget.take(self, size, seconds=self._wait_seconds)
        return message

    async def release(self) -> None:
        if self._budget is not None:
            await self._budget.release(self)

    def lingering(self, send: Send, added: "_RawHeaders") -> Send:
        """Return a `send` that adds headers, and reads the rest of the body before a response closes the connection.

        A client that still sends would lose the response if we closed at once: TCP resets then.
        """
        closes = False

        async def sent(message: Message) -> None:
            nonlocal closes
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                closes = _CLOSE in headers
                present = {name for name, _ in headers}
                headers += [each for each in added if each[0] not in present]
                message = {**message, "headers": headers}
            elif closes and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await self.release()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(connections.LINGER_SECONDS):
                        while not self._is_whole:
                            await self._next()
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        return sent

    async def _next(self) -> Message:
        message = await self._receive()
        # A client that has gone sends nothing more either.
        self._is_whole = not message.get("more_body", False)
        return message


def _too_large(limit: int) -> RequestRefused:
    return RequestRefused(413, f"A request has {limit:,} bytes at most.")
