"""Two servers on one PostgreSQL behind one address: whichever is asked, people notice no difference."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.faults.server import Served
from tests.web.conftest import Client
from tests.web.test_events import Listener, listening

CHATS, ROUNDS = 4, 3
# Agents on a busy machine; nothing waits for so long.
TIMEOUT_SECONDS = 60


class RoundRobin:
    """A proxy as small as one can be: each connection goes to the next server that takes it."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = cycle(ports)
        self._tries = len(ports)
        self.taken: Counter[int] = Counter()
        self.open: set[asyncio.Task[None]] = set()
        self.port = 0

    def accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._connected(reader, writer))
        self.open.add(task)
        task.add_done_callback(self.open.discard)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(self._tries):
            port = next(self._ports)
            with suppress(OSError):
                there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
                self.taken[port] += 1
                there = _copied(there_reader, writer)
                await asyncio.gather(_copied(reader, there_writer), there)
                return
        writer.close()


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def behind_one_address(servers: list[Served]) -> AsyncIterator[RoundRobin]:
    proxy = RoundRobin([server.port for server in servers])
    listening_at = await asyncio.start_server(proxy.accepted, "127.0.0.1", 0)
    proxy.port = listening_at.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listening_at.close()
        for task in proxy.open:
            task.cancel()
        await asyncio.gather(*proxy.open, return_exceptions=True)


@pytest.fixture
def servers(postgres_url: str, tmp_path: Path) -> Iterator[list[Served]]:
    made = [Served(tmp_path / name, postgres_url) for name in ("one", "two")]
    for server in made:
        server.start()
    yield made
    for server in made:
        server.close()


class People:
    """They write to the one address, a connection for each message."""

    def __init__(self, proxy: RoundRobin, token: str) -> None:
        self._address = f"http://127.0.0.1:{proxy.port}"
        self._token = token

    async def say(self, chat: int, number: int) -> dict[str, Any]:
        """One message; the platform sends it twice, and the proxy gives each to another server."""
        body = {
            "source": {"platform": "api", "chat_id": f"chat{chat}"},
            "text": f"chat {chat} message {number}",
            "platform_message_id": f"{chat}-{number}",
        }
        answers = [await self._post(body) for _ in range(2)]
        assert answers[0]["arrival_id"] == answers[1]["arrival_id"]
        return answers[0]

    async def answered(self, arrival_id: str) -> str:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                async with self._client() as client:
                    found = (await client.get(f"/api/v1/arrivals/{arrival_id}")).json()
                if found.get("reply") is not None:
                    return str(found["reply"]["text"])
                await asyncio.sleep(0.05)

    async def texts(self, session: str) -> list[str]:
        async with self._client() as client:
            page = (await client.get(f"/api/v1/sessions/{session}/entries?limit=200")).json()
        return [entry["text"] for entry in page["items"]]

    async def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        async with self._client() as client:
            answer = await client.post("/api/v1/arrivals", content=json.dumps(body))
        assert answer.status_code == 202, answer.text
        accepted: dict[str, Any] = answer.json()
        return accepted

    def _client(self) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        return httpx2.AsyncClient(base_url=self._address, headers=headers, timeout=30)


async def heard_of(listener: Listener, sessions: set[str]) -> None:
    """Listen until every one of them was named."""
    while sessions:
        kind, data = await listener.next()
        if kind == "head":
            sessions.discard(data["id"])


async def conversation(people: People, chat: int, first: int) -> str:
    """A person who waits for the answer before writing again."""
    session = ""
    for number in range(first, first + ROUNDS):
        answer = await people.say(chat, number)
        assert await people.answered(answer["arrival_id"]) == f"chat {chat} message {number}"
        session = answer["session_id"]
    return session


async def test_messages_to_either_are_answered_once_and_seen_on_both(servers: list[Served]) -> None:
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(behind_one_address(servers))
        people = People(proxy, servers[0].token)
        listeners = [
            await stack.enter_async_context(listening(await _client(stack, server), "topics=list"))
            for server in servers
        ]

        talks = (conversation(people, chat, 1) for chat in range(CHATS))
        sessions = await asyncio.gather(*talks)

        for listener in listeners:
            await heard_of(listener, set(sessions))
        for chat, session in enumerate(sessions):
            expected = [f"chat {chat} message {number}" for number in range(1, ROUNDS + 1)]
            # The agent echoes: each message stands there twice, and no answer twice.
            assert await people.texts(session) == [text for text in expected for _ in range(2)]
        assert len(set(sessions)) == CHATS
        assert min(proxy.taken.values()) >= CHATS * ROUNDS


async def test_when_one_of_them_dies_the_other_goes_on(servers: list[Served]) -> None:
    async with behind_one_address(servers) as proxy:
        people = People(proxy, servers[0].token)
        before = await conversation(people, 0, 1)

        servers[1].kill()
        after = await conversation(people, 0, ROUNDS + 1)

        assert after == before
        assert len(await people.texts(after)) == 4 * ROUNDS


async def _client(stack: AsyncExitStack, server: Served) -> Client:
    http = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=30)
    await stack.enter_async_context(http)
    return Client(http, server.token)
