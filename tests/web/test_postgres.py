"""The same interface on PostgreSQL, with what only PostgreSQL takes amiss."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from sessionary.clock import RandomIds, SystemClock
from sessionary.store.open import open_store
from tests.web.conftest import Client, Served, served
from tests.web.test_arrival_waits import queued, until_waiting, without_engine
from tests.web.test_arrivals import ADA
from tests.web.test_events import listening
from tests.web.test_sessions import end_elsewhere

HOSTILE = ["nul \x00 inside", "\x00", "lone \ud800 half", "'; DROP TABLE sessions; --", "%_\\"]


@pytest.fixture
async def server(migrated_url: str) -> AsyncIterator[Served]:
    store = open_store(migrated_url, create=True, clock=SystemClock(), ids=RandomIds())
    async with served(store) as made:
        yield made
    store.close()


async def test_a_day_on_postgresql(server: Served, client: Client) -> None:
    async with listening(client, "topics=list") as listener:
        answer = await client.post("/arrivals", {"source": ADA, "text": "hello"}, status=202)
        heads = await listener.until("head")
    await server.settle()
    id = answer["session_id"]

    assert heads[-1][1]["id"] == id
    found = await client.get(f"/arrivals/{answer['arrival_id']}")
    assert found["reply"]["text"] == "re: hello"
    asked = await client.post(f"/sessions/{id}/turns", {"text": "more"}, status=202)
    await server.settle()
    assert asked["seq"] == 5
    assert (await client.get("/search?q=more"))["items"][0]["session"]["id"] == id
    assert (await client.get("/sessions"))["items"][0]["message_count"] == 8
    forked = await client.post(f"/sessions/{id}/fork", {"title": "copy"}, status=201)
    assert (await client.call("DELETE", f"/sessions/{forked['id']}")).json()["trashed"] is True


async def test_a_wait_ends_with_the_reply_on_postgresql(server: Served, client: Client) -> None:
    arrival_id, begun = await queued(server, client)
    async with without_engine(server) as other:
        there = Client(other.http, client.token)
        asking = [
            asyncio.create_task(each.get(f"/arrivals/{arrival_id}?wait=60"))
            for each in (client, there)
        ]
        await until_waiting(client, 1)
        await until_waiting(there, 1)

        await end_elsewhere(server, begun)

        assert [(await each)["reply"]["text"] for each in asking] == ["re: next"] * 2


async def test_one_request_sent_by_many_at_once_is_done_once(
    server: Served, client: Client
) -> None:
    key, body = {"Idempotency-Key": "k"}, {"text": "hello", "title": "only one"}

    answers = await asyncio.gather(
        *(client.post("/sessions", body, status=201, headers=key) for _ in range(8))
    )

    assert len({each["id"] for each in answers}) == 1
    assert len((await client.get("/sessions"))["items"]) == 1


async def sent(client: Client, method: str, path: str, body: Any) -> httpx2.Response:
    """Send JSON that has every character escaped: a lone surrogate has no other form."""
    headers = {"Content-Type": "application/json"}
    return await client.call(method, path, content=json.dumps(body), headers=headers)


@pytest.mark.parametrize("text", HOSTILE)
async def test_no_text_breaks_the_server(client: Client, text: str) -> None:
    made = await sent(client, "POST", "/sessions", {"text": f"x{text}", "labels": [text]})
    assert made.status_code == 201
    path = f"/sessions/{made.json()['id']}"
    bodies: list[tuple[str, str, Any]] = [
        ("PATCH", path, {"title": text, "draft": text, "labels": [text]}),
        ("PATCH", path, {"project": text}),
        ("POST", f"{path}/messages", {"role": "user", "text": text}),
        ("POST", f"{path}/messages", {"role": "tool", "parts": [{"type": text, text: text}]}),
        ("POST", f"{path}/fork", {"title": text}),
        ("POST", f"{path}/compact", {"summary": text, "through": 1}),
        ("POST", f"{path}/turns", {"text": text}),
        ("POST", f"{path}/stop", {"reason": text}),
        ("POST", f"{path}/end", {"reason": text}),
        ("POST", "/sessions", {"text": "x", "model": text, "title": text}),
        ("POST", "/sessions", {"text": "x", "source": {"platform": text, "chat_id": text}}),
        ("POST", "/arrivals", {"source": {"platform": "api", "chat_id": text}, "text": text}),
        ("POST", "/arrivals", {"source": ADA, "text": "x", "platform_message_id": text}),
        ("POST", "/arrivals", {"source": ADA | {"user_name": text}, "text": f"/title {text}"}),
        ("POST", "/projects", {"name": text}),
        ("POST", "/schedules", {"name": text, "timing": "@daily", "prompt": text, "agent": text}),
        ("POST", "/schedules", {"name": "x", "timing": text, "prompt": "x", "zone": text}),
        ("POST", "/access", {"platform": text, "person_id": text, "name": text}),
        ("POST", "/access", {"code": text}),
        ("POST", "/bindings", {"key": text}),
        ("POST", "/bindings", {"key": f"main/api/dm/chat={text}", "session_id": text}),
        ("POST", "/tokens", {"name": text}),
    ]
    for method, where, body in bodies:
        answer = await sent(client, method, where, body)
        assert answer.status_code < 500, (method, where, body, answer.text)
    for where, name in [
        ("/sessions", "source"),
        ("/sessions", "project"),
        ("/sessions", "model"),
        ("/sessions", "text"),
        ("/sessions", "cursor"),
        ("/search", "q"),
        ("/bindings", "cursor"),
        ("/export", "session"),
    ]:
        value = text.encode("utf-8", "surrogatepass")
        answer = await client.call("GET", where, params={name: value})
        assert answer.status_code < 500, (where, name, answer.text)
