"""Tools that may be run again and tools that may not; keys, order, and calls that were cut off."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.tools import ToolDefinition

from sessionary.agents import mcp_tools
from sessionary.agents.mcp_tools import McpTools, ToolServers
from sessionary.agents.model import ModelOptions, ModelRunner, ToolServer
from sessionary.agents.provider import Conversation, ModelAnswer
from sessionary.agents.tools import ToolClass, ToolOutcome, TurnTools
from sessionary.config.engine import PolicyRule, ToolDecision
from sessionary.engine.ports import Ask, NoServices, ProposedCall, Step
from sessionary.model import policy
from sessionary.model.message import Message, Role, Text, ToolCall, ToolResult
from sessionary.model.policy import PolicyVerdict, ToolUse
from sessionary.model.transcript import chats_of, unfinished_calls
from sessionary.testing.runner_suite import SOURCE, events_of, steps_of, turn_request
from tests.support.model_server import Call, ModelServer, Reply

PROGRAM = (sys.executable, str(Path(__file__).with_name("tool_server.py")))
OPTIONS = ModelOptions(model="openai:m")


@pytest.fixture
async def connected(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """Connect to the program with some settings of the server."""
    # As long as a busy machine needs to start a program.
    monkeypatch.setattr(mcp_tools, "_START_SECONDS", 200.0)
    async with AsyncExitStack() as stack:

        async def connect(**settings: Any) -> McpTools:
            servers = ToolServers(
                [ToolServer(command=PROGRAM, **settings)],
                timeout_seconds=OPTIONS.tool_timeout_seconds,
            )
            stack.push_async_callback(servers.close)
            return await stack.enter_async_context(servers.opened())

        yield connect


def classes(tools: McpTools) -> dict[str, str]:
    return {each.name: tools.tool_class(each.name).value for each in tools.definitions}


async def test_a_tool_s_class_is_what_it_says_of_itself(connected: Any) -> None:
    found = classes(await connected())

    assert {name for name, each in found.items() if each == ToolClass.SAFE} == {
        *("read_note", "save_note"),  # annotations
        *("pay", "book"),  # an idempotency key
    }


async def test_the_settings_know_better_than_the_tool(connected: Any) -> None:
    found = classes(
        await connected(
            name="x", safe=["send_*", "add", "x_fail"], once=["send_note", "re*", "pay"]
        )
    )

    assert found["x_add"] == "safe"
    assert found["x_send_note"] == "once"
    assert found["x_read_note"] == "once"
    assert found["x_pay"] == "once"
    # The patterns are for the server's own names.
    assert found["x_fail"] == "once"


async def test_a_key_is_handed_over_and_the_model_does_not_see_it(connected: Any) -> None:
    tools = await connected()
    schemas = {each.name: each.parameters_json_schema for each in tools.definitions}

    paid = await tools.call("pay", {"amount": 5, "idempotency_key": "the model's"}, key="t-1")
    booked = await tools.call("book", {"day": "Monday"}, key="t-2")
    sent = await tools.call("send_note", {"name": "tea"}, key="t-3")

    assert [each.content for each in (paid, booked, sent)] == [
        "paid 5 t-1",
        "booked Monday t-2",
        "sent tea t-3",
    ]
    assert list(schemas["pay"]["properties"]) == schemas["pay"]["required"] == ["amount"]
    assert list(schemas["book"]["properties"]) == ["day"]


@pytest.mark.parametrize(
    "argument",
    [
        {"type": "string", "format": "uuid"},
        {"type": "string", "maxLength": 20},
        {"type": "integer"},
        {"enum": ["a"]},
        {},
    ],
)
def test_a_key_of_another_form_is_left_to_the_model(argument: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"idempotency_key": argument}}
    listed = SimpleNamespace(name="pay", description="", input_schema=schema, annotations=None)

    server = SimpleNamespace(settings=ToolServer(command=PROGRAM))
    tool = mcp_tools._tool(cast(Any, server), listed)

    assert tool.definition.parameters_json_schema == schema
    assert tool.tool_class is ToolClass.ONCE


async def test_the_calls_of_a_turn_have_their_own_keys() -> None:
    async with ModelServer() as model:
        server = ToolServer(command=PROGRAM)
        agent = ModelRunner(ModelOptions(model="m", base_url=model.openai_url, tools=(server,)))
        model.will(Reply(calls=(Call("pay", {"amount": 1}), Call("pay", {"amount": 2}, "call_2"))))
        model.will(Reply(calls=(Call("pay", {"amount": 3}),)), Reply("Done."))
        request = turn_request("hello")

        steps = steps_of(await events_of(agent, request))
        await agent.close()

    found = {str(each.content) for each in results_in(steps)}
    assert found == {f"paid {number} {request.turn_id}-{number}" for number in (1, 2, 3)}


def results_in(steps: Sequence[Step | Ask]) -> list[ToolResult]:
    parts = [part for step in steps if isinstance(step, Step) for part in step.message.parts]
    return [part for part in parts if isinstance(part, ToolResult)]


class GatedTools:
    """Tools that answer when the test lets them; names that begin with `read` are safe."""

    def __init__(self, *names: str) -> None:
        self.definitions = [ToolDefinition(name=name) for name in names]
        self.keys: dict[str, str] = {}
        self.gates = {name: asyncio.Event() for name in names}
        self.cancelled: list[str] = []

    def tool_class(self, name: str) -> ToolClass:
        return ToolClass.SAFE if name.startswith("read") else ToolClass.ONCE

    async def call(self, name: str, arguments: dict[str, Any], *, key: str) -> ToolOutcome:
        self.keys[name] = key
        try:
            await self.gates[name].wait()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        return ToolOutcome(f"{name} is done")


def turn(tools: GatedTools, calls_before: int = 0) -> TurnTools:
    return TurnTools(tools, OPTIONS, turn_id="t", calls_before=calls_before)


def answer_with(*names: str) -> ModelAnswer:
    calls = tuple(ToolCallPart(name, {}, f"id-{name}") for name in names)
    return ModelAnswer(ModelResponse(parts=list(calls)), Message(Role.ASSISTANT, ()), calls)


class Taken:
    """A conversation that keeps what it is given."""

    def __init__(self) -> None:
        self.results: list[str] = []

    async def take(self, response: ModelResponse, results: Sequence[Step]) -> None:
        self.results = [each.content for each in results_in(results)]


async def test_a_slow_call_does_not_delay_the_result_of_the_next_one() -> None:
    tools, taken = GatedTools("slow", "fast"), Taken()
    tools.gates["fast"].set()

    own = turn(tools, 4)
    events = own.steps(await own.decide(answer_with("slow", "fast")), cast(Conversation, taken))
    async with aclosing(events):
        first = await anext(events)
        tools.gates["slow"].set()
        rest = [step async for step in events]

    assert [each.content for each in results_in([first, *rest])] == ["fast is done", "slow is done"]
    # The model reads them in the order of its calls.
    assert taken.results == ["slow is done", "fast is done"]
    assert tools.keys == {"slow": "t-5", "fast": "t-6"}


async def test_calls_that_still_run_are_cancelled_with_their_turn() -> None:
    tools = GatedTools("slow", "fast")
    tools.gates["fast"].set()
    own = turn(tools)
    events = own.steps(await own.decide(answer_with("slow", "fast")), cast(Conversation, Taken()))

    await anext(events)
    await events.aclose()

    assert tools.cancelled == ["slow"]


async def test_calls_that_were_cut_off_are_run_again_only_if_that_is_safe() -> None:
    tools = GatedTools("read", "send")
    tools.gates["read"].set()
    done = Message(Role.ASSISTANT, (ToolCall("0", "read"), ToolCall("9", "read")))
    results = Message(Role.TOOL, (ToolResult("0"), ToolResult("9"), ToolResult("8")))
    unfinished = (
        ToolCall("1", "send", {"to": "Ann"}),
        ToolCall("8", "read"),
        ToolCall("2", "read", {}),
        ToolCall("3", "gone", {"a": 1}),
        ToolCall("4", "send", "{broken"),
    )
    messages = [done, Message(Role.ASSISTANT, unfinished), results]

    steps = [each async for each in turn(tools).resumed_steps(messages)]

    sent, read, gone, broken = sorted(results_in(steps), key=lambda each: each.call_id)
    assert tools.keys == {"read": "t-5"}
    assert (read.content, read.is_error, read.extra) == ("read is done", False, {})
    assert sent == ToolResult(
        "1",
        "It is not known whether this call ran: the process stopped before its result was recorded. "
        'It was not run again. Arguments: {"to":"Ann"}. Check before you call it again.',
        "send",
        is_error=True,
        extra={"outcome": "unknown"},
    )
    assert "There is no tool 'gone' any more." in str(gone.content)
    assert gone.extra == {"outcome": "unknown"}
    # It was never run: the arguments are no object.
    assert "not a JSON object" in str(broken.content)
    assert broken.extra == {}
    assert all(isinstance(step, Step) and step.message.role is Role.TOOL for step in steps)


class Deciding(NoServices):
    """Decides as a turn does that an owner has asked for in a direct chat."""

    def __init__(self, *rules: PolicyRule) -> None:
        self.rules = rules

    async def decide(self, calls: Sequence[ProposedCall]) -> Sequence[PolicyVerdict]:
        uses = [
            ToolUse(
                tool=call.tool,
                arguments=call.arguments,
                is_safe=call.is_safe,
                needs_approval=call.needs_approval,
                agent="model",
                source=SOURCE,
                is_owner=True,
            )
            for call in calls
        ]
        return [policy.decide(self.rules, use) for use in uses]


async def decided_events(tools: GatedTools, services: NoServices, *names: str) -> list[Step | Ask]:
    own = TurnTools(tools, OPTIONS, turn_id="t", services=services)
    decided = await own.decide(answer_with(*names))
    return [event async for event in own.steps(decided, cast(Conversation, Taken()))]


async def test_a_tool_that_the_library_wants_approved_is_asked_about_whatever_its_class() -> None:
    tools = GatedTools("read", "send")
    tools.definitions = [ToolDefinition(name=name, kind="unapproved") for name in tools.gates]

    (asked,) = await decided_events(tools, Deciding(), "read", "send")

    assert isinstance(asked, Ask)
    assert [(each.name, each.tool) for each in asked.questions] == [("1", "read"), ("2", "send")]
    assert tools.keys == {}


async def test_a_rule_may_allow_a_tool_that_the_library_wants_approved() -> None:
    tools = GatedTools("send")
    tools.definitions = [ToolDefinition(name="send", kind="unapproved")]
    tools.gates["send"].set()
    allow = PolicyRule(decision=ToolDecision.ALLOW, tool="send")

    steps = await decided_events(tools, Deciding(allow), "send")

    assert [each.content for each in results_in(steps)] == ["send is done"]


async def test_a_call_is_recorded_with_what_was_decided_unless_it_ran_at_once() -> None:
    """What is known not to have run is never taken for a call that was cut off."""
    deny = PolicyRule(decision=ToolDecision.DENY, tool="pay")
    ask = PolicyRule(decision=ToolDecision.ASK, tool="send")
    own = TurnTools(
        GatedTools("read", "send", "pay"), OPTIONS, turn_id="t", services=Deciding(deny, ask)
    )
    calls = tuple(ToolCall(f"id-{name}", name, {}) for name in ("read", "send", "pay"))
    answer = replace(
        answer_with("read", "send", "pay"), message=Message(Role.ASSISTANT, (Text("So."), *calls))
    )

    text, *recorded = (await own.decide(answer)).message.parts

    assert text == Text("So.")
    marks = [each.extra for each in recorded if isinstance(each, ToolCall)]
    assert marks == [{}, {"policy": "ask"}, {"policy": "deny"}]
    assert [chats_of(Message(Role.ASSISTANT, tuple(recorded)))] == [
        chats_of(Message(Role.ASSISTANT, calls))
    ]


async def test_a_safe_call_is_run_again_with_the_key_of_the_first_time(connected: Any) -> None:
    tools = await connected()
    again = TurnTools(tools, OPTIONS, turn_id="t", calls_before=2)
    first = Message(Role.ASSISTANT, (ToolCall("1", "read"), ToolCall("2", "pay", {"amount": 5})))

    steps = again.resumed_steps([first, Message(Role.TOOL, (ToolResult("1"),))])

    assert [each.content for each in results_in([step async for step in steps])] == ["paid 5 t-2"]


def test_unfinished_calls_keep_their_numbers() -> None:
    """Also where a provider uses the same ids in each response."""
    said = Message(Role.ASSISTANT, (Text("So."), ToolCall("a", "one"), ToolCall("b", "two")))
    done = Message(Role.TOOL, (ToolResult("b"), ToolResult("a")))
    last = Message(Role.ASSISTANT, (ToolCall("a", "three"), ToolCall("b", "four")))
    half = Message(Role.TOOL, (ToolResult("a"),))

    assert unfinished_calls([said, done]) == {}
    assert unfinished_calls([said, done, last]) == {3: last.parts[0], 4: last.parts[1]}
    assert unfinished_calls([said, done, last, half]) == {4: last.parts[1]}


@pytest.mark.parametrize(
    ("options", "model", "window"),
    [
        ({"model": "openai:gpt-5"}, None, 400_000),
        ({"model": "openai-responses:gpt-5"}, None, 400_000),
        ({"model": "gpt-5", "provider": "openai"}, None, 400_000),
        ({"model": "anthropic:claude-sonnet-4-5"}, None, 200_000),
        # A session's own model.
        ({"model": "openai:gpt-5"}, "gpt-4o", 128_000),
        ({"model": "openai:gpt-5"}, "openai:gpt-4o", 128_000),
        # Another server's window is not the maker's.
        ({"model": "openai:gpt-5", "base_url": "http://127.0.0.1:9/v1"}, None, None),
        ({"model": "ollama:llama3:8b"}, None, None),
        ({"model": "ollama:llama3:8b", "window": 8192}, None, 8192),
        ({"model": "openai:gpt-5", "window": 50_000}, None, 50_000),
    ],
)
def test_the_window_is_the_agent_s_or_the_model_s(
    options: dict[str, Any], model: str | None, window: int | None
) -> None:
    assert ModelRunner(ModelOptions(**options)).window(model) == window


def test_an_agent_says_whether_a_person_is_told_of_unknown_calls() -> None:
    assert not ModelRunner(OPTIONS).reports_unknown_calls
    options = ModelOptions(model="openai:m", report_unknown_calls=True)
    assert ModelRunner(options).reports_unknown_calls
