"""A session's own agent, model, persona and tools over HTTP."""

from typing import Any

import pytest

from sessionary.model.access import Scope
from sessionary.model.choice import AgentOffer, ChoiceCatalog, Persona
from sessionary.web.auth import CSRF_HEADER
from tests.web.conftest import Client, Served, Server

CATALOG = ChoiceCatalog(
    agents={
        "writer": AgentOffer("writer", "model", "p:small", ("p:small", "p:large"), 100_000),
        "plain": AgentOffer("plain", "echo"),
    },
    personas={"pirate": Persona("pirate", "Speak like a pirate.", "Pirate")},
    default="writer",
    known_tools=lambda name: () if name == "plain" else None,
)


@pytest.fixture
async def server(servers: Server) -> Served:
    made: Served = await servers(catalog=CATALOG)
    return made


@pytest.fixture
async def client(server: Served) -> Client:
    return await server.client(name="grafana")


async def opened(client: Client, text: str) -> str:
    return str((await client.post("/sessions", {"text": text}, status=201))["id"])


async def change(client: Client, id: str, *, status: int = 200, **fields: Any) -> Any:
    response = await client.call("PATCH", f"/sessions/{id}", json=fields)
    assert response.status_code == status, response.text
    return response.json()


async def texts(client: Client, id: str) -> list[str]:
    return [entry["text"] for entry in (await client.get(f"/sessions/{id}/entries"))["items"]]


async def test_the_agents_and_personas_are_listed(client: Client) -> None:
    found = await client.get("/agents")

    assert found == {
        "items": [
            {
                "name": "writer",
                "kind": "model",
                "model": "p:small",
                "models": ["p:small", "p:large"],
                "window": 100_000,
                "tools": None,
                "default": True,
            },
            {
                "name": "plain",
                "kind": "echo",
                "model": None,
                "models": [],
                "window": None,
                "tools": [],
                "default": False,
            },
        ],
        "next": None,
        "personas": [{"name": "pirate", "title": "Pirate"}],
    }


async def test_a_change_is_shown_recorded_and_used(server: Served, client: Client) -> None:
    id = await opened(client, "hello")

    changed = await change(client, id, model="large", persona="pirate", tools=["files_*"])
    await client.post(f"/sessions/{id}/turns", {"text": "and now?"}, status=202)
    await server.settle()
    back = await change(client, id, model=None, persona=None, tools=None, title="Plans")

    shown = ("agent", "model", "persona", "tools")
    assert [changed[name] for name in shown] == [None, "p:large", "pirate", ["files_*"]]
    assert [back.get(name) for name in shown] == [None, None, None, None]
    assert back["title"] == "Plans"
    assert (await texts(client, id))[:3] == [
        "hello",
        "grafana chose the model p:large, the persona pirate and the tools files_*.",
        "and now?",
    ]
    (request,) = server.world.runner.requests
    assert request.settings == {"model": "p:large", "persona": "pirate", "tools": ["files_*"]}
    log = (await client.get(f"/sessions/{id}/entries"))["items"]
    assert log[1]["extra"]["record"] == {
        "kind": "settings",
        "changed": {"model": "p:large", "persona": "pirate", "tools": ["files_*"]},
        "before": {"model": None, "persona": None, "tools": None},
        "by": "grafana",
    }


async def test_the_log_names_the_token_of_a_program_that_chose(server: Served) -> None:
    secret, token = await server.token()
    unnamed = Client(server.http, secret)
    id = await opened(unnamed, "hello")

    await change(unnamed, id, model="p:large")
    await change(await server.client(name="grafana"), id, model="p:small")

    chosen = (await unnamed.get(f"/sessions/{id}/entries"))["items"][1:]
    assert [each["text"] for each in chosen] == [
        f"Token {token.id} chose the model p:large.",
        "grafana chose the model p:small.",
    ]
    assert chosen[0]["person"]["id"] == token.id


