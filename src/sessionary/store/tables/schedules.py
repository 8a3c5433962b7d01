"""The table of schedules and their runs."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from sessionary.clock import from_micros, to_micros
from sessionary.model import codec
from sessionary.model.schedule import Run, RunState, Schedule, Timing
from sessionary.model.source import Source
from sessionary.store.database import Row, Tx
from sessionary.store.tables.sessions import column, moment


def insert(tx: Tx, schedule: Schedule) -> None:
    """Write a schedule's row."""
    origin = schedule.origin
    tx.run(
        "insert_schedule",
        id=schedule.id,
        profile=schedule.profile,
        name=schedule.name,
        timing=schedule.timing.text,
        zone=schedule.timing.zone.key,
        prompt=codec.encode(schedule.prompt),
        agent=column(schedule.agent),
        deliver_to=codec.storable_text(schedule.deliver_to),
        origin=None if origin is None else codec.encode(origin.to_json()),
        grace_seconds=int(schedule.grace.total_seconds()),
        at=to_micros(schedule.created_at),
        next_at=None if schedule.next_at is None else to_micros(schedule.next_at),
    )


def get(tx: Tx, name: str, *, profile: str) -> Schedule | None:
    """A schedule by its name or id."""
    row = tx.one("get_schedule", profile=profile, name=name)
    return None if row is None else _schedule(row)


def get_by_no(tx: Tx, no: int) -> Schedule:
    """A schedule that is known to be there."""
    row = tx.one("get_schedule_by_no", no=no)
    assert row is not None
    return _schedule(row)


def listing(tx: Tx, *, profile: str) -> list[Schedule]:
    """The schedules of a profile by name."""
    return [_schedule(row) for row in tx.all("list_schedules", profile=profile)]


def due(tx: Tx, *, profile: str, now: datetime, limit: int) -> list[Schedule]:
    """The schedules of a profile whose time has come, the longest due first."""
    rows = tx.all("due_schedules", profile=profile, now=to_micros(now), limit=limit)
    return [_schedule(row) for row in rows]


def runs(tx: Tx, no: int, *, limit: int) -> list[Run]:
    """A schedule's latest runs."""
    return [
        Run(
            from_micros(due_at),
            RunState(state),
            from_micros(began),
            moment(ended),
            session_id,
            reason,
        )
        for due_at, state, began, ended, session_id, reason in tx.all(
            "list_runs", schedule_no=no, limit=limit
        )
    ]


def _schedule(row: Row) -> Schedule:
    (
        no,
        id,
        profile,
        name,
        timing,
        zone,
        prompt,
        agent,
        deliver_to,
        origin,
        grace,
        paused,
        created,
        next_at,
    ) = row
    return Schedule(
        no=no,
        id=id,
        profile=profile,
        name=name,
        timing=Timing(timing, ZoneInfo(zone)),
        prompt=codec.decode(prompt),
        agent=agent,
        deliver_to=deliver_to,
        origin=None if origin is None else Source.from_json(codec.decode(origin)),
        grace=timedelta(seconds=grace),
        paused=bool(paused),
        created_at=from_micros(created),
        next_at=moment(next_at),
    )
