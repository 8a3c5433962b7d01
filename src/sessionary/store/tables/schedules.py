"""The table of schedules and their runs."""

from datetime import datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from sessionary.clock import from_micros, to_micros
from sessionary.model import codec
from sessionary.model.schedule import Run, RunState, Schedule, Timing
from sessionary.model.source import Source
from sessionary.store.database import Row, Tx
from sessionary.store.tables.sessions import column, moment, optional_micros


class ExpiredRun(NamedTuple):
    """A run whose process died."""

    schedule_no: int
    due_at: datetime
    session_no: int | None


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
        next_at=optional_micros(schedule.next_at),
        by_program=int(schedule.by_program),
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


def list_all(tx: Tx, *, profile: str) -> list[Schedule]:
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


def set_paused(tx: Tx, no: int, *, paused: bool, next_at: datetime | None) -> None:
    """Pause a schedule or let it go on, and write when it is due next."""
    tx.run("set_paused", no=no, paused=int(paused), next_at=optional_micros(next_at))


def set_next_at(tx: Tx, no: int, next_at: datetime | None) -> None:
    """Write when a schedule is due next."""
    tx.run("set_next_at", no=no, next_at=optional_micros(next_at))


def remove(tx: Tx, no: int, *, at: datetime) -> None:
    """Mark a schedule as removed."""
    tx.run("remove_schedule", no=no, at=to_micros(at))


def insert_run(
    tx: Tx,
    no: int,
    due_at: datetime,
    *,
    holder: str,
    lease_until: datetime,
    now: datetime,
    skipped: str | None = None,
) -> bool:
    """Write the run of an occurrence, or why it is skipped; say whether it is the first of it."""
    return bool(
        tx.run(
            "insert_run",
            schedule_no=no,
            due_at=to_micros(due_at),
            state=RunState.RUNNING if skipped is None else RunState.SKIPPED,
            holder=holder,
            lease_until=to_micros(lease_until),
            at=to_micros(now),
            ended_at=None if skipped is None else to_micros(now),
            reason=skipped,
        )
    )


def renew_run(tx: Tx, no: int, due_at: datetime, *, holder: str, lease_until: datetime) -> bool:
    """Extend the lease of a run; say whether its holder still has it."""
    return bool(
        tx.run(
            "renew_run",
            schedule_no=no,
            due_at=to_micros(due_at),
            holder=holder,
            lease_until=to_micros(lease_until),
        )
    )


def take_over_run(tx: Tx, no: int, due_at: datetime, *, holder: str, lease_until: datetime) -> None:
    """Give the lease of a run to another holder."""
    tx.run(
        "take_over_run",
        schedule_no=no,
        due_at=to_micros(due_at),
        holder=holder,
        lease_until=to_micros(lease_until),
    )


def running_run(tx: Tx, session_no: int) -> ExpiredRun | None:
    """The running run whose session this is, or None."""
    row = tx.one("running_run", session_no=session_no)
    return None if row is None else ExpiredRun(row[0], from_micros(row[1]), row[2])


def set_run_session(tx: Tx, no: int, due_at: datetime, *, session_no: int) -> None:
    """Write the session of a run."""
    tx.run("set_run_session", schedule_no=no, due_at=to_micros(due_at), session_no=session_no)


def end_run(
    tx: Tx,
    no: int,
    due_at: datetime,
    *,
    state: RunState,
    now: datetime,
    reason: str | None,
    only_expired: bool,
) -> bool:
    """End a run, perhaps only if its lease has run out; say whether it was running."""
    return bool(
        tx.run(
            "end_run",
            schedule_no=no,
            due_at=to_micros(due_at),
            state=state,
            at=to_micros(now),
            reason=reason,
            expired=to_micros(now) if only_expired else None,
        )
    )


def expired_runs(tx: Tx, *, now: datetime, limit: int) -> list[ExpiredRun]:
    """The running runs whose lease has run out, the longest ago first."""
    return [
        ExpiredRun(no, from_micros(due_at), session_no)
        for no, due_at, session_no in tx.all("expired_runs", now=to_micros(now), limit=limit)
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
        by_program,
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
        by_program=by_program == 1,
    )
