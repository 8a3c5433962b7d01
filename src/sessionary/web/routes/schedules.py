"""`/schedules`: tasks that run on a schedule."""

import asyncio
from datetime import timedelta
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastapi import Path, Request
from msgspec import Meta, Struct
from msgspec.structs import replace
from typing_extensions import TypedDict

from sessionary.actions import schedules
from sessionary.actions.schedules import ClaimedRun, ScheduleSpec
from sessionary.errors import BadInput
from sessionary.model.json_types import RunInfo, ScheduleInfo
from sessionary.model.schedule import Timing
from sessionary.model.view import run_json, schedule_json, time_text
from sessionary.store.database import Tx
from sessionary.web.auth import ContextDep, Reader, Writer
from sessionary.web.context import PREFIX
from sessionary.web.responses import (
    StoredAnswer,
    answer,
    change,
    checked_name,
    checked_text,
    engine_for,
    json_response,
)
from sessionary.web.routing import Accepted, FromBody, JsonAnswer, api_router

router = api_router(prefix=PREFIX, tags=["schedules"])
_MAX_GRACE = 60 * 24 * 366
ScheduleName = Annotated[str, Path(description="The task's name or id.")]


class NewSchedule(Struct, kw_only=True, forbid_unknown_fields=True):
    """A task that runs on a schedule."""

    name: Annotated[str, Meta(description="The name, unique in the profile.")]
    timing: Annotated[
        str,
        Meta(
            description="When it runs: five cron fields, `@daily`, `every 15m`, or `at 2026-12-24T18:00`."
        ),
    ]
    prompt: Annotated[str, Meta(description="What the agent is asked.")]
    zone: Annotated[
        str | None, Meta(description="The time zone, as `Europe/Berlin`; by default the server's.")
    ] = None
    deliver_to: Annotated[
        str,
        Meta(
            description="Where the output goes: `local`, `origin`, a platform, or `platform:chat[:thread]`."
        ),
    ] = "local"
    agent: Annotated[str | None, Meta(description="The agent; by default the default one.")] = None
    grace_minutes: Annotated[
        int,
        Meta(
            ge=0, le=_MAX_GRACE, description="A missed run is made up if it is not older than this."
        ),
    ] = 60


class ScheduleChange(Struct, kw_only=True, forbid_unknown_fields=True):
    """Whether a task is paused."""

    paused: Annotated[bool, Meta(description="True pauses the task, false resumes it.")]


class SchedulePage(TypedDict):
    """The scheduled tasks of a profile."""

    items: list[ScheduleInfo]
    next: None


class ScheduleDetail(ScheduleInfo):
    """A scheduled task with its latest runs."""

    runs: list[RunInfo]


class ScheduleStarted(ScheduleInfo):
    """A scheduled task whose run was started."""

    due_at: str
    """The time under which its runs list this run."""


@router.get("/schedules")
async def list_schedules(context: ContextDep, caller: Reader) -> JsonAnswer[SchedulePage]:
    """List scheduled tasks.

    Paused ones too.
    """
    found = await context.store.read(schedules.list_schedules, profile=caller.profile)
    return json_response(SchedulePage(items=[schedule_json(each) for each in found], next=None))


@router.post("/schedules", status_code=201)
async def create_schedule(
    request: Request, context: ContextDep, caller: Writer, body: FromBody[NewSchedule]
) -> JsonAnswer[ScheduleInfo]:
    """Create a scheduled task.

    Each run is a session of its own, of the kind `job`.
    """
    plan, moment = _plan(body, context.settings.zone), context.moment()
    plan = replace(plan, by_program=not caller.may_approve)

    def apply(tx: Tx) -> StoredAnswer[ScheduleInfo]:
        made = schedules.add(tx, plan, profile=caller.profile, moment=moment)
        return answer(schedule_json(made), 201)

    return await change(request, caller, apply)


@router.get("/schedules/{schedule}")
async def get_schedule(
    schedule: ScheduleName, context: ContextDep, caller: Reader
) -> JsonAnswer[ScheduleDetail]:
    """Get a scheduled task.

    With its latest runs.
    """
    known = checked_name(schedule, "schedule")
    found = await context.store.read(schedules.get, known, profile=caller.profile)
    runs = await context.store.read(schedules.list_runs, known, profile=caller.profile)
    detail: ScheduleDetail = {**schedule_json(found), "runs": [run_json(each) for each in runs]}
    return json_response(detail)


@router.patch("/schedules/{schedule}")
async def update_schedule(
    schedule: ScheduleName,
    request: Request,
    context: ContextDep,
    caller: Writer,
    body: FromBody[ScheduleChange],
) -> JsonAnswer[ScheduleInfo]:
    """Pause or resume a scheduled task.

    A paused task keeps its runs and their sessions.
    """
    known = checked_name(schedule, "schedule")
    now = context.clock.now()

    def apply(tx: Tx) -> StoredAnswer[ScheduleInfo]:
        found = schedules.pause(tx, known, profile=caller.profile, paused=body.paused, now=now)
        return answer(schedule_json(found))

    return await change(request, caller, apply)


@router.post("/schedules/{schedule}/run", status_code=202)
async def run_schedule(
    schedule: ScheduleName,
    request: Request,
    context: ContextDep,
    caller: Writer,
) -> Accepted[ScheduleStarted]:
    """Run a scheduled task now.

    Its regular times stay as they are. `GET /schedules/{schedule}` lists the run.
    """
    known = checked_name(schedule, "schedule")
    engine, moment = engine_for(request, caller), context.moment()
    claimed: list[ClaimedRun] = []

    def apply(tx: Tx) -> StoredAnswer[ScheduleStarted]:
        claimed[:] = [
            schedules.run_now(
                tx,
                known,
                profile=caller.profile,
                holder=engine.context.holder,
                seconds=engine.context.settings.lease_seconds,
                moment=moment,
            )
        ]
        started: ScheduleStarted = {
            **schedule_json(claimed[0].schedule),
            "due_at": time_text(moment.now),
        }
        return answer(started, 202)

    async def finish() -> Accepted[ScheduleStarted]:
        response = await change(request, caller, apply)
        for due in claimed:
            engine.scheduler.start(due)
        return Accepted(response.body, response.status_code)

    # If the caller disconnects meanwhile, the run that was claimed must still run.
    return await asyncio.shield(asyncio.ensure_future(finish()))


@router.delete("/schedules/{schedule}")
async def delete_schedule(
    schedule: ScheduleName, request: Request, context: ContextDep, caller: Writer
) -> JsonAnswer[ScheduleInfo]:
    """Delete a scheduled task.

    Its runs and their sessions stay.
    """
    known, now = checked_name(schedule, "schedule"), context.clock.now()

    def apply(tx: Tx) -> StoredAnswer[ScheduleInfo]:
        gone = schedules.remove(tx, known, profile=caller.profile, now=now)
        return answer(schedule_json(gone))

    return await change(request, caller, apply)


def _plan(body: NewSchedule, zone: ZoneInfo) -> ScheduleSpec:
    try:
        where = zone if body.zone is None else ZoneInfo(body.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise BadInput(
            f"There is no time zone {body.zone!r}; write one like Europe/Berlin."
        ) from error
    return ScheduleSpec(
        name=body.name,
        timing=Timing(checked_text(body.timing, 200) or "", where),
        prompt=body.prompt,
        deliver_to=checked_text(body.deliver_to, 500) or "local",
        agent=checked_text(body.agent, 200),
        grace=timedelta(minutes=body.grace_minutes),
    )
