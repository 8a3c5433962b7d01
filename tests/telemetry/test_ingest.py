"""The spans of an instrumented program become a conversation, once and in order."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from sessionary.actions import usage
from sessionary.actions.sessions import edit as session_edit
from sessionary.actions.sessions import read
from sessionary.clock import Moment, RandomIds, SystemClock
from sessionary.telemetry import genai
from sessionary.telemetry.ingest import _priced, group_conversations, ingest_conversation
from sessionary.telemetry.span import Span
from tests.telemetry.conftest import TRACE, IngestStore, answer, call, result, span


def feed(target: IngestStore, *spans: Span) -> None:
    """Take one request in."""
    moment = Moment(SystemClock().now(), RandomIds())
    for thread in group_conversations(spans):
        read_spans = [_priced(genai.read_span(each)) for each in thread.spans]
        target.store.write(
            ingest_conversation, thread, read_spans, profile="main", moment=moment
        ).result()


def talk() -> list[Span]:
    """Two turns of one conversation, the first with a tool; every call repeats what came before."""
    first = ["where is it?", call("c1", q=1)]
    second = [*first, result("c1", "at home"), answer("At home."), "thanks"]
    return [
        span(["where is it?"], [call("c1", q=1)], at=0),
        span([*first, result("c1", "at home")], [answer("At home.")], at=2),
        span(second, [answer("Welcome.")], at=4),
    ]


WHOLE = ["u:where is it?", "a:", "t:", "a:At home.", "u:thanks", "a:Welcome."]


def test_each_message_of_a_conversation_stands_there_once(target: IngestStore) -> None:
    feed(target, *talk())

    assert target.texts() == WHOLE
    [head] = target.heads()
    assert (head.source.platform, head.source.chat_name) == ("otel", "shop")
    assert (head.message_count, head.tool_call_count) == (6, 1)
    assert head.began_at.year == 2026


def test_a_call_and_its_result_are_a_pair(target: IngestStore) -> None:
    feed(target, *talk())

    assert target.context()[1:3] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "look", "arguments": '{"q":1}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "at home"},
    ]


def test_a_request_that_comes_again_changes_nothing(target: IngestStore) -> None:
    spans = talk()
    feed(target, *spans)
    feed(target, *spans)
    for each in spans:
        feed(target, each)

    assert target.texts() == WHOLE


def test_requests_that_overtake_each_other_lose_nothing(target: IngestStore) -> None:
    one, two, three = talk()
    feed(target, three)
    feed(target, two)
    feed(target, one)

    assert target.texts() == WHOLE


@pytest.mark.parametrize("seed", range(6))
def test_in_any_order_and_any_number_of_times_the_words_are_the_same(
    target: IngestStore, seed: int
) -> None:
    rng = random.Random(seed)
    spans = talk() * 2
    rng.shuffle(spans)
    for first in range(0, len(spans), 2):
        feed(target, *spans[first : first + 2])

    assert sorted(target.texts()) == sorted(WHOLE)


def test_a_conversation_goes_on_over_several_traces(target: IngestStore) -> None:
    feed(target, span(["a"], ["b"], trace="1" * 32, gen_ai__conversation__id="c-1"))
    feed(target, span(["c"], ["d"], trace="2" * 32, gen_ai__conversation__id="c-1"))
    feed(target, span(["x"], ["y"], trace="3" * 32, gen_ai__conversation__id="c-2"))

    one, other = target.heads()
    assert target.texts(one) == ["u:a", "a:b", "u:c", "a:d"]
    assert target.texts(other) == ["u:x", "a:y"]


def test_spans_without_a_name_belong_where_their_trace_belongs(target: IngestStore) -> None:
    agent = span(id="1" * 16, gen_ai__operation__name="invoke_agent", gen_ai__conversation__id="c")
    inner = span(["a"], ["b"], at=1, parent="1" * 16)
    late = span(["c"], ["d"], at=2)
    feed(target, inner)  # a child ends, and comes, before its parent
    feed(target, agent)
    feed(target, late)
    feed(target, span(["e"], ["f"], at=3, trace="b" * 32, gen_ai__conversation__id="c"))

    assert target.texts() == ["u:a", "a:b", "u:c", "a:d", "u:e", "a:f"]


def test_the_same_exchange_later_is_stored_again(target: IngestStore) -> None:
    feed(target, span(["hi"], ["hello"], at=0))
    feed(target, span(["hi"], ["hello"], at=5))

    assert target.texts() == ["u:hi", "a:hello", "u:hi", "a:hello"]


def test_an_agents_span_repeats_its_calls_and_costs_nothing_more(target: IngestStore) -> None:
    tokens: dict[str, Any] = {"gen_ai__usage__input_tokens": 10, "gen_ai__usage__output_tokens": 5}
    inner = span(["a"], ["b"], at=1, gen_ai__request__model="gpt-4o", **tokens)
    outer = span(["a"], ["b"], gen_ai__operation__name="invoke_agent", **tokens)
    feed(target, inner, outer)
    feed(target, outer)

    assert target.texts() == ["u:a", "a:b"]
    assert (target.heads()[0].usage.calls, target.heads()[0].usage.input_tokens) == (1, 10)


def test_a_tools_span_brings_its_result_before_any_call_repeats_it(target: IngestStore) -> None:
    tool = span(
        at=1,
        gen_ai__operation__name="execute_tool",
        gen_ai__tool__name="look",
        gen_ai__tool__call__id="c1",
        gen_ai__tool__call__result="at home",
    )
    one, two, three = talk()
    feed(target, one, tool)
    assert target.context()[-1]["content"] == "at home"

    feed(target, two, tool, three)

    assert target.texts() == WHOLE


def test_calls_are_priced_once_and_cached_tokens_counted_apart(target: IngestStore) -> None:
    used = span(
        ["a"],
        ["b"],
        gen_ai__provider__name="openai",
        gen_ai__request__model="gpt-4o",
        gen_ai__usage__input_tokens=1_000_000,
        gen_ai__usage__output_tokens=100,
        gen_ai__usage__cache_read__input_tokens=400_000,
    )
    feed(target, used)
    feed(target, used)

    [total] = target.store.read(usage.sum_usage, "model", profile="main").result()
    assert (total.group, total.calls) == ("gpt-4o", 1)
    assert (total.input_tokens, total.cache_read_tokens, total.output_tokens) == (
        600_000,
        400_000,
        100,
    )
    assert total.cost_microusd is not None
    assert total.cost_microusd > 1_000_000


def test_what_a_call_caches_for_an_hour_costs_more(target: IngestStore) -> None:
    feed(
        target,
        span(
            ["a"],
            ["b"],
            gen_ai__provider__name="anthropic",
            gen_ai__request__model="claude-sonnet-4-5",
            gen_ai__usage__input_tokens=100_000,
            gen_ai__usage__cache_creation__input_tokens=100_000,
            gen_ai__usage__details__cache_write_1h_tokens=100_000,
        ),
    )

    [total] = target.store.read(usage.sum_usage, "model", profile="main").result()
    assert (total.cache_write_tokens, total.cost_microusd) == (100_000, 600_000)


def test_a_provider_by_another_name_is_priced_by_the_model(target: IngestStore) -> None:
    feed(
        target,
        span(
            ["a"],
            ["b"],
            gen_ai__system="my-gateway",
            gen_ai__request__model="gpt-4o",
            gen_ai__usage__input_tokens=1000,
        ),
    )

    [head] = target.heads()
    assert head.usage.cost_microusd


def test_a_call_that_keeps_its_words_to_itself_is_counted(target: IngestStore) -> None:
    silent = span(gen_ai__request__model="gpt-4o", gen_ai__usage__input_tokens=7)
    feed(target, silent)
    feed(target, silent)

    [head] = target.heads()
    assert (head.message_count, head.usage.input_tokens, head.model) == (1, 7, "gpt-4o")


def test_a_call_that_failed_says_why_and_its_prompt_stands_once(target: IngestStore) -> None:
    feed(target, span(["a"], error="no quota", at=0), span(["a"], ["b"], at=2))

    assert target.texts() == ["u:a", "a:", "a:b"]


def test_the_system_prompt_is_the_sessions_and_no_message(target: IngestStore) -> None:
    system = {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]}
    feed(target, span([system, "a"], ["b"]))
    feed(target, span(["a", answer("b"), "c"], ["d"], at=2, gen_ai__system_instructions="Other."))

    [head] = target.heads()
    assert target.texts() == ["u:a", "a:b", "u:c", "a:d"]
    assert target.store.read(read.get_system_prompt, head).result() == "Be brief."


def test_spans_of_other_work_are_nothing_to_us(target: IngestStore) -> None:
    feed(target, Span(TRACE, "1" * 16, name="GET /", attributes={"http.request.method": "GET"}))

    assert target.heads() == []


def test_what_a_person_has_ended_or_thrown_away_goes_on_in_its_place(target: IngestStore) -> None:
    feed(target, *talk()[:1])
    [head] = target.heads()
    moment = Moment(SystemClock().now(), RandomIds())
    target.store.write(session_edit.trash, head.id, profile="main", moment=moment).result()

    feed(target, *talk()[1:])

    assert target.texts() == WHOLE
    assert target.heads()[0].trashed_at is None


def test_times_that_cannot_be_are_ours(target: IngestStore) -> None:
    strange: Sequence[int] = (0, 2**63, -5)
    for number, nanos in enumerate(strange):
        made = span([f"q{number}"], [f"a{number}"], trace=f"{number}" * 32)
        feed(
            target,
            Span(
                made.trace_id,
                made.span_id,
                start_nanos=nanos,
                end_nanos=nanos,
                attributes=made.attributes,
            ),
        )

    now = SystemClock().now()
    assert all(head.last_active_at <= now and head.began_at.year > 2000 for head in target.heads())
    assert len(target.heads()) == 3
