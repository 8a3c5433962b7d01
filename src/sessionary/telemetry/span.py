"""Spans and log records as values, whatever encoding they came in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened during a span."""

    name: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """One operation of an instrumented program."""

    trace_id: str
    span_id: str
    parent_id: str = ""
    name: str = ""
    start_nanos: int = 0
    end_nanos: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[SpanEvent, ...] = ()
    error: str | None = None
    service: str | None = None

    @property
    def began_at(self) -> datetime:
        return moment(self.start_nanos)

    @property
    def ended_at(self) -> datetime:
        """When it ended; not before it began."""
        return moment(max(self.start_nanos, self.end_nanos))


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A log record of an instrumented program; an event if it has a name."""

    trace_id: str
    span_id: str
    name: str = ""
    nanos: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    service: str | None = None


def moment(nanos: int) -> datetime:
    """Convert nanoseconds to a time, clamped to what `datetime` can hold."""
    try:
        return min(_EPOCH + timedelta(microseconds=max(0, nanos) // 1000), _LATEST)
    except OverflowError:
        return _LATEST
