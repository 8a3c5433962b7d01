"""Sessions over HTTP: opened, read, changed, asked; the same names as everywhere."""

from typing import Any

import pytest

from sessionary.actions import turns
from sessionary.actions.retention import purge
from sessionary.config.engine import Budget
from sessionary.store.database import Store
from tests.web.conftest import Client, Served, served


async def opened(client: Client, text: str = "hello", **body: Any) -> str:
    made = await client.post("/sessions", {"text": text, **body}, status=201)
    return str(made["id"])


async def begin_elsewhere(server: Served, session_id: str) -> turns.Begun:
    """A turn that another process runs."""
    claim, moment = turns.Claim("another", 60), server.world.context().moment()
    return await server.store.write(
        turns.begin_in_session, session_id, None, profile="main", claim=claim, moment=moment
    )


async def end_elsewhere(server: Served, begun: turns.Begun) -> None:
    moment = server.world.context().moment()
    await server.store.write(turns.end, begun.lease, turns.Ending(), profile="main", moment=moment)


async def test_a_session_begins_with_its_first_message(client: Client) -> None:
    refused = await client.call("POST", "/sessions", json={"title": "empty"})

    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"
    assert (await client.get("/sessions"))["items"] == []


async def test_a_session_is_opened_listed_and_shown(client: Client) -> None:
    id = await opened(client, "first words", title="A plan", labels=["blue"])

    page = await client.get("/sessions")
    shown = await client.get(f"/sessions/{id}")

    assert [head["id"] for head in page["items"]] == [id]
    assert page["next"] is None
    assert (shown["title"], shown["preview"], shown["labels"]) == (
        "A plan",
        "first words",
        ["blue"],
    )


async def test_a_list_pages_by_cursor(client: Client) -> None:
    made = [await opened(client, f"number {n}") for n in range(5)]

    first = await client.get("/sessions?limit=3")
    rest = await client.get(f"/sessions?limit=3&cursor={first['next']}")

    found = [head["id"] for page in (first, rest) for head in page["items"]]
    assert sorted(found) == sorted(made)
    assert rest["next"] is None


async def test_a_change_touches_what_it_names_and_nothing_else(client: Client) -> None:
    id = await opened(client, title="old")
    await client.post("/projects", {"name": "Work", "colour": "#112233"}, status=201)
    change = {
        "pinned": True,
        "project": "Work",
        "labels": ["x"],
        "draft": "half a",
        "read_through": 1,
    }

    response = await client.call("PATCH", f"/sessions/{id}", json=change)

    assert response.status_code == 200
    shown = await client.get(f"/sessions/{id}")
    assert (shown["title"], shown["pinned"], shown["project"]) == ("old", True, "Work")
    assert (shown["draft"], shown["read_through"], shown["archived"]) == ("half a", 1, False)


async def test_a_change_that_fails_changes_nothing(client: Client) -> None:
    await opened(client, title="taken")
    id = await opened(client)

    refused = await client.call("PATCH", f"/sessions/{id}", json={"pinned": True, "title": "taken"})

    assert refused.status_code == 409
    assert refused.json()["committed"] == "no"
    assert (await client.get(f"/sessions/{id}"))["pinned"] is False


async def test_trash_restore_end_reopen(client: Client) -> None:
    id = await opened(client)

    trashed = await client.call("DELETE", f"/sessions/{id}")
    assert trashed.json()["trashed"] is True
    assert (await client.get("/sessions"))["items"] == []
    assert (await client.get("/sessions?folder=trash"))["items"][0]["id"] == id
    assert (await client.post(f"/sessions/{id}/restore"))["trashed"] is False
    assert (await client.post(f"/sessions/{id}/end", {"reason": "enough"}))[
        "end_reason"
    ] == "enough"
    assert (await client.post(f"/sessions/{id}/reopen"))["ended_at"] is None


async def test_messages_are_appended_without_the_agent(server: Served, client: Client) -> None:
    id = await opened(client)

    answer = await client.post(
        f"/sessions/{id}/messages", {"role": "assistant", "text": "hi"}, status=201
    )

    assert answer == {"id": f"{id}-2", "session_id": id, "seq": 2}
    assert server.world.runner.requests == []


