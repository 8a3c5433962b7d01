"""Log records with the messages of a span: joined with it, whichever comes first."""

import json
from itertools import permutations
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as ProtoRecord

from sessionary.telemetry import otlp
from sessionary.telemetry.span import LogRecord
from tests.telemetry.conftest import BEGAN, TRACE, IngestStore, answer, span
from tests.telemetry.test_otlp import as_json

SPAN = "1" * 16
OTHER = "2" * 16
THIRD = "3" * 16


def event(
    name: str, body: Any, *, span_id: str = SPAN, trace: str = TRACE, at: int = 0
) -> LogRecord:
    return LogRecord(
        trace, span_id, name, BEGAN + at * 10**9, {"gen_ai.system": "openai"}, body, "shop"
    )


def message_record(role: str, content: str, **where: Any) -> LogRecord:
    return event(f"gen_ai.{role}.message", {"content": content}, **where)


def chosen(content: str, **where: Any) -> LogRecord:
    message = {"role": "assistant", "content": content}
    return event(
        "gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": message}, **where
    )


def logs_json(*records: LogRecord) -> bytes:
    def value(given: Any) -> dict[str, Any]:
        match given:
            case dict():
                return {"kvlistValue": {"values": pairs(given)}}
            case list():
                return {"arrayValue": {"values": [value(each) for each in given]}}
            case int():
                return {"intValue": str(given)}
        return {"stringValue": given}

    def pairs(given: Any) -> list[dict[str, Any]]:
        return [{"key": name, "value": value(each)} for name, each in given.items()]

    rows = [
        {
            "traceId": each.trace_id,
            "spanId": each.span_id,
            "eventName": each.name,
            "observedTimeUnixNano": str(each.nanos),
            "attributes": pairs(each.attributes),
            **({} if each.body is None else {"body": value(each.body)}),
        }
        for each in records
    ]
    resource = {"attributes": pairs({"service.name": "shop"})}
    return json.dumps(
        {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": rows}]}]}
    ).encode()


def logs_protobuf(*records: LogRecord) -> bytes:
    def value(given: Any) -> AnyValue:
        match given:
            case dict():
                return AnyValue(kvlist_value=KeyValueList(values=pairs(given)))
            case int():
                return AnyValue(int_value=given)
        return AnyValue(string_value=given)

    def pairs(given: Any) -> list[KeyValue]:
        return [KeyValue(key=name, value=value(each)) for name, each in given.items()]

    request = ExportLogsServiceRequest()
    resource = request.resource_logs.add()
    resource.resource.attributes.extend(pairs({"service.name": "shop"}))
    scope = resource.scope_logs.add()
    for each in records:
        row = ProtoRecord(
            trace_id=bytes.fromhex(each.trace_id),
            span_id=bytes.fromhex(each.span_id),
            observed_time_unix_nano=each.nanos,
            attributes=pairs(each.attributes),
            event_name=each.name,
        )
        if each.body is not None:
            row.body.CopyFrom(value(each.body))
        scope.log_records.append(row)
    written: bytes = request.SerializeToString()
    return written


async def take_logs(target: IngestStore, *records: LogRecord) -> Any:
    answer = await target.ingest.ingest_logs("main", logs_json(*records), otlp.JSON, None)
    assert answer is not None
    return json.loads(answer)


async def take_spans(target: IngestStore, *spans: Any) -> Any:
    answer = await target.ingest.ingest_spans("main", as_json(spans), otlp.JSON, None)
    assert answer is not None
    return json.loads(answer)


def silent(id: str = SPAN, *, at: int = 0, **attributes: Any) -> Any:
    """A call that tells its tokens and keeps its words to its events."""
    used: dict[str, Any] = {"gen_ai__usage__input_tokens": 10, "gen_ai__request__model": "gpt-4o"}
    return span(id=id, at=at, **used, **attributes)


TALK = [message_record("system", "Be kind."), message_record("user", "hello"), chosen("hi!", at=1)]


@pytest.mark.parametrize("media", otlp.MEDIA_TYPES)
def test_log_records_are_read_in_both_forms(media: str) -> None:
    given = [*TALK, event("gen_ai.user.message", None)]
    write = logs_json if media == otlp.JSON else logs_protobuf

    assert otlp.read_log_records(write(*given), media) == given


@pytest.mark.parametrize("order", list(permutations(["span", "events", "events again"])))
async def test_events_and_their_span_are_one_call_in_any_order(
    target: IngestStore, order: tuple[str, ...]
) -> None:
    for each in order:
        if each == "span":
            assert await take_spans(target, silent()) == {}
        else:
            assert await take_logs(target, *TALK) == {}

    assert target.texts() == ["u:hello", "a:hi!"]
    [head] = target.heads()
    assert (head.usage.calls, head.usage.input_tokens, head.message_count) == (1, 10, 2)


async def test_the_words_of_several_calls_take_the_places_of_their_placeholders(
    target: IngestStore,
) -> None:
    await take_spans(target, silent(), silent(OTHER, at=2))
    assert target.texts() == ["a:", "a:"]

    await take_logs(
        target,
        message_record("user", "more", span_id=OTHER, at=2),
        chosen("done", span_id=OTHER, at=3),
    )
    assert target.texts() == ["a:", "u:more", "a:done"]
    await take_logs(target, *TALK)

    assert target.texts() == ["u:hello", "a:hi!", "u:more", "a:done"]


@pytest.mark.parametrize("is_sent_again", [False, True])
async def test_a_call_that_repeats_an_earlier_one_is_not_doubled_when_its_events_come_first(
    target: IngestStore, is_sent_again: bool
) -> None:
    later = [
        message_record("user", "hello", span_id=OTHER, at=2),
        message_record("assistant", "hi!", span_id=OTHER, at=2),
        message_record("user", "more", span_id=OTHER, at=2),
        chosen("done", span_id=OTHER, at=3),
    ]
    await take_spans(target, silent(), silent(OTHER, at=2))
    await take_logs(target, *later)

    await take_logs(target, *TALK, *(later if is_sent_again else ()))
    await take_logs(target, *TALK, *later)

    assert target.texts() == ["u:hello", "a:hi!", "u:more", "a:done"]


async def test_the_events_of_one_call_may_come_in_two_requests_after_its_span(
    target: IngestStore,
) -> None:
    await take_spans(target, silent())
    await take_logs(target, *TALK[:2])
    await take_logs(target, *TALK[2:])

    assert target.texts() == ["u:hello", "a:hi!"]


async def test_earlier_texts_are_appended_again_after_a_replaced_placeholder(
    target: IngestStore,
) -> None:
    first, where = span(["yes"], ["ok"]), {"span_id": OTHER, "at": 4}
    await take_spans(target, first, silent(at=2), silent(OTHER, at=4))
    history = [message_record("user", "yes", **where), message_record("assistant", "ok", **where)]
    asked = [message_record("user", "yes", **where), message_record("user", "do it", **where)]
    await take_logs(target, *history, *asked, chosen("done", span_id=OTHER, at=5))
    third = span(
        ["yes", answer("ok"), "yes", "do it", answer("done"), "yes", "go on"], ["on"], at=6
    )
    await take_spans(target, third)
    behind = ["u:yes", "u:do it", "a:done", "u:yes", "u:go on", "a:on"]
    assert target.texts() == ["u:yes", "a:ok", "a:", *behind]

    await take_logs(target, *TALK)

    assert target.texts() == ["u:yes", "a:ok", "u:hello", "a:hi!", *behind]


async def test_events_that_come_before_the_name_of_their_conversation_join_it(
    target: IngestStore,
) -> None:
    name: dict[str, Any] = {"gen_ai__conversation__id": "voyage"}
    await take_spans(target, silent(**name))
    await take_logs(target, *TALK)
    second: dict[str, Any] = {"trace": "b" * 32, "span_id": OTHER}
    await take_logs(
        target,
        message_record("user", "hello", **second),
        message_record("assistant", "hi!", **second),
        message_record("user", "bye", at=4, **second),
        chosen("see you", at=5, **second),
    )
    assert len(target.heads()) == 2

    await take_spans(target, silent(OTHER, trace="b" * 32, at=4, **name))

    [head] = [each for each in target.heads() if each.trashed_at is None]
    assert target.texts(head) == ["u:hello", "a:hi!", "u:bye", "a:see you"]
    assert (head.source.chat_id, head.usage.calls) == ("voyage", 2)
    await take_logs(target, chosen("one more thing", at=6, **second))
    assert target.texts(head)[-1] == "a:one more thing"


def events_of_three_calls() -> list[LogRecord]:
    """Two turns, the first with a call of a tool; each call repeats what was said before."""
    tool_call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    asks_tool = {"role": "assistant", "tool_calls": [tool_call]}
    found: list[LogRecord] = []
    for span_id, trace, at in ((SPAN, TRACE, 0), (OTHER, TRACE, 2), (THIRD, "b" * 32, 4)):
        where: dict[str, Any] = {"span_id": span_id, "trace": trace, "at": at}
        found += [
            message_record("system", "Be kind.", **where),
            message_record("user", "where?", **where),
        ]
        if span_id == SPAN:
            found.append(event("gen_ai.choice", {"index": 0, "message": asks_tool}, **where))
            continue
        found += [
            event("gen_ai.assistant.message", asks_tool, **where),
            event("gen_ai.tool.message", {"id": "c1", "content": "in the harbour"}, **where),
        ]
        if span_id == OTHER:
            found.append(chosen("At sea.", **where))
            continue
        found += [
            message_record("assistant", "At sea.", **where),
            message_record("user", "thanks", **where),
            chosen("You are welcome.", **where),
        ]
    return found


@pytest.mark.parametrize("spans_come", ["first", "between", "last", "one by one"])
@pytest.mark.parametrize("sent_first", [2, 3, 6, 12])
async def test_events_sent_in_the_middle_of_a_conversation_keep_its_order(
    target: IngestStore, sent_first: int, spans_come: str
) -> None:
    """An exporter sends every few seconds, whatever the program is doing."""
    name: dict[str, Any] = {"gen_ai__conversation__id": "voyage"}
    spans = [silent(**name), silent(OTHER, at=2, **name)]
    spans.append(silent(THIRD, trace="b" * 32, at=4, **name))
    records = events_of_three_calls()
    begin, rest = records[:sent_first], records[sent_first:]
    one, two = spans[:1], spans[1:]
    order: dict[str, list[list[Any]]] = {
        "first": [spans, begin, rest],
        "between": [begin, spans, rest],
        "last": [begin, rest, spans],
        "one by one": [begin, one, rest, two],
    }
    for sent in order[spans_come]:
        if isinstance(sent[0], LogRecord):
            assert await take_logs(target, *sent) == {}
        else:
            assert await take_spans(target, *sent) == {}

    [head] = [each for each in target.heads() if each.trashed_at is None]
    assert target.texts(head) == [
        "u:where?",
        "a:",
        "t:",
        "a:At sea.",
        "u:thanks",
        "a:You are welcome.",
    ]
    assert (head.usage.calls, head.tool_call_count) == (3, 1)


async def test_events_may_tell_their_words_as_a_plain_text(target: IngestStore) -> None:
    await take_logs(target, event("gen_ai.user.message", "hello"), event("gen_ai.choice", "hi!"))

    assert target.texts() == ["u:hello", "a:hi!"]


async def test_events_outside_of_a_span_are_refused_by_number(target: IngestStore) -> None:
    answer = await take_logs(target, message_record("user", "lost", span_id="", trace=""), *TALK)

    assert answer["partialSuccess"]["rejectedLogRecords"] == "1"
    assert "no span" in answer["partialSuccess"]["errorMessage"]
    assert target.texts() == ["u:hello", "a:hi!"]


async def test_the_other_lines_of_a_programs_log_are_passed_over(target: IngestStore) -> None:
    line = LogRecord(TRACE, SPAN, "", BEGAN, {}, "Started.")
    answer = await target.ingest.ingest_logs("main", logs_json(line), otlp.JSON, None)

    assert answer == b"{}"
    assert target.heads() == []


async def test_events_without_words_leave_the_placeholder(target: IngestStore) -> None:
    await take_spans(target, silent())

    await take_logs(
        target,
        event("gen_ai.user.message", None),
        event("gen_ai.tool.message", {"id": "c1"}),
        event("gen_ai.choice", {"index": 0, "message": {"role": "assistant"}}),
    )

    [head] = target.heads()
    assert head.message_count == 1
