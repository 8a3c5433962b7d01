"""signal-cli's daemon at an HTTP address: calls are posted, messages come as events."""

import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import httpx2
import msgspec

from sessionary.channels.signal.client import CALL_SECONDS, Json, away, decoded, lost, result_of
from sessionary.errors import RetryLater, SessionaryError, Unreachable

# signal-cli says every 15 seconds that it is still there.
SILENCE_SECONDS = 300.0
_OK = 200
_UNAUTHORIZED = (401, 403)
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class HttpDaemon:
    """Newer daemons number their events, and tell again what came after the last durable one."""

    def __init__(self, url: str, account: str) -> None:
        self._url = url.rstrip("/")
        self._account = account
        self._ids = itertools.count(1)
        self._client: httpx2.AsyncClient | None = None
        self._last_event: str | None = None

    async def call(self, method: str, params: Mapping[str, Any], *, chat: str = "") -> Any:
        """Ask for something; its result."""
        id = f"sessionary-{next(self._ids)}"
        given = {"account": self._account, **params}
        asked = {"jsonrpc": "2.0", "method": method, "params": given, "id": id}
        try:
            answer = await self._http().post(
                f"{self._url}/api/v1/rpc",
                content=msgspec.json.encode(asked),
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
        """Messages as they come."""
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
                _check(answer.status_code)
                async for id, data in _events(answer.aiter_lines()):
                    if found := decoded(data):
                        yield found
                    # Asked for the next one: this one is durable.
                    self._last_event = id or self._last_event
        except httpx2.HTTPError as error:
            raise away(error) from error
        raise away()

    async def close(self) -> None:
        """Let go of connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _http(self) -> httpx2.AsyncClient:
        if self._client is None:
            # The daemon is ours and near: no proxy stands between.
            self._client = httpx2.AsyncClient(timeout=CALL_SECONDS, trust_env=False)
        return self._client


async def _events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str | None, str]]:
    """The id and the data of each event."""
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


def _check(status: int) -> None:
    if status in _UNAUTHORIZED:
        raise Unreachable(f"signal-cli's daemon answered {status}: is a proxy before it?")
    if status != _OK:
        raise RetryLater(f"signal-cli's daemon answered {status}", after=30.0)
