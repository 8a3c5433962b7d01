"""A message from any program: durable, once, answered."""

import asyncio
from typing import Any

from sessionary.model.access import Scope
from tests.web.conftest import Client, Served

ADA: dict[str, Any] = {"platform": "api", "chat_id": "ada", "user_id": "u1"}


async def test_an_arrival_is_accepted_and_its_reply_can_be_fetched(
    server: Served, client: Client
) -> None:
    answer = await client.post("/arrivals", {"source": ADA, "text": "hello"}, status=202)

    await server.settle()

    found = await client.get(f"/arrivals/{answer['arrival_id']}")
    assert found["state"] == "taken"
    assert found["turn_state"] == "done"
    assert found["session_id"] == answer["session_id"]
    assert found["reply"]["text"] == "re: hello"


async def test_the_session_named_in_the_answer_has_the_message(
    server: Served, client: Client
) -> None:
    answers = [
        await client.post("/arrivals", {"source": ADA, "text": f"message {n}"}, status=202)
        for n in range(5)
    ]
    await server.settle()

    assert {each["session_id"] for each in answers} <= {answers[0]["session_id"], None}
    later = [await client.get(f"/arrivals/{each['arrival_id']}") for each in answers]
    assert {each["session_id"] for each in later} == {answers[0]["session_id"]}
    window = await client.get(f"/sessions/{answers[0]['session_id']}/entries")
    texts = [entry["text"] for entry in window["items"] if entry["role"] == "user"]
    assert texts == [f"message {n}" for n in range(5)]


async def test_the_same_message_twice_is_one_arrival(server: Served, client: Client) -> None:
    body = {"source": ADA, "text": "hello", "platform_message_id": 77}

    answers = [await client.post("/arrivals", body, status=202) for _ in range(3)]
    await server.settle()

    assert answers[0] == answers[1] == answers[2]
    head = await client.get(f"/sessions/{answers[0]['session_id']}")
    window = await client.get(f"/sessions/{head['id']}/entries")
    assert [entry["text"] for entry in window["items"]].count("hello") == 1


async def test_one_request_sent_by_many_at_once_is_done_once(
    server: Served, client: Client
) -> None:
    body = {"source": ADA, "text": "hello"}
    key = {"Idempotency-Key": "k1"}

    answers = await asyncio.gather(
        *(client.post("/arrivals", body, status=202, headers=key) for _ in range(10))
    )
    await server.settle()

    assert all(each == answers[0] for each in answers)
    assert (await client.get("/sessions"))["items"][0]["message_count"] == 4


async def test_a_command_is_carried_out_and_answered(client: Client) -> None:
    answer = await client.post("/arrivals", {"source": ADA, "text": "/whoami"}, status=202)

    assert "u1" in answer["answer"]
    assert answer["session_id"] is None


async def test_fields_named_after_sessions_choose_nothing(server: Served, client: Client) -> None:
    other = await client.post("/sessions", {"text": "private"}, status=201)
    body = {"source": ADA, "text": "hello", "session_id": other["id"], "session_key": "x"}

    answer = await client.post("/arrivals", body, status=202)

    assert answer["session_id"] != other["id"]


async def test_without_an_agent_nothing_is_accepted(servers: Any) -> None:
    server = await servers(with_engine=False)
    client = await server.client()

    refused = await client.call("POST", "/arrivals", json={"source": ADA, "text": "hello"})

    assert refused.status_code == 409
    assert refused.json()["committed"] == "no"
    assert (await client.get("/sessions"))["items"] == []


async def test_a_token_that_reads_does_not_write(server: Served) -> None:
    reader = await server.client(Scope.READ)

    refused = await reader.call("POST", "/arrivals", json={"source": ADA, "text": "hello"})

    assert refused.status_code == 403
