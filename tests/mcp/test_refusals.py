"""Calls that make no sense: each is answered, in one line of our own, and nothing is done."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from mcp import Client
from sessionary import Sessionary
from sessionary.formats import coerce
from sessionary.mcp import server
from sessionary.mcp.output import MAX_TOKENS
from sessionary.mcp.tools import MAX_TRANSCRIPT, SessionTools
from sessionary.model.source import Source
from sessionary.model.tokens import estimate

# A program on a busy machine; nothing waits for so long.
TIMEOUT_SECONDS = 60


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with Sessionary(home=str(tmp_path)) as store_client:
        store_client.new_session(Source("web", "a"), title="Harbour").append("user", "the harbour")
    return tmp_path


@asynccontextmanager
async def client(home: Path) -> AsyncIterator[Client]:
    with Sessionary(home=str(home)) as store_client:
        tools = SessionTools(
            store_client.store,
            store_client.profile,
            store_client.app.clock,
            store_client.app.ids,
        )
        async with Client(server.build(tools, write=True)) as connected:
            yield connected


@pytest.mark.parametrize(
    ("tool", "given", "says"),
    [
        ("search_sessions", {}, "search_sessions needs the argument 'query'; nothing was done."),
        (
            "search_sessions",
            {"query": "x", "colour": "y"},
            "search_sessions has no argument 'colour'; it takes query, limit, cursor, sort, source,",
        ),
        ("search_sessions", {"query": ["x"]}, "'query' of search_sessions is a text, not a list."),
        ("search_sessions", {"query": 5}, "'query' of search_sessions is a text, not 5."),
        (
            "search_sessions",
            {"query": "x", "limit": "many"},
            "'limit' of search_sessions is a whole number, not 'many'.",
        ),
        (
            "list_sessions",
            {"limit": 1.5},
            "'limit' of list_sessions is a whole number, not 1.5.",
        ),
        (
            "list_sessions",
            {"limit": None},
            "'limit' of list_sessions is a whole number, not null.",
        ),
        (
            "get_messages",
            {"session": "Harbour", "around": {}},
            "'around' of get_messages is a whole number, not an object.",
        ),
        ("get_messages", {"session": "nobody"}, "No session is called 'nobody'"),
        (
            "append_message",
            {"session": "Harbour", "role": "king", "text": "x"},
            "'role' of append_message is",
        ),
        (
            "append_message",
            {"session": "Harbour", "role": "tool", "text": "x"},
            "A message of role tool",
        ),
        ("delete_everything", {}, "There is no such tool; there are search_sessions, "),
    ],
)
async def test_a_call_that_makes_no_sense_is_answered_in_our_own_words(
    home: Path, tool: str, given: dict[str, Any], says: str
) -> None:
    async with client(home) as caller:
        answer = await caller.call_tool(tool, given)

    [part] = answer.content
    assert answer.is_error
    text = getattr(part, "text", "")
    assert text.startswith(says)
    assert "\n" not in text


@pytest.mark.parametrize("number", [-(10**30), -1, 0, 2**31, 2**63, 10**30])
async def test_numbers_may_be_anything(home: Path, number: int) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        *(("get_messages", {"session": "Harbour", name: number}) for name in _PLACES),
        ("list_sessions", {"limit": number}),
        ("search_sessions", {"query": "harbour", "limit": number}),
        ("get_usage_summary", {"cursor": str(number)}),
        ("resume_pack", {"session": "Harbour", "budget_tokens": number}),
    ]
    async with client(home) as caller:
        for tool, given in calls:
            answer = await caller.call_tool(tool, given)
            assert "fault of Sessionary" not in str(answer.content), (tool, given)


_PLACES = ("around", "before", "after", "limit")


async def test_numbers_that_a_model_writes_as_texts_are_numbers(home: Path) -> None:
    async with client(home) as caller:
        answer = await caller.call_tool("list_sessions", {"limit": "1"})

    assert not answer.is_error
    assert len(answer.structured_content["items"]) == 1


async def test_a_session_that_is_not_there_is_no_resource(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with client(home) as caller:
        with pytest.raises(MCPError, match="No session is called 'nobody'"):
            await caller.read_resource("session://nobody")

    assert "Traceback" not in capfd.readouterr().err


async def test_a_resource_is_the_end_of_a_long_transcript(home: Path) -> None:
    with Sessionary(home=str(home)) as store_client:
        chat = store_client.new_session(Source("web", "b"), title="Long")
        for number in range(60):
            chat.append("user", f"message {number}: " + "word " * 700)
    async with client(home) as caller:
        answer = await caller.read_resource(f"session://{_id(home, 'Long')}")

    text = getattr(answer.contents[0], "text", "")
    assert text.startswith("[What came before is left out")
    assert "message 59: " in text
    assert "message 0: " not in text
    assert len(text) < MAX_TRANSCRIPT * 1.1


def _id(home: Path, title: str) -> str:
    with Sessionary(home=str(home)) as store_client:
        return str(store_client.find(title).id)


async def test_no_answer_is_larger_than_an_agent_can_afford_in_any_script(home: Path) -> None:
    with Sessionary(home=str(home)) as store_client:
        _fill(store_client)
    async with client(home) as caller:
        overview = await caller.call_tool("get_session_overview", {"session": "Wide"})
        stretch = await caller.call_tool("get_messages", {"session": "Calls"})

    for answer in (overview, stretch):
        assert not answer.is_error
        assert estimate(answer.structured_content) < MAX_TOKENS * 1.1
    assert len(overview.structured_content["first"]) == 3
    assert len(overview.structured_content["last"]) == 6
    assert stretch.structured_content["items"][-1]["calls"][-1] == "… and 4,980 more"


def _fill(store_client: Sessionary) -> None:
    wide = store_client.new_session(Source("web", "c"), title="Wide")
    for _ in range(9):
        wide.append("user", "\u5b57" * 9000)
    calls = store_client.new_session(Source("web", "d"), title="Calls")
    calls.append("user", "go")
    call = {"type": "tool_call", "name": "name" * 50, "arguments": {}}
    calls.append("assistant", [call | {"id": f"c{n}"} for n in range(5000)])


async def test_a_client_that_leaves_in_the_middle_of_a_line_ends_the_server(home: Path) -> None:
    process = await _program(home)
    assert process.stdin is not None
    process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "init')
    process.stdin.close()

    async with asyncio.timeout(TIMEOUT_SECONDS):
        out, err = await process.communicate()

    assert process.returncode == 0
    assert out == b""
    assert b"Traceback" not in err


async def test_rubbish_on_standard_input_does_not_end_the_server(home: Path) -> None:
    process = await _program(home)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"rubbish\n\xff\xfe\n[]\n{}\n")
    process.stdin.write(json.dumps(_HELLO).encode() + b"\n")

    async with asyncio.timeout(TIMEOUT_SECONDS):
        while json.loads(await process.stdout.readline()).get("id") != 1:
            pass
        process.stdin.close()
        _, err = await process.communicate()

    assert process.returncode == 0
    assert b"Traceback" not in err


async def test_half_a_letter_in_a_call_is_answered_and_kept_visibly(home: Path) -> None:
    """JavaScript cuts texts in the middle of an emoji."""
    process = await _program(home, "--write")
    assert process.stdin is not None
    assert process.stdout is not None
    given = {"session": "Harbour", "role": "user", "text": "a boat \ud83d and \U0001f6a2"}
    call = {"name": "append_message", "arguments": given}
    hello = json.dumps(_HELLO).encode()
    begun = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
    asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
    process.stdin.write(b"\n".join([hello, begun, json.dumps(asked).encode(), b""]))

    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (ready := json.loads(await process.stdout.readline())).get("id") != 2:
            pass
        process.stdin.close()
        await process.communicate()

    assert not ready["result"]["isError"]
    with Sessionary(home=str(home)) as store_client:
        text = str(store_client.find("Harbour").context()[-1]["content"])
    assert text.endswith("a boat \ufffd and \U0001f6a2")


@pytest.mark.parametrize("line", [b"{}", b"rubbish \\ud83d", b"[" * 100_000 + b"\\ud83d", b""])
def test_other_lines_stay_as_they_are(line: bytes) -> None:
    assert coerce.replace_lone_surrogates(line) == line


async def test_ctrl_c_ends_the_server_with_one_line(home: Path) -> None:
    process = await _program(home)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(_HELLO).encode() + b"\n")

    async with asyncio.timeout(TIMEOUT_SECONDS):
        await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()

    assert (process.returncode, err) == (130, b"sessionary: Interrupted.\n")


async def test_a_client_that_no_longer_reads_ends_the_server_quietly(home: Path) -> None:
    reading, writing = os.pipe()
    process = await _program(home, stdout=writing)
    os.close(writing)
    os.close(reading)
    assert process.stdin is not None
    process.stdin.write(json.dumps(_HELLO).encode() + b"\n")

    async with asyncio.timeout(TIMEOUT_SECONDS):
        _, err = await process.communicate()

    assert process.returncode in (0, 141)
    assert err == b""


async def test_a_port_in_use_is_one_line_of_error(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        process = await _program(home, "--http", address)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            _, err = await process.communicate()

    assert process.returncode == 1
    assert err.startswith(f"sessionary: Port {address.rpartition(':')[2]} of 127.0.0.1 ".encode())
    assert err.count(b"\n") == 1


_HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


async def _program(
    home: Path, *args: str, stdout: int = asyncio.subprocess.PIPE
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sessionary", "mcp", *args),
        env={**os.environ, "SESSIONARY_HOME": str(home)},
        stdin=asyncio.subprocess.PIPE,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
        # A shell that started us in the background has made us deaf to Ctrl-C; the child is not.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