async def test_windows_by_seq_and_what_the_model_sees(client: Client) -> None:
    id = await opened(client, "1")
    for n in range(2, 11):
        role = "assistant" if n % 2 == 0 else "user"
        await client.post(f"/sessions/{id}/messages", {"role": role, "text": str(n)}, status=201)

    async def seqs(query: str) -> list[int]:
        found = await client.get(f"/sessions/{id}/entries?{query}")
        return [entry["seq"] for entry in found["items"]]

    assert await seqs("limit=3") == [8, 9, 10]
    assert await seqs("limit=3&before=8") == [5, 6, 7]
    assert await seqs("limit=3&after=2") == [3, 4, 5]
    assert 5 in await seqs("limit=4&around=5")
    context = await client.get(f"/sessions/{id}/entries?view=context")
    assert context["items"][0] == {"role": "user", "content": "1"}


async def test_fork_retract_compact(client: Client) -> None:
    id = await opened(client, "one")
    await client.post(f"/sessions/{id}/messages", {"role": "assistant", "text": "two"}, status=201)

    forked = await client.post(f"/sessions/{id}/fork", {"at": 1, "title": "branch"}, status=201)
    retracted = await client.post(f"/sessions/{id}/retract", {"after": 1})
    compacted = await client.post(f"/sessions/{id}/compact", {"summary": "short", "through": 1})

    assert (forked["parent_id"], forked["lineage"], forked["message_count"]) == (id, "fork", 1)
    assert retracted["message_count"] == 1
    assert compacted["last_seq"] == 4
    assert (await client.get(f"/sessions/{id}"))["branches"] == [[2, 2]]


async def test_a_turn_is_durable_before_its_answer_and_then_runs(
    server: Served, client: Client
) -> None:
    id = await opened(client)

    answer = await client.post(f"/sessions/{id}/turns", {"text": "and now?"}, status=202)
    window = await client.get(f"/sessions/{id}/entries")
    await server.settle()

    assert (answer["session_id"], answer["seq"], answer["queued"]) == (id, 2, False)
    assert [entry["text"] for entry in window["items"]][:2] == ["hello", "and now?"]
    after = await client.get(f"/sessions/{id}/entries")
    assert after["items"][-1]["text"] == "re: and now?"
    assert {entry["turn_id"] for entry in after["items"][1:]} == {answer["turn_id"]}


async def test_a_new_session_can_begin_with_a_turn(server: Served, client: Client) -> None:
    answer = await client.post("/sessions", {"text": "hello", "run": True}, status=202)
    await server.settle()

    shown = await client.get(f"/sessions/{answer['session_id']}")
    assert (answer["seq"], shown["message_count"], shown["running"]) == (1, 4, False)


async def test_a_session_s_own_model_and_settings_reach_the_agent_and_go_on_in_a_fork(
    server: Served, client: Client
) -> None:
    """They are asked for once, and hold for every turn."""
    wish = {"model": "m2", "settings": {"thinking": "low", "model": "m1"}}
    answer = await client.post("/sessions", {"text": "hello", "run": True, **wish}, status=202)
    await server.settle()
    fork = await client.post(f"/sessions/{answer['session_id']}/fork", {}, status=201)
    await client.post(f"/sessions/{fork['id']}/turns", {"text": "and?"}, status=202)
    await server.settle()
    await client.post("/sessions", {"text": "plain", "run": True}, status=202)
    await server.settle()

    asked = [dict(request.settings) for request in server.world.runner.requests]
    assert asked == [{"model": "m2", "thinking": "low"}] * 2 + [{}]


async def test_what_is_asked_while_a_turn_runs_waits_and_is_shown(
    server: Served, client: Client
) -> None:
    id = await opened(client)
    begun = await begin_elsewhere(server, id)

    answer = await client.post(f"/sessions/{id}/turns", {"text": "next"}, status=202)

    assert (answer["turn_id"], answer["seq"], answer["queued"]) == (None, None, True)
    queued = (await client.get(f"/sessions/{id}"))["queued"]
    assert [each["text"] for each in queued] == ["next"]
    await end_elsewhere(server, begun)
    await server.settle()
    window = await client.get(f"/sessions/{id}/entries")
    assert window["items"][-1]["text"] == "re: next"


