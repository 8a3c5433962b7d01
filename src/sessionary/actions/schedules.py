"""Scheduled tasks: each occurrence is claimed once, run once, and never lost silently."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sessionary.clock import Moment, from_micros, to_micros
from sessionary.errors import BadInput, Conflict, NotFound
from sessionary.model.schedule import GRACE, Run, RunState, Schedule, Timing
from sessionary.model.source import Channel, Source
from sessionary.model.title import clean_title
from sessionary.model.turn import TurnState
from sessionary.store.database import Tx
from sessionary.store.tables import schedules, turns

TARGETS = ("origin", "local")
MAX_PROMPT = 100_000
DIED = "the process that ran it died"
_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """What someone wants to have done, and when."""

    name: str
    timing: Timing
    prompt: str
    deliver_to: str = "origin"
    agent: str | None = None
    origin: Source | None = None
    grace: timedelta = GRACE


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """An occurrence that this process has claimed and must run."""

    schedule: Schedule
    due_at: datetime


def add(tx: Tx, plan: ScheduleSpec, *, profile: str, moment: Moment) -> Schedule:
    """Make a schedule."""
    name = clean_title(plan.name)
    if name is None:
        raise BadInput("A schedule needs a name.")
    if not plan.prompt.strip() or len(plan.prompt) > MAX_PROMPT:
        raise BadInput(f"A schedule's prompt has 1 to {MAX_PROMPT:,} characters.")
    check_target(plan.deliver_to)
    if schedules.get(tx, name, profile=profile) is not None:
        raise Conflict(f"There is a schedule {name!r} already; nothing was changed.")
    next_at = plan.timing.next_after(moment.now, began=moment.now)
    if next_at is None:
        raise BadInput(f"{plan.timing.text!r} is in the past; nothing was scheduled.")
    made = Schedule(
        no=0,
        id=moment.new_id(),
        profile=profile,
        name=name,
        timing=plan.timing,
        prompt=plan.prompt,
        agent=plan.agent,
        deliver_to=plan.deliver_to,
        origin=plan.origin,
        grace=plan.grace,
        paused=False,
        created_at=moment.now,
        next_at=next_at,
    )
    schedules.insert(tx, made)
    return get(tx, name, profile=profile)


def get(tx: Tx, name: str, *, profile: str) -> Schedule:
    """A schedule by its name or id."""
    found = schedules.get(tx, name, profile=profile)
    if found is None:
        raise NotFound(f"There is no schedule {name!r}.")
    return found


def list_schedules(tx: Tx, *, profile: str) -> list[Schedule]:
    """The schedules of a profile."""
    return schedules.listing(tx, profile=profile)


def list_runs(tx: Tx, name: str, *, profile: str, limit: int = 20) -> list[Run]:
    """A schedule's latest runs, newest first."""
    return schedules.runs(tx, get(tx, name, profile=profile).no, limit=limit)


def pause(tx: Tx, name: str, *, profile: str, paused: bool, now: datetime) -> Schedule:
    """Let a schedule rest, or go on from now; what it missed while it rested is not made up for."""
    found = get(tx, name, profile=profile)
    next_at = found.timing.next_after(now, began=found.created_at)
    tx.run("set_paused", no=found.no, paused=int(paused), next_at=_micros(next_at))
    return get(tx, name, profile=profile)


def remove(tx: Tx, name: str, *, profile: str, now: datetime) -> Schedule:
    """Take a schedule away; its runs and their sessions stay."""
    found = get(tx, name, profile=profile)
    tx.run("remove_schedule", no=found.no, at=to_micros(now))
    return found


def run_now(
    tx: Tx, name: str, *, profile: str, holder: str, seconds: float, moment: Moment
) -> ClaimedRun:
    """Claim an occurrence by hand, at this moment."""
    found = get(tx, name, profile=profile)
    if not _claim(tx, found, moment.now, holder=holder, seconds=seconds, now=moment.now):
        raise Conflict(f"Schedule {found.name!r} is running already.")
    return ClaimedRun(found, moment.now)


