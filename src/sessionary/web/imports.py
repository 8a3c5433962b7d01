"""`/imports`: other tools' records on this machine, looked at and imported."""

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import Response

from sessionary.errors import Conflict, NotFound
from sessionary.web.answers import idempotency_key_of, items, json_response, name
from sessionary.web.auth import Admin, EngineContext, parts_of
from sessionary.web.bodies import NewImport, read_body
from sessionary.web.described import takes
from sessionary.web.jobs import Jobs
from sessionary.web.parts import PREFIX, Caller, Imports, WebContext

router = APIRouter(prefix=PREFIX, tags=["imports"])


def jobs_of(request: Request, caller: Caller) -> Jobs:
    """The imports of the profile that is served here; another profile has none."""
    if caller.profile != parts_of(request).profile:
        raise NotFound("There is no such import.")
    found: Jobs = request.app.state.imports
    return found


@router.get("/imports")
async def discover(request: Request, parts: EngineContext, caller: Admin) -> Response:
    """What is on the machine that serves, how much of it is new, and the latest imports."""
    found = await asyncio.to_thread(_records(parts, caller).discover)
    jobs = [job.to_json() for job in jobs_of(request, caller).jobs]
    return items(found, job=jobs[0] if jobs else None, jobs=jobs)


@router.post("/imports", status_code=202, openapi_extra=takes(NewImport, required=False))
async def start(request: Request, parts: EngineContext, caller: Admin) -> Response:
    """Import the records of these tools, or of all; with `dry_run` only look.

    Records are read where each tool keeps them: a request names no path. The event stream tells
    how it goes (topic `imports`); one import runs at a time.
    """
    records = _records(parts, caller)
    body, _ = await read_body(request, NewImport)
    job = jobs_of(request, caller).start(
        lambda tell: {"outcomes": records.run(body.tools, dry_run=body.dry_run, tell=tell)},
        {"tools": body.tools, "dry_run": body.dry_run},
        nothing={"outcomes": []},
        key=idempotency_key_of(request),
    )
    return json_response(job.to_json(), 202)


@router.get("/imports/{import_id}")
async def look(import_id: str, request: Request, caller: Admin) -> Response:
    """How an import (or the `last`) goes, and at its end what it brought and what could not be read, and why."""
    known = name(import_id, "import")
    return json_response(jobs_of(request, caller).get(known).to_json())


@router.delete("/imports/{import_id}")
async def stop(import_id: str, request: Request, caller: Admin) -> Response:
    """Let an import end where it is; what it has read is here, and the next one goes on."""
    return json_response(jobs_of(request, caller).stop(name(import_id, "import")).to_json())


def _records(parts: WebContext, caller: Caller) -> Imports:
    if parts.imports is None or caller.profile != parts.profile:
        raise Conflict("This server does not import here; use `sessionary import` on its machine.")
    return parts.imports
