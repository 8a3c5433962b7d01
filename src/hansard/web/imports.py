"""`/imports`: what other tools left on this machine, and bringing it in, one import at a time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from hansard.errors import Conflict, HansardError, NotFound
from hansard.model.view import time_text
from hansard.web.answers import items, json_response
from hansard.web.auth import Admin, Parts, parts_of
from hansard.web.bodies import NewImport, read_body
from hansard.web.described import takes
from hansard.web.parts import Caller, Imports, WebParts

router = APIRouter(prefix="/imports", tags=["imports"])
_GONE = (
    "The import ended in the middle. What was brought in stays; importing again goes on from there."
)


class _Stopped(Exception):
    """Someone asked the import to stop."""


@dataclass(slots=True)
class Job:
    """One import, as far as it is."""

    id: str
    dry_run: bool
    began_at: datetime
    state: str = "running"
    progress: dict[str, Any] | None = None
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None
    ended_at: datetime | None = None
    stops: bool = False

    def tell(self, progress: dict[str, Any]) -> None:
        """Note how far it is; whoever asked it to stop is heard here, between two records."""
        self.progress = progress
        if self.stops:
            raise _Stopped

    def to_json(self) -> dict[str, Any]:
        """The import as callers see it."""
        return {
            "id": self.id,
            "dry_run": self.dry_run,
            "state": self.state,
            "began_at": time_text(self.began_at),
            "ended_at": time_text(self.ended_at),
            "progress": self.progress,
            "outcomes": self.outcomes,
            "error": self.error,
        }


class Jobs:
    """The import that runs or ran last; there is one at a time."""

    def __init__(self) -> None:
        self.last: Job | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, job: Job, imports: Imports, tools: Sequence[str], request: Request) -> None:
        """Run an import beside everything else."""
        if self.last is not None and self.last.state == "running":
            raise Conflict("An import is running; nothing was begun. Wait for it, or stop it.")
        self.last = job
        self._task = asyncio.ensure_future(_run(job, imports, tools, request))

    def close(self) -> None:
        """The server stops: so does the import."""
        if self.last is not None:
            self.last.stops = True


@router.get("")
async def show(request: Request, parts: Parts, caller: Admin) -> Response:
    """What was found on the machine, what of it is new, and the import that runs or ran last."""
    imports = _imports(parts, caller)
    found = await asyncio.to_thread(imports.discover)
    last = jobs_of(request).last
    return items(found, job=None if last is None else last.to_json())


@router.get("/last")
async def show_last(request: Request, caller: Admin) -> Response:
    """How far the import is that runs, or what the last one did."""
    last = jobs_of(request).last
    if last is None or caller.profile != parts_of(request).profile:
        raise NotFound("Nothing was imported since the server started.")
    return json_response(last.to_json())


@router.post("", status_code=202, openapi_extra=takes(NewImport))
async def begin(request: Request, parts: Parts, caller: Admin) -> Response:
    """Import what the named tools left, or look what there would be and change nothing."""
    imports = _imports(parts, caller)
    body, _ = await read_body(request, NewImport)
    when = parts.occasion()
    job = Job(when.new_id(), body.dry_run, when.now)
    jobs_of(request).start(job, imports, tuple(body.tools), request)
    return json_response(job.to_json(), 202)


@router.delete("/last")
async def stop(request: Request, caller: Admin) -> Response:
    """Ask the import that runs to stop; what was brought in stays."""
    last = jobs_of(request).last
    if last is None or last.state != "running" or caller.profile != parts_of(request).profile:
        raise NotFound("No import is running.")
    last.stops = True
    return json_response(last.to_json())


def jobs_of(request: Request) -> Jobs:
    """The imports of this application."""
    found: Jobs = request.app.state.imports
    return found


def _imports(parts: WebParts, caller: Caller) -> Imports:
    if parts.imports is None or caller.profile != parts.profile:
        raise Conflict("This server does not import here; use `hansard import` on its machine.")
    return parts.imports


async def _run(job: Job, imports: Imports, tools: Sequence[str], request: Request) -> None:
    try:
        job.outcomes = await asyncio.to_thread(
            imports.run, tools, dry_run=job.dry_run, tell=job.tell
        )
        job.state = "done"
    except _Stopped:
        job.state = "stopped"
    except HansardError as error:
        job.state, job.error = "failed", str(error)
    finally:
        if job.state == "running":
            job.state, job.error = "failed", _GONE
        job.ended_at = parts_of(request).clock.now()
