"""`GET /arrivals/{id}?wait=`: one request that waits for the outcome."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sessionary.actions import credentials, turns
from sessionary.clock import RandomIds, SystemClock
from sessionary.store.database import Store
from sessionary.store.open import open_store
from sessionary.web.waits import MAX_CHANGES, RecentChanges
from tests.web.conftest import API, QUICK, Client, Served, served
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


async def test_an_arrival_that_does_not_exist_is_not_waited_for(client: Client) -> None:
    refused = await client.call("GET", "/arrivals/nothing?wait=60")

    assert refused.status_code == 404


async def test_an_arrival_that_is_over_is_not_waited_for(server: Served, client: Client) -> None:
    told = await client.post("/arrivals", {"source": ADA, "text": "hello"}, status=202)
    await server.settle()

    found = await client.get(f"/arrivals/{told['arrival_id']}?wait=60")

    assert found["reply"]["text"] == "re: hello"


async def test_a_client_that_disconnects_waits_no_longer(server: Served, client: Client) -> None:
    arrival_id, begun = await queued(server, client)
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(
        f"GET {API}/arrivals/{arrival_id}?wait=60 HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {client.token}\r\n\r\n".encode()
    )
    await until_waiting(client, 1)

    writer.close()

    await until_waiting(client, 0)
    await end_elsewhere(server, begun)


async def test_a_wait_ends_although_another_process_runs_the_turn(
    server: Served, client: Client
) -> None:
    arrival_id, begun = await queued(server, client)
    async with without_engine(server) as other:
        there = Client(other.http, client.token)
        asking = asyncio.create_task(there.get(f"/arrivals/{arrival_id}?wait=60"))
        await until_waiting(there, 1)

        await end_elsewhere(server, begun)

        assert (await asking)["reply"]["text"] == "re: next"


async def test_a_token_that_was_revoked_meanwhile_gets_no_reply(
    server: Served, client: Client
) -> None:
    arrival_id, begun = await queued(server, client)
    secret, token = await server.token()
    revoked = Client(server.http, secret)
    asking = asyncio.create_task(revoked.call("GET", f"/arrivals/{arrival_id}?wait=60"))
    await until_waiting(client, 1)
    async with without_engine(server) as other:  # another process revokes it
        await other.store.write(
            credentials.revoke_token,
            token.id,
            profile="main",
            moment=server.world.context().moment(),
        )

    await end_elsewhere(server, begun)

    assert (await asking).status_code == 401


def test_a_session_that_was_forgotten_counts_as_changed() -> None:
    changes = RecentChanges()
    before = changes.count
    for number in range(MAX_CHANGES + 2):
        changes.add([f"session {number}"])

    assert changes.is_changed("session 0", since=before)
    assert changes.is_changed(f"session {MAX_CHANGES + 1}", since=before)
    assert not changes.is_changed(f"session {MAX_CHANGES + 1}", since=changes.count)
    assert not changes.is_changed("session 0", since=changes.count)
    assert changes.is_changed(None, since=before)


@asynccontextmanager
async def without_engine(server: Served) -> AsyncIterator[Served]:
    """A second server on the same database, with a store of its own: as in another process, no commit wakes it."""
    store = open_store(server.store.url, create=False, clock=SystemClock(), ids=RandomIds())
    try:
        async with served(store, with_engine=False, limits=QUICK) as other:
            yield other
    finally:
        store.close()
