"""OTLP over HTTP: from the bytes of a request to spans, and the answer."""

import json
import re
import zlib
from collections.abc import Iterator
from typing import Any

from sessionary.errors import BadInput
from sessionary.telemetry import protobuf
from sessionary.telemetry.protobuf import MOST_DEPTH, MOST_SPANS
from sessionary.telemetry.span import LogRecord, Span, SpanEvent

JSON = "application/json"
PROTOBUF = "application/x-protobuf"
MEDIA_TYPES = (JSON, PROTOBUF)
MOST_BYTES = 64 * 1024 * 1024
_GZIP = 16 + zlib.MAX_WBITS
_HEX = re.compile(r"[0-9a-fA-F]*")


def unpacked(raw: bytes, encoding: str | None) -> bytes | None:
    """The body without its compression; None for more than we are ready to hold."""
    match (encoding or "identity").strip().lower():
        case "identity":
            return raw
        case "gzip":
            pass
        case other:
            raise BadInput(f"The content encoding {other[:40]!r} is not known: use gzip.")
    opener = zlib.decompressobj(_GZIP)
    try:
        body = opener.decompress(raw, MOST_BYTES + 1)
    except zlib.error as error:
        raise BadInput("The body is not gzip.") from error
    if len(body) > MOST_BYTES:
        return None
    if not opener.eof:
        raise BadInput("The gzip body breaks off.")
    return body


def spans_of(body: bytes, media_type: str) -> list[Span]:
    """The spans of an export request."""
    return protobuf.spans_of(body) if media_type == PROTOBUF else _spans_of_json(body)


def log_records_of(body: bytes, media_type: str) -> list[LogRecord]:
    """The log records of an export request."""
    return protobuf.log_records_of(body) if media_type == PROTOBUF else _logs_of_json(body)


def answer(
    media_type: str, *, rejected: int = 0, reason: str = "", counted: str = "rejectedSpans"
) -> bytes:
    """What the exporter reads: all is taken, or how many spans were not and why.

    A reason without a number is a warning: everything was taken, but something is worth knowing.
    """
    if media_type == JSON:
        partial = {counted: str(rejected), "errorMessage": reason}
        return json.dumps({"partialSuccess": partial} if rejected or reason else {}).encode()
    if not rejected and not reason:
        return b""
    # Not in the middle of a letter: the exporter's parser would refuse the whole answer.
    text = reason.encode("utf-8", "replace")[:1000].decode("utf-8", "ignore").encode()
    partial_success = b"\x08" + _varint(rejected) + b"\x12" + _varint(len(text)) + text
    return b"\x0a" + _varint(len(partial_success)) + partial_success


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _spans_of_json(body: bytes) -> list[Span]:
    found: list[Span] = []
    for scope, service in _scopes(_json(body), "resourceSpans", "scopeSpans"):
        found += [_span(each, service) for each in _objects(scope, "spans")]
        if len(found) > MOST_SPANS:
            raise BadInput(f"A request has {MOST_SPANS:,} spans at most.")
    return found


def _logs_of_json(body: bytes) -> list[LogRecord]:
    found: list[LogRecord] = []
    for scope, service in _scopes(_json(body), "resourceLogs", "scopeLogs"):
        found += [_log_record(each, service) for each in _objects(scope, "logRecords")]
        if len(found) > MOST_SPANS:
            raise BadInput(f"A request has {MOST_SPANS:,} log records at most.")
    return found


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except RecursionError as error:
        raise BadInput("The JSON is nested too deeply.") from error
    except ValueError as error:
        raise BadInput("The body is no JSON.") from error


def _scopes(data: Any, resources: str, scopes: str) -> Iterator[tuple[dict[str, Any], str | None]]:
    for resource in _objects(data, resources):
        name = _attributes(_object(resource.get("resource")).get("attributes")).get("service.name")
        service = name if isinstance(name, str) else None
        for scope in _objects(resource, scopes):
            yield scope, service


def _log_record(data: dict[str, Any], service: str | None) -> LogRecord:
    facts = _attributes(data.get("attributes"))
    return LogRecord(
        _id(data.get("traceId")),
        _id(data.get("spanId")),
        str(data.get("eventName") or facts.get("event.name") or ""),
        _whole(data.get("timeUnixNano")) or _whole(data.get("observedTimeUnixNano")),
        facts,
        _value(data.get("body"), 0),
        service,
    )


def _span(data: dict[str, Any], service: str | None) -> Span:
    status = _object(data.get("status"))
    is_error = status.get("code") in (2, "STATUS_CODE_ERROR")
    return Span(
        _id(data.get("traceId")),
        _id(data.get("spanId")),
        _id(data.get("parentSpanId")),
        str(data.get("name") or ""),
        _whole(data.get("startTimeUnixNano")),
        _whole(data.get("endTimeUnixNano")),
        _attributes(data.get("attributes")),
        tuple(
            SpanEvent(str(each.get("name") or ""), _attributes(each.get("attributes")))
            for each in _objects(data, "events")
        ),
        (str(status.get("message") or "") or "error") if is_error else None,
        service,
    )


def _attributes(pairs: Any, depth: int = 0) -> dict[str, Any]:
    if pairs is None:
        return {}
    if not isinstance(pairs, list):
        raise BadInput("Attributes are a list of keys and values.")
    return {str(each.get("key")): _value(each.get("value"), depth) for each in map(_object, pairs)}


def _value(data: Any, depth: int) -> Any:
    if depth > MOST_DEPTH:
        raise BadInput("An attribute is nested too deeply.")
    for kind, value in _object(data).items():
        match kind:
            case "stringValue" | "bytesValue":
                return str(value)
            case "boolValue":
                return bool(value)
            case "intValue":
                return _whole(value)
            case "doubleValue":
                return _float(value)
            case "arrayValue":
                return [_value(each, depth + 1) for each in _list(_object(value).get("values"))]
            case "kvlistValue":
                return _attributes(_object(value).get("values"), depth + 1)
    return None


def _objects(data: Any, name: str) -> list[dict[str, Any]]:
    return [_object(each) for each in _list(_object(data).get(name))]


def _object(data: Any) -> dict[str, Any]:
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise BadInput(f"An object was expected, not {type(data).__name__}.")
    return data


def _list(data: Any) -> list[Any]:
    if data is None:
        return []
    if not isinstance(data, list):
        raise BadInput(f"A list was expected, not {type(data).__name__}.")
    return data


def _id(value: Any) -> str:
    text = "" if value is None else str(value)
    if not _HEX.fullmatch(text) or len(text) > 64:
        raise BadInput("Ids of traces and spans are hexadecimal.")
    return text.lower()


def _whole(value: Any) -> int:
    try:
        return int(value or 0)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(f"{str(value)[:40]!r} is no whole number.") from error


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(f"{str(value)[:40]!r} is no number.") from error
