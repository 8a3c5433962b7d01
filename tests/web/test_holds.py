"""Holds over HTTP: a session is not reset while there is a reason not to."""

from datetime import timedelta

import pytest

from sessionary.model.access import Scope
from sessionary.model.reset import Policies, ResetMode, ResetPolicy
from sessionary.model.view import time_text
from tests.web.conftest import Client, Served, Server

SOURCE = {"platform": "api", "chat_id": "1", "user_id": "u"}
IDLE = Policies(ResetPolicy(mode=ResetMode.IDLE, idle=timedelta(minutes=10)))


@pytest.fixture
async def server(servers: Server) -> Served:
    found: Served = await servers(policies=IDLE)
    return found


async def send(server: Served, client: Client, text: str) -> str:
    """Write in the chat; the session that the message is in."""
    answer = await client.post("/arrivals", {"source": SOURCE, "text": text}, status=202)
    await server.settle()
    found = await client.get(f"/arrivals/{answer['arrival_id']}")
    return str(found["session_id"])


async def test_a_held_session_is_not_reset_until_it_is_released(
    server: Served, client: Client
) -> None:
    first = await send(server, client, "one")
    made = await client.post(f"/sessions/{first}/holds", {"reason": "a  build"}, status=201)
    server.world.clock.tick(3600)
    held = await send(server, client, "two")
    shown = await client.get(f"/sessions/{first}")
    gone = await client.call("DELETE", f"/sessions/{first}/holds?reason=a%20build")
    server.world.clock.tick(3600)
    after = await send(server, client, "three")

    assert made == {"reason": "a build", "until": None}
    assert (held == first, shown["holds"]) == (True, [made])
    assert gone.json()["items"] == [made]
    assert after != first
    assert (await client.get(f"/sessions/{first}/holds"))["items"] == []


async def test_a_hold_ends_at_its_time(server: Served, client: Client) -> None:
    first = await send(server, client, "one")
    until = time_text(server.world.clock.now() + timedelta(hours=2))
    body = {"reason": "build", "until": until}
    await client.post(f"/sessions/{first}/holds", body, status=201)
    server.world.clock.tick(3600)
    meanwhile = (await client.get(f"/sessions/{first}/holds"))["items"]
    assert await send(server, client, "two") == first
    server.world.clock.tick(2 * 3600)

    assert await send(server, client, "three") != first
    assert meanwhile == [{"reason": "build", "until": until}]


async def test_what_makes_no_sense_is_refused(server: Served, client: Client) -> None:
    id = await send(server, client, "one")
    where = f"/sessions/{id}/holds"

    for body in ({}, {"reason": " "}, {"reason": "x" * 201}, {"reason": "hermes/lock"}):
        assert (await client.call("POST", where, json=body)).status_code == 422
    past = {"reason": "x", "until": "2001-01-01T00:00:00Z"}
    assert "in the future" in (await client.call("POST", where, json=past)).json()["detail"]
    missing = await client.call("DELETE", f"{where}?reason=nothing")
    assert missing.status_code == 404
    assert (await client.call("DELETE", where)).json()["items"] == []
    reader = await server.client(Scope.READ)
    assert (await reader.call("POST", where, json={"reason": "x"})).status_code == 403
    await client.post(f"/sessions/{id}/end")
    assert (await client.call("POST", where, json={"reason": "x"})).status_code == 409
