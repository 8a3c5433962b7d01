"""`/projects`: named groups of sessions."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from sessionary.actions.requests import StoredResponse
from sessionary.actions.sessions import projects
from sessionary.model.session import Project
from sessionary.model.view import time_text
from sessionary.store.database import Tx
from sessionary.web.auth import ContextDep, Reader, Writer
from sessionary.web.context import PREFIX
from sessionary.web.openapi import request_body
from sessionary.web.requests import ProjectBody, read_body
from sessionary.web.responses import answer, change, checked_name, list_response

router = APIRouter(prefix=PREFIX, tags=["projects"])


@router.get("/projects")
async def list_projects(context: ContextDep, caller: Reader) -> Response:
    """The projects, with the number of sessions in each."""
    return list_response(
        map(_project, await context.store.read(projects.list_projects, profile=caller.profile))
    )


@router.post("/projects", status_code=201, openapi_extra=request_body(ProjectBody))
async def add_project(request: Request, context: ContextDep, caller: Writer) -> Response:
    """Make a project."""
    body, raw = await read_body(request, ProjectBody)
    moment = context.moment()

    def apply(tx: Tx, /) -> StoredResponse:
        made = projects.add(
            tx, body.name or "", profile=caller.profile, moment=moment, colour=body.colour
        )
        return answer(_project(made), 201)

    return await change(request, caller, raw, apply)


@router.patch("/projects/{project}", openapi_extra=request_body(ProjectBody))
async def change_project(project: str, request: Request, caller: Writer) -> Response:
    """Give a project another name or colour."""
    known = checked_name(project, "project")
    body, raw = await read_body(request, ProjectBody)

    def apply(tx: Tx, /) -> StoredResponse:
        found = projects.change(
            tx, known, profile=caller.profile, new_name=body.name, colour=body.colour
        )
        return answer(_project(found))

    return await change(request, caller, raw, apply)


@router.delete("/projects/{project}")
async def remove_project(project: str, request: Request, caller: Writer) -> Response:
    """Delete a project; its sessions stay."""
    known = checked_name(project, "project")

    def apply(tx: Tx, /) -> StoredResponse:
        return answer(_project(projects.remove(tx, known, profile=caller.profile)))

    return await change(request, caller, b"", apply)


def _project(found: Project) -> dict[str, Any]:
    return {
        "id": found.id,
        "name": found.name,
        "colour": found.colour,
        "created_at": time_text(found.created_at),
        "sessions": found.sessions,
    }
