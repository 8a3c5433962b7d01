"""Projects: shelves with a name and a colour. Deleting one keeps its sessions."""

import re
from dataclasses import dataclass
from datetime import datetime

from sessionary.actions.sessions.log import SessionChanged, lock_session
from sessionary.clock import Moment, from_micros, to_micros
from sessionary.errors import BadInput, Conflict, NotFound
from sessionary.model.session import SessionHead
from sessionary.model.title import clean_title
from sessionary.store.database import Tx
from sessionary.store.tables import entries, sessions

_COLOUR = re.compile(r"^#[0-9a-fA-F]{6}$")


@dataclass(frozen=True, slots=True)
class Project:
    """A project of a profile."""

    no: int
    id: str
    name: str
    colour: str | None
    created_at: datetime
    sessions: int = 0


def add(tx: Tx, name: str, *, profile: str, moment: Moment, colour: str | None = None) -> Project:
    """Make a project."""
    clean = _clean(tx, name, profile=profile)
    _check_colour(colour)
    tx.one(
        "insert_project",
        id=moment.new_id(),
        profile=profile,
        name=clean,
        colour=colour,
        at=to_micros(moment.now),
    )
    return get(tx, clean, profile=profile)


def get(tx: Tx, name: str, *, profile: str) -> Project:
    """A project by its name or id."""
    row = tx.one("get_project", profile=profile, name=sessions.column(name))
    if row is None:
        raise NotFound(f"There is no project {name!r}.")
    no, id, found, colour, created_at = row
    return Project(no, id, found, colour, from_micros(created_at))


def list_projects(tx: Tx, *, profile: str) -> list[Project]:
    """The projects of a profile by name, with the number of sessions in each."""
    return [
        Project(no, id, name, colour, from_micros(created_at), count)
        for no, id, name, colour, created_at, count in tx.all("list_projects", profile=profile)
    ]


def change(
    tx: Tx, name: str, *, profile: str, new_name: str | None = None, colour: str | None = None
) -> Project:
    """Give a project another name or colour."""
    project = get(tx, name, profile=profile)
    _check_colour(colour)
    clean = (
        project.name
        if new_name is None
        else _clean(tx, new_name, profile=profile, except_for=project)
    )
    tx.run("rename_project", no=project.no, name=clean, colour=colour or project.colour)
    return get(tx, clean, profile=profile)


def remove(tx: Tx, name: str, *, profile: str) -> Project:
    """Delete a project; its sessions stay, without one."""
    project = get(tx, name, profile=profile)
    tx.run("set_project_for_all", project_no=project.no)
    tx.run("delete_project", no=project.no)
    return project


def move_session(tx: Tx, session_id: str, name: str | None, *, profile: str) -> SessionHead:
    """Put a session into a project, or with None into none."""
    head = lock_session(tx, session_id, profile=profile)
    project = None if name is None else get(tx, name, profile=profile)
    tx.run("set_project", no=head.no, project_no=None if project is None else project.no)
    entries.insert_feed(tx, head.no, "head")
    tx.after_commit(SessionChanged(profile, head.id))
    return sessions.get_by_no(tx, head.no)


def _clean(tx: Tx, name: str, *, profile: str, except_for: Project | None = None) -> str:
    clean = clean_title(name)
    if clean is None:
        raise BadInput("A project needs a name.")
    row = tx.one("get_project", profile=profile, name=clean)
    if row is not None and (except_for is None or row[0] != except_for.no):
        raise Conflict(f"There is a project {clean!r} already; nothing was changed.")
    return clean


def _check_colour(colour: str | None) -> None:
    if colour is not None and not _COLOUR.match(colour):
        raise BadInput(f"A colour is written like #3b82f6, not {colour!r}.")
