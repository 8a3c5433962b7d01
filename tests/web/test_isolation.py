"""Isolation on every path of the interface, so that a new one cannot be forgotten.

Without a login, from another site or in another profile, a request gets and changes nothing.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from sessionary.actions import outbox, push
from sessionary.actions.sessions import read
from sessionary.model.access import Scope
from sessionary.model.choice import AgentOffer, ChoiceCatalog
from sessionary.model.message import Text
from sessionary.model.policy import StandingApproval
from sessionary.model.push import NewSubscription
from sessionary.model.question import (
    NewQuestion,
    Question,
    QuestionBody,
    QuestionKind,
    QuestionState,
)
from sessionary.model.source import Channel
from sessionary.store.database import Tx
from sessionary.store.tables import questions
from sessionary.web.auth import CSRF_HEADER
from sessionary.web.context import BrokenInvariant, StoreOverview, UpkeepOutcome, UpkeepProgress
from tests.support.engine_world import EngineWorld
from tests.support.import_reports import found_records
from tests.web.conftest import API, Client, Served
from tests.web.test_import_jobs import Machine
from tests.web.test_login import Route, logged_in, routes
from tests.web.test_sessions import begin_elsewhere, end_elsewhere

WORD = "zanzibar"  # in a message
NAME = "harbour"  # how things are called; an answer may repeat the name that was asked for
AGENT = "scripted"
UNSAFE = {"POST", "PATCH", "PUT", "DELETE"}
PARAMETER = re.compile(r"\{(\w+)\}")

# What a path cannot be asked without.
WISHES = {"/sessions/{session_id}/handover": "?as=openai"}
# What a body must say to come as far as the thing that it is about.
BODIES: dict[str, dict[str, Any]] = {
    "/arrivals": {"source": {"platform": "api", "chat_id": "1"}, "text": "x"},
    "/arrivals/{arrival_id}": {"text": "x"},
    "/sessions": {"text": "x"},
    "/sessions/{session_id}": {"pinned": True},
    "/sessions/{session_id}/messages": {"role": "user", "text": "x"},
    "/sessions/{session_id}/turns": {"text": "x"},
    "/sessions/{session_id}/retract": {"after": 0},
    "/sessions/{session_id}/compact": {"summary": "x", "through": 1},
    "/sessions/{session_id}/holds": {"reason": "x"},
    "/projects": {"name": "x"},
    "/projects/{project}": {"name": "x"},
    "/schedules": {"name": "x", "timing": "@daily", "prompt": "x"},
    "/schedules/{schedule}": {"paused": True},
    "/access": {"platform": "api", "person_id": "x"},
    "/bindings": {"key": "other/api/dm/chat=x"},
    "/deliveries/{delivery_id}/redirect": {"channel": "api:x"},
    "/password": {"new": None},
    "/v1/conversations/{conversation_id}": {"metadata": {}},
    "/v1/conversations/{conversation_id}/items": {"items": [{"role": "user", "content": "x"}]},
    "/questions/{question_id}/answer": {"decision": "approve", "text": "x"},
    "/policy/explain": {"tool": "x"},
    "/push/subscriptions": {
        "endpoint": "https://push.example.org/1",
        "keys": {"p256dh": "x", "auth": "x"},
    },
}
BROWSER = NewSubscription(
    endpoint=f"https://push.example.org/{WORD}",
    p256dh="x",
    auth="x",
    label=WORD,
    language="en",
    origin="https://agents.example.org",
)


def closed() -> list[Route]:
    return [route for route in routes() if not route.is_public]


def path_of(route: Route, known: dict[str, str] | None = None) -> str:
    """The path with something in the place of each parameter; an unknown one fails."""
    found = known or dict.fromkeys(PARAMETER.findall(route.path), "x")
    path = PARAMETER.sub(lambda parameter: found[parameter[1]], route.path)
    return path + WISHES.get(route.path.removeprefix(API), "")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer sessionary_" + "0" * 64},
        {"Authorization": "Basic YWRtaW46YWRtaW4="},
        {"Authorization": "Bearer null", "X-Forwarded-For": "127.0.0.1"},
        {"Cookie": "sessionary_{port}=" + "0" * 64, "X-CSRF-Token": "0" * 64},
    ],
    ids=["nothing", "no token", "another token", "basic", "null", "another cookie"],
)
async def test_who_is_not_known_gets_nothing_on_any_path(
    server: Served, headers: dict[str, str]
) -> None:
    nobody = await server.fresh()
    sent_headers = {
        name: value.replace("{port}", str(server.port)) for name, value in headers.items()
    }
    tried = 0
    for route in closed():
        for method in sorted(route.methods):
            answer = await nobody.request(method, path_of(route), headers=sent_headers, json={})
            assert answer.status_code == 401, (method, route.path)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert WORD not in answer.text
            tried += 1

    assert tried > 50


async def test_a_token_in_the_address_is_no_token(server: Served) -> None:
    secret, _ = await server.token()
    nobody = await server.fresh()
    for route in closed():
        for name in ("token", "access_token", "authorization", "code"):
            answer = await nobody.get(path_of(route), params={name: secret})
            assert answer.status_code in (401, 405), (route.path, name)


@pytest.mark.parametrize(
    "origin",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://localhost.evil.example", "Sec-Fetch-Site": "same-site"},
    ],
)
async def test_another_site_changes_nothing_on_any_path(
    server: Served, origin: dict[str, str]
) -> None:
    browser = await logged_in(server)
    headers = origin | {CSRF_HEADER: browser.csrf}
    tried = 0
    for route in routes():
        for method in sorted(route.methods & UNSAFE):
            answer = await browser.http.request(method, path_of(route), headers=headers, json={})
            assert answer.status_code == 403, (method, route.path)
            tried += 1

    assert tried > 30
    assert (await browser.call("GET", "/sessions")).json()["items"] == []


async def test_a_cookie_without_its_word_changes_nothing_on_any_path(server: Served) -> None:
    browser = await logged_in(server)
    for route in closed():
        for method in sorted(route.methods & UNSAFE):
            answer = await browser.http.request(method, path_of(route), json={})
            assert answer.status_code == 403, (method, route.path)


@pytest.mark.parametrize("scope", [Scope.READ, Scope.WRITE])
async def test_a_scope_is_enough_or_nothing_happens(server: Served, scope: Scope) -> None:
    client = await server.client(scope)
    for route in closed():
        if all(scope.allows(Scope(each)) for each in route.scopes):
            continue
        for method in sorted(route.methods):
            answer = await client.call(method, server.address + path_of(route), json={})
            assert answer.status_code == 403, (method, route.path)


class Caretaker:
    """Looks after a store in no time."""

    def overview(self) -> StoreOverview:
        return {"tasks": ["verify"], "folder": WORD, "backups": [], "keep": None, "bytes": 0}

    def run(self, task: str, tell: Callable[[UpkeepProgress], None]) -> UpkeepOutcome:
        tell({"done": 1, "whole": 1})
        broken: BrokenInvariant = {"invariant": task, "where": WORD, "what": WORD}
        return {"sessions": 1, "entries": 1, "broken": [broken], "broken_count": 1}


class Filled:
    """A profile that has something of everything, all of it with one word in it."""

    def __init__(self, known: dict[str, str], key: str) -> None:
        self.known = known
        self.key = key


async def filled(server: Served, client: Client) -> Filled:
    await logged_in(server)
    source = {"platform": "api", "chat_id": WORD, "user_name": WORD}
    answer = await client.post("/arrivals", {"source": source, "text": WORD}, status=202)
    await server.settle()
    id = answer["session_id"]
    blob = await client.call("POST", f"/blobs?name={WORD}", content=WORD.encode())
    body = {"role": "user", "parts": [blob.json()]}
    await client.post(f"/sessions/{id}/messages", body, status=201)
    await client.post("/projects", {"name": NAME}, status=201)
    change = {"title": WORD, "labels": [WORD], "draft": WORD, "project": NAME}
    assert (await client.call("PATCH", f"/sessions/{id}", json=change)).status_code == 200
    begun = await begin_elsewhere(server, id)
    waiting = await client.post(f"/sessions/{id}/turns", {"text": WORD}, status=202)
    await end_elsewhere(server, begun)
    await server.settle()
    given: dict[str, Any] = {"profile": "main", "moment": server.world.context().moment()}
    parts = (Text(WORD),)
    delivery = await server.store.write(outbox.enqueue, Channel("api", WORD), parts, **given)
    await server.store.write(outbox.abandon, delivery, reason=WORD)
    plan = {"name": NAME, "timing": "@yearly", "prompt": WORD}
    await client.post("/schedules", plan, status=201)
    await client.post("/access", {"platform": "api", "person_id": NAME, "name": WORD}, status=201)
    token = await client.post("/tokens", {"name": WORD}, status=201)
    (login,) = (await client.get("/logins"))["items"]
    imported = await client.post("/imports", {"dry_run": True}, status=202)
    upkeep = await client.post("/upkeep", {"task": "verify"}, status=202)
    (binding,) = (await client.get("/bindings"))["items"]
    turn = (await client.get(f"/sessions/{id}/turns"))["items"][-1]
    browser = await server.store.write(push.subscribe, BROWSER, login_id="login", **given)
    question, approval = await server.store.write(_ask, server.world, id, turn["id"])
    v1 = f"{server.address}/v1"
    kept = await client.call(
        "POST",
        f"{v1}/files",
        files={"file": (f"{WORD}.txt", WORD.encode())},
        data={"purpose": "user_data"},
    )
    asked = {"model": AGENT, "input": WORD}
    response = await client.call("POST", f"{v1}/responses", json=asked)
    known = {
        "conversation_id": f"conv_{id}",
        "item_id": f"msg_{id}-1",
        "response_id": response.json()["id"],
        "file_id": kept.json()["id"],
        "session_id": id,
        "question_id": question,
        "approval_id": approval,
        "subscription_id": browser.id,
        "turn_id": turn["id"],
        "seq": "1",
        "arrival_id": waiting["arrival_id"],
        "delivery_id": delivery,
        "blob": blob.json()["blob"],
        "project": NAME,
        "schedule": NAME,
        "platform": "api",
        "person_id": NAME,
        "token_id": token["id"],
        "login_id": login["id"],
        "import_id": imported["id"],
        "job_id": upkeep["id"],
    }
    return Filled(known, binding["key"])


def _ask(tx: Tx, world: EngineWorld, session_id: str, turn_id: str) -> tuple[str, str]:
    """A question of a turn, and a rule that somebody has made with an answer."""
    head, moment = read.get_head(tx, session_id, profile="main"), world.context().moment()
    question = Question(
        no=0,
        id=moment.new_id(),
        profile="main",
        session_no=head.no,
        session_id=head.id,
        turn_id=turn_id,
        body=QuestionBody(
            asked=NewQuestion(name="1", kind=QuestionKind.APPROVAL, text=WORD, tool=WORD)
        ),
        state=QuestionState.OPEN,
        asked_at=moment.now,
        expires_at=moment.now + timedelta(days=1),
        code="K7QM",
        token="0" * 32,
    )
    questions.insert(tx, question, due_at=question.expires_at)
    rule = StandingApproval(
        no=0, id=moment.new_id(), tool=WORD, given_by=WORD, given_at=moment.now, person=WORD
    )
    questions.insert_approval(tx, rule, profile="main", session_no=None)
    return question.id, rule.id


async def record(client: Client) -> dict[str, Any]:
    """All that a profile can see of itself."""
    paths = [
        "sessions",
        "projects",
        "schedules",
        "access",
        "tokens",
        "logins",
        "bindings",
        "deliveries",
        "questions",
        "policy/approvals",
        "push",
    ]
    seen = {path: (await client.get(f"/{path}"))["items"] for path in paths}
    return seen | {"export": (await client.call("GET", "/export")).text}


@pytest.fixture
async def server(servers: Any) -> Served:
    """A server that has something of everything, records of other tools included."""
    found = Machine([found_records(place=WORD)])
    catalog = ChoiceCatalog(agents={AGENT: AgentOffer(AGENT, "script")}, default=AGENT)
    return cast(Served, await servers(imports=found, upkeep=Caretaker(), catalog=catalog))


async def test_another_profile_finds_nothing_and_changes_nothing_on_any_path(
    server: Served, client: Client
) -> None:
    ours = await filled(server, client)
    before = await record(client)
    other = await server.client(profile="other")
    missing = dict.fromkeys(ours.known, "z" * 26) | {"platform": "api", "seq": "1"}
    seen = 0
    for route in closed():
        if route.path == f"{API}/events":
            continue  # it does not end; asked for below
        for method in sorted(route.methods):
            body = BODIES.get(route.path.removeprefix(API), {})
            how: dict[str, Any] = {} if method == "GET" else {"json": body}
            where = server.address + path_of(route, ours.known)
            answer = await other.call(method, where, **how)
            assert WORD not in answer.text, (method, where, answer.text)
            if PARAMETER.search(route.path):
                if method == "GET":  # the names are right: who may see it does
                    assert (await client.call(method, where)).status_code == 200, where
                nothing = server.address + path_of(route, missing)
                absent = await other.call(method, nothing, **how)
                assert answer.status_code == absent.status_code >= 400, (method, route.path)
                assert shape(answer.text, ours.known) == shape(absent.text, missing)
            seen += 1

    assert seen > 50
    assert await record(client) == before


def shape(text: str, known: dict[str, str]) -> str:
    for value in sorted(known.values(), key=len, reverse=True):
        if value == known["seq"]:
            continue  # any number may have this digit
        text = text.replace(value, "?")
    return text


async def test_no_filter_reaches_other_profiles(server: Served, client: Client) -> None:
    ours = await filled(server, client)
    before = await record(client)
    other = await server.client(profile="other")
    mine = (await other.post("/sessions", {"text": "mine"}, status=201))["id"]
    id = ours.known["session_id"]
    reading: list[str] = [
        f"/events?topics=session:{id}",
        f"/export?session_id={id}",
        f"/export?session_id={mine}&session_id={id}&format=html",
        f"/search?q={WORD[:4]}*&session_id={id}",
        f"/questions?session_id={id}&state=all",
        f"/sessions?project={NAME}",
        f"/sessions?text={WORD[:5]}&folder=all",
        f"/sessions/{mine}/blobs/{ours.known['blob']}",
        "/usage?by=session",
        "/budgets",
        "/bindings?cursor=main",
        "/sources?folder=all",
        "/export",
        "/metrics",
        f"/search?q={WORD[:4]}*&all_hits=true&steps=true",
    ]
    writing: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/bindings", {"key": ours.key}),
        ("POST", "/bindings", {"key": ours.key, "session_id": mine}),
        ("POST", "/bindings", {"key": "other/api/dm/chat=x", "session_id": id}),
        ("PATCH", f"/sessions/{mine}", {"project": NAME}),
        ("PATCH", f"/sessions/{mine}", {"title": WORD}),
    ]
    for path in reading:
        answer = await other.call("GET", path)
        assert WORD not in answer.text, (path, answer.text)
    for method, path, body in writing:
        answer = await other.call(method, path, json=body)
        assert id not in answer.text.replace(f"There is no session {id}.", ""), path

    assert await record(client) == before
    assert "sessionary_streams_open" not in (await other.call("GET", "/metrics")).text
