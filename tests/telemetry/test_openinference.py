"""Spans by the OpenInference conventions."""

import json
from typing import Any

from sessionary.telemetry import otlp
from sessionary.telemetry.span import Span
from tests.telemetry.conftest import BEGAN, TRACE, IngestStore
from tests.telemetry.test_otlp import as_json

IN, OUT = "llm.input_messages", "llm.output_messages"
CALLS = "message.tool_calls.0.tool_call"


def make_span(kind: str, number: int = 1, **attributes: Any) -> Span:
    given = {"openinference.span.kind": kind, "session.id": "voyage", **attributes}
    began = BEGAN + number * 10**9
    return Span(TRACE, f"{number:016x}", "", kind.lower(), began, began + 1, given, service="shop")


def llm(number: int, asked: dict[str, Any], answered: dict[str, Any], **more: Any) -> Span:
    return make_span(
        "LLM",
        number,
        **{f"{IN}.{name}": value for name, value in asked.items()},
        **{f"{OUT}.0.{name}": value for name, value in answered.items()},
        **more,
    )


async def take(target: IngestStore, *spans: Span) -> Any:
    answer = await target.ingest.ingest_spans("main", as_json(spans), otlp.JSON, None)
    assert answer is not None
    return json.loads(answer)


async def test_calls_become_a_conversation_with_its_tokens(target: IngestStore) -> None:
    asked = {
        "0.message.role": "system",
        "0.message.content": "Be kind.",
        "1.message.role": "user",
        "1.message.contents.0.message_content.type": "text",
        "1.message.contents.0.message_content.text": "How is the weather?",
    }
    called = {
        "message.role": "assistant",
        f"{CALLS}.id": "c1",
        f"{CALLS}.function.name": "weather",
        f"{CALLS}.function.arguments": '{"city": "Lisbon"}',
    }
    then = {
        **asked,
        **{f"2.{name}": value for name, value in called.items()},
        "3.message.role": "tool",
        "3.message.tool_call_id": "c1",
        "3.message.content": "sunny",
    }
    tokens = {
        "llm.model_name": "gpt-4o",
        "llm.provider": "openai",
        "llm.token_count.prompt": 100,
        "llm.token_count.completion": 20,
        "llm.token_count.prompt_details.cache_read": 30,
        "llm.token_count.completion_details.reasoning": 5,
    }

    answer = await take(
        target,
        llm(1, asked, called, **tokens),
        llm(2, then, {"message.role": "assistant", "message.content": "Sunny."}, **tokens),
    )

    assert answer == {}
    assert target.texts() == ["u:How is the weather?", "a:", "t:", "a:Sunny."]
    [head] = target.heads()
    assert (head.source.chat_id, head.tool_call_count) == ("voyage", 1)
    used = head.usage
    assert (used.calls, used.input_tokens, used.output_tokens) == (2, 140, 40)
    assert (used.cache_read_tokens, used.reasoning_tokens) == (60, 10)
    assert used.cost_microusd
    assert target.context()[2]["content"] == "sunny"


async def test_an_agent_and_a_call_that_tell_only_texts_are_read(target: IngestStore) -> None:
    values = {"input.value": "hello", "output.value": "hi!"}

    await take(target, make_span("LLM", 1, **values), make_span("AGENT", 2, **values))

    assert target.texts() == ["u:hello", "a:hi!"]


async def test_a_tool_that_names_its_call_is_its_result(target: IngestStore) -> None:
    asked = {"0.message.role": "user", "0.message.content": "look"}
    called = {"message.role": "assistant", f"{CALLS}.id": "c1", f"{CALLS}.function.name": "look"}
    tool = make_span(
        "TOOL", 2, **{"tool.name": "look", "tool_call.id": "c1", "output.value": "fog"}
    )

    await take(target, llm(1, asked, called), tool)

    assert target.context()[-1]["content"] == "fog"


async def test_spans_that_hold_no_messages_are_named_and_nothing_is_refused(
    target: IngestStore,
) -> None:
    asked = {"0.message.role": "user", "0.message.content": "hello"}
    answered = {"message.role": "assistant", "message.content": "hi!"}

    answer = await take(
        target,
        make_span("CHAIN", 1, **{"input.value": "hello"}),
        make_span("RETRIEVER", 2),
        make_span("TOOL", 3, **{"output.value": "fog"}),
        make_span("LLM", 4),
        llm(5, asked, answered),
    )

    partial = answer["partialSuccess"]
    assert partial["rejectedSpans"] == "0"
    for kind in ("1 of CHAIN", "1 of RETRIEVER", "1 of TOOL", "1 of LLM"):
        assert kind in partial["errorMessage"]
    assert target.texts() == ["u:hello", "a:hi!"]


async def test_a_chain_that_failed_says_nothing_in_the_conversation(target: IngestStore) -> None:
    asked = {"0.message.role": "user", "0.message.content": "hello"}
    answered = {"message.role": "assistant", "message.content": "hi!"}
    chain = Span(TRACE, "f" * 16, attributes={"openinference.span.kind": "CHAIN"}, error="no luck")

    await take(target, llm(1, asked, answered), chain)

    assert target.texts() == ["u:hello", "a:hi!"]