async def test_a_running_turn_can_be_stopped(server: Served, client: Client) -> None:
    id = await opened(client)
    assert (await client.post(f"/sessions/{id}/stop"))["stopping"] is False
    begun = await begin_elsewhere(server, id)

    assert (await client.post(f"/sessions/{id}/stop"))["stopping"] is True
    assert await server.store.read(turns.get_stop_reason, begun.lease) == "stopped by you"


async def test_a_read_only_or_ended_session_takes_no_turn(client: Client) -> None:
    id = await opened(client)
    await client.post(f"/sessions/{id}/end")

    refused = await client.call("POST", f"/sessions/{id}/turns", json={"text": "more"})

    assert refused.status_code == 409
    assert "Reopen" in refused.json()["detail"]


async def test_a_repeated_request_is_done_once_and_answered_alike(client: Client) -> None:
    id = await opened(client)
    key = {"Idempotency-Key": "once"}
    body = {"role": "user", "text": "exactly once"}

    responses = [
        (await client.call("POST", f"/sessions/{id}/messages", json=body, headers=key)).text
        for _ in range(3)
    ]

    assert len(set(responses)) == 1
    assert (await client.get(f"/sessions/{id}"))["message_count"] == 2


async def test_a_key_that_was_used_for_another_request_is_refused(client: Client) -> None:
    id = await opened(client)
    key = {"Idempotency-Key": "once"}
    path = f"/sessions/{id}/messages"
    await client.post(path, {"role": "user", "text": "a"}, status=201, headers=key)

    refused = await client.call("POST", path, json={"role": "user", "text": "b"}, headers=key)

    assert refused.status_code == 422
    assert (await client.get(f"/sessions/{id}"))["message_count"] == 2


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
async def test_every_change_takes_an_idempotency_key(client: Client, method: str) -> None:
    id = await opened(client)
    key = {"Idempotency-Key": f"once-{method}"}

    responses = [
        await client.call(method, f"/sessions/{id}", headers=key, json={"pinned": True})
        for _ in range(2)
    ]

    assert responses[0].status_code == 200
    assert responses[0].text == responses[1].text


async def test_any_text_goes_in_and_comes_back(client: Client) -> None:
    wild = 'é \U0001f600 \u202e "quoted" \\ \x01 tab\t line\n'
    id = await opened(client, wild)
    lone = b'{"role":"user","text":"broken \\ud800 half"}'

    response = await client.call(
        "POST",
        f"/sessions/{id}/messages",
        content=lone,
        headers={"Content-Type": "application/json"},
    )

    assert response.status_code == 201
    window = await client.get(f"/sessions/{id}/entries")
    assert window["items"][0]["text"] == wild
    assert window["items"][1]["text"].startswith("broken ")


async def test_deep_json_is_refused_and_the_server_lives(client: Client) -> None:
    deep = b'{"role":"user","parts":[{"type":"x","data":' + b"[" * 500 + b"]" * 500 + b"}]}"
    deeper = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    id = await opened(client)

    for body in (deep, deeper, b"null", b"[]", b"\xff", b"{", b'{"role":NaN}'):
        refused = await client.call(
            "POST",
            f"/sessions/{id}/messages",
            content=body,
            headers={"Content-Type": "application/json"},
        )
        assert refused.status_code == 422, body[:20]
        assert refused.json()["committed"] == "no"
    assert (await client.get(f"/sessions/{id}"))["message_count"] == 1


async def test_rounds_are_counted_after_an_entry(client: Client) -> None:
    made = await client.post("/sessions", {"text": "one", "role": "user"}, status=201)
    where = f"/sessions/{made['id']}"
    for role in ("user", "assistant", "user", "assistant"):
        await client.post(f"{where}/messages", {"role": role, "text": "x"}, status=201)

    counted = await client.get(f"{where}/rounds")
    since = await client.get(f"{where}/rounds?since=3")
    refused = await client.call("GET", f"{where}/rounds?since=-1")
    unknown = await client.call("GET", "/sessions/nothing/rounds")

    assert counted == {"session_id": made["id"], "rounds": 2}
    assert since["rounds"] == 1
    assert (refused.status_code, unknown.status_code) == (422, 404)


