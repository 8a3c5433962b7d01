"""`/projects` and `/schedules`: where sessions stand, and what runs by itself."""

import asyncio
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastapi import APIRouter, Request
from starlette.responses import Response

from sessionary.actions import projects, schedule
from sessionary.actions.projects import Project
from sessionary.actions.requests import StoredResponse
from sessionary.actions.schedule import Due, ScheduleSpec
from sessionary.errors import BadInput
from sessionary.model.schedule import Run, Schedule, Timing
from sessionary.model.view import time_text
from sessionary.store.database import Tx
from sessionary.web.answers import answer, change, items, json_response, name, plain
from sessionary.web.asking import engine_of
from sessionary.web.auth import EngineContext, Reader, Writer
from sessionary.web.bodies import NewSchedule, Nothing, ProjectBody, ScheduleChange, read_body
from sessionary.web.described import takes
from sessionary.web.parts import PREFIX

router = APIRouter(prefix=PREFIX)
_LONGEST_GRACE = 60 * 24 * 366


@router.get("/projects", tags=["projects"])
async def list_projects(parts: EngineContext, caller: Reader) -> Response:
    """The projects, with the number of sessions in each."""
    return items(map(_project, await parts.store.read(projects.listing, profile=caller.profile)))


@router.post("/projects", status_code=201, tags=["projects"], openapi_extra=takes(ProjectBody))
async def add_project(request: Request, parts: EngineContext, caller: Writer) -> Response:
    """Make a project."""
    body, raw = await read_body(request, ProjectBody)
    moment = parts.moment()

    def act(tx: Tx, /) -> StoredResponse:
        made = projects.add(
            tx, body.name or "", profile=caller.profile, moment=moment, colour=body.colour
        )
        return answer(_project(made), 201)

    return await change(request, caller, raw, act)


@router.patch("/projects/{project}", tags=["projects"], openapi_extra=takes(ProjectBody))
async def change_project(project: str, request: Request, caller: Writer) -> Response:
    """Give a project another name or colour."""
    known = name(project, "project")
    body, raw = await read_body(request, ProjectBody)

    def act(tx: Tx, /) -> StoredResponse:
        found = projects.change(
            tx, known, profile=caller.profile, new_name=body.name, colour=body.colour
        )
        return answer(_project(found))

    return await change(request, caller, raw, act)


@router.delete("/projects/{project}", tags=["projects"])
async def remove_project(project: str, request: Request, caller: Writer) -> Response:
    """Delete a project; its sessions stay."""
    known = name(project, "project")

    def act(tx: Tx, /) -> StoredResponse:
        return answer(_project(projects.remove(tx, known, profile=caller.profile)))

    return await change(request, caller, b"", act)


@router.get("/schedules", tags=["schedules"])
async def list_schedules(parts: EngineContext, caller: Reader) -> Response:
    """The scheduled tasks."""
    return items(map(_schedule, await parts.store.read(schedule.listing, profile=caller.profile)))


@router.post("/schedules", status_code=201, tags=["schedules"], openapi_extra=takes(NewSchedule))
async def add_schedule(request: Request, parts: EngineContext, caller: Writer) -> Response:
    """Make a scheduled task."""
    body, raw = await read_body(request, NewSchedule)
    plan, moment = _plan(body, parts.settings.zone), parts.moment()

    def act(tx: Tx, /) -> StoredResponse:
        return answer(_schedule(schedule.add(tx, plan, profile=caller.profile, moment=moment)), 201)

    return await change(request, caller, raw, act)


@router.get("/schedules/{task}", tags=["schedules"])
async def show_schedule(task: str, parts: EngineContext, caller: Reader) -> Response:
    """A scheduled task, and its latest runs."""
    known = name(task, "schedule")
    found = await parts.store.read(schedule.get, known, profile=caller.profile)
    runs = await parts.store.read(schedule.runs, known, profile=caller.profile)
    return json_response(_schedule(found) | {"runs": [_run(each) for each in runs]})


@router.patch("/schedules/{task}", tags=["schedules"], openapi_extra=takes(ScheduleChange))
async def change_schedule(
    task: str, request: Request, parts: EngineContext, caller: Writer
) -> Response:
    """Let a task rest, or go on."""
    known = name(task, "schedule")
    body, raw = await read_body(request, ScheduleChange)
    now = parts.clock.now()

    def act(tx: Tx, /) -> StoredResponse:
        found = schedule.pause(tx, known, profile=caller.profile, paused=body.paused, now=now)
        return answer(_schedule(found))

    return await change(request, caller, raw, act)


@router.post(
    "/schedules/{task}/run",
    status_code=202,
    tags=["schedules"],
    openapi_extra=takes(Nothing, required=False),
)
async def run_schedule(
    task: str, request: Request, parts: EngineContext, caller: Writer
) -> Response:
    """Run a task now, besides its own times; its runs say how it went."""
    known = name(task, "schedule")
    _, raw = await read_body(request, Nothing)
    engine, moment = engine_of(request, caller), parts.moment()
    claimed: list[Due] = []

    def act(tx: Tx, /) -> StoredResponse:
        claimed[:] = [
            schedule.run_now(
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
        response = await change(request, caller, raw, act)
        for due in claimed:
            engine.scheduler.start(due)
        return response

    # A caller who goes away meanwhile must not leave a run behind that was claimed and never run.
    return await asyncio.shield(asyncio.ensure_future(finish()))


@router.delete("/schedules/{task}", tags=["schedules"])
async def remove_schedule(
    task: str, request: Request, parts: EngineContext, caller: Writer
) -> Response:
    """Take a task away; its runs and their sessions stay."""
    known, now = name(task, "schedule"), parts.clock.now()

    def act(tx: Tx, /) -> StoredResponse:
        return answer(_schedule(schedule.remove(tx, known, profile=caller.profile, now=now)))

    return await change(request, caller, b"", act)


def _plan(body: NewSchedule, zone: ZoneInfo) -> ScheduleSpec:
    if not 0 <= body.grace_minutes <= _LONGEST_GRACE:
        raise BadInput(f"A grace has 0 to {_LONGEST_GRACE:,} minutes, not {body.grace_minutes}.")
    try:
        where = zone if body.zone is None else ZoneInfo(body.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise BadInput(
            f"There is no time zone {body.zone!r}; write one like Europe/Berlin."
        ) from error
    return ScheduleSpec(
        name=body.name,
        timing=Timing(plain(body.timing, 200) or "", where),
        prompt=body.prompt,
        deliver_to=plain(body.deliver_to, 500) or "local",
        agent=plain(body.agent, 200),
        grace=timedelta(minutes=body.grace_minutes),
    )


def _project(found: Project) -> dict[str, Any]:
    return {
        "id": found.id,
        "name": found.name,
        "colour": found.colour,
        "created_at": time_text(found.created_at),
        "sessions": found.sessions,
    }


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
