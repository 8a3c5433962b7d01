"""The turns of a session over HTTP, and what the model was sent in them."""

import pytest

from sessionary.actions import turns
from sessionary.model.access import Scope
from sessionary.model.message import message
from tests.web.conftest import Client, Served, Server
from tests.web.test_arrivals import ADA


async def begin(server: Served, client: Client, text: str) -> str:
    """Begin a session with a message that the agent answers; its id."""
    made = await client.post("/sessions", {"text": text, "run": True}, status=202)
    await server.settle()
    return str(made["session_id"])


async def send(server: Served, client: Client, session_id: str, text: str) -> None:
    await client.post(f"/sessions/{session_id}/turns", {"text": text}, status=202)
    await server.settle()


async def test_turns_are_listed_newest_first(server: Served, client: Client) -> None:
    id = await begin(server, client, "one")
    await send(server, client, id, "two")
    await send(server, client, id, "three")

    page = await client.get(f"/sessions/{id}/turns?limit=2")
    rest = await client.get(f"/sessions/{id}/turns?limit=2&cursor={page['next']}")

    listed = [*page["items"], *rest["items"]]
    assert [each["first_seq"] for each in listed] == sorted(
        (each["first_seq"] for each in listed), reverse=True
    )
    assert [each["calls"] for each in listed] == [2, 2, 2]
    assert {each["state"] for each in listed} == {"done"}
    assert {(each["resumed"], each["waiting"]) for each in listed} == {(0, False)}
    assert rest["next"] is None


async def test_what_the_model_was_sent_in_each_call(server: Served, client: Client) -> None:
    id = await begin(server, client, "one")
    await send(server, client, id, "two")
    turn = (await client.get(f"/sessions/{id}/turns"))["items"][0]

    calls = (await client.get(f"/turns/{turn['id']}/calls"))["items"]
    first = await client.get(f"/turns/{turn['id']}/context?call=1")
    last = await client.get(f"/turns/{turn['id']}/context")

    assert [each["number"] for each in calls] == [1, 2]
    assert [each["answer_seq"] for each in calls] == [turn["first_seq"] + 1, turn["first_seq"] + 3]
    request = server.world.runner.requests[-1]
    assert first["messages"] == [dict(chat) for chat in request.context]
    assert last["messages"][: len(first["messages"])] == first["messages"]
    assert [each["role"] for each in last["messages"]][-2:] == ["assistant", "tool"]
    assert last["seqs"] == list(range(1, turn["first_seq"] + 3))
    assert last["call"] == calls[1]
    assert last["calls"] == 2
    assert last["compaction"] is None
    assert last["tokens_by_kind"]["user"] > 0
    # The scripted agent is a program: what it gives its model is its own affair.
    assert (last["system_prompt"], last["tools"]) == (None, None)


async def test_a_short_session_is_not_compacted_and_the_answer_says_why(
    server: Served, client: Client
) -> None:
    """In a whole sentence, over HTTP and as the answer to /compact."""
    id = await begin(server, client, "one")

    refused = await client.post(f"/sessions/{id}/compact", {}, status=409)
    told = await client.post(f"/sessions/{id}/turns", {"text": "/compact"}, status=202)

    assert refused["detail"] == "This conversation is short enough as it is; nothing was changed."
    assert told["answer"] == refused["detail"]


async def test_compact_over_http_says_where_the_outcome_is_seen(
    server: Served, client: Client
) -> None:
    """There is no channel to which the outcome could be sent."""
    id = await begin(server, client, "and more " * 300)

    told = await client.post(f"/sessions/{id}/turns", {"text": "/compact"}, status=202)

    async def is_compacted() -> bool:
        items = (await client.get(f"/sessions/{id}/entries"))["items"]
        return "compaction" in {each["kind"] for each in items}

    assert told["answer"] == (
        "Compacting. When it is done, this session has an entry with the summary."
    )
    await server.world.eventually(is_compacted)


async def test_the_context_says_what_was_compacted(server: Served, client: Client) -> None:
    id = await begin(server, client, "one")
    before = await client.get(f"/sessions/{id}/context")
    await client.post(f"/sessions/{id}/compact", {"summary": "They met.", "through": 2})
    await send(server, client, id, "two")
    turn = (await client.get(f"/sessions/{id}/turns"))["items"][0]

    sent = await client.get(f"/turns/{turn['id']}/context?call=1")
    now = await client.get(f"/sessions/{id}/context")

    assert before["compaction"] is None
    assert before["used"] > 0
    assert sent["compaction"]["through"] == 2
    assert sent["compaction"]["summary"] == "They met."
    assert sent["seqs"][0] == 0
    assert sent["tokens_by_kind"]["summary"] > 0
    assert now["compaction"]["seq"] == sent["compaction"]["seq"]
    assert now["window"] is None, "the scripted agent has no window"


