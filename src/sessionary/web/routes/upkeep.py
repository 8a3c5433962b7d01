"""`/upkeep`: backups, checks and shrinking of the store, for its owner."""

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import Response

from sessionary.errors import BadInput, Conflict
from sessionary.web.auth import Admin, ContextDep
from sessionary.web.context import PREFIX, Caller, Upkeep, WebContext
from sessionary.web.jobs import BackgroundJobs
from sessionary.web.openapi import request_body
from sessionary.web.requests import NewUpkeep, read_body
from sessionary.web.responses import checked_name, json_response, stored_idempotency_key

router = APIRouter(prefix=PREFIX, tags=["upkeep"])


@router.get("/upkeep")
async def overview(request: Request, context: ContextDep, caller: Admin) -> Response:
    """Where backups are and which there are, how large the store is, what can be done, and the latest jobs."""
    found = await asyncio.to_thread(_upkeep(context, caller).overview)
    jobs = [job.to_json() for job in _jobs(request, caller).jobs]
    return json_response(found | {"jobs": jobs})


@router.post("/upkeep", status_code=202, openapi_extra=request_body(NewUpkeep))
async def start(request: Request, context: ContextDep, caller: Admin) -> Response:
    """Begin a task: `backup`, `verify` or `shrink`; one runs at a time.

    A backup holds all profiles, so it is written into the folder of the configuration and never sent.
    """
    upkeep = _upkeep(context, caller)
    body, _ = await read_body(request, NewUpkeep)
    task = body.task
    if task not in (await asyncio.to_thread(upkeep.overview))["tasks"]:
        raise BadInput("This database is not shrunk from here: the server uses freed room again.")
    job = _jobs(request, caller).start(
        lambda tell: {"outcome": upkeep.run(task, tell)},
        {"task": task},
        nothing={"outcome": None},
        key=stored_idempotency_key(request),
    )
    return json_response(job.to_json(), 202)


@router.get("/upkeep/{job_id}")
async def look(job_id: str, request: Request, caller: Admin) -> Response:
    """How a task (or the `last`) goes, and what came of it."""
    return json_response(_jobs(request, caller).get(checked_name(job_id, "task")).to_json())


@router.delete("/upkeep/{job_id}")
async def stop(job_id: str, request: Request, caller: Admin) -> Response:
    """Let a task end where it is; of a backup nothing stays."""
    return json_response(_jobs(request, caller).stop(checked_name(job_id, "task")).to_json())


def _jobs(request: Request, caller: Caller) -> BackgroundJobs:
    jobs: BackgroundJobs = request.app.state.upkeep
    return jobs.for_caller(caller)


def _upkeep(context: WebContext, caller: Caller) -> Upkeep:
    if context.upkeep is None or caller.profile != context.profile:
        raise Conflict(
            "The store is not looked after here; use `sessionary backup` on its machine."
        )
    return context.upkeep
