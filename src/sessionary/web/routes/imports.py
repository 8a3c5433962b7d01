"""`/imports`: conversations of other tools on the server's machine."""

import asyncio
from typing import Annotated

from fastapi import Path, Request
from msgspec import Meta, Struct
from typing_extensions import TypedDict

from sessionary.errors import Conflict
from sessionary.web.auth import Admin, ContextDep
from sessionary.web.context import (
    PREFIX,
    Caller,
    FoundRecords,
    ImportOutcome,
    ImportProgressInfo,
    Imports,
    WebContext,
)
from sessionary.web.jobs import BackgroundJob, BackgroundJobs, JobState
from sessionary.web.responses import (
    accepted_response,
    checked_name,
    json_response,
    stored_idempotency_key,
)
from sessionary.web.routing import Accepted, FromOptionalBody, JsonAnswer, api_router

router = api_router(prefix=PREFIX, tags=["imports"])
ImportId = Annotated[str, Path(description="The job's id, or `last` for the newest.")]
ImportJobs = BackgroundJobs[ImportProgressInfo, list[ImportOutcome]]


class NewImport(Struct, kw_only=True, forbid_unknown_fields=True):
    """What to import."""

    tools: Annotated[list[str], Meta(description="The tools; by default all that were found.")] = []
    dry_run: Annotated[
        bool, Meta(description="Only report what would be imported; change nothing.")
    ] = False


class ImportJob(TypedDict):
    """An import, its progress and its result."""

    id: str
    tools: list[str]
    """The tools; empty for all."""
    dry_run: bool
    state: JobState
    progress: ImportProgressInfo | None
    error: str | None
    """Why it failed."""
    outcomes: list[ImportOutcome]
    """The result by tool, once it is done."""
    began_at: str
    ended_at: str | None


class ImportPage(TypedDict):
    """What was found on the server's machine, and the latest imports."""

    items: list[FoundRecords]
    next: None
    job: ImportJob | None
    """The newest import."""
    jobs: list[ImportJob]
    """The latest imports, newest first."""


def jobs_of(request: Request, caller: Caller) -> ImportJobs:
    """The imports that a caller may see."""
    jobs: ImportJobs = request.app.state.imports
    return jobs.for_caller(caller)


def import_json(job: BackgroundJob[ImportProgressInfo, list[ImportOutcome]]) -> ImportJob:
    """An import as JSON."""
    assert isinstance(job.asked, NewImport)
    return {
        "id": job.id,
        "tools": job.asked.tools,
        "dry_run": job.asked.dry_run,
        "state": job.state,
        "progress": job.progress,
        "error": job.error,
        "outcomes": job.result or [],
        "began_at": job.began_at,
        "ended_at": job.ended_at,
    }


@router.get("/imports")
async def list_imports(
    request: Request, context: ContextDep, caller: Admin
) -> JsonAnswer[ImportPage]:
    """List what can be imported.

    The conversations of other tools on the server's machine, how many of them are new, and the latest imports.
    """
    found = await asyncio.to_thread(_records(context, caller).discover)
    jobs = [import_json(job) for job in jobs_of(request, caller).jobs]
    return json_response(
        ImportPage(items=found, next=None, job=jobs[0] if jobs else None, jobs=jobs)
    )


@router.post("/imports", status_code=202)
async def start_import(
    request: Request, context: ContextDep, caller: Admin, body: FromOptionalBody[NewImport]
) -> Accepted[ImportJob]:
    """Start an import.

    Records are read where each tool keeps them: a request names tools, never paths. The event stream reports the
    progress (topic `imports`). One import runs at a time (409).
    """
    records = _records(context, caller)
    job = jobs_of(request, caller).start(
        lambda tell: records.run(body.tools, dry_run=body.dry_run, tell=tell),
        body,
        key=stored_idempotency_key(request),
    )
    return accepted_response(import_json(job))


@router.get("/imports/{import_id}")
async def get_import(import_id: ImportId, request: Request, caller: Admin) -> JsonAnswer[ImportJob]:
    """Get an import.

    Its progress, and at its end what was imported and what could not be read, with the reasons.
    """
    known = checked_name(import_id, "import")
    return json_response(import_json(jobs_of(request, caller).get(known)))


@router.delete("/imports/{import_id}")
async def stop_import(
    import_id: ImportId, request: Request, caller: Admin
) -> JsonAnswer[ImportJob]:
    """Stop an import.

    What was imported stays, and the next import continues.
    """
    known = checked_name(import_id, "import")
    return json_response(import_json(jobs_of(request, caller).stop(known)))


def _records(context: WebContext, caller: Caller) -> Imports:
    if context.imports is None or caller.profile != context.profile:
        raise Conflict("This server does not import here; use `sessionary import` on its machine.")
    return context.imports
