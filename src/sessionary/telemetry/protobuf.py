"""OTLP's protocol buffers, read without a library: a few messages, every length checked.

The numbers are the field numbers of OTLP's published message definitions. Fields that
nobody here needs are passed over, as the format wants.
"""

import struct
from collections.abc import Iterator
from typing import Any

from sessionary.errors import BadInput
from sessionary.telemetry.span import LogRecord, Span, SpanEvent

MOST_DEPTH = 32
MOST_SPANS = 20_000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_ERROR = 2
_SIGN = 1 << 63


def spans_of(raw: bytes) -> list[Span]:
    """The spans of an export request."""
    found: list[Span] = []
    for each, service in _records(raw):
        if len(found) == MOST_SPANS:
            raise BadInput(f"A request has {MOST_SPANS:,} spans at most.")
        found.append(_span(each, service))
    return found


def log_records_of(raw: bytes) -> list[LogRecord]:
    """The log records of an export request."""
    found: list[LogRecord] = []
    for each, service in _records(raw):
        if len(found) == MOST_SPANS:
            raise BadInput(f"A request has {MOST_SPANS:,} log records at most.")
        found.append(_log_record(each, service))
    return found


def _records(raw: bytes) -> Iterator[tuple[bytes, str | None]]:
    """Each span or log record of a request, with its service: requests of both look alike."""
    for number, resource in _fields(raw):
        if number == 1:
            yield from _records_of_resource(_message(resource))


def _records_of_resource(raw: bytes) -> Iterator[tuple[bytes, str | None]]:
    service: str | None = None
    scopes: list[bytes] = []
    for number, value in _fields(raw):
        if number == 1:
            service = _service(_message(value))
        elif number == 2:
            scopes.append(_message(value))
    for scope in scopes:
        for number, value in _fields(scope):
            if number == 2:
                yield _message(value), service


def _service(raw: bytes) -> str | None:
    name = _attributes(_message(value) for number, value in _fields(raw) if number == 1).get(
        "service.name"
    )
    return name if isinstance(name, str) else None


def _span(raw: bytes, service: str | None) -> Span:
    texts = {1: "", 2: "", 4: "", 5: ""}
    times = {7: 0, 8: 0}
    attributes: list[bytes] = []
    events: list[SpanEvent] = []
    error: str | None = None
    for number, value in _fields(raw):
        match number:
            case 1 | 2 | 4:
                texts[number] = _message(value).hex()
            case 5:
                texts[5] = _text(value)
            case 7 | 8:
                times[number] = _number(value)
            case 9:
                attributes.append(_message(value))
            case 11:
                events.append(_event(_message(value)))
            case 15:
                error = _error(_message(value))
    return Span(
        texts[1],
        texts[2],
        texts[4],
        texts[5],
        times[7],
        times[8],
        _attributes(attributes),
        tuple(events),
        error,
        service,
    )


def _log_record(raw: bytes, service: str | None) -> LogRecord:
    ids = {9: "", 10: ""}
    times = {1: 0, 11: 0}
    attributes: list[bytes] = []
    body: Any = None
    name = ""
    for number, value in _fields(raw):
        match number:
            case 1 | 11:
                times[number] = _number(value)
            case 5:
                body = _value(_message(value), 0)
            case 6:
                attributes.append(_message(value))
            case 9 | 10:
                ids[number] = _message(value).hex()
            case 12:
                name = _text(value)
    facts = _attributes(attributes)
    return LogRecord(
        ids[9],
        ids[10],
        name or str(facts.get("event.name") or ""),
        times[1] or times[11],
        facts,
        body,
        service,
    )


def _event(raw: bytes) -> SpanEvent:
    name = ""
    attributes: list[bytes] = []
    for number, value in _fields(raw):
        if number == 2:
            name = _text(value)
        elif number == 3:
            attributes.append(_message(value))
    return SpanEvent(name, _attributes(attributes))


def _error(raw: bytes) -> str | None:
    fields = dict(_fields(raw))
    if fields.get(3) != _ERROR:
        return None
    return _text(fields.get(2, b"")) or "error"


def _attributes(pairs: Any, depth: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for raw in pairs:
        fields = dict(_fields(raw))
        found[_text(fields.get(1, b""))] = _value(_message(fields.get(2, b"")), depth)
    return found


def _value(raw: bytes, depth: int) -> Any:
    if depth > MOST_DEPTH:
        raise BadInput("An attribute is nested too deeply.")
    for number, value in _fields(raw):
        match number:
            case 1:
                return _text(value)
            case 2:
                return bool(_number(value))
            case 3:
                count = _number(value)
                return count - (_SIGN << 1) if count & _SIGN else count
            case 4:
                return struct.unpack("<d", struct.pack("<Q", _number(value)))[0]
            case 5:
                return [_value(_message(each), depth + 1) for _, each in _fields(_message(value))]
            case 6:
                pairs = (_message(each) for _, each in _fields(_message(value)))
                return _attributes(pairs, depth + 1)
            case 7:
                return _message(value).hex()
    return None


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Each field of a message: its number, and a number or bytes."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise BadInput("This is no OTLP message.")
        if kind == _VARINT:
            value, at = _varint(raw, at)
            yield number, value
        elif kind in (_FIXED64, _FIXED32):
            end = at + (8 if kind == _FIXED64 else 4)
            yield number, int.from_bytes(_cut(raw, at, end), "little")
            at = end
        elif kind == _BYTES:
            length, at = _varint(raw, at)
            yield number, _cut(raw, at, at + length)
            at += length
        else:
            raise BadInput("This is no OTLP message.")


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(raw) or shift > 63:
            raise BadInput("This OTLP message breaks off.")
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << 64) - 1), at
        shift += 7


def _cut(raw: bytes, first: int, last: int) -> bytes:
    if last > len(raw):
        raise BadInput("This OTLP message breaks off.")
    return raw[first:last]


def _message(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise BadInput("This is no OTLP message.")
    return value


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise BadInput("This is no OTLP message.")
    return value


def _text(value: int | bytes) -> str:
    return _message(value).decode("utf-8", "replace")
