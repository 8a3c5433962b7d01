"""`/upkeep`: backups, checks and shrinking of the store, for whoever owns it."""

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import Response

from sessionary.errors import BadInput, Conflict, NotFound
from sessionary.web.answers import idempotency_key_of, json_response, name
from sessionary.web.auth import Admin, EngineContext, parts_of
from sessionary.web.bodies import NewUpkeep, read_body
from sessionary.web.described import takes
from sessionary.web.jobs import Jobs
from sessionary.web.parts import PREFIX, Caller, Upkeep, WebContext

router = APIRouter(prefix=PREFIX, tags=["upkeep"])


@router.get("/upkeep")
async def overview(request: Request, parts: EngineContext, caller: Admin) -> Response:
    """Where backups are and which there are, how large the store is, what can be done, and the latest jobs."""
    found = await asyncio.to_thread(_upkeep(parts, caller).overview)
    jobs = [job.to_json() for job in _jobs(request, caller).jobs]
    return json_response(found | {"jobs": jobs})


@router.post("/upkeep", status_code=202, openapi_extra=takes(NewUpkeep))
async def start(request: Request, parts: EngineContext, caller: Admin) -> Response:
    """Begin a task: `backup`, `verify` or `shrink`; one runs at a time.

    A backup holds all profiles, so it is written into the folder of the configuration and never sent.
    """
    upkeep = _upkeep(parts, caller)
    body, _ = await read_body(request, NewUpkeep)
    task = body.task
    if task not in (await asyncio.to_thread(upkeep.overview))["tasks"]:
        raise BadInput("This database is not shrunk from here: the server uses freed room again.")
    job = _jobs(request, caller).start(
        lambda tell: {"outcome": upkeep.run(task, tell)},
        {"task": task},
        nothing={"outcome": None},
        key=idempotency_key_of(request),
    )
    return json_response(job.to_json(), 202)


@router.get("/upkeep/{job_id}")
async def look(job_id: str, request: Request, caller: Admin) -> Response:
    """How a task (or the `last`) goes, and what came of it."""
    return json_response(_jobs(request, caller).get(name(job_id, "task")).to_json())


@router.delete("/upkeep/{job_id}")
async def stop(job_id: str, request: Request, caller: Admin) -> Response:
    """Let a task end where it is; of a backup nothing stays."""
    return json_response(_jobs(request, caller).stop(name(job_id, "task")).to_json())


def _jobs(request: Request, caller: Caller) -> Jobs:
    """The tasks of the profile that is served here; another profile has none."""
    if caller.profile != parts_of(request).profile:
        raise NotFound("There is no such task.")
    found: Jobs = request.app.state.upkeep
    return found


def _upkeep(parts: WebContext, caller: Caller) -> Upkeep:
    if parts.upkeep is None or caller.profile != parts.profile:
        raise Conflict(
            "The store is not looked after here; use `sessionary backup` on its machine."
        )
    return parts.upkeep
