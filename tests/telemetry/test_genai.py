"""Every style in which instrumentations tell a conversation is understood alike."""

import json
from typing import Any

import pytest

from sessionary.model.message import Message, Reasoning, Text, ToolCall, ToolResult
from sessionary.telemetry import genai, messages
from sessionary.telemetry.span import Span, SpanEvent

CALLS = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q": 1}'}}]
CHATS: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": None, "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "c1", "content": "found"},
]
EVENTS = (
    SpanEvent("gen_ai.system.message", {"content": "Be brief."}),
    SpanEvent("gen_ai.user.message", {"content": "hi"}),
    SpanEvent("gen_ai.assistant.message", {"tool_calls": json.dumps(CALLS)}),
    SpanEvent("gen_ai.tool.message", {"id": "c1", "content": "found"}),
    SpanEvent(
        "gen_ai.choice",
        {"finish_reason": "stop", "message": json.dumps({"role": "assistant", "content": "yes"})},
    ),
)


def span_content(
    attributes: dict[str, Any], events: tuple[SpanEvent, ...] = ()
) -> genai.SpanContent:
    return genai.read_span(
        Span("a", "b", attributes={"gen_ai.system": "x", **attributes}, events=events)
    )


def shown(messages: tuple[Message, ...]) -> list[Any]:
    return [(str(each.role), *map(_shown, each.parts)) for each in messages]


def _shown(part: Any) -> Any:
    match part:
        case Text(text):
            return text
        case ToolCall(id=id, name=name):
            return (id, name)
        case ToolResult(call_id=id, content=content):
            return (id, content)
        case Reasoning(text):
            return f"({text})"
    return part


INPUTS = [("user", "hi"), ("assistant", ("c1", "look")), ("tool", ("c1", "found"))]

STYLES: dict[str, tuple[dict[str, Any], tuple[SpanEvent, ...]]] = {
    "attributes": (
        {
            "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Be brief."}]),
            "gen_ai.input.messages": json.dumps(
                [
                    {"role": "user", "parts": [{"type": "text", "content": "hi"}]},
                    {
                        "role": "assistant",
                        "parts": [
                            {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"q": 1}}
                        ],
                    },
                    {
                        "role": "tool",
                        "parts": [{"type": "tool_call_response", "id": "c1", "response": "found"}],
                    },
                ]
            ),
            "gen_ai.output.messages": json.dumps(
                [
                    {
                        "role": "assistant",
                        "parts": [{"type": "text", "content": "yes"}],
                        "finish_reason": "stop",
                    }
                ]
            ),
        },
        (),
    ),
    "span events": ({}, EVENTS),
    "events in an attribute": (
        {"events": json.dumps([{"event.name": each.name, **each.attributes} for each in EVENTS])},
        (),
    ),
    "events with a body": (
        {},
        tuple(
            SpanEvent(each.name, {"gen_ai.event.content": json.dumps(dict(each.attributes))})
            for each in EVENTS
        ),
    ),
    "prompt and completion": (
        {},
        (
            SpanEvent(
                "gen_ai.content.prompt",
                {"gen_ai.prompt": json.dumps([{"role": "system", "content": "Be brief."}, *CHATS])},
            ),
            SpanEvent(
                "gen_ai.content.completion",
                {
                    "gen_ai.completion": json.dumps(
                        [{"role": "assistant", "content": "yes", "finish_reason": "stop"}]
                    )
                },
            ),
        ),
    ),
    "numbered attributes": (
        {
            "gen_ai.prompt.0.role": "system",
            "gen_ai.prompt.0.content": "Be brief.",
            "gen_ai.prompt.1.role": "user",
            "gen_ai.prompt.1.content": "hi",
            "gen_ai.prompt.2.role": "assistant",
            "gen_ai.prompt.2.tool_calls.0.id": "c1",
            "gen_ai.prompt.2.tool_calls.0.name": "look",
            "gen_ai.prompt.2.tool_calls.0.arguments": '{"q": 1}',
            "gen_ai.prompt.3.role": "tool",
            "gen_ai.prompt.3.tool_call_id": "c1",
            "gen_ai.prompt.3.content": "found",
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": "yes",
            "gen_ai.completion.0.finish_reason": "stop",
        },
        (),
    ),
}


@pytest.mark.parametrize("style", STYLES)
def test_every_style_says_the_same(style: str) -> None:
    found = span_content(*STYLES[style])

    assert found.system == "Be brief."
    assert shown(found.inputs) == INPUTS
    assert shown(found.outputs) == [("assistant", "yes")]
    assert found.outputs[0].finish_reason == "stop"


def test_what_a_person_and_a_tool_say_in_one_message_is_taken_apart() -> None:
    parts = [
        {"type": "tool_call_response", "id": "c1", "result": {"a": 1}},
        {"type": "text", "content": "and now?"},
    ]
    found = span_content({"gen_ai.input.messages": json.dumps([{"role": "user", "parts": parts}])})

    assert shown(found.inputs) == [("tool", ("c1", {"a": 1})), ("user", "and now?")]


def test_parts_we_do_not_know_are_kept_as_they_came() -> None:
    parts = [
        {"type": "blob", "mime_type": "image/png", "data": "AA=="},
        {"type": "reasoning", "content": "hm"},
    ]
    found = span_content(
        {"gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": parts}])}
    )

    [output] = found.outputs
    assert output.parts[0].data == parts[0]  # type: ignore[union-attr]
    assert output.parts[1] == Reasoning("hm")


@pytest.mark.parametrize(
    "value",
    [
        "",
        "[",
        "null",
        "[[[]]]",
        "[1, null, {}]",
        '{"role": 5}',
        '[{"parts": "x"}]',
        '"text"',
        7,
        True,
        ["x"],
        {"a": ["x"]},
    ],
)
def test_rubbish_is_read_without_harm(value: Any) -> None:
    names = ("input.messages", "usage.input_tokens", "request.model", "provider.name", "agent.name")
    found = span_content({f"gen_ai.{name}": value for name in names})
    of_what = span_content({"gen_ai.operation.name": value, "gen_ai.usage.input_tokens": 5})

    assert isinstance(found.inputs, tuple)
    assert of_what.usage is not None


def test_what_we_tell_is_what_we_read() -> None:
    found = span_content(*STYLES["attributes"])
    again = span_content(
        {
            "gen_ai.input.messages": messages.encode_messages(found.inputs),
            "gen_ai.output.messages": messages.encode_messages(found.outputs),
        }
    )

    assert shown(again.inputs) == shown(found.inputs)
    assert shown(again.outputs) == shown(found.outputs)
