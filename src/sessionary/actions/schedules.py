"""Scheduled tasks: each occurrence is claimed once and run once, or recorded as skipped or failed."""

from datetime import datetime, timedelta

from msgspec import Struct

from sessionary.clock import Moment
from sessionary.errors import BadInput, Conflict, NotFound
from sessionary.model.push import PLATFORM as PUSH
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


list_schedules = schedules.list_all


class ScheduleSpec(Struct, frozen=True):
    """What someone wants to have done, and when."""

    name: str
    timing: Timing
    prompt: str
    deliver_to: str = "origin"
    agent: str | None = None
    origin: Source | None = None
    grace: timedelta = GRACE
    # Whether a program makes it with a token that may write but not approve.
    by_program: bool = False


class ClaimedRun(Struct, frozen=True):
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
        by_program=plan.by_program,
    )
    schedules.insert(tx, made)
    return get(tx, name, profile=profile)


def get(tx: Tx, name: str, *, profile: str) -> Schedule:
    """A schedule by its name or id."""
    found = schedules.get(tx, name, profile=profile)
    if found is None:
        raise NotFound(f"There is no schedule {name!r}.")
    return found


def list_runs(tx: Tx, name: str, *, profile: str, limit: int = 20) -> list[Run]:
    """A schedule's latest runs, newest first."""
    return schedules.runs(tx, get(tx, name, profile=profile).no, limit=limit)


def pause(tx: Tx, name: str, *, profile: str, paused: bool, now: datetime) -> Schedule:
    """Pause a schedule, or let it go on from now; occurrences missed while paused are not run."""
    found = get(tx, name, profile=profile)
    next_at = found.timing.next_after(now, began=found.created_at)
    schedules.set_paused(tx, found.no, paused=paused, next_at=next_at)
    return get(tx, name, profile=profile)


def remove(tx: Tx, name: str, *, profile: str, now: datetime) -> Schedule:
    """Remove a schedule; its runs and their sessions stay."""
    found = get(tx, name, profile=profile)
    schedules.remove(tx, found.no, at=now)
    return found


def run_now(
    tx: Tx, name: str, *, profile: str, holder: str, seconds: float, moment: Moment
) -> ClaimedRun:
    """Claim an extra occurrence now."""
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
        schedules.set_next_at(tx, found.no, next_at)
        if now - due_at > found.grace:
            schedules.insert_run(
                tx,
                found.no,
                due_at,
                holder=holder,
                lease_until=now,
                now=now,
                skipped="missed for longer than its grace",
            )
        elif _claim(tx, found, due_at, holder=holder, seconds=seconds, now=now):
            claimed.append(ClaimedRun(found, due_at))
    return claimed


def renew(tx: Tx, run: ClaimedRun, *, holder: str, seconds: float, now: datetime) -> bool:
    """Extend the lease of a run; say whether its holder still has it."""
    until = now + timedelta(seconds=seconds)
    return schedules.renew_run(tx, run.schedule.no, run.due_at, holder=holder, lease_until=until)


def set_run_session(tx: Tx, run: ClaimedRun, session_no: int) -> None:
    """Note the session of a run."""
    schedules.set_run_session(tx, run.schedule.no, run.due_at, session_no=session_no)


def find_run(tx: Tx, session_no: int) -> ClaimedRun | None:
    """Return the running occurrence whose session this is, or None."""
    found = schedules.running_run(tx, session_no)
    if found is None:
        return None
    return ClaimedRun(schedules.get_by_no(tx, found.schedule_no), found.due_at)


def take_over_run(tx: Tx, run: ClaimedRun, *, holder: str, seconds: float, now: datetime) -> None:
    """Take over the lease of a run whose process has ended."""
    until = now + timedelta(seconds=seconds)
    schedules.take_over_run(tx, run.schedule.no, run.due_at, holder=holder, lease_until=until)


def end_run(
    tx: Tx,
    run: ClaimedRun,
    *,
    state: RunState,
    now: datetime,
    reason: str | None = None,
    only_expired: bool = False,
) -> bool:
    """End a run, perhaps only if its lease has run out; say whether it was running."""
    return schedules.end_run(
        tx,
        run.schedule.no,
        run.due_at,
        state=state,
        now=now,
        reason=reason,
        only_expired=only_expired,
    )


def fail_dead_runs(tx: Tx, *, now: datetime, limit: int = 20) -> list[ClaimedRun]:
    """End the runs whose process died; return those that failed, so that the caller can report them.

    A run whose turn was done is done too: its reply has been delivered.
    """
    dead = []
    for expired in schedules.expired_runs(tx, now=now, limit=limit):
        run = ClaimedRun(schedules.get_by_no(tx, expired.schedule_no), expired.due_at)
        session_no = expired.session_no
        ran = [] if session_no is None else turns.of_session(tx, session_no)
        if ran and not ran[-1].is_over:
            continue  # its turn is interrupted first
        done = bool(ran) and ran[-1].state is TurnState.DONE
        state = RunState.DONE if done else RunState.FAILED
        why = None if done else DIED
        if end_run(tx, run, state=state, now=now, reason=why, only_expired=True) and not done:
            dead.append(run)
    return dead


def check_target(text: str) -> None:
    """Refuse a target that is not origin, local, a platform or platform:chat[:thread]."""
    if text.partition(":")[0] == PUSH:
        raise BadInput("Browsers are notified of questions only.")
    if text in TARGETS or (text and ":" not in text):
        return
    Channel.parse(text)


def _latest(found: Schedule, now: datetime) -> datetime:
    """The last occurrence that is due by now; it stands for those before it."""
    assert found.next_at is not None
    latest = found.next_at
    # Occurrences past their grace are not run, so they need not be counted one by one.
    start = max(latest, now - found.grace - _MOMENT)
    while (following := found.timing.next_after(start, began=found.created_at)) is not None:
        if following > now:
            break
        latest = start = following
    return latest


def _claim(
    tx: Tx, found: Schedule, due_at: datetime, *, holder: str, seconds: float, now: datetime
) -> bool:
    until = now + timedelta(seconds=seconds)
    return schedules.insert_run(tx, found.no, due_at, holder=holder, lease_until=until, now=now)
