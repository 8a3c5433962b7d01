"""`/upkeep`: backups, checks and compaction of the store, for its owner."""

import asyncio
from typing import Annotated

from fastapi import Path, Request
from msgspec import Meta, Struct
from typing_extensions import TypedDict

from sessionary.errors import BadInput, Conflict
from sessionary.web.auth import Admin, ContextDep
from sessionary.web.context import (
    PREFIX,
    Caller,
    StoreOverview,
    Upkeep,
    UpkeepOutcome,
    UpkeepProgress,
    UpkeepTask,
    WebContext,
)
from sessionary.web.jobs import BackgroundJob, BackgroundJobs, JobState
from sessionary.web.responses import (
    accepted_response,
    checked_name,
    json_response,
    stored_idempotency_key,
)
from sessionary.web.routing import Accepted, FromBody, JsonAnswer, api_router

router = api_router(prefix=PREFIX, tags=["upkeep"])
JobId = Annotated[str, Path(description="The job's id, or `last` for the newest.")]
UpkeepJobs = BackgroundJobs[UpkeepProgress, UpkeepOutcome]


class NewUpkeep(Struct, kw_only=True, forbid_unknown_fields=True):
    """A task for the store."""

    task: Annotated[
        UpkeepTask,
        Meta(description="`backup`, `verify`, or with SQLite `shrink`, which frees disk space."),
    ]


class UpkeepJob(TypedDict):
    """A task, its progress and its result."""

    id: str
    task: UpkeepTask
    state: JobState
    progress: UpkeepProgress | None
    error: str | None
    """Why it failed."""
    outcome: UpkeepOutcome | None
    """The result, once it is done."""
    began_at: str
    ended_at: str | None


class UpkeepOverview(StoreOverview):
    """The state of the store, and the latest tasks."""

    jobs: list[UpkeepJob]


@router.get("/upkeep")
async def get_upkeep(
    request: Request, context: ContextDep, caller: Admin
) -> JsonAnswer[UpkeepOverview]:
    """Get the state of the store.

    Where backups are and which there are, how large the store is, which tasks it supports, and the latest tasks.
    """
    found = await asyncio.to_thread(_upkeep(context, caller).overview)
    jobs = [upkeep_json(job) for job in _jobs(request, caller).jobs]
    overview: UpkeepOverview = {**found, "jobs": jobs}
    return json_response(overview)


@router.post("/upkeep", status_code=202)
async def start_upkeep(
    request: Request, context: ContextDep, caller: Admin, body: FromBody[NewUpkeep]
) -> Accepted[UpkeepJob]:
    """Start a backup, a check or a compaction.

    One task runs at a time (409). A backup contains all profiles: it is written to the directory of the
    configuration and never sent over HTTP.
    """
    upkeep = _upkeep(context, caller)
    if body.task not in (await asyncio.to_thread(upkeep.overview))["tasks"]:
        raise BadInput("This database is not shrunk from here: the server reuses freed space.")
    job = _jobs(request, caller).start(
        lambda tell: upkeep.run(body.task, tell), body, key=stored_idempotency_key(request)
    )
    return accepted_response(upkeep_json(job))


@router.get("/upkeep/{job_id}")
async def get_upkeep_job(job_id: JobId, request: Request, caller: Admin) -> JsonAnswer[UpkeepJob]:
    """Get a task.

    Its progress and its result.
    """
    known = checked_name(job_id, "task")
    return json_response(upkeep_json(_jobs(request, caller).get(known)))


@router.delete("/upkeep/{job_id}")
async def stop_upkeep_job(job_id: JobId, request: Request, caller: Admin) -> JsonAnswer[UpkeepJob]:
    """Stop a task.

    An unfinished backup is removed.
    """
    known = checked_name(job_id, "task")
    return json_response(upkeep_json(_jobs(request, caller).stop(known)))


def upkeep_json(job: BackgroundJob[UpkeepProgress, UpkeepOutcome]) -> UpkeepJob:
    """A task as JSON."""
    assert isinstance(job.asked, NewUpkeep)
    return {
        "id": job.id,
        "task": job.asked.task,
        "state": job.state,
        "progress": job.progress,
        "error": job.error,
        "outcome": job.result,
        "began_at": job.began_at,
        "ended_at": job.ended_at,
    }


def _jobs(request: Request, caller: Caller) -> UpkeepJobs:
    jobs: UpkeepJobs = request.app.state.upkeep
    return jobs.for_caller(caller)


def _upkeep(context: WebContext, caller: Caller) -> Upkeep:
    if context.upkeep is None or caller.profile != context.profile:
        raise Conflict(
            "The store is not looked after here; use `sessionary backup` on its machine."
        )
    return context.upkeep
