"""The budgets that a message to a session counts against, on both databases."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sessionary.clock import RandomIds, SystemClock
from sessionary.config.engine import Budget
from sessionary.model.access import Scope
from sessionary.store.database import Store
from sessionary.store.open import open_store
from tests.web.conftest import Client, served

# A turn of the scripted agent uses 11 tokens.
LIMITS = {
    "session": Budget(tokens=20),
    "channel": Budget(tokens=200),
    "person": Budget(tokens=11),
    "agent:scripted": Budget(per="month", tokens=110),
    "agent:other": Budget(tokens=11),
    "model": Budget(microusd=1_000_000),
    "profile": Budget(tokens=1_100),
}


@pytest.fixture(params=["sqlite", "postgresql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    is_file = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/s.db" if is_file else request.getfixturevalue("migrated_url")
    opened = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
    yield opened
    opened.close()


async def asked(client: Client, text: str) -> str:
    done = await client.post("/sessions", {"text": text, "run": True}, status=202)
    return str(done["session_id"])


def shares(found: Any) -> dict[str, float]:
    return {each["scope"]: each["percent"] for each in found["items"]}


async def test_only_the_budgets_that_a_message_to_the_session_counts_against_are_listed(
    store: Store,
) -> None:
    async with served(store, budgets=LIMITS) as server:
        client = await server.client()
        ada = {"platform": "api", "chat_id": "ada", "user_id": "ada"}
        await client.post("/arrivals", {"source": ada, "text": "one"}, status=202)
        await server.settle()
        id = await asked(client, "two")
        await server.settle()

        found = await client.get(f"/budgets?session_id={id}")
        reader = await (await server.client(Scope.READ)).get(f"/budgets?session_id={id}")

    assert shares(found) == {
        f"session:{id}": 55.0,
        "agent:scripted": 20.0,
        f"channel:web:session/{id}": 5.5,
        "profile:main": 2.0,
        "model:scripted": 0.0,
    }
    assert list(shares(found)) == list(shares(reader)), "the nearest to its limit is first"
    first = found["items"][0]
    assert (first["used_tokens"], first["limit_tokens"], first["warned"]) == (11, 20, [50])
    assert first["resets_at"] == "2026-03-03T00:00:00.000000Z"


async def test_a_session_whose_budget_is_used_up_says_so_where_its_messages_are_refused(
    store: Store,
) -> None:
    async with served(store, budgets={"session": Budget(tokens=11)}) as server:
        client = await server.client()
        id, other = await asked(client, "one"), await asked(client, "two")
        await server.settle()
        await client.post(f"/sessions/{other}/fork", {"title": "fresh"}, status=201)
        (fresh,) = (await client.get("/sessions?text=fresh"))["items"]

        used_up = await client.get(f"/budgets?session_id={id}")
        unused = await client.get(f"/budgets?session_id={fresh['id']}")
        refused = await client.call("POST", f"/sessions/{id}/turns", json={"text": "more"})
        await client.post(f"/sessions/{fresh['id']}/turns", {"text": "more"}, status=202)
        await server.settle()

    assert [each["is_used_up"] for each in used_up["items"]] == [True]
    assert shares(unused) == {f"session:{fresh['id']}": 0.0}
    assert refused.status_code == 403


async def test_the_budgets_of_a_session_are_for_its_own_profile(store: Store) -> None:
    async with served(store, budgets=LIMITS) as server:
        client = await server.client()
        id = await asked(client, "one")
        await server.settle()
        stranger = await server.client(profile="other")
        mine = (await stranger.post("/sessions", {"text": "mine"}, status=201))["id"]

        theirs = await stranger.call("GET", f"/budgets?session_id={id}")
        unknown = await client.call("GET", "/budgets?session_id=nothing")

        assert theirs.status_code == unknown.status_code == 404
        # No agent answers in that profile here, so nothing is counted.
        assert (await stranger.get(f"/budgets?session_id={mine}"))["items"] == []
