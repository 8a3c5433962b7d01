"""What every path promises: its methods, its keys, and that `redact` hides people everywhere."""

import asyncio
import json
import re
from typing import Any

import pytest

from sessionary.web.openai.errors import is_openai
from sessionary.web.routes.exports import ExportFormat, HandoverTool
from tests.web.conftest import API, Client, Served
from tests.web.test_login import routes

# As telling as ids are: each stands somewhere else in what is planted.
CHAT, PERSON, PHONE = "chat-77120045", "person-99120046", "+49 170 1234567"
PLANTED = (CHAT, PERSON, "1234567", "ada.lovelace@mail.example")


def example(path: str) -> str:
    """A path with something for each of its names."""
    return re.sub(r"\{[^}]+\}", "x", path)


async def test_a_refused_method_gets_the_list_of_allowed_ones(
    servers: Any,
) -> None:
    async def webhook(headers: Any, raw: bytes) -> int:
        return 200

    server: Served = await servers(webhooks={"sample": webhook})
    client = await server.client()
    by_path: dict[str, set[str]] = {}
    for route in routes():
        by_path.setdefault(example(route.path), {"OPTIONS"}).update(route.methods)
    # `/schedules/{schedule}` and the like: one address may be taken by several routes.
    assert by_path[f"{API}/sessions/x"] == {"GET", "PATCH", "DELETE", "OPTIONS"}

    for path, methods in by_path.items():
        answer = await client.call("PROPFIND", f"{server.address}{path}")
        asked = await client.call("OPTIONS", f"{server.address}{path}")
        assert answer.status_code == 405, path
        form = "application/json" if is_openai(path) else "application/problem+json"
        assert answer.headers["content-type"] == form, path
        assert set(answer.headers["allow"].split(", ")) == methods, path
        assert (asked.status_code, asked.content) == (204, b""), path
        assert asked.headers["allow"] == answer.headers["allow"]

    nowhere = await client.call("OPTIONS", "/nowhere")
    assert nowhere.status_code == 404


@pytest.mark.parametrize("key", ["", "two words", "a/b", "ключ".encode(), "x" * 201, '"x"'])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/sessions", {"text": "hello"}),
        ("POST", "/tokens", {"scope": "read"}),
        ("PUT", "/password", {"new": None}),
        ("DELETE", "/projects/x", None),
    ],
)
async def test_a_key_that_the_description_does_not_allow_is_refused(
    client: Client, key: Any, method: str, path: str, body: Any
) -> None:
    headers = {"Idempotency-Key": key}

    refused = await client.call(method, path, json=body, headers=headers)

    assert refused.status_code == 422
    assert refused.json()["committed"] == "no"
    assert (await client.get("/sessions"))["items"] == []


async def test_a_key_that_the_description_allows_is_taken(client: Client) -> None:
    headers = {"Idempotency-Key": "Aa0._-" + "x" * 194}

    await client.post("/sessions", {"text": "hello"}, status=201, headers=headers)


async def test_what_is_no_http_is_a_problem_too(server: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"nonsense\r\n\r\n")
    answer = await reader.read()
    writer.close()

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in answer


async def planted(server: Served, client: Client) -> str:
    """A session that names people wherever a session can."""
    source = {
        "platform": "telegram",
        "chat_type": "group",
        "chat_id": CHAT,
        "chat_name": PHONE,
        "user_id": PERSON,
        "user_name": PERSON,
        "thread_id": CHAT,
        "parent_chat_id": CHAT,
        "extra": {"raw": PERSON},
        "platform_message_id": f"true_{PERSON}_1",
    }
    text = f"call {PERSON} at {PHONE} or ada.lovelace@mail.example about {CHAT}"
    answer = await client.post("/arrivals", {"source": source, "text": text}, status=202)
    await server.settle()
    id = str(answer["session_id"])
    change = {"title": f"About {PERSON} {PHONE}", "draft": text}
    assert (await client.call("PATCH", f"/sessions/{id}", json=change)).status_code == 200
    parts = [
        {
            "type": "tool_call",
            "id": "c1",
            "name": "look",
            "arguments": {"who": PERSON, "n": [CHAT]},
        },
        {"type": "reasoning", "text": text},
    ]
    result = [{"type": "tool_result", "call_id": "c1", "name": "look", "content": text}]
    path = f"/sessions/{id}/messages"
    await client.post(path, {"role": "assistant", "parts": parts}, status=201)
    await client.post(path, {"role": "tool", "parts": result}, status=201)
    await client.post(f"/sessions/{id}/compact", {"summary": f"Summary. {text}", "through": 1})
    return id


async def test_whatever_takes_redact_names_nobody(server: Served, client: Client) -> None:
    id = await planted(server, client)
    description = await client.get("/openapi.json")
    takes_redact = {
        path.removeprefix(API)
        for path, methods in description["paths"].items()
        for operation in methods.values()
        if any(each["name"] == "redact" for each in operation.get("parameters", ()))
    }
    queries = {
        "/bindings": ["", "&limit=1"],
        "/export": [
            *(f"&session_id={id}&format={form}" for form in ExportFormat),
            *(f"&format={form}" for form in ExportFormat),
            *(f"&session_id={id}&as={tool}" for tool in HandoverTool),
        ],
        "/sessions/{session_id}/handover": [f"&as={tool}" for tool in HandoverTool],
    }
    assert takes_redact == set(queries), "a new path is to be walked here as well"

    for path, several in queries.items():
        for query in several:
            where = path.format(session_id=id)
            plain = await client.call("GET", f"{where}?{query.removeprefix('&')}")
            hidden = await client.call("GET", f"{where}?redact=true{query}")
            assert plain.status_code == hidden.status_code == 200, hidden.text
            for secret in PLANTED:
                assert secret not in hidden.text, (where, query, secret)
    shown = (await client.call("GET", "/bindings")).text
    assert all(each in shown for each in (CHAT, PERSON))


async def test_a_redacted_binding_can_be_paged_reset_and_switched(
    server: Served, client: Client
) -> None:
    for n in range(3):
        source = {"platform": "api", "chat_id": f"chat-5550{n}"}
        await client.post("/arrivals", {"source": source, "text": "hello"}, status=202)
    await server.settle()
    plain = (await client.get("/bindings"))["items"]

    keys: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = await client.get(f"/bindings?redact=true&limit=1&cursor={cursor}")
        keys += [each["key"] for each in page["items"]]
        cursor = page["next"]
        assert "chat-5550" not in json.dumps(page)

    assert len(set(keys)) == len(plain) == 3
    reset = await client.post("/bindings", {"key": keys[0]})
    assert reset == {"key": keys[0], "session": None, "ended_session_id": plain[0]["session"]["id"]}
    body = {"key": keys[1], "session_id": plain[2]["session"]["id"]}
    switched = await client.post("/bindings", body)
    assert switched["session"]["id"] == plain[2]["session"]["id"]
    assert "chat-5550" not in json.dumps(switched)
    unknown = re.sub("=.*", "=000000000000", keys[1])
    refused = await client.call("POST", "/bindings", json={"key": unknown})
    assert refused.status_code == 404
