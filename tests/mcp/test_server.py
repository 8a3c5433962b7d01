"""The MCP server, driven by the real client; once over the real `sessionary mcp`."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp import Client, StdioServerParameters
from sessionary import Sessionary
from sessionary.actions.sessions import projects
from sessionary.clock import Moment
from sessionary.errors import BadInput
from sessionary.mcp import server
from sessionary.mcp.server import check_address
from sessionary.mcp.tools import SessionTools
from sessionary.model.source import Source

READ_ONLY = {
    "search_sessions",
    "list_sessions",
    "get_session_overview",
    "get_messages",
    "list_questions",
    "get_usage_summary",
    "resume_pack",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with Sessionary(home=str(tmp_path)) as store_client:
        chat = store_client.session(Source(platform="web", chat_id="a"))
        for number in range(30):
            chat.append("user", f"question {number} about the harbour")
            chat.append("assistant", f"answer {number} " + "word " * 50)
        chat.rename("Harbour")
    with Sessionary(home=str(tmp_path), profile="other") as store_client:
        store_client.session(Source(platform="web", chat_id="b")).append(
            "user", "the harbour of another"
        )
    return tmp_path


@asynccontextmanager
async def client(home: Path, *, write: bool = False) -> AsyncIterator[Client]:
    """A client of a server in this process."""
    with Sessionary(home=str(home)) as store_client:
        tools = SessionTools(
            store_client.store,
            store_client.profile,
            store_client.app.clock,
            store_client.app.ids,
        )
        async with Client(server.build(tools, write=write)) as connected:
            yield connected


async def asked(caller: Client, tool: str, /, **arguments: Any) -> Any:
    answer = await caller.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    return answer.structured_content


async def test_the_program_speaks_over_standard_input_and_output(home: Path) -> None:
    program = StdioServerParameters(
        command=sys.executable,
        args=["-m", "sessionary", "mcp"],
        env={**os.environ, "SESSIONARY_HOME": str(home)},
    )

    async with Client(program) as session:
        found = await asked(session, "search_sessions", query="harbour")

    assert found["total"] == 31


async def test_it_offers_only_reading_unless_writing_was_asked_for(home: Path) -> None:
    async with client(home) as session:
        assert {tool.name for tool in (await session.list_tools()).tools} == READ_ONLY

    async with client(home, write=True) as session:
        names = {tool.name for tool in (await session.list_tools()).tools}
        assert names == READ_ONLY | {"append_message", "rename_session"}
        done = await asked(session, "append_message", session="Harbour", role="user", text="more")
        assert done["cite"].endswith("#61")


async def test_a_hit_is_cited_and_can_be_read_around(home: Path) -> None:
    async with client(home) as session:
        found = await asked(session, "search_sessions", query='"question 7"')
        [hit] = found["items"]
        name, _, seq = hit["cite"].partition("#")
        around = await asked(session, "get_messages", session=name, around=int(seq), limit=3)

    texts = [message["text"][:10] for message in around["items"]]
    assert texts == ["answer 6 w", "question 7", "answer 7 w"]


async def test_another_profile_is_not_there(home: Path) -> None:
    async with client(home) as session:
        found = await asked(session, "search_sessions", query="another")
        listed = await asked(session, "list_sessions")

    assert found["items"] == []
    assert [each["title"] for each in listed["items"]] == ["Harbour"]


async def test_a_pack_stays_within_its_budget_and_keeps_the_end(home: Path) -> None:
    async with client(home) as session:
        small = await asked(session, "resume_pack", session="Harbour", budget_tokens=500)
        large = await asked(session, "resume_pack", session="Harbour", budget_tokens=50_000)

    assert small["tokens_estimate"] <= 500
    assert small["messages"][-1]["text"].startswith("answer 29")
    assert len(small["messages"]) < len(large["messages"]) == 60


async def test_a_refusal_is_one_line_and_no_traceback(home: Path) -> None:
    async with client(home) as session:
        answer = await session.call_tool("get_messages", {"session": "nobody"})

    assert answer.is_error
    assert "No session is called 'nobody'" in str(answer.content[0])


async def test_a_session_is_a_resource(home: Path) -> None:
    async with client(home) as session:
        listed = await asked(session, "list_sessions")
        name = listed["items"][0]["session_id"]
        answer = await session.read_resource(f"session://{name}")

    assert "answer 29" in str(answer.contents[0])


@pytest.mark.parametrize("address", ["0.0.0.0:1", "example.org:80", "127.0.0.1", "127.0.0.1:x"])
def test_an_address_that_others_reach_is_refused(address: str) -> None:
    with pytest.raises(BadInput):
        check_address(address)


async def test_every_argument_is_described_and_every_answer_has_a_type(home: Path) -> None:
    async with client(home, write=True) as session:
        tools = (await session.list_tools()).tools

    for tool in tools:
        assert tool.description, tool.name
        assert tool.output_schema is not None, tool.name
        assert tool.output_schema["required"], tool.name
        for name, argument in tool.input_schema["properties"].items():
            assert argument.get("description"), (tool.name, name)
    arguments = {tool.name: tool.input_schema["properties"] for tool in tools}
    assert arguments["search_sessions"]["sort"]["enum"] == ["relevance", "newest"]
    limit = arguments["search_sessions"]["limit"]
    assert (limit["minimum"], limit["maximum"]) == (1, 50)
    assert "day" in arguments["get_usage_summary"]["by"]["enum"]


@pytest.mark.parametrize(
    ("tool", "given", "told"),
    [
        ("search_sessions", {"query": "x", "sort": "best"}, "one of relevance, newest, not 'best'"),
        ("search_sessions", {"query": "x", "limit": 51}, "a number from 1 to 50, not 51"),
        ("list_sessions", {"folder": "attic"}, "one of chats, automation, archive, not 'attic'"),
        ("get_usage_summary", {"by": "colour"}, "one of day, model"),
        ("search_sessions", {"query": "x", "since": "soon"}, "'since' is a time like"),
    ],
)
async def test_a_value_that_the_schema_does_not_allow_is_refused_in_one_line(
    home: Path, tool: str, given: dict[str, Any], told: str
) -> None:
    async with client(home) as session:
        answer = await session.call_tool(tool, given)

    assert answer.is_error
    (content,) = answer.content
    text = getattr(content, "text", "")
    assert told in text
    assert "\n" not in text


async def test_a_search_can_be_limited_to_a_source_a_project_a_person_a_folder_and_a_time(
    home: Path,
) -> None:
    with Sessionary(home=str(home)) as store_client:
        ada = Source("telegram", "c", user_id="u1", user_name="Ada")
        written = store_client.new_session(ada, title="Ada's")
        written.append("user", "the harbour crane", person=ada.person)
        moment = Moment(store_client.app.clock.now(), store_client.app.ids)
        store = store_client.store
        store.write(projects.add, "Cranes", profile="main", moment=moment).result()
        store.write(projects.move_session, str(written.id), "Cranes", profile="main").result()
        put_away = store_client.new_session(Source("web", "d"), title="Old")
        put_away.append("user", "the harbour in winter")
        put_away.archive()

    async def titles(caller: Client, **filters: Any) -> list[str]:
        found = await asked(caller, "search_sessions", query="harbour", **filters)
        return sorted(hit["title"] for hit in found["items"])

    async with client(home) as caller:
        assert await titles(caller, source="telegram") == ["Ada's"]
        assert await titles(caller, person="Ada") == ["Ada's"]
        assert await titles(caller, project="Cranes") == ["Ada's"]
        assert await titles(caller, folder="archive") == ["Old"]
        assert await titles(caller, folder="chats") == ["Ada's", "Harbour"]
        assert await titles(caller, until="2000-01-01") == []
        assert await titles(caller, since="2000-01-01") == ["Ada's", "Harbour", "Old"]
