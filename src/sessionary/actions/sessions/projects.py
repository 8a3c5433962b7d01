"""Projects: sessions that belong together, under a name and a colour."""

import re

from sessionary.actions.sessions import log
from sessionary.clock import Moment
from sessionary.errors import BadInput, Conflict, NotFound
from sessionary.model.session import Project, SessionHead
from sessionary.model.title import clean_title
from sessionary.store.database import Tx
from sessionary.store.tables import projects, sessions

list_projects = projects.list_all
_COLOUR = re.compile(r"^#[0-9a-fA-F]{6}$")


def add(tx: Tx, name: str, *, profile: str, moment: Moment, colour: str | None = None) -> Project:
    """Make a project."""
    clean = _free_name(tx, name, profile=profile)
    _check_colour(colour)
    id = moment.new_id()
    no = projects.insert(tx, id, clean, profile=profile, colour=colour, at=moment.now)
    return Project(no, id, clean, colour, moment.now)


def get(tx: Tx, name: str, *, profile: str) -> Project:
    """A project by its name or id."""
    found = projects.find(tx, name, profile=profile)
    if found is None:
        raise NotFound(f"There is no project {name!r}.")
    return found


def change(
    tx: Tx, name: str, *, profile: str, new_name: str | None = None, colour: str | None = None
) -> Project:
    """Give a project another name or colour."""
    project = get(tx, name, profile=profile)
    _check_colour(colour)
    clean = project.name
    if new_name is not None:
        clean = _free_name(tx, new_name, profile=profile, except_for=project)
    projects.change(tx, project.no, name=clean, colour=colour or project.colour)
    return get(tx, clean, profile=profile)


def remove(tx: Tx, name: str, *, profile: str) -> Project:
    """Delete a project; its sessions stay, without one."""
    project = get(tx, name, profile=profile)
    projects.delete(tx, project.no)
    return project


def move_session(tx: Tx, session_id: str, name: str | None, *, profile: str) -> SessionHead:
    """Put a session into a project, or with None into none."""
    head = log.lock_session(tx, session_id, profile=profile)
    project_no = None if name is None else get(tx, name, profile=profile).no
    projects.move_session(tx, head.no, project_no=project_no)
    log.notify(tx, head)
    return sessions.get_by_no(tx, head.no)


def _free_name(tx: Tx, name: str, *, profile: str, except_for: Project | None = None) -> str:
    """A cleaned name that no other project has."""
    clean = clean_title(name)
    if clean is None:
        raise BadInput("A project needs a name.")
    holder = projects.find(tx, clean, profile=profile)
    if holder is not None and (except_for is None or holder.no != except_for.no):
        raise Conflict(f"There is a project {clean!r} already; nothing was changed.")
    return clean


def _check_colour(colour: str | None) -> None:
    if colour is not None and not _COLOUR.match(colour):
        raise BadInput(f"A colour is written like #3b82f6, not {colour!r}.")
