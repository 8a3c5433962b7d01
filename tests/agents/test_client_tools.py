"""Tools that a program brings for one turn: the model is offered them, and the program runs them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from sessionary.errors import BadInput
from sessionary.model.message import Message, Role, ToolCall
from sessionary.model.turn_options import ClientTool, OutputFormat, TurnOptions, decode_options
from sessionary.testing.runner_suite import events_of, steps_of, turn_request
from tests.support.model_agent import TOOLS, model_runner
from tests.support.model_server import Call, ModelServer, Reply

WEATHER = ClientTool("weather", "The weather.", {"type": "object", "properties": {}})
OPTIONS = TurnOptions(tools=(WEATHER,))
OWN = ToolCall("own", "read_lines", {"count": 1})
THEIRS = ToolCall("theirs", "weather", {})


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as made:
        yield made


async def test_a_turn_that_died_after_its_calls_makes_none_of_the_programs(
    model: ModelServer,
) -> None:
    runner = model_runner(model, tools=(TOOLS,))
    step = Message(Role.ASSISTANT, (OWN, THEIRS))
    chat: Any = {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": "{}"}}
            for each in (OWN, THEIRS)
        ],
    }
    request = turn_request(
        "hello", chat, resumed=1, steps=(step,), unfinished=(OWN, THEIRS), options=OPTIONS
    )

    events = await events_of(runner, request)

    [result] = [step.message for step in steps_of(events)]
    assert [getattr(each, "call_id", None) for each in result.parts] == ["own"]
    assert model.requests == []
    await runner.close()


async def test_a_choice_of_tools_holds_for_the_first_call_of_the_model(model: ModelServer) -> None:
    runner = model_runner(model, tools=(TOOLS,))
    model.will(Reply(calls=(Call("read_lines", {"count": 1}, id="own"),)), Reply("done"))
    options = TurnOptions(tools=(WEATHER,), tool_choice="required")

    await events_of(runner, turn_request("hello", options=options))

    choices = [each.body.get("tool_choice") for each in model.requests]
    assert choices == ["required", "auto"]
    await runner.close()


async def test_a_tool_with_the_name_of_the_agents_own_fails_the_turn_in_words(
    model: ModelServer,
) -> None:
    runner = model_runner(model, tools=(TOOLS,))
    options = TurnOptions(tools=(ClientTool("read_lines"),))

    with pytest.raises(BadInput, match="has a tool 'read_lines' of its own"):
        await events_of(runner, turn_request("hello", options=options))

    await runner.close()


def test_options_are_stored_as_they_are() -> None:
    options = TurnOptions(
        instructions="Be \ud800 brief.",
        tools=(WEATHER, ClientTool("other", strict=True)),
        tool_choice=("weather",),
        parallel_tool_calls=False,
        settings={"temperature": 0.5, "stop_sequences": ["a", "b"]},
        output=OutputFormat({"type": "object"}, "name"),
    )

    assert decode_options(options.encode() or "") == options
    assert TurnOptions().encode() is None
