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
        [hit] = found["hits"]
        name, _, seq = hit["cite"].partition("#")
        around = await asked(session, "get_messages", session=name, around=int(seq), limit=3)

    texts = [message["text"][:10] for message in around["messages"]]
    assert texts == ["answer 6 w", "question 7", "answer 7 w"]


async def test_another_profile_is_not_there(home: Path) -> None:
    async with client(home) as session:
        found = await asked(session, "search_sessions", query="another")
        listed = await asked(session, "list_sessions")

    assert found["hits"] == []
    assert [each["title"] for each in listed["sessions"]] == ["Harbour"]


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
        name = listed["sessions"][0]["session"]
        answer = await session.read_resource(f"session://{name}")

    assert "answer 29" in str(answer.contents[0])


@pytest.mark.parametrize("address", ["0.0.0.0:1", "example.org:80", "127.0.0.1", "127.0.0.1:x"])
def test_an_address_that_others_reach_is_refused(address: str) -> None:
    with pytest.raises(BadInput):
        check_address(address)
