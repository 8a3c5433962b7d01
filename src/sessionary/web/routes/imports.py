"""`/imports`: other tools' records on this machine, looked at and imported."""

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import Response

from sessionary.errors import Conflict
from sessionary.web.auth import Admin, ContextDep
from sessionary.web.context import PREFIX, Caller, Imports, WebContext
from sessionary.web.jobs import BackgroundJobs
from sessionary.web.openapi import request_body
from sessionary.web.requests import NewImport, read_body
from sessionary.web.responses import (
    checked_name,
    json_response,
    list_response,
    stored_idempotency_key,
)

router = APIRouter(prefix=PREFIX, tags=["imports"])


def jobs_of(request: Request, caller: Caller) -> BackgroundJobs:
    """The imports that a caller may see."""
    jobs: BackgroundJobs = request.app.state.imports
    return jobs.for_caller(caller)


@router.get("/imports")
async def discover(request: Request, context: ContextDep, caller: Admin) -> Response:
    """What is on the machine that serves, how much of it is new, and the latest imports."""
    found = await asyncio.to_thread(_records(context, caller).discover)
    jobs = [job.to_json() for job in jobs_of(request, caller).jobs]
    return list_response(found, job=jobs[0] if jobs else None, jobs=jobs)


@router.post("/imports", status_code=202, openapi_extra=request_body(NewImport, required=False))
async def start(request: Request, context: ContextDep, caller: Admin) -> Response:
    """Import the records of these tools, or of all; with `dry_run` only look.

    Records are read where each tool keeps them: a request names no path. The event stream tells
    how it goes (topic `imports`); one import runs at a time.
    """
    records = _records(context, caller)
    body, _ = await read_body(request, NewImport)
    job = jobs_of(request, caller).start(
        lambda tell: {"outcomes": records.run(body.tools, dry_run=body.dry_run, tell=tell)},
        {"tools": body.tools, "dry_run": body.dry_run},
        nothing={"outcomes": []},
        key=stored_idempotency_key(request),
    )
    return json_response(job.to_json(), 202)


@router.get("/imports/{import_id}")
async def look(import_id: str, request: Request, caller: Admin) -> Response:
    """How an import (or the `last`) goes, and at its end what it brought and what could not be read, and why."""
    known = checked_name(import_id, "import")
    return json_response(jobs_of(request, caller).get(known).to_json())


@router.delete("/imports/{import_id}")
async def stop(import_id: str, request: Request, caller: Admin) -> Response:
    """Let an import end where it is; what it has read is here, and the next one goes on."""
    return json_response(jobs_of(request, caller).stop(checked_name(import_id, "import")).to_json())


def _records(context: WebContext, caller: Caller) -> Imports:
    if context.imports is None or caller.profile != context.profile:
        raise Conflict("This server does not import here; use `sessionary import` on its machine.")
    return context.imports
