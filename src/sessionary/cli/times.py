"""Times as people write and read them."""

import re
from datetime import UTC, datetime, timedelta, tzinfo

from sessionary.errors import BadInput

_SPAN = re.compile(r"(\d{1,6})\s*(s|sec|m|min|h|d|w|mo|y)", re.IGNORECASE)
_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_SECONDS |= {"mo": 30 * 86400, "y": 365 * 86400}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_DAY = timedelta(days=1)


def span(text: str) -> timedelta:
    """Read a time span: 90s, 15m, 12h, 7d, 4w, 6mo, 1y."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise BadInput(f"{text!r} is not a time span: write 15m, 12h, 7d, 4w, 6mo or 1y.")
    return timedelta(seconds=int(found[1]) * _SECONDS[found[2].lower()])


def parse_time(text: str, *, now: datetime, zone: tzinfo | None, at_end: bool = False) -> datetime:
    """Read a time: a date, an RFC 3339 time, today, yesterday, or a span ago.

    A date means the beginning of the day, or with `at_end` its end. A `zone` of None is this machine's
    zone, here and below.
    """
    word = text.strip().lower()
    if _SPAN.fullmatch(word):
        return _earlier(now, span(word), text)
    today = now.astimezone(zone).date()
    dates = {"today": today, "yesterday": today - _DAY}
    try:
        if word in dates or _DATE.fullmatch(word):
            day = dates.get(word) or datetime.fromisoformat(word).date()
            begin = datetime(day.year, day.month, day.day, tzinfo=zone)
            return (begin + _DAY if at_end else begin).astimezone(UTC)
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo else found.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadInput(
            f"{text!r} is not a time: write 2026-01-31, 2026-01-31T10:00:00Z, today, or 7d for "
            "seven days ago."
        ) from None


def ago(at: datetime, *, now: datetime, zone: tzinfo | None) -> str:
    """`5 min ago`, or a date: at most ten characters."""
    seconds = (now - at).total_seconds()
    if seconds < 0:
        return at.astimezone(zone).strftime("%Y-%m-%d")
    for limit, size, unit in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if seconds < limit:
            return f"{int(seconds // size)} {unit} ago"
    if seconds < 7 * 86400:
        return f"{int(seconds // 86400)} d ago"
    return at.astimezone(zone).strftime("%Y-%m-%d")


def left(until: datetime, *, now: datetime) -> str:
    """`5 min`: how long it is until then; `0 s` when it is over."""
    seconds = max(0.0, (until - now).total_seconds())
    for limit, size, unit in ((60, 1, "s"), (3600, 60, "min"), (2 * 86400, 3600, "h")):
        if seconds < limit:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds // 86400):,} d"


def clock_time(at: datetime, *, zone: tzinfo | None) -> str:
    """`2026-01-31 10:00:00 CET`."""
    return at.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S %Z")


def second(at: datetime) -> str:
    """`2026-01-31T09:00:00Z`."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _earlier(now: datetime, by: timedelta, text: str) -> datetime:
    try:
        return now - by
    except OverflowError:
        raise BadInput(f"{text!r} ago is before the year 1.") from None
