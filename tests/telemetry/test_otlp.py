"""OTLP's bytes: what the real SDK writes is read exactly, anything else is refused in words."""

import contextlib
import gzip
import json
import zlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from sessionary.errors import BadInput
from sessionary.telemetry import otlp
from sessionary.telemetry.span import Span

ATTRIBUTES: dict[str, Any] = {
    "text": "äöü ☃",
    "yes": True,
    "count": 42,
    "negative": -7,
    "ratio": 0.25,
    "names": ["a", "b"],
    "numbers": [1, 2**40],
}


def recorded() -> Sequence[ReadableSpan]:
    """Two spans of the real SDK, parent and child."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("t")
    with tracer.start_as_current_span("outer", attributes=ATTRIBUTES) as outer:
        outer.add_event("gen_ai.user.message", {"content": "hi"})
        with tracer.start_as_current_span("inner") as inner:
            inner.set_status(StatusCode.ERROR, "no quota")
    return memory.get_finished_spans()


def expected(spans: Sequence[ReadableSpan]) -> list[tuple[Any, ...]]:
    found = []
    for each in spans:
        context = each.get_span_context()
        assert context is not None
        parent = "" if each.parent is None else f"{each.parent.span_id:016x}"
        found.append(
            (
                f"{context.trace_id:032x}",
                f"{context.span_id:016x}",
                parent,
                each.name,
                each.start_time,
            )
        )
    return found


def facts(spans: Sequence[Span]) -> list[tuple[Any, ...]]:
    return [(s.trace_id, s.span_id, s.parent_id, s.name, s.start_nanos) for s in spans]


def test_what_the_sdk_writes_is_read_exactly() -> None:
    spans = recorded()

    found = otlp.read_spans(encode_spans(spans).SerializeToString(), otlp.PROTOBUF)

    assert facts(found) == expected(spans)
    inner, outer = found
    assert outer.attributes == ATTRIBUTES
    assert (outer.events[0].name, outer.events[0].attributes) == (
        "gen_ai.user.message",
        {"content": "hi"},
    )
    assert (inner.error, outer.error, outer.service) == ("no quota", None, "shop")


def as_json(spans: Sequence[Span]) -> bytes:
    """The same in OTLP's JSON, as an exporter in another language writes it."""

    def value(given: Any) -> dict[str, Any]:
        match given:
            case bool():
                return {"boolValue": given}
            case int():
                return {"intValue": str(given)}
            case float():
                return {"doubleValue": given}
            case list():
                return {"arrayValue": {"values": [value(each) for each in given]}}
        return {"stringValue": given}

    def pairs(attributes: Any) -> list[dict[str, Any]]:
        return [{"key": name, "value": value(each)} for name, each in attributes.items()]

    return json.dumps(
        {
            "resourceSpans": [
                {
                    "resource": {"attributes": pairs({"service.name": "shop"})},
                    "scopeSpans": [
                        {
                            "spans": [
                                {
                                    "traceId": each.trace_id.upper(),
                                    "spanId": each.span_id,
                                    "parentSpanId": each.parent_id,
                                    "name": each.name,
                                    "startTimeUnixNano": str(each.start_nanos),
                                    "endTimeUnixNano": each.end_nanos,
                                    "attributes": pairs(each.attributes),
                                    "events": [
                                        {"name": one.name, "attributes": pairs(one.attributes)}
                                        for one in each.events
                                    ],
                                    "status": {"code": 2, "message": each.error}
                                    if each.error
                                    else {},
                                }
                                for each in spans
                            ]
                        }
                    ],
                }
            ]
        }
    ).encode()


def test_json_says_the_same_as_protocol_buffers() -> None:
    spans = otlp.read_spans(encode_spans(recorded()).SerializeToString(), otlp.PROTOBUF)

    assert otlp.read_spans(as_json(spans), otlp.JSON) == spans


def test_gzip_is_unpacked_and_a_bomb_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert otlp.unpack(gzip.compress(b"hello"), "gzip") == b"hello"
    assert otlp.unpack(b"hello", None) == b"hello"
    monkeypatch.setattr(otlp, "MAX_BYTES", 1000)
    assert otlp.unpack(gzip.compress(b"\x00" * 100_000), "gzip") is None


