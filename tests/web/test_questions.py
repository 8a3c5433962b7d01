"""`/questions` and `/policy`: who may answer, what an answer does, and what those who wait are told."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from sessionary.clock import RandomIds, SystemClock
from sessionary.config.engine import (
    AccessPolicy,
    OnExpiry,
    PolicyRule,
    QuestionSettings,
    ToolDecision,
)
from sessionary.engine import questions
from sessionary.model.access import Scope
from sessionary.model.question import NewQuestion, QuestionKind
from sessionary.store.database import Store
from sessionary.store.open import open_store
from tests.engine.test_questions import APPROVE, OWNER, SEND, AskingRunner
from tests.web.conftest import Client, Served
from tests.web.test_events import listening
from tests.web.test_login import logged_in

ACCESS = {"loopback": AccessPolicy(everyone=True, owners=frozenset({"u"}))}
PAY = NewQuestion(name="2", kind=QuestionKind.APPROVAL, text="", tool="pay", arguments={})
CHOICE = NewQuestion(name="1", kind=QuestionKind.CHOICE, text="Which?", options=("red", "blue"))
TEXT = NewQuestion(name="1", kind=QuestionKind.TEXT, text="Which day?")
FORM = NewQuestion(
    name="1",
    kind=QuestionKind.FORM,
    text="How many?",
    schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
)
EVA = {"chat": "7", "user_id": "eva", "user_name": "Eva"}
NOT_BY_PROGRAMS = "a program cannot approve the calls of its own agent"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/sessionary.db"
    return str(request.getfixturevalue("migrated_url"))


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    opened = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
    yield opened
    opened.close()


class Asked:
    """A server whose agent has asked something, and a client with the scope admin."""

    def __init__(self, server: Served, client: Client, runner: AskingRunner) -> None:
        self.server = server
        self.client = client
        self.runner = runner

    async def ask(self, **fields: Any) -> dict[str, Any]:
        """Let somebody write in a chat; return the newest question that this asks."""
        assert self.server.engine is not None
        await self.server.world.asks(self.server.engine, "go", **fields)
        return await self.newest()

    async def newest(self, query: str = "") -> dict[str, Any]:
        return dict((await self.client.get(f"/questions{query}"))["items"][0])

    async def open_count(self) -> int:
        return len((await self.client.get("/questions"))["items"])

    async def answer(
        self, id: str, body: Any, *, client: Client | None = None, **how: Any
    ) -> httpx2.Response:
        used = client or self.client
        return await used.call("POST", f"/questions/{id}/answer", json=body, **how)

    async def refused(
        self, id: str, body: Any, *, status: int, client: Client | None = None
    ) -> str:
        """Answer, and return the one line that says why this is not possible."""
        response = await self.answer(id, body, client=client)
        assert response.status_code == status, response.text
        problem = response.json()
        assert problem["committed"] == "no"
        assert "\n" not in problem["detail"]
        return str(problem["detail"])

    async def outcome(self, chat: str = "1") -> str:
        """Wait until nothing runs, and return the last text in a chat."""
        await self.server.settle()
        return self.server.world.adapter.texts(f"loopback:{chat}")[-1]


Start = Callable[..., Any]


@pytest.fixture
def start(servers: Any) -> Start:
    """Starts a server whose agent asks these questions."""

    async def started(*asked: NewQuestion, **engine: Any) -> Asked:
        runner = AskingRunner(*asked)
        server: Served = await servers(runner=runner, engine={"access": ACCESS, **engine})
        return Asked(server, await server.client(name="ops"), runner)

    return started


async def test_an_approval_lets_the_turn_go_on_with_the_tool(start: Start) -> None:
    asked = await start()
    question = await asked.ask()

    assert (question["kind"], question["tool"], question["state"]) == ("approval", "send", "open")
    assert (question["arguments"], question["arguments_text"]) == ({"to": "Ann"}, "to: Ann")
    assert (question["answer"], question["outcome"]) == (None, "Waits for an answer.")
    assert "token" not in question
    assert await asked.client.get(f"/questions/{question['id']}") == question
    assert await asked.client.get(f"/questions/{question['id'][:12]}") == question
    assert await asked.client.get(f"/questions/{question['code']}") == question

    response = await asked.answer(question["id"], {"decision": "approve"})

    decided = response.json()
    assert (response.status_code, decided["state"]) == (200, "answered")
    assert (decided["answer"]["by"], decided["answer"]["platform"]) == ("ops", "web")
    assert await asked.outcome() == "Result: sent"
    assert len(asked.runner.ran) == 1
    assert await asked.open_count() == 0
    assert await asked.newest("?state=all") == decided


async def test_the_answer_of_the_browser_is_the_owners(start: Start) -> None:
    asked = await start()
    question = await asked.ask()
    browser = await logged_in(asked.server)

    body = {"decision": "deny", "text": "not today"}
    response = await browser.call("POST", f"/questions/{question['id']}/answer", json=body)

    assert response.json()["outcome"] == "Denied by The owner: not today."
    assert await asked.outcome() == "Result: Denied by The owner: not today."
    assert asked.runner.ran == []


async def test_a_token_that_may_only_write_approves_and_denies_nothing(start: Start) -> None:
    asked = await start()
    question = await asked.ask()
    writer = await asked.server.client(Scope.WRITE)
    reader = await asked.server.client(Scope.READ)

    assert (await reader.get("/questions"))["items"] == [question]
    for body in ({"decision": "approve"}, {"decision": "deny"}):
        detail = await asked.refused(question["id"], body, status=403, client=writer)
        assert NOT_BY_PROGRAMS in detail
        detail = await asked.refused(question["id"], body, status=403, client=reader)
        assert detail == "This needs the scope write; the token has read."
    for path in ("/policy/approvals", "/policy/explain"):
        method = "GET" if path.endswith("approvals") else "POST"
        response = await writer.call(method, path, json={"tool": "send"})
        assert response.status_code == 403

    assert await asked.open_count() == 1
    assert asked.runner.ran == []


@pytest.mark.parametrize("typed", ["yes", "1", "no", "{code} 1"])
async def test_a_message_of_a_token_that_may_only_write_approves_nothing(
    start: Start, typed: str
) -> None:
    asked = await start()
    question = await asked.ask()
    writer = await asked.server.client(Scope.WRITE)
    session = f"/sessions/{question['session_id']}"
    text = typed.format(code=question["code"])
    owner = {"platform": "loopback", "chat_id": "1", "user_id": "u"}

    for path, body in (
        (f"{session}/turns", {"text": text}),
        ("/arrivals", {"source": owner, "text": text}),
        ("/arrivals", {"source": {**owner, "platform_message_id": "forged"}, "text": text}),
    ):
        response = await writer.call("POST", path, json=body)
        assert response.status_code == 202, response.text
        # It waits for the next turn, like any message that is no answer.
        assert (response.json()["question_id"], response.json()["session_id"]) == (None, None)

    assert await asked.open_count() == 1


async def test_the_first_message_of_a_session_approves_nothing(start: Start) -> None:
    asked = await start()
    question = await asked.ask()

    body = {"text": f"{question['code']} 1", "run": True}
    response = await asked.client.call("POST", "/sessions", json=body)
    assert response.status_code == 403
    assert [each["id"] for each in (await asked.client.get("/sessions"))["items"]] == [
        question["session_id"]
    ]
    # From somebody who may not answer it is no answer, but a message like any other.
    writer = await asked.server.client(Scope.WRITE)
    assert (await writer.call("POST", "/sessions", json=body)).status_code == 202
    assert (await asked.client.get(f"/questions/{question['id']}"))["state"] == "open"


async def test_a_message_in_the_workbench_answers_the_question_of_its_session(start: Start) -> None:
    asked = await start()
    question = await asked.ask()
    browser = await logged_in(asked.server)

    path = f"/sessions/{question['session_id']}/turns"
    other = (await browser.call("POST", path, json={"text": "why?"})).json()
    told = (await browser.call("POST", path, json={"text": "yes"})).json()

    assert (other["queued"], other["question_id"]) == (True, None)
    assert (told["queued"], told["turn_id"]) == (False, None)
    assert (told["question_id"], told["session_id"]) == (question["id"], question["session_id"])
    found = await asked.client.get(f"/arrivals/{told['arrival_id']}?wait=60")
    assert (found["turn_id"], found["turn_state"]) == (question["turn_id"], "done")
    assert found["reply"]["text"] == "Result: sent"


@pytest.mark.parametrize(
    ("question", "body", "result"),
    [
        (CHOICE, {"text": "blue"}, {"text": "blue"}),
        (CHOICE, {"text": "1"}, {"text": "red"}),
        (TEXT, {"decision": "approve", "text": "Monday"}, {"text": "Monday"}),
        (FORM, {"values": {"n": 3}}, {"values": {"n": 3}}),
        (FORM, {"decision": "deny", "text": "none"}, {"decision": "deny", "text": "none"}),
    ],
)
async def test_a_program_that_may_write_answers_what_is_no_approval(
    start: Start, question: NewQuestion, body: Any, result: Any
) -> None:
    asked = await start(question)
    found = await asked.ask(**EVA)
    writer = await asked.server.client(Scope.WRITE)

    response = await asked.answer(found["id"], body, client=writer)

    assert response.status_code == 200, response.text
    given = response.json()["answer"]
    assert {name: given[name] for name in result} == result
    assert given["decision"] == result.get("decision", "approve")
    await asked.server.settle()
    assert len(asked.runner.requests) == 2


@pytest.mark.parametrize(
    ("question", "body", "says"),
    [
        (SEND, {}, "Say whether the tool may be called"),
        (SEND, {"text": "yes"}, "Say whether the tool may be called"),
        (SEND, {"always": "session"}, "Say whether the tool may be called"),
        (SEND, {"decision": "maybe"}, "Invalid enum value 'maybe'"),
        (SEND, {"decision": "approve", "values": {"n": 1}}, "may change its `arguments`"),
        (SEND, {"decision": "deny", "always": "session"}, "A denial has a reason"),
        (SEND, {"decision": "approve", "by": "me"}, "unknown field `by`"),
        (CHOICE, {}, "Give a text or values"),
        (CHOICE, {"text": "green"}, "Choose one of: red, blue."),
        (CHOICE, {"text": "red", "always": "session"}, "Only the approval of a tool call"),
        (TEXT, {"decision": "approve"}, "1 to 20,000 characters"),
        (TEXT, {"text": "x" * 20_001}, "at most 20,000 characters; this one has 20,001"),
        (FORM, {"values": {}}, "n is missing."),
        (FORM, {"values": {"n": "three"}}, "n is of type integer."),
    ],
)
async def test_what_is_no_answer_is_refused_and_the_question_stays_open(
    start: Start, question: NewQuestion, body: Any, says: str
) -> None:
    asked = await start(question)
    found = await asked.ask()

    assert says in await asked.refused(found["id"], body, status=422)
    assert await asked.newest() == found


async def test_a_question_that_there_is_not_cannot_be_answered(start: Start) -> None:
    asked = await start()
    question = await asked.ask()
    elsewhere = await asked.server.client(profile="other")

    for id in ("x", "nothing-like-this", b"\x00".hex() + "%00", "x" * 301):
        detail = await asked.refused(id, {"decision": "approve"}, status=404)
        assert detail.startswith("There is no")
        assert (await asked.client.call("GET", f"/questions/{id}")).status_code == 404
    assert (await elsewhere.get("/questions"))["items"] == []
    assert (await elsewhere.call("GET", f"/questions/{question['id']}")).status_code == 404
    detail = await asked.refused(
        question["id"], {"decision": "approve"}, status=409, client=elsewhere
    )
    assert detail == "No agent is attached here; nothing was written."
    assert await asked.open_count() == 1


async def test_of_two_answers_at_once_one_counts(start: Start) -> None:
    asked = await start()
    question = await asked.ask()

    responses = await asyncio.gather(
        *(
            asked.answer(question["id"], {"decision": decision})
            for decision in ("approve", "deny") * 2
        )
    )

    counted = [each.json() for each in responses if each.status_code == 200]
    others = [each.json() for each in responses if each.status_code == 409]
    assert (len(counted), len(others)) == (1, 3)
    outcome = counted[0]["outcome"]
    assert {each["detail"] for each in others} == {f"{outcome} Nothing was changed."}
    await asked.server.settle()
    assert len(asked.runner.ran) == (counted[0]["answer"]["decision"] == "approve")


async def test_a_repeated_request_gets_the_same_answer_and_changes_nothing(start: Start) -> None:
    asked = await start()
    question = await asked.ask()
    headers = {"Idempotency-Key": "a1"}
    body = {"decision": "approve", "always": "session"}

    first, again = [await asked.answer(question["id"], body, headers=headers) for _ in range(2)]
    await asked.server.settle()
    later = await asked.answer(question["id"], body, headers=headers)
    other = await asked.answer(question["id"], {"decision": "deny"}, headers=headers)
    without = await asked.answer(question["id"], body)

    assert (first.status_code, again.status_code, later.status_code) == (200, 200, 200)
    assert first.content == again.content == later.content
    assert (other.status_code, without.status_code) == (422, 409)
    assert len(asked.runner.ran) == 1
    assert len((await asked.client.get("/policy/approvals"))["items"]) == 1


async def test_a_late_answer_is_refused_and_the_question_has_expired(start: Start) -> None:
    settings = QuestionSettings(expire_seconds=60, remind_seconds=0)
    asked = await start(questions=settings, sweep_seconds=300)
    question = await asked.ask()
    asked.server.world.clock.tick(60)
    headers = {"Idempotency-Key": "late"}

    first, again = [
        await asked.answer(question["id"], {"decision": "approve"}, headers=headers)
        for _ in range(2)
    ]

    for response in (first, again):
        assert response.status_code == 409
        assert response.json()["detail"] == "Nobody answered in time. Nothing was changed."
    assert (await asked.client.get(f"/questions/{question['id']}"))["state"] == "expired"
    assert await asked.outcome() == "Result: Nobody answered in time."
    assert asked.runner.ran == []


async def test_a_turn_that_ends_when_its_question_expires_does_so_after_a_late_answer(
    start: Start,
) -> None:
    settings = QuestionSettings(expire_seconds=60, remind_seconds=0, on_expiry=OnExpiry.END)
    asked = await start(questions=settings, sweep_seconds=300)
    question = await asked.ask()
    asked.server.world.clock.tick(60)

    await asked.refused(question["id"], {"decision": "approve"}, status=409)

    await asked.server.settle()
    turns = await asked.client.get(f"/sessions/{question['session_id']}/turns")
    assert [each["state"] for each in turns["items"]] == ["interrupted"]


async def test_the_arguments_can_be_changed_and_keep_every_character(start: Start) -> None:
    asked = await start()
    question = await asked.ask()
    arguments = {"to": "nul \x00 inside", "half": "lone \ud800", "n": 2**70, "deep": [{"a": None}]}

    response = await asked.client.call(
        "POST",
        f"/questions/{question['id']}/answer",
        content=json.dumps({"decision": "approve", "text": "\x00\ud800", "arguments": arguments}),
        headers={"Content-Type": "application/json"},
    )

    assert response.status_code == 200, response.text
    assert response.json()["answer"]["arguments"] == arguments
    await asked.server.settle()
    assert asked.runner.ran[0].answer.arguments == arguments


async def test_questions_are_listed_by_state_and_session_page_by_page(start: Start) -> None:
    asked = await start(SEND, PAY)
    first = await asked.ask(chat="1")
    second = await asked.ask(chat="2")
    await asked.answer(first["id"], {"decision": "deny"})

    async def ids(query: str) -> list[str]:
        found: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            more = "" if not cursor else f"&cursor={cursor}"
            page = await asked.client.get(f"/questions?limit=1{query}{more}")
            found += [each["id"] for each in page["items"]]
            cursor = page["next"]
        return found

    everything = await ids("&state=all")
    assert (len(everything), everything[0]) == (4, second["id"])
    assert await ids("") == [each for each in everything if each != first["id"]]
    of_session = await ids(f"&state=all&session_id={first['session_id']}")
    assert of_session == everything[2:]
    assert await ids(f"&session_id={first['session_id']}") == everything[3:]
    for query, status in (
        ("session_id=nothing", 404),
        ("state=closed", 422),
        ("limit=0", 422),
        ("cursor=nonsense", 422),
    ):
        response = await asked.client.call("GET", f"/questions?{query}")
        assert response.status_code == status, query


async def test_whoever_waits_for_the_reply_is_told_what_the_turn_waits_for(start: Start) -> None:
    asked = await start(SEND, PAY)
    client = asked.client
    source = {"platform": "api", "chat_id": "ada", "user_id": "u1"}
    told = await client.post("/arrivals", {"source": source, "text": "hello"}, status=202)
    arrival = f"/arrivals/{told['arrival_id']}?wait=60"

    waiting = await client.get(arrival)

    assert (waiting["state"], waiting["turn_state"]) == ("taken", "waiting")
    assert [each["tool"] for each in waiting["questions"]] == ["send", "pay"]
    for each in waiting["questions"]:
        assert (await client.get(arrival))["turn_state"] == "waiting"
        await asked.answer(each["id"], {"decision": "approve"})
    done = await client.get(arrival)
    assert (done["turn_state"], done["questions"]) == ("done", [])
    assert done["reply"]["text"] == "Result: sent"


async def test_whoever_waits_behind_a_waiting_turn_is_told_so(start: Start) -> None:
    asked = await start()
    question = await asked.ask()
    path = f"/sessions/{question['session_id']}/turns"

    told = await asked.client.post(path, {"text": "and what else?"}, status=202)
    arrival = f"/arrivals/{told['arrival_id']}?wait=60"
    waiting = await asked.client.get(arrival)

    assert (waiting["state"], waiting["turn_state"]) == ("waiting", None)
    assert [each["id"] for each in waiting["questions"]] == [question["id"]]
    await asked.answer(question["id"], {"decision": "approve"})
    # The agent asks again in the turn of this message.
    again = await asked.client.get(arrival)
    assert (again["state"], again["turn_state"]) == ("taken", "waiting")
    assert again["questions"][0]["id"] != question["id"]


async def test_a_request_that_waits_already_ends_when_the_turn_asks(servers: Any) -> None:
    runner = AskingRunner()
    gate = asyncio.Event()

    class Slow:
        model = "big-1"

        async def run(self, request: Any) -> AsyncIterator[Any]:
            await gate.wait()
            async for event in runner.run(request):
                yield event

        async def close(self) -> None:
            """Nothing is held."""

    server: Served = await servers(runner=Slow(), engine={"access": ACCESS})
    client = await server.client()
    source = {"platform": "api", "chat_id": "ada"}
    told = await client.post("/arrivals", {"source": source, "text": "hello"}, status=202)
    asking = asyncio.create_task(client.get(f"/arrivals/{told['arrival_id']}?wait=60"))
    async with asyncio.timeout(60):
        while "sessionary_waits_open 1\n" not in (await client.call("GET", "/metrics")).text:
            pass
    gate.set()

    found = await asking

    assert found["turn_state"] == "waiting"
    assert [each["tool"] for each in found["questions"]] == ["send"]


async def test_the_list_and_the_session_show_who_is_waited_for(start: Start) -> None:
    asked = await start()
    client = asked.client
    async with listening(client, "topics=list") as listener:
        question = await asked.ask()
        await _until_head(listener, lambda head: head.get("waits_for_people") is True)
        await asked.answer(question["id"], {"decision": "approve"})
        await _until_head(listener, lambda head: "waits_for_people" not in head)
    await asked.server.settle()
    assert (await client.get("/sessions"))["open_questions"] is False

    question = await asked.ask()
    id = question["session_id"]
    # Also if the session that asks is on none of the pages that a browser has loaded.
    assert (await client.get("/session-rows?fields=id&folder=archive"))["open_questions"] is True
    (listed,) = (await client.get("/sessions"))["items"]
    (row,) = (await client.get("/session-rows?fields=id,waits_for_people"))["items"]
    detail = await client.get(f"/sessions/{id}")
    assert (listed["running"], listed["waits_for_people"], listed["failed"]) == (True, True, False)
    assert "waiting" not in listed
    assert row == {"id": id, "waits_for_people": True}
    assert (detail["waits_for_people"], detail["turn"]["state"]) == (True, "waiting")
    assert detail["turn"]["waiting"] is False

    async with listening(client, f"topics=session:{id}") as listener:
        await asked.answer(question["id"], {"decision": "deny", "text": "no"})
        entries = [data for kind, data in await listener.until("ended") if kind == "entry"]
    assert entries[0]["parts"][0]["text"].startswith("Denied by ops: no.")


async def _until_head(listener: Any, holds: Callable[[dict[str, Any]], bool]) -> None:
    while True:
        (*_, (_, head)) = await listener.until("head")
        if holds(head):
            return


async def test_a_waiting_turn_can_be_stopped(start: Start) -> None:
    asked = await start()
    question = await asked.ask()
    session = f"/sessions/{question['session_id']}"

    stopped = await asked.client.post(f"{session}/stop", {})

    assert stopped == {"stopping": True}
    await asked.server.settle()
    turns = await asked.client.get(f"{session}/turns")
    assert [each["state"] for each in turns["items"]] == ["interrupted"]
    assert (await asked.newest("?state=all"))["state"] == "withdrawn"
    detail = await asked.refused(question["id"], {"decision": "approve"}, status=409)
    assert detail == "No answer is needed any more. Nothing was changed."
    assert asked.runner.ran == []


async def test_the_turn_goes_on_after_an_answer_in_another_process(start: Start, url: str) -> None:
    asked = await start()
    question = await asked.ask()
    context = asked.server.world.context()
    elsewhere = open_store(url, create=False, clock=SystemClock(), ids=RandomIds())

    # Nobody tells the engine of the server: it finds the turn at its next poll.
    await elsewhere.write(
        questions.answer,
        question["id"],
        APPROVE,
        who=OWNER,
        context=context,
        moment=context.moment(),
    )

    await asked.server.world.until(lambda: len(asked.runner.ran) == 1)
    assert await asked.outcome() == "Result: sent"
    elsewhere.close()


async def test_an_answer_that_becomes_a_rule_is_listed_and_can_be_revoked(start: Start) -> None:
    asked = await start()
    client = asked.client
    call: dict[str, Any] = {
        "tool": "send",
        "source": {"platform": "loopback", "chat_id": "7", "user_id": "eva"},
    }
    before = await client.post("/policy/explain", call)
    made = []
    for always, chat in (("session", "7"), ("person", "8")):
        question = await asked.ask(**{**EVA, "chat": chat})
        await asked.answer(question["id"], {"decision": "approve", "always": always})
        await asked.server.settle()
        made.append(question)
    call["agent"] = made[0]["agent"]  # the approvals are for this one
    here = await client.post("/policy/explain", call)
    elsewhere = {**call, "source": {**call["source"], "chat_id": "9"}}
    of_eva = await client.post("/policy/explain", elsewhere)

    first = await client.get("/policy/approvals?limit=1")
    second = await client.get(f"/policy/approvals?limit=1&cursor={first['next']}")
    (of_person,), (of_session,) = first["items"], second["items"]
    assert (of_person["person"], of_person["session_id"]) == ("loopback:eva", None)
    assert (of_session["person"], of_session["session_id"]) == (None, made[0]["session_id"])
    assert (of_person["tool"], of_person["given_by"], second["next"]) == ("send", "ops", None)
    assert before == {
        "decision": "ask",
        "rule": "the tool may change something, and this person is not an owner",
        "rule_number": None,
        "approval_id": None,
        "tool": "send",
        "agent": before["agent"],
        "is_owner": False,
        "session_id": None,
        "may_answer": [],
        "asked_in": [],
    }
    assert (here["decision"], of_eva["decision"]) == ("allow", "allow")
    agent = of_session["agent"]
    assert here["rule"].startswith(f"ops approved send of the agent {agent} in this session on ")
    assert of_eva["rule"].startswith(f"ops approved send of the agent {agent} for loopback:eva on ")

    for number, id in enumerate((of_session["id"], of_person["id"])):
        headers = {"Idempotency-Key": f"r{number}"}
        for _ in range(2):
            response = await client.call("DELETE", f"/policy/approvals/{id}", headers=headers)
            assert (response.status_code, response.json()) == (200, {"id": id})
        gone = await client.call("DELETE", f"/policy/approvals/{id}")
        assert (gone.status_code, gone.json()["type"]) == (404, "urn:sessionary:problem:not-found")
    assert (await client.post("/policy/explain", call))["decision"] == "ask"


async def test_the_rule_that_decides_is_named(start: Start) -> None:
    rules = (
        PolicyRule(decision=ToolDecision.DENY, tool="shell*", arguments={"command": "rm *"}),
        PolicyRule(decision=ToolDecision.ASK, tool="shell*", agent="scripted"),
    )
    asked = await start(policy=rules)
    explain = asked.client.post

    denied = await explain(
        "/policy/explain", {"tool": "shell_run", "arguments": {"command": "rm -r /"}}
    )
    asks = await explain("/policy/explain", {"tool": "shell_run", "agent": "scripted"})
    safe = await explain("/policy/explain", {"tool": "read", "safe": True})
    own = await explain("/policy/explain", {"tool": "write"})
    group = {"platform": "loopback", "chat_id": "9", "chat_type": "group", "user_id": "u"}
    shared = await explain("/policy/explain", {"tool": "write", "source": group})

    assert denied["decision"] == "deny"
    assert denied["rule"].startswith("rule 1 of [[policy]]: deny if tool = 'shell*'")
    assert (asks["decision"], asks["rule"][:6]) == ("ask", "rule 2")
    assert (safe["decision"], own["decision"], shared["decision"]) == ("allow", "allow", "ask")
    for body in ({}, {"tool": ""}, {"tool": "x", "source": {}}, {"tool": "x", "more": 1}):
        response = await asked.client.call("POST", "/policy/explain", json=body)
        assert response.status_code == 422, body
