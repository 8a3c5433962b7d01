"""What waits for its turn can be changed and taken back; scheduled tasks can be run at once."""

import asyncio
from typing import Any

from sessionary.actions import turns
from tests.web.conftest import Client, Served
from tests.web.test_arrivals import ADA
from tests.web.test_events import listening
from tests.web.test_sessions import begin_elsewhere, end_elsewhere, opened


async def queued(server: Served, client: Client, *texts: str) -> tuple[str, turns.Begun, list[str]]:
    """A session in which a turn is running, and messages that wait for it."""
    id = await opened(client)
    begun = await begin_elsewhere(server, id)
    answers = [
        await client.post(f"/sessions/{id}/turns", {"text": text}, status=202) for text in texts
    ]
    return id, begun, [each["arrival_id"] for each in answers]


async def texts_of(client: Client, id: str) -> list[str]:
    window = await client.get(f"/sessions/{id}/entries")
    return [entry["text"] for entry in window["items"] if entry["role"] == "user"]


async def test_a_waiting_message_is_changed_and_only_the_new_words_are_asked(
    server: Served, client: Client
) -> None:
    id, begun, (first, _) = await queued(server, client, "frist", "second")

    changed = await client.call("PATCH", f"/arrivals/{first}", json={"text": "first"})

    assert (changed.json()["text"], changed.json()["state"]) == ("first", "waiting")
    shown = (await client.get(f"/sessions/{id}"))["queued"]
    assert [each["text"] for each in shown] == ["first", "second"]
    await end_elsewhere(server, begun)
    await server.settle()
    assert await texts_of(client, id) == ["hello", "first", "second"]


async def test_a_waiting_message_is_taken_back_and_never_answered(
    server: Served, client: Client
) -> None:
    id, begun, (first, _) = await queued(server, client, "no", "yes")

    gone = await client.call("DELETE", f"/arrivals/{first}")

    assert gone.status_code == 200
    assert (gone.json()["state"], gone.json()["reason"]) == ("refused", "taken back")
    assert [each["text"] for each in (await client.get(f"/sessions/{id}"))["queued"]] == ["yes"]
    await end_elsewhere(server, begun)
    await server.settle()
    assert await texts_of(client, id) == ["hello", "yes"]


async def test_what_was_taken_by_a_turn_is_not_changed_any_more(
    server: Served, client: Client
) -> None:
    _, begun, (first,) = await queued(server, client, "too late")
    await end_elsewhere(server, begun)
    await server.settle()

    changed = await client.call("PATCH", f"/arrivals/{first}", json={"text": "other"})
    gone = await client.call("DELETE", f"/arrivals/{first}")

    assert (changed.status_code, gone.status_code) == (409, 409)
    assert changed.json()["committed"] == "no"
    assert "waits no longer" in changed.json()["detail"]


async def test_what_someone_wrote_elsewhere_is_removed_but_not_put_into_other_words(
    server: Served, client: Client
) -> None:
    answer = await client.post("/arrivals", {"source": ADA, "text": "hello"}, status=202)
    await server.settle()
    begun = await begin_elsewhere(server, answer["session_id"])
    waiting = await client.post("/arrivals", {"source": ADA, "text": "mine"}, status=202)
    where = f"/arrivals/{waiting['arrival_id']}"

    changed = await client.call("PATCH", where, json={"text": "not mine"})
    gone = await client.call("DELETE", where)

    assert (changed.status_code, gone.status_code) == (409, 200)
    await end_elsewhere(server, begun)


async def test_waiting_messages_are_listed(server: Served, client: Client) -> None:
    id = await opened(client)
    begun = await begin_elsewhere(server, id)

    async with (
        listening(client, f"topics=session:{id}") as one,
        listening(client, f"topics=session:{id}") as two,
    ):
        answer = await client.post(f"/sessions/{id}/turns", {"text": "next"}, status=202)
        await asyncio.gather(one.until("head"), two.until("head"))
        await client.call("DELETE", f"/arrivals/{answer['arrival_id']}")
        await asyncio.gather(one.until("head"), two.until("head"))
    assert (await client.get(f"/sessions/{id}"))["queued"] == []
    await end_elsewhere(server, begun)


async def test_a_scheduled_task_is_run_at_once_and_once(server: Served, client: Client) -> None:
    body: dict[str, Any] = {"name": "morning", "timing": "@yearly", "prompt": "Summarize"}
    made = await client.post("/schedules", body, status=201)
    key = {"Idempotency-Key": "run-1"}

    answers = [
        await client.post(f"/schedules/{made['id']}/run", status=202, headers=key) for _ in range(2)
    ]
    await server.settle()

    shown = await client.get("/schedules/morning")
    assert answers[0] == answers[1]
    assert [(run["state"], run["due_at"]) for run in shown["runs"]] == [
        ("done", answers[0]["due_at"])
    ]
    window = await client.get(f"/sessions/{shown['runs'][0]['session_id']}/entries")
    assert window["items"][0]["text"] == "Summarize"
    assert (await client.call("POST", "/schedules/none/run")).status_code == 404


async def test_without_an_agent_no_task_is_run(servers: Any) -> None:
    server: Served = await servers(with_engine=False)
    client = await server.client()
    body = {"name": "morning", "timing": "@yearly", "prompt": "Summarize"}
    await client.post("/schedules", body, status=201)

    refused = await client.call("POST", "/schedules/morning/run")

    assert refused.status_code == 409
    assert (await client.get("/schedules/morning"))["runs"] == []
