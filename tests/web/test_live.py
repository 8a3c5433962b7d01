"""Which chat is on which session, when it resets, why it did; how many sessions there are."""

from datetime import datetime, time, timedelta
from typing import Any

import pytest

from sessionary.actions.sessions import holds, lists
from sessionary.model.reset import Policies, ResetMode, ResetPolicy
from sessionary.web import session_heads
from tests.web.conftest import Client, Served
from tests.web.test_arrivals import ADA
from tests.web.test_sessions import opened

# They are in a head only where they differ from the default.
CHANGING = ("tools", "waiting", "waits_for_people")
IDLE = ResetPolicy(mode=ResetMode.IDLE, idle=timedelta(minutes=60))
DAILY = ResetPolicy(mode=ResetMode.DAILY, daily_at=time(4))
PHONE: dict[str, Any] = {"platform": "signal", "chat_id": "+49 170 1234567", "user_id": "+491701234567"}  # fmt: skip


async def send(server: Served, client: Client, source: dict[str, Any] = ADA) -> str:
    answer = await client.post("/arrivals", {"source": source, "text": "hello"}, status=202)
    await server.settle()
    return str(answer["session_id"])


async def bound(client: Client, query: str = "") -> dict[str, Any]:
    (found,) = (await client.get(f"/bindings{query}"))["items"]
    return dict(found)


async def test_a_binding_says_when_it_resets_and_why_it_did(servers: Any) -> None:
    server: Served = await servers(policies=Policies(IDLE))
    client = await server.client()
    first = await send(server, client)

    fresh = await bound(client)
    server.world.clock.tick(61 * 60)
    second = await send(server, client)
    after = await bound(client)

    assert fresh["policy"] == {
        "mode": "idle",
        "idle_minutes": 60,
        "daily_at": None,
        "zone": "UTC",
    }
    active = datetime.fromisoformat(fresh["session"]["last_active_at"])
    assert datetime.fromisoformat(fresh["resets_at"]) - active == IDLE.idle
    assert (fresh["last_reset"], fresh["held"]) == (None, False)
    assert after["session"]["id"] == second != first
    assert (after["last_reset"]["session_id"], after["last_reset"]["reason"]) == (first, "idle")


async def test_a_platform_has_its_own_policy_and_a_hold_is_shown(servers: Any) -> None:
    server: Served = await servers(policies=Policies(by_platform={"api": DAILY}))
    client = await server.client()
    id = await send(server, client)
    until = server.world.clock.now() + timedelta(hours=1)
    await server.store.write(holds.hold, id, "a build", profile="main", until=until)

    found = await bound(client)

    assert (found["policy"]["mode"], found["policy"]["daily_at"]) == ("daily", "04:00")
    assert found["resets_at"].endswith("T04:00:00.000000Z")
    assert found["held"] is True


async def test_a_key_that_was_reset_by_hand_says_so(server: Served, client: Client) -> None:
    id = await send(server, client)
    key = (await bound(client))["key"]

    await client.post("/bindings", {"key": key})

    found = await bound(client)
    assert (found["resets_at"], found["last_reset"]["session_id"]) == (None, id)
    assert found["last_reset"]["reason"] == "new"


async def test_who_only_named_a_session_fills_no_page(server: Served, client: Client) -> None:
    for n in range(4):
        await client.post("/sessions", {"text": f"{n}", "run": True}, status=202)
    await send(server, client)
    await send(server, client, {"platform": "zulip", "chat_id": "9"})

    first = await client.get("/bindings?limit=1")
    rest = await client.get(f"/bindings?limit=1&cursor={first['next']}")

    keys = [each["key"] for page in (first, rest) for each in page["items"]]
    assert [key.split("/")[1] for key in keys] == ["api", "zulip"]
    assert rest["next"] is None


async def test_numbers_and_ids_can_be_hidden(server: Served, client: Client) -> None:
    await send(server, client, PHONE)

    shown, hidden = await bound(client), await bound(client, "?redact=true")

    assert shown["session"]["source"]["user_id"] == "+491701234567"
    assert hidden["session"]["source"]["user_id"].startswith("user_")
    assert "1701234567" not in str(hidden["session"]["source"])
    assert "1234567" not in str(hidden)


async def test_sessions_are_counted_by_source_and_folder(server: Served, client: Client) -> None:
    for platform in ("slack", "telegram", "slack"):
        await opened(client, source={"platform": platform})
    gone = await opened(client, source={"platform": "slack"})
    await client.call("DELETE", f"/sessions/{gone}")
    await (await server.client(profile="other")).post("/sessions", {"text": "x"}, status=201)

    found = await client.get("/sources")

    assert found["items"] == [
        {"platform": "slack", "sessions": 2},
        {"platform": "telegram", "sessions": 1},
    ]
    assert found["folders"] == {"chats": 3, "automation": 0, "archive": 0, "trash": 1}
    trashed = await client.get("/sources?folder=trash")
    assert trashed["items"] == [{"platform": "slack", "sessions": 1}]


async def test_counting_stops_where_it_says(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MAX_COUNT", 2)
    for _ in range(4):
        await opened(client)

    found = await client.get("/sources?folder=all")

    assert found["items"] == [{"platform": "api", "sessions": 2}]
    assert (found["folders"]["chats"], found["most"]) == (2, 2)


async def test_a_list_of_few_fields_is_small_and_says_what_there_is_to_say(client: Client) -> None:
    id = await opened(client, "first words", title="named", labels=["blue"])

    page = await client.get("/session-rows?fields=id,title,labels,pinned,model,failed")
    refused = await client.call("GET", "/session-rows?fields=id,secrets")

    assert page["items"] == [{"id": id, "title": "named", "labels": ["blue"]}]
    assert (refused.status_code, "secrets" in refused.json()["detail"]) == (422, True)


async def test_every_field_of_a_head_can_be_asked_for(client: Client) -> None:
    await opened(client)

    (head,) = (await client.get("/sessions"))["items"]

    every = ",".join(session_heads.FIELDS)
    assert (await client.get(f"/sessions?fields={every}"))["items"][0]["id"] == head["id"]
    usual = (name for name in session_heads.FIELDS if name not in CHANGING)
    assert tuple(head) == tuple(usual)
    await client.get(f"/session-rows?fields={','.join(head)}")


async def test_the_first_page_is_small_whatever_is_in_it(client: Client) -> None:
    source = {"platform": "telegram", "chat_id": "-1001234567890", "chat_name": "The Harbour Team"}
    for n in range(35):
        await opened(client, "How do we get the cranes " * 8, title=f"Cranes {n}", source=source)

    page = await client.call("GET", "/sessions")

    assert len(page.json()["items"]) == 30
    assert len(page.content) <= 25_000
