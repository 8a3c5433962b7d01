"""`/projects`: named groups of sessions."""

from typing import Annotated

from fastapi import Path, Request
from msgspec import Meta, Struct
from typing_extensions import TypedDict

from sessionary.actions.sessions import projects
from sessionary.model.json_types import ProjectInfo
from sessionary.model.view import project_json
from sessionary.store.database import Tx
from sessionary.web.auth import ContextDep, Reader, Writer
from sessionary.web.context import PREFIX
from sessionary.web.responses import StoredAnswer, answer, change, checked_name, json_response
from sessionary.web.routing import FromBody, JsonAnswer, api_router

router = api_router(prefix=PREFIX, tags=["projects"])
ProjectName = Annotated[str, Path(description="The project's name or id.")]


class NewProject(Struct, kw_only=True, forbid_unknown_fields=True):
    """A project's name and colour."""

    name: Annotated[str, Meta(description="The name, unique in the profile.")]
    colour: Annotated[str | None, Meta(description="A colour, as `#RRGGBB`.")] = None


class ProjectChange(Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields to change; fields that are left out stay as they are."""

    name: Annotated[str | None, Meta(description="A new name.")] = None
    colour: Annotated[str | None, Meta(description="A new colour, as `#RRGGBB`.")] = None


class ProjectPage(TypedDict):
    """The projects of a profile."""

    items: list[ProjectInfo]
    next: None


@router.get("/projects")
async def list_projects(context: ContextDep, caller: Reader) -> JsonAnswer[ProjectPage]:
    """List projects.

    Each with the number of its sessions.
    """
    found = await context.store.read(projects.list_projects, profile=caller.profile)
    return json_response(ProjectPage(items=[project_json(each) for each in found], next=None))


@router.post("/projects", status_code=201)
async def create_project(
    request: Request, context: ContextDep, caller: Writer, body: FromBody[NewProject]
) -> JsonAnswer[ProjectInfo]:
    """Create a project.

    Sessions are moved into it with `PATCH /sessions/{session_id}`.
    """
    moment = context.moment()

    def apply(tx: Tx) -> StoredAnswer[ProjectInfo]:
        made = projects.add(
            tx, body.name, profile=caller.profile, moment=moment, colour=body.colour
        )
        return answer(project_json(made), 201)

    return await change(request, caller, apply)


@router.patch("/projects/{project}")
async def update_project(
    project: ProjectName, request: Request, caller: Writer, body: FromBody[ProjectChange]
) -> JsonAnswer[ProjectInfo]:
    """Change a project.

    Its name, its colour, or both.
    """
    known = checked_name(project, "project")

    def apply(tx: Tx) -> StoredAnswer[ProjectInfo]:
        found = projects.change(
            tx, known, profile=caller.profile, new_name=body.name, colour=body.colour
        )
        return answer(project_json(found))

    return await change(request, caller, apply)


@router.delete("/projects/{project}")
async def delete_project(
    project: ProjectName, request: Request, caller: Writer
) -> JsonAnswer[ProjectInfo]:
    """Delete a project.

    Its sessions stay, without a project.
    """
    known = checked_name(project, "project")

    def apply(tx: Tx) -> StoredAnswer[ProjectInfo]:
        return answer(project_json(projects.remove(tx, known, profile=caller.profile)))

    return await change(request, caller, apply)
