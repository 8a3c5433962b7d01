"""Times as other tools write them: ISO texts, and numbers of seconds, milliseconds, microseconds."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Seconds reach the year 5138 before a number must be milliseconds, and so on.
_SECONDS = 10**11
_MILLISECONDS = 10**14
_MICROSECONDS = 10**17
_FIRST = datetime(1980, 1, 1, tzinfo=UTC)
_LAST = datetime(2200, 1, 1, tzinfo=UTC)


def of(value: object) -> datetime | None:
    """The moment that a value names; None when it names none that makes sense.

    A time without a zone is UTC.
    """
    found = _of_text(value) if isinstance(value, str) else _of_number(value)
    return found if found is not None and is_sensible(found) else None


def is_sensible(at: datetime) -> bool:
    """Whether a moment is one at which a tool can have written; others no calendar may hold."""
    return _FIRST <= at <= _LAST


def first(*values: object) -> datetime | None:
    """The first of several values that names a moment."""
    for value in values:
        found = value if isinstance(value, datetime) else of(value)
        if found is not None:
            return found
    return None


def _of_text(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    try:
        return _of_number(float(text))
    except (ValueError, OverflowError):
        return None


def _of_number(value: object) -> datetime | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 < value < _MICROSECONDS:
        return None
    if value < _SECONDS:
        return _EPOCH + timedelta(microseconds=round(value * 1_000_000))
    if value < _MILLISECONDS:
        return _EPOCH + timedelta(microseconds=round(value * 1000))
    return _EPOCH + timedelta(microseconds=round(value))