async def test_the_log_names_the_owner_who_chose_at_the_workbench(
    server: Served, client: Client
) -> None:
    id = await opened(client, "hello")
    browser = await server.fresh()
    await browser.get(server.login_link, follow_redirects=True)
    csrf = (await browser.get("/api/v1/me")).json()["csrf"]

    done = await browser.patch(
        f"/api/v1/sessions/{id}", json={"persona": "pirate"}, headers={CSRF_HEADER: csrf}
    )

    assert done.status_code == 200, done.text
    record = (await client.get(f"/sessions/{id}/entries"))["items"][-1]
    assert record["text"] == "The owner chose the persona pirate."
    assert record["person"] == {"id": "owner", "name": "The owner"}


async def test_what_is_no_longer_there_is_recorded_so_that_it_can_be_translated(
    servers: Server, client: Client
) -> None:
    id = await opened(client, "hello")
    await change(client, id, agent="plain", persona="pirate")
    later: Served = await servers(
        catalog=ChoiceCatalog(agents={"writer": CATALOG.agents["writer"]}, default="writer")
    )

    there = Client(later.http, client.token)
    await there.post(f"/sessions/{id}/turns", {"text": "and now?"}, status=202)
    await later.settle()

    entries = (await there.get(f"/sessions/{id}/entries"))["items"]
    records = [each["extra"]["record"] for each in entries if "record" in each.get("extra", {})]
    assert records[1:] == [
        {
            "kind": "settings",
            "changed": {name: None},
            "before": {name: before},
            "by": None,
            "is_missing": True,
            "agent": agent,
        }
        for name, before, agent in (("agent", "plain", "writer"), ("persona", "pirate", None))
    ]


async def test_a_new_session_begins_with_what_was_chosen(server: Served, client: Client) -> None:
    given = {"text": "hello", "model": "large", "persona": "pirate"}
    run = await client.post("/sessions", {**given, "run": True}, status=202)
    stored = await client.post("/sessions", {**given, "tools": []}, status=201)
    await server.settle()

    assert (await texts(client, run["session_id"]))[:2] == [
        "grafana chose the model p:large and the persona pirate.",
        "hello",
    ]
    assert await texts(client, stored["id"]) == [
        "grafana chose the model p:large and the persona pirate, and turned off all tools.",
        "hello",
    ]
    assert (stored["model"], stored["persona"], stored["tools"]) == ("p:large", "pirate", [])
    (request,) = server.world.runner.requests
    assert request.system_prompt.startswith("Speak like a pirate.")


async def test_a_model_that_only_describes_a_stored_session_is_no_choice(client: Client) -> None:
    stored = await client.post("/sessions", {"text": "hello", "model": "theirs"}, status=201)

    assert stored["model"] == "theirs"
    assert await texts(client, stored["id"]) == ["hello"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"agent": "nobody"}, "There are: plain, writer."),
        ({"model": "huge"}, "It offers: p:small, p:large."),
        ({"persona": "clown"}, "There are: pirate."),
    ],
)
async def test_what_there_is_not_is_refused(
    client: Client, fields: dict[str, Any], words: str
) -> None:
    id = await opened(client, "hello")

    refused = await change(client, id, status=422, title="Plans", **fields)
    at_first = await client.post("/sessions", {"text": "x", "run": True, **fields}, status=422)

    assert words in str(refused)
    assert words in str(at_first)
    assert (await client.get(f"/sessions/{id}"))["title"] is None


async def test_only_those_who_may_write_choose(server: Served, client: Client) -> None:
    id = await opened(client, "hello")

    reader = await server.client(Scope.READ)

    await change(reader, id, status=403, model="p:large")
    assert (await reader.get("/agents"))["personas"]


async def test_without_an_agent_nothing_can_be_chosen(servers: Server) -> None:
    alone: Served = await servers(with_engine=False)
    client = await alone.client()
    id = await opened(client, "hello")

    assert (await client.get("/agents"))["items"] == []
    await change(client, id, status=409, model="p:large")
