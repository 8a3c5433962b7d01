"""What an agent gets: one hit per task, none of its own searches, and never too much."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client

from mcp import Client
from sessionary import Session, Sessionary, TurnRequest
from sessionary.actions import budgets, credentials
from sessionary.actions.sessions import log, revise
from sessionary.clock import SystemClock
from sessionary.config.engine import Budget
from sessionary.mcp import server
from sessionary.mcp.output import MAX_TOKENS
from sessionary.mcp.tools import SessionTools
from sessionary.model.access import BudgetUse, Scope
from sessionary.model.message import Text, ToolCall, ToolResult, message
from sessionary.model.source import Source
from sessionary.model.tokens import estimate
from sessionary.model.usage import Usage
from tests.mcp.test_server import asked

# A program on a busy machine; nothing waits for so long.
TIMEOUT_SECONDS = 60


@pytest.fixture(params=["sqlite", "postgres"])
def store_client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sessionary]:
    url = None if request.param == "sqlite" else request.getfixturevalue("migrated_url")
    with Sessionary(url, home=str(tmp_path)) as made:
        yield made


@asynccontextmanager
async def client(store_client: Sessionary) -> AsyncIterator[Client]:
    tools = SessionTools(
        store_client.store,
        store_client.profile,
        store_client.app.clock,
        store_client.app.ids,
    )
    async with Client(server.build(tools)) as connected:
        yield connected


def session(store_client: Sessionary, name: str, *texts: str) -> Session:
    chat = store_client.new_session(Source("web", name), title=name)
    for place, text in enumerate(texts):
        chat.append("assistant" if place % 2 else "user", text)
    return chat


async def test_a_task_is_found_once_however_often_it_was_forked(store_client: Sessionary) -> None:
    root = session(store_client, "root", "the lighthouse", "it is tall")
    fork = root.fork()
    fork.append("user", "how tall is the lighthouse")
    fork.append("assistant", "the lighthouse has 42 m")
    session(store_client, "other", "another lighthouse")

    async with client(store_client) as caller:
        found = await asked(caller, "search_sessions", query="lighthouse")

    tasks = [hit["cite"].partition("#")[0] for hit in found["items"]]
    assert len(tasks) == 2
    assert len({root.id, fork.id} & set(tasks)) == 1
    assert found["next"] is None


async def test_earlier_searches_for_the_same_are_not_found(store_client: Sessionary) -> None:
    session(store_client, "true", "where is the lighthouse?", "The lighthouse stands on the pier.")
    for number, name in enumerate(("mcp__sessionary__search_sessions", "search_sessions")):
        chat = store_client.new_session(Source("web", f"agent {number}"))
        chat.append("user", "find it")
        call = ToolCall("c1", name, {"query": "lighthouse"})
        chat.append(
            "assistant",
            [{"type": "tool_call", "id": "c1", "name": name, "arguments": call.arguments}],
        )
        answer = ToolResult("c1", "where is the lighthouse?", name)
        store_client.store.write(_append, chat.id, message("tool", (answer,))).result()
        chat.append("assistant", "done")
    kept = store_client.new_session(Source("web", "says it too"))
    kept.append("user", "hm")
    parts = (Text("I look for the lighthouse."), ToolCall("c2", "search_sessions", {"query": "x"}))
    store_client.store.write(_append, kept.id, message("assistant", parts)).result()

    async with client(store_client) as caller:
        found = await asked(caller, "search_sessions", query="lighthouse")
        answers = await asked(caller, "search_sessions", query="lighthouse role:tool")

    cited = {hit["cite"].partition("#")[0] for hit in found["items"]}
    assert cited == {store_client.find("true").id, kept.id}
    assert answers["items"] == []


def _append(tx: Any, id: str | None, sent: Any) -> Any:
    assert id is not None
    return log.append(tx, id, sent, profile="main", at=SystemClock().now())


async def test_pages_of_a_search_follow_each_other_without_gaps_or_repeats(
    store_client: Sessionary,
) -> None:
    for number in range(25):
        chat = session(store_client, f"s{number}", "the harbour", "yes", "the harbour again")
        if number % 5 == 0:
            chat.fork().append("user", "harbour fork")
    cited: list[str] = []
    cursor: str | None = None
    async with client(store_client) as caller:
        for _ in range(10):
            page = await asked(caller, "search_sessions", query="harbour", limit=4, cursor=cursor)
            cited += [hit["cite"].partition("#")[0] for hit in page["items"]]
            cursor = page["next"]
            if cursor is None:
                break
        wrong = await caller.call_tool("search_sessions", {"query": "x", "cursor": "~!"})

    assert len(cited) == len(set(cited)) == 25
    assert wrong.is_error
    assert "cursor" in str(wrong.content[0])


async def test_no_answer_is_larger_than_an_agent_can_afford(store_client: Sessionary) -> None:
    chat = session(store_client, "long", *(f"word {n} " * 900 for n in range(40)))
    for number in range(120):
        session(store_client, f"{number} " + "t" * 90, "p" * 300)

    async with client(store_client) as caller:
        listed = await asked(caller, "list_sessions", limit=200)
        end = await asked(caller, "get_messages", session="long", limit=200)
        middle = await asked(caller, "get_messages", session="long", around=20, limit=200)
        later = await asked(caller, "get_messages", session="long", after=5, limit=200)
        overview = await asked(caller, "get_session_overview", session="long")

    for given in (listed, end, middle, later, overview):
        assert estimate(given) < MAX_TOKENS * 1.1
    assert end["items"][-1]["seq"] == 40
    assert (end["more_before"], end["more_after"]) == (True, False)
    shown = [item["seq"] for item in middle["items"]]
    assert 20 in shown
    assert (middle["more_before"], middle["more_after"]) == (True, True)
    assert later["items"][0]["seq"] == 6
    assert later["more_after"]
    assert chat.id == end["items"][0]["cite"].partition("#")[0]


async def test_a_list_that_does_not_fit_goes_on_behind_what_was_shown(
    store_client: Sessionary, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        session(store_client, f"s{number}", "hello")
    monkeypatch.setattr("sessionary.mcp.output.MAX_TOKENS", 400)
    seen: list[str] = []
    cursor: str | None = None
    async with client(store_client) as caller:
        while True:
            page = await asked(caller, "list_sessions", limit=30, cursor=cursor)
            seen += [each["title"] for each in page["items"]]
            cursor = page["next"]
            if cursor is None:
                break

    assert seen == [f"s{number}" for number in reversed(range(30))]


async def test_usage_is_summed_page_by_page(
    store_client: Sessionary, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = session(store_client, "s", "hello")
    for number in range(20):
        used = Usage(model=f"m{number:02}", input_tokens=1, cost_microusd=1)
        chat.append("assistant", "x", usage=used)
    monkeypatch.setattr("sessionary.mcp.output.MAX_TOKENS", 300)
    seen: list[str] = []
    cursor: str | None = None
    async with client(store_client) as caller:
        while True:
            page = await asked(caller, "get_usage_summary", by="model", cursor=cursor)
            seen += [row["group"] for row in page["items"]]
            cursor = page["next"]
            if cursor is None:
                break

    assert seen == [f"m{number:02}" for number in range(20)]


async def test_a_usage_summary_names_the_budgets_that_are_used_up(
    store_client: Sessionary,
) -> None:
    app, limits = store_client.app, {"agent": Budget(tokens=10), "person": Budget(tokens=10)}
    amounts = {"agent:a": BudgetUse(10), "agent:b": BudgetUse(9)}
    now = app.clock.now()
    await app.store.write(budgets.count, amounts, limits, profile=app.profile, now=now)
    tools = SessionTools(app.store, app.profile, app.clock, app.ids, limits)
    async with Client(server.build(tools)) as caller:
        page = await asked(caller, "get_usage_summary")

    assert page["used_up_budgets"] == ["agent:a"]


@pytest.mark.parametrize("budget", [200, 1000, 8000])
async def test_a_pack_keeps_its_budget_for_any_text(store_client: Sessionary, budget: int) -> None:
    texts = ["x" * 20_000, "y" * 20_000, "{" * 500, "字" * 9000, "last question", "z" * 60_000]
    session(store_client, "huge", *texts)

    async with client(store_client) as caller:
        pack = await asked(caller, "resume_pack", session="huge", budget_tokens=budget)

    assert estimate(pack) <= budget
    assert pack["tokens_estimate"] <= budget
    assert pack["messages"][-1]["text"].startswith("z")
    assert pack["left_out"] == 6 - len(pack["messages"])


async def test_a_pack_has_the_first_question_and_the_summary_that_holds(
    store_client: Sessionary,
) -> None:
    chat = session(store_client, "old", "build me a boat", *(f"step {n}" for n in range(220)))
    now = store_client.app.clock.now()
    assert chat.id is not None
    store_client.store.write(
        revise.compact, chat.id, "We built the hull.", profile="main", through=10, at=now
    ).result()
    for number in range(220):
        chat.append("user", f"and {number}")

    async with client(store_client) as caller:
        pack = await asked(caller, "resume_pack", session="old", budget_tokens=2000)
        marks = await asked(caller, "get_messages", session="old", around=222, limit=1)

    assert pack["first_prompt"] == "build me a boat"
    assert pack["summary"] == "We built the hull."
    assert pack["messages"][-1]["text"] == "and 219"
    assert marks["items"][0]["text"] == "We built the hull."


async def test_a_message_names_the_tools_it_calls_and_shows_their_results(
    store_client: Sessionary,
) -> None:
    chat = session(store_client, "tools", "look")
    new_message = message("assistant", (ToolCall("c", "grep", {"q": 1}),))
    store_client.store.write(_append, chat.id, new_message).result()
    result = message("tool", (ToolResult("c", "3 lines", "grep"),))
    store_client.store.write(_append, chat.id, result).result()

    async with client(store_client) as caller:
        shown = (await asked(caller, "get_messages", session="tools"))["items"]

    assert shown[1]["calls"] == ["grep"]
    assert shown[2]["text"] == "3 lines"


class Served:
    """`sessionary mcp --http` as a process of its own, with tokens for it."""

    def __init__(self, address: str, tokens: dict[str, str]) -> None:
        self.address = address
        self._tokens = tokens

    def headers(self, who: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._tokens[who]}"}

    @asynccontextmanager
    async def client(self, who: str) -> AsyncIterator[Client]:
        async with (
            httpx2.AsyncClient(headers=self.headers(who), timeout=TIMEOUT_SECONDS) as http,
            Client(streamable_http_client(self.address, http_client=http)) as caller,
        ):
            yield caller

    async def post(self, body: Any = None, **headers: str) -> httpx2.Response:
        """A request without the library's client."""
        accept = {"Accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(timeout=TIMEOUT_SECONDS) as program:
            return await program.post(self.address, headers=accept | headers, json=body or {})


@pytest.fixture
async def over_http(tmp_path: Path) -> AsyncIterator[Served]:
    given = {}
    for number, (who, profile, scope) in enumerate(
        [
            ("reader", "main", Scope.READ),
            ("writer", "main", Scope.WRITE),
            ("revoked", "main", Scope.ADMIN),
            ("neighbour", "other", Scope.ADMIN),
        ]
    ):
        with Sessionary(home=str(tmp_path), profile=profile) as store_client:
            given[who] = credentials.make_secret(number.to_bytes(credentials.SECRET_BYTES))
            made = store_client.store.write(
                credentials.add_token,
                given[who],
                profile=profile,
                scope=scope,
                moment=store_client.moment(),
            ).result()
            if who == "revoked":
                store_client.store.write(
                    credentials.revoke_token, made.id, profile=profile, moment=store_client.moment()
                ).result()
            if who == "reader":
                session(store_client, "Harbour", "hello harbour")
    program = [sys.executable, "-m", "sessionary", "mcp", "--write", "--http", "127.0.0.1:0"]
    environ = {**os.environ, "SESSIONARY_HOME": str(tmp_path)}
    process = await asyncio.create_subprocess_exec(
        *program, env=environ, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield Served(await _announced_address(process), given)
    finally:
        process.terminate()
        await process.communicate()


async def test_over_http_a_token_is_needed(over_http: Served) -> None:
    async with over_http.client("reader") as caller:
        found = await asked(caller, "search_sessions", query="harbour")
    nobody = await over_http.post()
    wrong = await over_http.post(Authorization="Bearer sessionary_wrong")
    revoked = await over_http.post(**over_http.headers("revoked"))
    neighbour = await over_http.post(**over_http.headers("neighbour"))

    assert found["items"][0]["title"] == "Harbour"
    assert [each.status_code for each in (nobody, wrong, revoked)] == [401, 401, 401]
    assert nobody.headers["www-authenticate"] == "Bearer"
    assert neighbour.status_code == 403
    for refused in (nobody, wrong, revoked, neighbour):
        assert "Harbour" not in refused.text


async def test_over_http_a_token_that_reads_does_not_write(over_http: Served) -> None:
    more = {"session": "Harbour", "role": "user", "text": "more"}
    async with over_http.client("reader") as caller:
        refused = await caller.call_tool("append_message", more)
        window = await asked(caller, "get_messages", session="Harbour")
    async with over_http.client("writer") as caller:
        done = await asked(caller, "append_message", **more)

    assert refused.is_error
    assert "scope write" in str(refused.content[0])
    assert len(window["items"]) == 1
    assert done["cite"].endswith("#2")


async def test_over_http_a_session_goes_on_only_with_its_own_token(over_http: Served) -> None:
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    began = await over_http.post(hello, **over_http.headers("writer"))
    its_id = {"Mcp-Session-Id": began.headers["mcp-session-id"]}
    ask = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}

    own = await over_http.post(ask, **over_http.headers("writer"), **its_id)
    another = await over_http.post(ask, **over_http.headers("reader"), **its_id)

    assert (began.status_code, own.status_code, another.status_code) == (200, 200, 404)


@pytest.mark.parametrize("header", ["Host", "Origin"])
async def test_over_http_another_site_is_refused_with_a_token_too(
    over_http: Served, header: str
) -> None:
    value = "evil.example" if header == "Host" else "https://evil.example"

    forged = await over_http.post(**over_http.headers("reader"), **{header: value})

    assert forged.status_code in (403, 421)


async def _announced_address(process: asyncio.subprocess.Process) -> str:
    """The address that the program says it listens at; connections wait there until it serves."""
    assert process.stderr is not None
    printed = ""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (found := re.search(r"served at (http\S+/mcp)\.", printed)) is None:
            line = await process.stderr.readline()
            assert line, f"it ended before it listened: {printed}"
            printed += line.decode()
    return found[1]


async def ask_to_send(turn: TurnRequest) -> str:
    """An agent that must be allowed to send something."""
    await turn.approve("send", {"to": "Ann", "text": "x" * 40_000, "hidden": "a\u202eb"})
    return "sent"


async def test_questions_are_listed_and_no_tool_answers_them(store_client: Sessionary) -> None:
    for name in ("alice", "bob", "carl"):
        await asyncio.to_thread(
            store_client.ask, "go", agent=ask_to_send, session=name, timeout=TIMEOUT_SECONDS
        )
    newest, middle, oldest = await asyncio.to_thread(list, store_client.questions.list())
    await asyncio.to_thread(store_client.questions.answer, middle.id, approve=False)

    async with client(store_client) as caller:
        first = await asked(caller, "list_questions", limit=1)
        rest = await asked(caller, "list_questions", cursor=first["next"])
        tools = (await caller.list_tools()).tools
    tools_that_write = SessionTools(
        store_client.store, store_client.profile, store_client.app.clock, store_client.app.ids
    )
    async with Client(server.build(tools_that_write, write=True)) as caller:
        writing = {each.name for each in (await caller.list_tools()).tools} - {
            each.name for each in tools
        }

    (found,) = first["items"]
    assert (found["question_id"], found["session_id"]) == (newest.id, newest.session_id)
    assert (found["kind"], found["tool"], found["options"]) == ("approval", "send", [])
    assert found["arguments"].startswith("to: Ann\ntext: xxxx")
    assert len(found["arguments"]) < 4_100
    assert [each["question_id"] for each in rest["items"]] == [oldest.id]
    assert rest["next"] is None
    # What people type to answer a question is not shown.
    assert newest.code not in str(found)
    assert newest.token not in str(found)
    described = next(each for each in tools if each.name == "list_questions").description or ""
    assert "No tool answers them" in described
    assert writing == {"append_message", "rename_session"}


async def test_an_answer_with_many_questions_is_bounded(store_client: Sessionary) -> None:
    async def many(turn: TurnRequest) -> str:
        await turn.ask_all([{"text": f"{number} " + "word " * 2_000} for number in range(60)])
        return "done"

    await asyncio.to_thread(store_client.ask, "go", agent=many, timeout=TIMEOUT_SECONDS)
    found: list[str] = []
    cursor: str | None = None
    async with client(store_client) as caller:
        while True:
            page = await asked(caller, "list_questions", limit=200, cursor=cursor)
            assert estimate(page) < MAX_TOKENS * 1.1
            found += [each["text"].split()[0] for each in page["items"]]
            cursor = page["next"]
            if cursor is None:
                break

    assert found == [str(number) for number in reversed(range(60))]
