"""A proxy on a store of each kind, in front of an upstream that says exactly what a test wants."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sessionary.actions import verify
from sessionary.actions.sessions import lists, read
from sessionary.actions.sessions.lists import SessionFilters
from sessionary.clock import RandomIds, SystemClock
from sessionary.config.engine import Budget
from sessionary.model.message import Message, Unknown
from sessionary.model.session import SessionHead
from sessionary.model.turn import Turn
from sessionary.processes import process_name
from sessionary.proxy.server import ServerOptions
from sessionary.proxy.service import Proxy, ProxyOptions
from sessionary.proxy.upstream import Upstream
from sessionary.store.database import Store, Tx
from sessionary.store.open import open_store
from sessionary.store.tables import exchanges, turns
from tests.store.conftest import emptied  # noqa: F401
from tests.support.raw_upstream import RawUpstream, Script, whole

KEY = "sk-this-is-the-key-of-a-person-4711"


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **more}


def replied(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def chat(text: str, *, model: str = "gpt-5", **more: Any) -> Script:
    """A whole chat completion."""
    message = {"role": "assistant", "content": text, **more}
    usage = {"prompt_tokens": 20, "completion_tokens": 5}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {"id": "chatcmpl-1", "model": model, "choices": [choice], "usage": usage}
    return whole(json.dumps(body).encode())


def events(*found: tuple[str | None, Any]) -> list[bytes]:
    """Server-sent events, each a piece."""
    return [
        (f"event: {name}\n" if name else "").encode()
        + b"data: "
        + (data if isinstance(data, bytes) else json.dumps(data).encode())
        + b"\n\n"
        for name, data in found
    ]


def chat_events(text: str, *, is_whole: bool = True) -> list[bytes]:
    """A streamed chat completion, word by word."""

    def piece(delta: dict[str, Any], reason: str | None = None) -> tuple[None, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return None, {"id": "chatcmpl-1", "model": "gpt-5", "choices": [choice]}

    found: list[tuple[str | None, Any]] = [piece({"role": "assistant", "content": ""})]
    found += [piece({"content": word}) for word in re.findall(r"\s*\S+|\s+$", text)]
    if is_whole:
        found += [piece({}, "stop"), (None, b"[DONE]")]
    return events(*found)


@dataclass
class ProxyWorld:
    """A running proxy, and what is recorded."""

    store: Store
    upstream: RawUpstream
    proxy: Proxy
    key: str = KEY

    async def send(self, data: bytes) -> bytes:
        """Send bytes on a connection of their own, and return all that comes back until it is closed."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.proxy.port)
        writer.write(data)
        answer = b""
        try:
            while piece := await reader.read(65536):
                answer += piece
        except ConnectionResetError:
            pass
        writer.close()
        return answer

    def request(
        self,
        path: str,
        body: Any = None,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """The bytes of a request that closes its connection."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {
            "Host": "127.0.0.1",
            "Authorization": f"Bearer {self.key}",
            "Content-Type": "application/json",
            "Connection": "close",
            **(headers or {}),
        }
        if body is not None:
            given["Content-Length"] = str(len(data))
        lines = [
            f"{method} {path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in given.items()),
        ]
        head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        return head + (data if body is not None else b"")

    async def post(
        self, path: str, body: Any, *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Post JSON; return the status and the body."""
        answer = await self.send(self.request(path, body, headers=headers))
        head, _, rest = answer.partition(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]) if head else 0, rest

    async def ask(self, *messages: dict[str, Any], **more: Any) -> None:
        """Send a conversation to the chat interface."""
        headers = more.pop("headers", None)
        body = {"model": "gpt-5", "messages": list(messages), **more}
        status, answer = await self.post("/openai/v1/chat/completions", body, headers=headers)
        assert status == 200, answer

    async def settle(self) -> None:
        """Wait until everything that has passed is in the log."""
        async with asyncio.timeout(60):
            while self._is_busy():  # noqa: ASYNC110 - nothing tells when an exchange has passed
                await asyncio.sleep(0.005)
        await self.proxy.service.recorder.drain()
        left = await self.store.read(exchanges.count)
        assert left.get("done", 0) == 0

    def _is_busy(self) -> bool:
        status = self.proxy.service.journal.status
        return bool(status.passing or status.waiting)

    def heads(self) -> list[SessionHead]:
        """The sessions, in the order in which they began."""
        return self.store.read(_heads, profile="main").result()

    def messages(self, head: SessionHead) -> list[Message]:
        """The messages that a session has, with those that it was forked from."""
        found = self.store.read(read.read_transcript, head.id, profile="main").result()
        return [entry.body for entry in found if isinstance(entry.body, Message)]

    def texts(self, head: SessionHead) -> list[str]:
        """The texts of its messages."""
        return [message.text for message in self.messages(head)]

    def turns(self, head: SessionHead) -> list[Turn]:
        """Its turns."""
        return self.store.read(turns.of_session, head.no).result()

    def unknown(self, message: Message) -> list[Any]:
        """What a message contains that has no type."""
        return [part.data for part in message.parts if isinstance(part, Unknown)]

    def check(self) -> None:
        """The store is consistent."""
        assert verify.verify(self.store).broken == ()


def _heads(tx: Tx, *, profile: str) -> list[SessionHead]:
    found = lists.list_page(tx, SessionFilters(), profile=profile, limit=100, cursor=None)
    return sorted(found.items, key=lambda head: head.no)


@asynccontextmanager
async def running(
    store: Store,
    *,
    budgets: Mapping[str, Budget] | None = None,
    server: ServerOptions | None = None,
    told: list[str] | None = None,
    has_default: bool = True,
    more: Mapping[str | None, Upstream] | None = None,
    **options: Any,
) -> AsyncIterator[ProxyWorld]:
    """A proxy in front of an upstream; it is `openai`, `anthropic`, and what has no name."""
    async with RawUpstream() as upstream:
        upstreams: dict[str | None, Upstream] = {
            name: Upstream(name, upstream.url, name) for name in ("openai", "anthropic")
        }
        if has_default:
            upstreams[None] = Upstream(None, f"{upstream.url}/base")
        upstreams.update(more or {})
        proxy = Proxy(
            store,
            upstreams,
            server or ServerOptions(),
            ProxyOptions(profile="main", budgets=budgets or {}, **options),
            clock=SystemClock(),
            ids=RandomIds(),
            holder=process_name(),
            tell=lambda text: None if told is None else told.append(text),
        )
        await proxy.start()
        try:
            yield ProxyWorld(store, upstream, proxy)
        finally:
            await proxy.stop()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each kind."""
    is_file = request.param == "sqlite"
    url = str(tmp_path / "s.db") if is_file else request.getfixturevalue("emptied")()
    found = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
    yield found
    found.close()


@pytest.fixture
def file_store(tmp_path: Path) -> Iterator[Store]:
    """An empty store in a file."""
    found = open_store(str(tmp_path / "s.db"), create=True, clock=SystemClock(), ids=RandomIds())
    yield found
    found.close()


@pytest.fixture
async def world(store: Store) -> AsyncIterator[ProxyWorld]:
    """A proxy on a store of each kind."""
    async with running(store) as made:
        yield made
        await made.settle()
        made.check()


@pytest.fixture
async def fast_world(file_store: Store) -> AsyncIterator[ProxyWorld]:
    """A proxy on a file, for what does not depend on the database."""
    async with running(file_store) as made:
        yield made
        await made.settle()
