"""When a scheduled task is due: a cron expression with a zone, every so often, or once."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec import Struct

from sessionary.errors import BadInput
from sessionary.model.source import Source

SILENT = "[SILENT]"
SHORTEST = timedelta(seconds=10)
GRACE = timedelta(hours=1)
_EVERY = re.compile(r"^every\s+(\d{1,6})\s*(s|m|h|d)$")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class RunState(StrEnum):
    """What became of one occurrence."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


class Timing(Struct, frozen=True):
    """A written timing, read: `0 9 * * 1-5`, `@daily`, `every 15m`, `at 2026-12-24T18:00`."""

    text: str
    zone: ZoneInfo

    def __post_init__(self) -> None:
        _check(self.text, self.zone)

    def next_after(self, moment: datetime, *, began: datetime) -> datetime | None:
        """The first occurrence after a moment; None when there is none any more."""
        every = _EVERY.match(self.text)
        if every is not None:
            return _next_multiple(moment, began=began, every=_length(every))
        if self.text.startswith("at "):
            once = _once(self.text, self.zone)
            return once if once > moment else None
        local = moment.astimezone(self.zone)
        found = (each.astimezone(UTC) for each in _cron(self.text, local))
        # Where an hour comes twice, a time of its first run may be found from within its second.
        return next((each for each in found if each > moment), None)


class Schedule(Struct, frozen=True):
    """A task that runs by itself; each run is a session of its own."""

    no: int
    id: str
    profile: str
    name: str
    timing: Timing
    prompt: str
    agent: str | None
    deliver_to: str
    origin: Source | None
    grace: timedelta
    paused: bool
    created_at: datetime
    next_at: datetime | None
    # Whether a program made it with a token that may write but not approve: its runs have no owner's rights.
    by_program: bool = False


class Run(Struct, frozen=True):
    """One occurrence of a schedule."""

    due_at: datetime
    state: RunState
    began_at: datetime
    ended_at: datetime | None
    session_id: str | None
    reason: str | None


def _check(text: str, zone: ZoneInfo) -> None:
    every = _EVERY.match(text)
    if every is not None:
        if _length(every) < SHORTEST:
            raise BadInput(f"A task runs every {SHORTEST.seconds} s at most, not {text!r}.")
        return
    if text.startswith("at "):
        _once(text, zone)
        return
    fields = _NAMED.get(text, text).split()
    if len(fields) != 5:  # six fields (seconds) mean different things in different tools
        raise BadInput(
            f"{text!r} is no timing: write five cron fields, `@daily`, `every 15m` or `at 2026-12-24T18:00`."
        )
    try:
        next(iter(_cron(text, datetime(2026, 1, 1, tzinfo=zone))), None)
    except CronSimError as error:
        raise BadInput(f"{text!r} is no cron expression: {error}.") from error


def _cron(text: str, moment: datetime) -> Iterator[datetime]:
    found: Iterator[datetime] = CronSim(_NAMED.get(text, text), moment)
    return found


def _length(every: re.Match[str]) -> timedelta:
    try:
        return timedelta(**{_UNITS[every[2]]: int(every[1])})
    except OverflowError as error:
        raise BadInput(f"{every[0]!r} is too long a time.") from error


def _next_multiple(moment: datetime, *, began: datetime, every: timedelta) -> datetime:
    if moment < began:
        return began + every
    return began + ((moment - began) // every + 1) * every


def _once(text: str, zone: ZoneInfo) -> datetime:
    try:
        moment = datetime.fromisoformat(text.removeprefix("at ").strip())
    except ValueError as error:
        raise BadInput(f"{text!r} names no time: write `at 2026-12-24T18:00`.") from error
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).astimezone(UTC)
