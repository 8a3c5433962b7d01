"""The connection to signal-cli's daemon: JSON-RPC over HTTP or over a socket, and its errors as ours."""

import asyncio
import contextlib
import itertools
import re
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, Protocol

import httpx2
import msgspec

from sessionary.channels.base import Json, object_list, object_value
from sessionary.errors import NotAllowed, RetryLater, SessionaryError, Unreachable
from sessionary.model.terminal import one_line

CALL_SECONDS = 40.0
AWAY_SECONDS = 5.0
CONNECT_SECONDS = 10.0
# signal-cli sends a sign of life every 15 seconds.
SILENCE_SECONDS = 300.0
_OK = 200
_UNAUTHORIZED = (401, 403)
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
MAX_WAIT_SECONDS = 24 * 3600.0
_IO_ERROR, _UNTRUSTED, _RATE_LIMITED = -3, -4, -5
_ACCOUNT = re.compile(
    r"\[40[13]\]|Authorization failed|^User .* is not registered|account does not exist"
    r"|valid account parameter"
)
_TOO_MANY = re.compile(r"\[4(?:13|29)\]|rate.?limit", re.IGNORECASE)
_ids = itertools.count(1)


class SignalDaemon(Protocol):
    """A running signal-cli. Its errors are raised as ours, see `error_of`."""

    async def call(self, method: str, params: Mapping[str, Any], *, chat: str = "") -> Any:
        """Call a method; return its result."""

    def notifications(self) -> AsyncGenerator[Json, None]:
        """Yield messages until the connection ends, then raise `RetryLater`.

        Asking for the next one means that the last one is durable.
        """

    async def close(self) -> None:
        """Close connections."""


def _request(account: str, method: str, params: Mapping[str, Any]) -> tuple[str, bytes]:
    """Encode a call; return its id with it."""
    id = f"sessionary-{next(_ids)}"
    given = {"account": account, **params}
    request = {"jsonrpc": "2.0", "method": method, "params": given, "id": id}
    return id, msgspec.json.encode(request)


def away(error: BaseException | None = None) -> RetryLater:
    """Return the error for a daemon that does not answer; nothing was sent."""
    why = "" if error is None else f" ({type(error).__name__})"
    return RetryLater(f"signal-cli's daemon is not there{why}", after=AWAY_SECONDS)


def lost(error: BaseException | None = None) -> SessionaryError:
    """Return the error for a connection that broke before the answer: the message may have been sent."""
    why = "" if error is None else f": {type(error).__name__}"
    return SessionaryError(f"signal-cli's answer got lost{why}", committed="unknown")


def decoded(line: bytes | str) -> Json:
    """Decode a JSON object; anything else is an empty one."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def result_of(answer: Json, *, chat: str) -> Any:
    """Return the result of a call, or raise its error as ours."""
    error = answer.get("error")
    if isinstance(error, dict):
        raise error_of(error, chat=chat)
    return answer.get("result")


class HttpDaemon:
    """A daemon at an HTTP address. Newer ones number their events, and repeat what came after the last durable one."""

    def __init__(self, url: str, account: str) -> None:
        self._url = url.rstrip("/")
        self._account = account
        self._client: httpx2.AsyncClient | None = None
        self._last_event: str | None = None

    async def call(self, method: str, params: Mapping[str, Any], *, chat: str = "") -> Any:
        """Call a method; return its result."""
        _, request = _request(self._account, method, params)
        try:
            answer = await self._http().post(
                f"{self._url}/api/v1/rpc",
                content=request,
                headers={"Content-Type": "application/json"},
            )
        except _NOT_SENT as error:
            raise away(error) from error
        except httpx2.HTTPError as error:
            raise lost(error) from error
        found = decoded(answer.content)
        if not found:
            raise SessionaryError(f"signal-cli answered {answer.status_code}", committed="unknown")
        return result_of(found, chat=chat)

    async def notifications(self) -> AsyncGenerator[Json, None]:
        """Yield messages as they come."""
        headers = {} if self._last_event is None else {"Last-Event-ID": self._last_event}
        timeout = httpx2.Timeout(CALL_SECONDS, read=SILENCE_SECONDS)
        try:
            async with self._http().stream(
                "GET",
                f"{self._url}/api/v1/events",
                params={"account": self._account},
                headers={"Accept": "text/event-stream", **headers},
                timeout=timeout,
            ) as answer:
                _check_status(answer.status_code)
                async for id, data in _events(answer.aiter_lines()):
                    if found := decoded(data):
                        yield found
                    # The next one is wanted: this one is durable.
                    self._last_event = id or self._last_event
        except httpx2.HTTPError as error:
            raise away(error) from error
        raise away()

    async def close(self) -> None:
        """Close connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _http(self) -> httpx2.AsyncClient:
        if self._client is None:
            # The daemon is on our own network: no proxy.
            self._client = httpx2.AsyncClient(timeout=CALL_SECONDS, trust_env=False)
        return self._client