def claim_due(
    tx: Tx, *, profile: str, holder: str, seconds: float, now: datetime, limit: int = 10
) -> list[ClaimedRun]:
    """Claim what is due. Of several missed occurrences the latest is run, unless past its grace."""
    claimed: list[ClaimedRun] = []
    for found in schedules.due(tx, profile=profile, now=now, limit=limit):
        assert found.next_at is not None
        due_at = _latest(found, now)
        next_at = found.timing.next_after(now, began=found.created_at)
        tx.run("set_next_at", no=found.no, next_at=_micros(next_at))
        if now - due_at > found.grace:
            _skip(tx, found, due_at, holder=holder, now=now)
        elif _claim(tx, found, due_at, holder=holder, seconds=seconds, now=now):
            claimed.append(ClaimedRun(found, due_at))
    return claimed


def renew(tx: Tx, due: ClaimedRun, *, holder: str, seconds: float, now: datetime) -> bool:
    """Say that a run is alive."""
    until = to_micros(now + timedelta(seconds=seconds))
    return bool(
        tx.run(
            "renew_run",
            schedule_no=due.schedule.no,
            due_at=to_micros(due.due_at),
            holder=holder,
            lease_until=until,
        )
    )


def set_run_session(tx: Tx, due: ClaimedRun, session_no: int) -> None:
    """Note the session of a run."""
    tx.run(
        "set_run_session",
        schedule_no=due.schedule.no,
        due_at=to_micros(due.due_at),
        session_no=session_no,
    )


def end_run(
    tx: Tx,
    due: ClaimedRun,
    *,
    state: RunState,
    now: datetime,
    reason: str | None = None,
    only_dead: bool = False,
) -> bool:
    """Close a run, perhaps only if its lease has run out; say whether it was open."""
    return bool(
        tx.run(
            "end_run",
            schedule_no=due.schedule.no,
            due_at=to_micros(due.due_at),
            state=state,
            at=to_micros(now),
            reason=reason,
            expired=to_micros(now) if only_dead else None,
        )
    )


def fail_dead_runs(tx: Tx, *, now: datetime, limit: int = 20) -> list[ClaimedRun]:
    """Fail the runs whose process died, and give them to the caller to be told of.

    One whose turn had ended is as its turn was: whoever asked has been told.
    """
    dead = []
    for no, due_at, session_no in tx.all("expired_runs", now=to_micros(now), limit=limit):
        due = ClaimedRun(schedules.get_by_no(tx, no), from_micros(due_at))
        ran = [] if session_no is None else turns.of_session(tx, session_no)
        if ran and ran[-1].state is TurnState.RUNNING:
            continue  # its turn is interrupted first
        done = bool(ran) and ran[-1].state is TurnState.DONE
        state = RunState.DONE if done else RunState.FAILED
        why = None if done else DIED
        ended = end_run(tx, due, state=state, now=now, reason=why, only_dead=True)
        if ended and not done:
            dead.append(due)
    return dead


def check_target(text: str) -> None:
    """Refuse a target that is not origin, local, a platform or platform:chat[:thread]."""
    if text in TARGETS or (text and ":" not in text):
        return
    Channel.parse(text)


def _latest(found: Schedule, now: datetime) -> datetime:
    """The last occurrence that is due by now; it makes up for those before it."""
    assert found.next_at is not None
    latest = found.next_at
    # What is past its grace is not run whichever it was: there is no need to count it all up.
    start = max(latest, now - found.grace - _MOMENT)
    while (following := found.timing.next_after(start, began=found.created_at)) is not None:
        if following > now:
            break
        latest = start = following
    return latest


def _claim(
    tx: Tx, found: Schedule, due_at: datetime, *, holder: str, seconds: float, now: datetime
) -> bool:
    return _insert(
        tx,
        found,
        due_at,
        state=RunState.RUNNING,
        holder=holder,
        until=now + timedelta(seconds=seconds),
        now=now,
    )


def _skip(tx: Tx, found: Schedule, due_at: datetime, *, holder: str, now: datetime) -> None:
    _insert(tx, found, due_at, state=RunState.SKIPPED, holder=holder, until=now, now=now)


def _insert(
    tx: Tx,
    found: Schedule,
    due_at: datetime,
    *,
    state: RunState,
    holder: str,
    until: datetime,
    now: datetime,
) -> bool:
    skipped = state is RunState.SKIPPED
    return bool(
        tx.run(
            "insert_run",
            schedule_no=found.no,
            due_at=to_micros(due_at),
            state=state,
            holder=holder,
            lease_until=to_micros(until),
            at=to_micros(now),
            ended_at=to_micros(now) if skipped else None,
            reason="missed for longer than its grace" if skipped else None,
        )
    )


def _micros(at: datetime | None) -> int | None:
    return None if at is None else to_micros(at)
