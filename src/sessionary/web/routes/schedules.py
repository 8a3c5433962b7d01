"""`/schedules`: tasks that run on a schedule."""

import asyncio
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastapi import APIRouter, Request
from starlette.responses import Response

from sessionary.actions import schedules
from sessionary.actions.requests import StoredResponse
from sessionary.actions.schedules import ClaimedRun, ScheduleSpec
from sessionary.errors import BadInput
from sessionary.model.schedule import Run, Schedule, Timing
from sessionary.model.view import time_text
from sessionary.store.database import Tx
from sessionary.web.auth import ContextDep, Reader, Writer
from sessionary.web.context import PREFIX
from sessionary.web.openapi import request_body
from sessionary.web.requests import EmptyBody, NewSchedule, ScheduleChange, read_body
from sessionary.web.responses import (
    answer,
    change,
    checked_name,
    checked_text,
    engine_for,
    json_response,
    list_response,
)

router = APIRouter(prefix=PREFIX)
_MAX_GRACE = 60 * 24 * 366


@router.get("/schedules", tags=["schedules"])
async def list_schedules(context: ContextDep, caller: Reader) -> Response:
    """The scheduled tasks."""
    return list_response(
        map(_schedule, await context.store.read(schedules.list_schedules, profile=caller.profile))
    )


@router.post(
    "/schedules", status_code=201, tags=["schedules"], openapi_extra=request_body(NewSchedule)
)
async def add_schedule(request: Request, context: ContextDep, caller: Writer) -> Response:
    """Make a scheduled task."""
    body, raw = await read_body(request, NewSchedule)
    plan, moment = _plan(body, context.settings.zone), context.moment()

    def apply(tx: Tx, /) -> StoredResponse:
        return answer(
            _schedule(schedules.add(tx, plan, profile=caller.profile, moment=moment)), 201
        )

    return await change(request, caller, raw, apply)


@router.get("/schedules/{task}", tags=["schedules"])
async def show_schedule(task: str, context: ContextDep, caller: Reader) -> Response:
    """A scheduled task, and its latest runs."""
    known = checked_name(task, "schedule")
    found = await context.store.read(schedules.get, known, profile=caller.profile)
    runs = await context.store.read(schedules.list_runs, known, profile=caller.profile)
    return json_response(_schedule(found) | {"runs": [_run(each) for each in runs]})


@router.patch("/schedules/{task}", tags=["schedules"], openapi_extra=request_body(ScheduleChange))
async def change_schedule(
    task: str, request: Request, context: ContextDep, caller: Writer
) -> Response:
    """Let a task rest, or go on."""
    known = checked_name(task, "schedule")
    body, raw = await read_body(request, ScheduleChange)
    now = context.clock.now()

    def apply(tx: Tx, /) -> StoredResponse:
        found = schedules.pause(tx, known, profile=caller.profile, paused=body.paused, now=now)
        return answer(_schedule(found))

    return await change(request, caller, raw, apply)


@router.post(
    "/schedules/{task}/run",
    status_code=202,
    tags=["schedules"],
    openapi_extra=request_body(EmptyBody, required=False),
)
async def run_schedule(
    task: str, request: Request, context: ContextDep, caller: Writer
) -> Response:
    """Run a task now, besides its own times; its runs say how it went."""
    known = checked_name(task, "schedule")
    _, raw = await read_body(request, EmptyBody)
    engine, moment = engine_for(request, caller), context.moment()
    claimed: list[ClaimedRun] = []

    def apply(tx: Tx, /) -> StoredResponse:
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
        return answer(_schedule(claimed[0].schedule) | {"due_at": time_text(moment.now)}, 202)

    async def finish() -> Response:
        response = await change(request, caller, raw, apply)
        for due in claimed:
            engine.scheduler.start(due)
        return response

    # If the caller disconnects meanwhile, the run that was claimed must still run.
    return await asyncio.shield(asyncio.ensure_future(finish()))


@router.delete("/schedules/{task}", tags=["schedules"])
async def remove_schedule(
    task: str, request: Request, context: ContextDep, caller: Writer
) -> Response:
    """Take a task away; its runs and their sessions stay."""
    known, now = checked_name(task, "schedule"), context.clock.now()

    def apply(tx: Tx, /) -> StoredResponse:
        return answer(_schedule(schedules.remove(tx, known, profile=caller.profile, now=now)))

    return await change(request, caller, b"", apply)


def _plan(body: NewSchedule, zone: ZoneInfo) -> ScheduleSpec:
    if not 0 <= body.grace_minutes <= _MAX_GRACE:
        raise BadInput(f"A grace has 0 to {_MAX_GRACE:,} minutes, not {body.grace_minutes}.")
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


def _schedule(found: Schedule) -> dict[str, Any]:
    return {
        "id": found.id,
        "name": found.name,
        "timing": found.timing.text,
        "zone": found.timing.zone.key,
        "prompt": found.prompt,
        "agent": found.agent,
        "deliver_to": found.deliver_to,
        "grace_minutes": int(found.grace.total_seconds() // 60),
        "paused": found.paused,
        "created_at": time_text(found.created_at),
        "next_at": time_text(found.next_at),
    }


def _run(found: Run) -> dict[str, Any]:
    return {
        "due_at": time_text(found.due_at),
        "state": found.state,
        "began_at": time_text(found.began_at),
        "ended_at": time_text(found.ended_at),
        "session_id": found.session_id,
        "reason": found.reason,
    }