@pytest.mark.parametrize(
    ("raw", "encoding"),
    [
        (b"no gzip", "gzip"),
        (gzip.compress(b"x" * 100)[:-9], "gzip"),
        (zlib.compress(b"x"), "gzip"),
        (b"", "br"),
    ],
    # The time stands in what gzip writes: no name of a test may come from it.
    ids=["not gzip", "cut off", "zlib", "another"],
)
def test_what_cannot_be_unpacked_is_refused(raw: bytes, encoding: str) -> None:
    with pytest.raises(BadInput):
        otlp.unpack(raw, encoding)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null7",
        b'{"resourceSpans": 5}',
        b'{"resourceSpans": [5]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "xyz"}]}]}]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": Infinity}]}]}]}',
        b'{"resourceSpans": [{"resource": {"attributes": [{"key": "a", "value": {"doubleValue": 1'
        + b"0" * 400
        + b"}}]}}]}",
        b"[" * 200_000,
        b'{"resourceSpans": [{"resource": {"attributes": [{"key": "a", "value": '
        + b'{"arrayValue": {"values": [' * 60
        + b"]}}" * 60
        + b"}]}}]}",
    ],
)
def test_json_that_is_no_request_is_refused_in_words(body: bytes) -> None:
    with pytest.raises(BadInput):
        otlp.read_spans(body, otlp.JSON)


@pytest.mark.parametrize(("depth", "reason"), [(33, "deep"), (200, "no OTLP message")])
def test_attributes_that_are_nested_too_deeply_are_refused(depth: int, reason: str) -> None:
    value = b""
    for _ in range(depth):
        array = b"\x0a" + bytes(protobuf_length(value)) + value
        value = b"\x2a" + bytes(protobuf_length(array)) + array
    pair = b"\x0a\x01a\x12" + bytes(protobuf_length(value)) + value
    message = pair
    for tag in (b"\x4a", b"\x12", b"\x12", b"\x0a"):  # attribute, span, scope, resource
        message = tag + bytes(protobuf_length(message)) + message

    with pytest.raises(BadInput, match=reason):
        otlp.read_spans(message, otlp.PROTOBUF)


def test_a_request_with_too_many_spans_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = otlp.read_spans(REQUEST, otlp.PROTOBUF)
    monkeypatch.setattr(otlp, "MAX_RECORDS", 1)

    for body, media_type in ((REQUEST, otlp.PROTOBUF), (as_json(spans), otlp.JSON)):
        with pytest.raises(BadInput, match="1 spans at most"):
            otlp.read_spans(body, media_type)


def protobuf_length(raw: bytes) -> list[int]:
    length, out = len(raw), []
    while length >= 0x80:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    return [*out, length]


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    for media in otlp.MEDIA_TYPES:
        with contextlib.suppress(BadInput):
            assert isinstance(otlp.read_spans(raw, media), list)


@given(st.data())
def test_a_request_with_a_broken_byte_is_read_or_refused(data: st.DataObject) -> None:
    raw = bytearray(REQUEST)
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadInput):
        assert isinstance(
            otlp.read_spans(bytes(raw[: data.draw(st.integers(0, len(raw)))]), otlp.PROTOBUF), list
        )


REQUEST = encode_spans(recorded()).SerializeToString()


def test_the_answer_says_what_was_not_taken() -> None:
    response = ExportTraceServiceResponse.FromString(
        otlp.encode_response(otlp.PROTOBUF, rejected=300, reason="too long")
    )

    assert response.partial_success.rejected_spans == 300
    assert response.partial_success.error_message == "too long"
    assert otlp.encode_response(otlp.PROTOBUF) == b""
    assert json.loads(otlp.encode_response(otlp.JSON)) == {}
    partial = json.loads(otlp.encode_response(otlp.JSON, rejected=2, reason="x"))["partialSuccess"]
    assert partial == {"rejectedSpans": "2", "errorMessage": "x"}


def test_a_long_reason_is_not_cut_in_the_middle_of_a_letter() -> None:
    response = otlp.encode_response(
        otlp.PROTOBUF, rejected=1, reason="x" + "\u5b57" * 2000 + "\ud800"
    )

    assert response.partition(b"x")[2].decode("utf-8").rstrip("\u5b57") == ""
