"""`GET /arrivals/{id}?wait=`: one request that waits for the outcome."""

import asyncio

from sessionary.actions import turns
from sessionary.store.database import Store
from tests.web.conftest import QUICK, Client, Served, served
from tests.web.test_arrivals import ADA
from tests.web.test_sessions import begin_elsewhere, end_elsewhere, opened


async def until_waiting(client: Client, number: int) -> None:
    async with asyncio.timeout(60):
        while (
            f"sessionary_waits_open {number}\n" not in (await client.call("GET", "/metrics")).text
        ):
            pass


async def queued(server: Served, client: Client) -> tuple[str, turns.Begun]:
    """A message that waits for a turn of another process."""
    id = await opened(client)
    begun = await begin_elsewhere(server, id)
    told = await client.post(f"/sessions/{id}/turns", {"text": "next"}, status=202)
    return str(told["arrival_id"]), begun


async def test_a_wait_ends_with_the_reply(client: Client) -> None:
    told = await client.post("/arrivals", {"source": ADA, "text": "hello"}, status=202)

    found = await client.get(f"/arrivals/{told['arrival_id']}?wait=60")

    assert (found["state"], found["turn_state"]) == ("taken", "done")
    assert found["reply"]["text"] == "re: hello"


async def test_many_wait_for_a_queued_message_and_all_get_its_reply(
    server: Served, client: Client
) -> None:
    arrival_id, begun = await queued(server, client)
    asking = [asyncio.create_task(client.get(f"/arrivals/{arrival_id}?wait=60")) for _ in range(5)]
    await until_waiting(client, 5)

    await end_elsewhere(server, begun)
    found = await asyncio.gather(*asking)

    assert [each["reply"]["text"] for each in found] == ["re: next"] * 5
    await until_waiting(client, 0)


async def test_a_withdrawn_message_ends_the_wait(server: Served, client: Client) -> None:
    arrival_id, begun = await queued(server, client)
    asking = asyncio.create_task(client.get(f"/arrivals/{arrival_id}?wait=60"))
    await until_waiting(client, 1)

    await client.call("DELETE", f"/arrivals/{arrival_id}")

    assert (await asking)["state"] == "refused"
    await end_elsewhere(server, begun)


async def test_a_wait_that_is_over_answers_with_the_state_until_then(
    server: Served, client: Client
) -> None:
    arrival_id, begun = await queued(server, client)

    found = await client.get(f"/arrivals/{arrival_id}?wait=0.01")
    refused = await client.call("GET", f"/arrivals/{arrival_id}?wait=61")

    assert (found["state"], found["reply"]) == ("waiting", None)
    assert refused.status_code == 422
    await end_elsewhere(server, begun)


async def test_a_server_that_stops_answers_those_who_wait(store: Store) -> None:
    async with served(store, limits=QUICK) as server:
        client = await server.client()
        arrival_id, _ = await queued(server, client)
        asking = asyncio.create_task(client.get(f"/arrivals/{arrival_id}?wait=60"))
        await until_waiting(client, 1)

        await server.stop()

        assert (await asking)["state"] == "waiting"
