"""OTLP over HTTP: reads spans and log records from a request's bytes, and writes the response."""

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from sessionary.errors import BadInput
from sessionary.telemetry.span import LogRecord, Span, SpanEvent

JSON = "application/json"
PROTOBUF = "application/x-protobuf"
MEDIA_TYPES = (JSON, PROTOBUF)
# Parsed, a hostile request of this size takes about 4 GB; one of 512 spans with whole contexts fits.
MAX_BYTES = 48 * 1024 * 1024
MAX_RECORDS = 20_000
MAX_DEPTH = 32
_MAX_REASON_BYTES = 1000
_GZIP = 16 + zlib.MAX_WBITS
_HEX = re.compile(r"[0-9a-fA-F]*")
_STATUS_ERROR = 2
R = TypeVar("R", Span, LogRecord)


@dataclass(frozen=True, slots=True)
class Signal:
    """The names that OTLP's JSON has for one kind of telemetry."""

    resources: str
    scopes: str
    records: str
    rejected: str
    plural: str


SPANS = Signal("resourceSpans", "scopeSpans", "spans", "rejectedSpans", "spans")
LOGS = Signal("resourceLogs", "scopeLogs", "logRecords", "rejectedLogRecords", "log records")


def unpack(raw: bytes, encoding: str | None) -> bytes | None:
    """Return the body without its compression, or None if it is larger than `MAX_BYTES`."""
    match (encoding or "identity").strip().lower():
        case "identity":
            return raw if len(raw) <= MAX_BYTES else None
        case "gzip":
            pass
        case other:
            raise BadInput(f"The content encoding {other[:40]!r} is not known: use gzip.")
    decompressor = zlib.decompressobj(_GZIP)
    try:
        body = decompressor.decompress(raw, MAX_BYTES + 1)
    except zlib.error as error:
        raise BadInput("The body is not gzip.") from error
    if len(body) > MAX_BYTES:
        return None
    if not decompressor.eof:
        raise BadInput("The gzip body breaks off.")
    return body


def read_spans(body: bytes, media_type: str) -> list[Span]:
    """Read the spans of an export request."""
    if media_type == PROTOBUF:
        return _collect(SPANS, _protobuf_scopes(body, SPANS), _span_from_protobuf)
    return _collect(SPANS, _json_scopes(body, SPANS), _span_from_json)


def read_log_records(body: bytes, media_type: str) -> list[LogRecord]:
    """Read the log records of an export request."""
    if media_type == PROTOBUF:
        return _collect(LOGS, _protobuf_scopes(body, LOGS), _log_record_from_protobuf)
    return _collect(LOGS, _json_scopes(body, LOGS), _log_record_from_json)


def encode_response(
    media_type: str, signal: Signal = SPANS, *, rejected: int = 0, reason: str = ""
) -> bytes:
    """Write what the exporter reads: everything was accepted, or how many records were not and why.

    A reason without a number is a warning: everything was accepted, but something is worth knowing.
    """
    if media_type == JSON:
        partial = {signal.rejected: str(rejected), "errorMessage": reason}
        return json.dumps({"partialSuccess": partial} if rejected or reason else {}).encode()
    # Loaded with the first request in protocol buffers: this adds 0.1 s of CPU to a start.
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTracePartialSuccess,
        ExportTraceServiceResponse,
    )

    if not rejected and not reason:
        return b""
    text = reason.encode("utf-8", "replace")[:_MAX_REASON_BYTES].decode("utf-8", "ignore")
    # The response for logs has the same fields under the same numbers.
    partial_success = ExportTracePartialSuccess(rejected_spans=rejected, error_message=text)
    response: bytes = ExportTraceServiceResponse(
        partial_success=partial_success
    ).SerializeToString()
    return response


def _collect(
    signal: Signal,
    scopes: Iterable[tuple[Any, str | None]],
    read: Callable[[Any, str | None], R],
) -> list[R]:
    found: list[R] = []
    for records, service in scopes:
        if len(found) + len(records) > MAX_RECORDS:
            raise BadInput(f"A request has {MAX_RECORDS:,} {signal.plural} at most.")
        found += [read(each, service) for each in records]
    return found


# Protocol buffers


def _protobuf_scopes(body: bytes, signal: Signal) -> Iterator[tuple[Any, str | None]]:
    """Parse a request; each scope's records, with the name of the service."""
    # Loaded with the first request in protocol buffers: this adds 0.1 s of CPU to a start.
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request: Any = ExportTraceServiceRequest() if signal is SPANS else ExportLogsServiceRequest()
    try:
        request.ParseFromString(body)
    except DecodeError as error:
        raise BadInput("The body is no OTLP message in protocol buffers.") from error
    for resource in request.resource_spans if signal is SPANS else request.resource_logs:
        service = _service(_protobuf_attributes(resource.resource.attributes))
        for scope in resource.scope_spans if signal is SPANS else resource.scope_logs:
            yield scope.spans if signal is SPANS else scope.log_records, service


