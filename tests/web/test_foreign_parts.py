"""Parts in the forms of the OpenAI and Anthropic interfaces, sent over HTTP."""

import base64
from typing import Any

import pytest

from sessionary.actions.sessions import read
from tests.web.conftest import Client, Served
from tests.web.test_uploads import PNG, fetched

DATA_URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
IMAGE = {"type": "image_url", "image_url": {"url": DATA_URL}}
TYPO = {"type": "txet", "text": "hi"}


@pytest.mark.parametrize("run", [False, True], ids=["recorded", "answered"])
async def test_an_image_inside_a_part_is_an_attachment(
    server: Served, client: Client, *, run: bool
) -> None:
    body = {"parts": [{"type": "text", "text": "look"}, IMAGE], "run": run}

    answer = await client.post("/sessions", body, status=202 if run else 201)
    await server.settle()

    id = answer["session_id"] if run else answer["id"]
    window = await client.get(f"/sessions/{id}/entries")
    part = window["items"][0]["parts"][1]
    assert (part["type"], part["media_type"]) == ("attachment", "image/png")
    assert (await fetched(client, id, part["blob"])).content == PNG


async def test_a_conversation_in_anthropics_form_is_what_the_model_reads(
    server: Served, client: Client
) -> None:
    id = (await client.post("/sessions", {"text": "What time is it?"}, status=201))["id"]
    call = {"type": "tool_use", "id": "c1", "name": "clock", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "09:30"}
    for role, part in (("assistant", call), ("user", result)):
        await client.post(f"/sessions/{id}/messages", {"role": role, "parts": [part]}, status=201)

    context = await server.store.read(read.read_context, id, profile="main")

    assert [chat["role"] for chat in context] == ["user", "assistant", "tool"]
    assert context[2]["content"] == "09:30"


@pytest.mark.parametrize("part", [TYPO, {"type": "text"}, {"text": "hi"}])
async def test_a_part_that_is_not_understood_is_refused_wherever_it_comes(
    server: Served, client: Client, part: dict[str, Any]
) -> None:
    id = (await client.post("/sessions", {"text": "first"}, status=201))["id"]
    source = {"platform": "web", "chat_id": "a"}
    requests = [
        ("/sessions", {"parts": [part]}),
        ("/arrivals", {"source": source, "parts": [part]}),
        (f"/sessions/{id}/messages", {"role": "user", "parts": [part]}),
        (f"/sessions/{id}/turns", {"parts": [part]}),
    ]
    for path, body in requests:
        problem = await client.post(path, body, status=422)

        assert "nothing was written" in problem["detail"]

    window = await client.get(f"/sessions/{id}/entries")
    assert len(window["items"]) == 1
