"""Tools of real MCP servers, as programs and over HTTP."""

import asyncio
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from sessionary.agents import mcp_tools
from sessionary.agents.model import ModelOptions, ModelRunner, ToolServer
from sessionary.config.secret import Secret
from sessionary.errors import AgentFailed, BadInput
from sessionary.model.message import ToolResult
from sessionary.testing.runner_suite import PROMPT_SECONDS, events_of, steps_of, turn_request
from tests.agents import tool_server
from tests.support.model_server import Ask, Call, ModelServer, Reply

AUTH = b"authorization"
TOOL_SECONDS = 5
PROGRAM = (sys.executable, str(Path(__file__).with_name("tool_server.py")))


@pytest.fixture(autouse=True)
def _slow_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a program as long to start as a busy machine needs."""
    monkeypatch.setattr(mcp_tools, "_START_SECONDS", 200.0)


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as model:
        yield model


def runner(model: ModelServer, *tools: ToolServer, **options: Any) -> ModelRunner:
    return ModelRunner(ModelOptions(model="m", base_url=model.openai_url, tools=tools, **options))


def asks_for(*calls: Call) -> Any:
    """A model that asks for these tools, and is content with whatever they answer."""

    def answer(ask: Ask) -> Reply:
        has_results = any(each["role"] == "tool" for each in ask.messages)
        return Reply("Done.") if has_results else Reply(calls=calls)

    return answer


async def results(agent: ModelRunner) -> list[ToolResult]:
    steps = steps_of(await events_of(agent, turn_request("hello")))
    assert steps[-1].message.text == "Done."
    parts = [part for step in steps for part in step.message.parts]
    found = [part for part in parts if isinstance(part, ToolResult)]
    # They come as they finish.
    return sorted(found, key=lambda each: each.call_id)


async def test_a_program_s_tools_are_offered_and_run(model: ModelServer) -> None:
    agent = runner(model, ToolServer(command=PROGRAM, name="calc"))
    model.otherwise = asks_for(
        Call("calc_add", {"a": 1, "b": 2}),
        Call("calc_fail", {}, "call_2"),
        Call("calc_add", {"a": "x"}, "call_3"),
        Call("calc_add", "{", "call_4"),
        Call("calc_picture", {}, "call_5"),
    )

    added, failed, wrong, malformed, picture = await results(agent)
    again = await results(agent)
    await agent.close()

    assert (added.content, added.is_error) == ("3", False)
    assert failed.is_error
    assert "the kettle is empty" in failed.content
    assert wrong.is_error
    assert "not a JSON object" in malformed.content
    assert picture.content == "[attachment: image-1.png]"
    assert "iVBORw==" in str(model.requests[1].messages)
    assert again[0] == added
    offered = [tool["function"]["name"] for tool in model.requests[0].body["tools"]]
    assert offered[:5] == ["calc_add", "calc_fail", "calc_hang", "calc_picture", "calc_die"]


async def test_a_session_has_only_the_tools_that_it_chose(model: ModelServer) -> None:
    agent = runner(model, ToolServer(command=PROGRAM, name="calc"))
    model.otherwise = asks_for(Call("calc_fail", {}))
    unknown = agent.tool_names
    for chosen in (["calc_a*", "calc_picture"], []):
        request = turn_request("hello", settings={"tools": chosen})
        steps = steps_of(await events_of(agent, request))
        (refused,) = [
            part for step in steps for part in step.message.parts if isinstance(part, ToolResult)
        ]
        assert "There is no tool 'calc_fail'" in refused.content
    await agent.close()

    offered = [
        [tool["function"]["name"] for tool in request.body.get("tools", ())]
        for request in model.requests
    ]
    assert offered == [["calc_add", "calc_picture", "read_output"]] * 2 + [[], []]
    assert unknown is None
    assert agent.tool_names is not None
    assert {"calc_add", "calc_fail"} < set(agent.tool_names)


async def test_a_tool_that_hangs_fails_its_call_and_the_next_turn_has_them_again(
    model: ModelServer,
) -> None:
    late = f"did not answer in {TOOL_SECONDS} seconds."
    agent = runner(model, ToolServer(command=PROGRAM), tool_timeout_seconds=TOOL_SECONDS)
    model.otherwise = asks_for(Call("hang"))

    (hung,) = await results(agent)
    model.otherwise = asks_for(Call("add", {"a": 1, "b": 2}))
    (added,) = await results(agent)
    # A machine may be too busy to add in so short a time; then the next turn tries again.
    while added.content == f"Error: The tool add {late}":
        (added,) = await results(agent)
    await agent.close()

    assert hung.content == f"Error: The tool hang {late}"
    assert added.content == "3"


async def test_a_tool_that_dies_fails_its_call_and_the_next_turn_has_them_again(
    model: ModelServer,
) -> None:
    agent = runner(model, ToolServer(command=PROGRAM))
    model.otherwise = asks_for(Call("die"))

    (died,) = await results(agent)
    model.otherwise = asks_for(Call("add", {"a": 1, "b": 2}))
    (added,) = await results(agent)
    await agent.close()

    assert died.is_error
    assert "did not answer" not in died.content
    assert added.content == "3"


async def test_cancelling_leaves_a_tool_that_hangs(model: ModelServer) -> None:
    async with http_server() as (url, _):
        agent = runner(model, ToolServer(url=url))
        model.otherwise = asks_for(Call("hang"))
        events = agent.run(turn_request("hello"))
        await anext(events)
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.wait({waiting}, timeout=0.05)
        began = time.monotonic()

        waiting.cancel()
        await asyncio.wait({waiting})

        assert waiting.cancelled()
        assert time.monotonic() - began < PROMPT_SECONDS
        await agent.close()


async def test_a_server_over_http_gets_its_key(model: ModelServer) -> None:
    async with http_server() as (url, keys):
        agent = runner(model, ToolServer(url=url, key=Secret("sk-tools")))
        model.otherwise = asks_for(Call("add", {"a": 1, "b": 2}))
        (added,) = await results(agent)
        await agent.close()

    assert added.content == "3"
    assert set(keys) == {"Bearer sk-tools"}


@pytest.mark.parametrize(
    "server",
    [
        ToolServer(command=(sys.executable, "-S", "-c", "raise SystemExit(3)"), name="calc"),
        ToolServer(command=("/nowhere/tools",), name="calc"),
        ToolServer(url="http://127.0.0.1:9/mcp", name="calc"),
    ],
    ids=["ends at once", "is not there", "does not listen"],
)
async def test_tools_that_cannot_be_reached_are_named(
    model: ModelServer, server: ToolServer
) -> None:
    agent = runner(model, server)

    with pytest.raises(AgentFailed, match="The tools of calc cannot be reached"):
        await events_of(agent, turn_request("hello"))

    await agent.close()
    assert model.requests == []


async def test_two_tools_of_one_name_are_refused(model: ModelServer) -> None:
    async with http_server() as (url, _):
        agent = runner(model, ToolServer(url=url), ToolServer(url=url))
        with pytest.raises(BadInput, match="'add'"):
            await events_of(agent, turn_request("hello"))
        await agent.close()


@asynccontextmanager
async def http_server() -> AsyncIterator[tuple[str, list[str]]]:
    """The same tools over HTTP on loopback, and the keys that were presented."""
    keys: list[str] = []
    app = tool_server.server.streamable_http_app()

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        keys.extend(value.decode() for name, value in scope.get("headers", ()) if name == AUTH)
        await app(scope, receive, send)

    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(watched, log_level="critical"))
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", keys
    finally:
        server.should_exit = True
        server.force_exit = True
        await task
        listening.close()