def _span_from_protobuf(span: Any, service: str | None) -> Span:
    return Span(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _protobuf_attributes(span.attributes),
        tuple(SpanEvent(each.name, _protobuf_attributes(each.attributes)) for each in span.events),
        (span.status.message or "error") if span.status.code == _STATUS_ERROR else None,
        service,
    )


def _log_record_from_protobuf(record: Any, service: str | None) -> LogRecord:
    attributes = _protobuf_attributes(record.attributes)
    return LogRecord(
        record.trace_id.hex(),
        record.span_id.hex(),
        record.event_name or str(attributes.get("event.name") or ""),
        record.time_unix_nano or record.observed_time_unix_nano,
        attributes,
        _protobuf_value(record.body, 0),
        service,
    )


def _protobuf_attributes(pairs: Any, depth: int = 0) -> dict[str, Any]:
    return {pair.key: _protobuf_value(pair.value, depth) for pair in pairs}


def _protobuf_value(value: Any, depth: int) -> Any:
    _check_depth(depth)
    match value.WhichOneof("value"):
        case "string_value" | "bool_value" | "int_value" | "double_value" as kind:
            return getattr(value, kind)
        case "array_value":
            return [_protobuf_value(each, depth + 1) for each in value.array_value.values]
        case "kvlist_value":
            return _protobuf_attributes(value.kvlist_value.values, depth + 1)
        case "bytes_value":
            return value.bytes_value.hex()
    return None


# JSON


def _json_scopes(body: bytes, signal: Signal) -> Iterator[tuple[Any, str | None]]:
    """Parse a request; each scope's records, with the name of the service."""
    try:
        request = json.loads(body)
    except RecursionError as error:
        raise BadInput("The JSON is nested too deeply.") from error
    except ValueError as error:
        raise BadInput("The body is no JSON.") from error
    for resource in _objects(request, signal.resources):
        attributes = _object(resource.get("resource")).get("attributes")
        service = _service(_json_attributes(attributes))
        for scope in _objects(resource, signal.scopes):
            yield _objects(scope, signal.records), service


def _span_from_json(data: dict[str, Any], service: str | None) -> Span:
    status = _object(data.get("status"))
    is_error = status.get("code") in (_STATUS_ERROR, "STATUS_CODE_ERROR")
    return Span(
        _id(data.get("traceId")),
        _id(data.get("spanId")),
        _id(data.get("parentSpanId")),
        str(data.get("name") or ""),
        _number(data.get("startTimeUnixNano") or 0, int),
        _number(data.get("endTimeUnixNano") or 0, int),
        _json_attributes(data.get("attributes")),
        tuple(
            SpanEvent(str(each.get("name") or ""), _json_attributes(each.get("attributes")))
            for each in _objects(data, "events")
        ),
        (str(status.get("message") or "") or "error") if is_error else None,
        service,
    )


def _log_record_from_json(data: dict[str, Any], service: str | None) -> LogRecord:
    attributes = _json_attributes(data.get("attributes"))
    times = (_number(data.get(name) or 0, int) for name in ("timeUnixNano", "observedTimeUnixNano"))
    return LogRecord(
        _id(data.get("traceId")),
        _id(data.get("spanId")),
        str(data.get("eventName") or attributes.get("event.name") or ""),
        next(filter(None, times), 0),
        attributes,
        _json_value(data.get("body"), 0),
        service,
    )


def _json_attributes(pairs: Any, depth: int = 0) -> dict[str, Any]:
    listed = map(_object, _list(pairs))
    return {str(each.get("key")): _json_value(each.get("value"), depth) for each in listed}


def _json_value(data: Any, depth: int) -> Any:
    _check_depth(depth)
    for kind, value in _object(data).items():
        match kind:
            case "stringValue" | "bytesValue":
                return str(value)
            case "boolValue":
                return bool(value)
            case "intValue":
                return _number(value or 0, int)
            case "doubleValue":
                return _number(value, float)
            case "arrayValue":
                values = _list(_object(value).get("values"))
                return [_json_value(each, depth + 1) for each in values]
            case "kvlistValue":
                return _json_attributes(_object(value).get("values"), depth + 1)
    return None


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise BadInput("An attribute is nested too deeply.")


def _service(attributes: dict[str, Any]) -> str | None:
    name = attributes.get("service.name")
    return name if isinstance(name, str) else None


def _objects(data: Any, name: str) -> list[dict[str, Any]]:
    return [_object(each) for each in _list(_object(data).get(name))]


def _object(data: Any) -> dict[str, Any]:
    if data is not None and not isinstance(data, dict):
        raise BadInput(f"An object was expected, not {type(data).__name__}.")
    return data or {}


def _list(data: Any) -> list[Any]:
    if data is not None and not isinstance(data, list):
        raise BadInput(f"A list was expected, not {type(data).__name__}.")
    return data or []


def _id(value: Any) -> str:
    text = "" if value is None else str(value)
    if not _HEX.fullmatch(text) or len(text) > 64:
        raise BadInput("Ids of traces and spans are hexadecimal.")
    return text.lower()


N = TypeVar("N", int, float)


def _number(value: Any, kind: type[N]) -> N:
    try:
        return kind(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(f"{str(value)[:40]!r} is no number of type {kind.__name__}.") from error