async def test_search_usage_bindings_and_export(server: Served, client: Client) -> None:
    answer = await client.post(
        "/arrivals",
        {"source": {"platform": "api", "chat_id": "ada"}, "text": "find the walrus"},
        status=202,
    )
    await server.settle()

    hits = await client.get('/search?q="the walrus"')
    usage = await client.get("/usage?by=model")
    bindings = await client.get("/bindings")
    exported = await client.call("GET", f"/export?session_id={answer['session_id']}")
    page = await client.call("GET", "/export?format=html")

    assert hits["items"][0]["session"]["id"] == answer["session_id"]
    assert usage["items"][0]["group"] == "scripted"
    assert [each["session"]["id"] for each in bindings["items"]] == [answer["session_id"]]
    assert "walrus" in exported.text
    assert exported.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in page.headers["content-security-policy"]


async def test_budgets_are_listed_and_a_used_up_one_refuses_a_message(store: Store) -> None:
    limits = {"session": Budget(tokens=11), "profile": Budget(per="month", tokens=110)}
    async with served(store, budgets=limits) as server:
        client = await server.client()
        source = {"platform": "api", "chat_id": "ada"}
        made = await client.post("/arrivals", {"source": source, "text": "one"}, status=202)
        await server.settle()
        found = await client.get("/budgets")
        where = f"/sessions/{made['session_id']}"
        refused = await client.call("POST", f"{where}/turns", json={"text": "two"})
        other = await (await server.client(profile="other")).get("/budgets")
        after = await client.get(where)

    assert found["next"] is None
    assert found["items"][0] == {
        "scope": f"session:{made['session_id']}",
        "per": "day",
        "period": "2026-03-02",
        "resets_at": "2026-03-03T00:00:00.000000Z",
        "limit_tokens": 11,
        "limit_microusd": None,
        "used_tokens": 11,
        "used_microusd": 0,
        "reserved_tokens": 0,
        "reserved_microusd": 0,
        "percent": 100.0,
        "is_used_up": True,
        "warned": [50, 80, 100],
    }
    assert [(each["scope"], each["percent"]) for each in found["items"][1:]] == [
        ("profile:main", 10.0)
    ]
    assert refused.status_code == 403
    assert "this session for the day is used up" in refused.json()["detail"]
    assert after["message_count"] == 4, "the refused message is not stored"
    assert [(each["scope"], each["used_tokens"]) for each in other["items"]] == [
        ("profile:other", 0),
        ("session", 0),
    ]


async def test_without_an_engine_there_are_no_budgets(store: Store) -> None:
    async with served(store, with_engine=False) as server:
        assert (await (await server.client()).get("/budgets"))["items"] == []


async def test_a_path_that_is_not_there_says_where_the_paths_are(client: Client) -> None:
    lost = await client.call("GET", "/sesions")

    assert lost.status_code == 404
    assert "openapi.json" in lost.json()["detail"]


async def test_a_search_says_what_its_query_names_in_vain(client: Client) -> None:
    found = await client.get("/search?q=walrus in:Nowhere")

    assert found["items"] == []
    assert "Nowhere" in found["missing"]


async def test_who_names_a_session_holds_no_chat_on_it(server: Served, client: Client) -> None:
    source = {"platform": "api", "chat_id": "ada"}
    answer = await client.post("/arrivals", {"source": source, "text": "hello"}, status=202)
    await server.settle()
    await client.post(f"/sessions/{answer['session_id']}/turns", {"text": "again"}, status=202)
    await server.settle()
    other = await opened(client)

    bindings = (await client.get("/bindings"))["items"]
    await client.post("/bindings", {"key": bindings[0]["key"], "session_id": other})

    assert len(bindings) == 1
    assert (await client.get(f"/sessions/{answer['session_id']}"))["end_reason"] == "switch"


async def test_a_purged_session_leaves_no_words_in_noted_answers(
    server: Served, client: Client
) -> None:
    key = {"Idempotency-Key": "noted"}
    made = await client.post("/sessions", {"text": "secret words"}, status=201, headers=key)
    moment = server.world.context().moment()
    await server.store.write(purge.purge, made["id"], profile="main", moment=moment)

    row = await server.store.read(
        lambda tx: tx.one("get_request", profile="main", idempotency_key="http/noted")
    )

    assert row is None