async def _events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str | None, str]]:
    """Yield the id and the data of each event."""
    id: str | None = None
    data: list[str] = []
    async for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                data.append(value)
            case "id":
                id = value
            case "" if not line:
                if data:
                    yield id, "\n".join(data)
                id, data = None, []


def _check_status(status: int) -> None:
    if status in _UNAUTHORIZED:
        raise Unreachable(f"signal-cli's daemon answered {status}: is a proxy before it?")
    if status != _OK:
        raise RetryLater(f"signal-cli's daemon answered {status}", after=30.0)


class TcpDaemon:
    """A daemon at a socket: one line of JSON is one message.

    Two connections, so that a message that waits for the store does not hold up what is sent.
    """

    def __init__(self, host: str, port: int, account: str, *, longest_line: int) -> None:
        self._host, self._port = host, port
        self._account = account
        self._longest_line = longest_line
        self._waiting: dict[str, asyncio.Future[Json]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()

    async def call(self, method: str, params: Mapping[str, Any], *, chat: str = "") -> Any:
        """Call a method; return its result."""
        writer = await self._connected()
        id, request = _request(self._account, method, params)
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._waiting[id] = answer
        try:
            writer.write(request + b"\n")
            await writer.drain()
            async with asyncio.timeout(CALL_SECONDS):
                result = await answer
        except (OSError, TimeoutError) as error:
            raise lost(error) from error
        finally:
            self._waiting.pop(id, None)
            answer.cancel()
        return result_of(result, chat=chat)

    async def notifications(self) -> AsyncGenerator[Json, None]:
        """Yield messages as they come. The daemon fetches none while nobody has subscribed."""
        reader, writer = await self._open()
        try:
            id, request = _request(self._account, "subscribeReceive", {})
            writer.write(request + b"\n")
            while line := await reader.readline():
                found = decoded(line)
                if found.get("id") == id:
                    _check_subscription(found)
                elif found.get("method") == "receive" and isinstance(found.get("params"), dict):
                    yield found["params"]
        except (OSError, ValueError) as error:
            raise away(error) from error
        finally:
            await _close_writer(writer)
        raise away()

    async def close(self) -> None:
        """Close connections."""
        reading, self._reading = self._reading, None
        writer, self._writer = self._writer, None
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        if writer is not None:
            await _close_writer(writer)

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
        # A daemon on another machine may vanish without closing the connection.
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return reader, writer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Hand results to the calls that wait for them; messages come by the other connection."""
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
    """Check the answer to the subscription; a daemon without that command sends messages by itself."""
    error = answer.get("error")
    if isinstance(error, dict) and "account" in str(error.get("message")):
        result_of(answer, chat="")


async def _close_writer(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, RetryLater):
        await writer.wait_closed()


def error_of(error: Json, *, chat: str = "") -> SessionaryError:
    """Return an error of signal-cli as ours."""
    code, text = error.get("code"), one_line(str(error.get("message") or "no reason given"), 200)
    reason = f"signal-cli: {text}"
    for result in object_list(
        object_value(object_value(error.get("data")).get("response")).get("results")
    ):
        if (found := _of_result(result, chat)) is not None:
            return found
    if code == _RATE_LIMITED or _TOO_MANY.search(text):
        return RetryLater(reason, after=60.0)
    if _ACCOUNT.search(text):
        return NotAllowed(f"{reason}; register or link the account again")
    if code == _UNTRUSTED:
        return Unreachable(_untrusted(reason), chat)
    if code == _IO_ERROR:
        # Signal's network: whether a message was sent is not known.
        return SessionaryError(reason, committed="unknown")
    return Unreachable(reason, chat)


def _of_result(result: Json, chat: str) -> SessionaryError | None:
    match result.get("type"):
        case "UNREGISTERED_FAILURE":
            return Unreachable("Signal: this person is not registered with Signal any more", chat)
        case "IDENTITY_FAILURE":
            return Unreachable(_untrusted("Signal: this person's safety number has changed"), chat)
        case "RATE_LIMIT_FAILURE":
            wait = result.get("retryAfterSeconds")
            after = float(wait) if isinstance(wait, int | float) and wait > 0 else 60.0
            hint = "; solve the captcha: signal-cli submitRateLimitChallenge"
            words = f"Signal takes no more messages for now{hint if result.get('token') else ''}"
            return RetryLater(words, after=min(after, MAX_WAIT_SECONDS))
        case "NETWORK_FAILURE":
            return RetryLater("Signal cannot be reached from where signal-cli runs", after=10.0)
        case "INVALID_PRE_KEY_FAILURE":
            return RetryLater("Signal: this person's keys cannot be used now", after=60.0)
        case _:
            return None


def _untrusted(reason: str) -> str:
    return (
        f"{reason}; compare it with them, then run signal-cli trust, and retry or redirect "
        "the delivery"
    )