async def test_a_window_and_a_threshold_are_those_of_the_agent(
    server: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert server.engine is not None
    context = server.engine.context
    agent = context.agent_for(server.world.source(), None)
    monkeypatch.setattr(type(agent.runner), "window", lambda *_: 1000, raising=False)
    id = await begin(server, client, "one")

    shown = await client.get(f"/sessions/{id}/context")
    overview = await client.get(f"/sessions/{id}/overview")

    percent = context.settings.compact_at_percent
    assert (shown["window"], shown["threshold"]) == (1000, 10 * percent)
    assert shown["percent"] == round(shown["used"] / 10, 1)
    assert overview["context"]["compacts_at"] == 10 * percent


async def test_a_turn_without_its_process_waits_to_go_on(servers: Server) -> None:
    server: Served = await servers(with_engine=False)
    client = await server.client()
    id = (await client.post("/sessions", {"text": "one"}, status=201))["id"]
    claim = turns.Claim("engine-9", 30, resumable=True)
    moment = server.world.context().moment()
    begun = await server.store.write(
        turns.begin_in_session,
        id,
        message("user", "two"),
        profile="main",
        claim=claim,
        moment=moment,
    )
    running = await client.get(f"/sessions/{id}")
    before = await client.get("/sessions")
    await server.store.write(turns.release, begun.lease, reason="the server stopped")
    waiting = await client.get(f"/sessions/{id}")
    after = await client.get("/sessions")
    rows = await client.get("/session-rows?fields=running,waiting")

    assert running["turn"]["waiting"] is False
    assert running["turn"]["holder"] == "engine-9"
    assert waiting["turn"]["waiting"] is True
    assert waiting["turn"]["holder"] is None
    assert waiting["turn"]["resume_reason"] == "the server stopped"
    assert [
        (page["items"][0]["running"], "waiting" in page["items"][0]) for page in (before, after)
    ] == [
        (True, False),
        (True, True),
    ]
    assert rows["items"] == [{"running": True, "waiting": True}]
    # Those who watch the list are told.
    assert after["position"] > before["position"]


async def test_a_chat_whose_process_died_waits_when_its_lease_has_expired(
    server: Served, client: Client
) -> None:
    await client.post("/arrivals", {"source": ADA, "text": "hello"}, status=202)
    await server.settle()
    assert server.engine is not None
    await server.engine.stop()
    id = (await client.get("/bindings"))["items"][0]["session"]["id"]
    await server.store.write(
        turns.begin_in_session,
        id,
        message("user", "two"),
        profile="main",
        claim=turns.Claim("engine-9", 30, resumable=True),
        moment=server.world.context().moment(),
    )

    async def states() -> list[tuple[bool, bool]]:
        shown = [
            (await client.get("/bindings"))["items"][0]["session"],
            (await client.get("/bindings?redact=true"))["items"][0]["session"],
            (await client.get("/search?q=hello"))["items"][0]["session"],
        ]
        return [(head["running"], "waiting" in head) for head in shown]

    before = await states()
    server.world.clock.tick(31)

    assert before == [(True, False)] * 3
    assert await states() == [(True, True)] * 3


async def test_unknown_turns_and_calls_are_not_found(server: Served, client: Client) -> None:
    id = await begin(server, client, "one")
    turn = (await client.get(f"/sessions/{id}/turns"))["items"][0]
    stranger = await server.client(profile="other")

    for who, path in (
        (client, "/turns/nonsense/context"),
        (client, "/turns/nonsense/calls"),
        (client, f"/turns/{turn['id']}/context?call=9"),
        (client, "/sessions/nonsense/turns"),
        (client, "/sessions/nonsense/context"),
        (stranger, f"/turns/{turn['id']}/context"),
        (stranger, f"/sessions/{id}/turns"),
    ):
        assert (await who.call("GET", path)).status_code == 404, path


async def test_messages_are_pinned_and_unpinned(server: Served, client: Client) -> None:
    id = await begin(server, client, "The door code is 4711.")

    pinned = await client.post(f"/sessions/{id}/pins/1")
    again = await client.post(f"/sessions/{id}/pins/1")
    shown = await client.get(f"/sessions/{id}")
    unpinned = await client.call("DELETE", f"/sessions/{id}/pins/1")
    entries = (await client.get(f"/sessions/{id}/entries"))["items"]

    assert [(each["seq"], each["role"]) for each in pinned["items"]] == [(1, "user")]
    assert again == pinned
    assert shown["pins"] == pinned["items"]
    assert shown["pins"][0]["text"] == "The door code is 4711."
    assert unpinned.json()["items"] == []
    records = [each["extra"]["record"] for each in entries if each["role"] == "system"]
    assert records == [{"kind": "pin", "seq": 1}, {"kind": "unpin", "seq": 1}]


async def test_what_cannot_be_pinned_is_refused(server: Served, client: Client) -> None:
    id = await begin(server, client, "hello")
    reader = await server.client(Scope.READ)

    for seq in ("3", "99", "0", "x", "9" * 30):
        assert (await client.call("POST", f"/sessions/{id}/pins/{seq}")).status_code == 404, seq
    assert (await client.call("DELETE", f"/sessions/{id}/pins/1")).status_code == 404
    assert (await reader.call("POST", f"/sessions/{id}/pins/1")).status_code == 403
    await server.store.write(
        turns.begin_in_session,
        id,
        None,
        profile="main",
        claim=turns.Claim("engine-9", 30),
        moment=server.world.context().moment(),
    )
    assert (await client.call("POST", f"/sessions/{id}/pins/1")).status_code == 409
