"""The table of projects."""

from datetime import datetime

from sessionary.clock import from_micros, to_micros
from sessionary.model.session import Project
from sessionary.store.database import Tx
from sessionary.store.tables.sessions import column


def insert(tx: Tx, id: str, name: str, *, profile: str, colour: str | None, at: datetime) -> int:
    """Write a new project's row; return its number."""
    row = tx.one(
        "insert_project", id=id, profile=profile, name=name, colour=colour, at=to_micros(at)
    )
    assert row is not None
    return int(row[0])


def find(tx: Tx, name: str, *, profile: str) -> Project | None:
    """A project by its name or id."""
    row = tx.one("get_project", profile=profile, name=column(name))
    if row is None:
        return None
    no, id, found, colour, created_at = row
    return Project(no, id, found, colour, from_micros(created_at))


def list_all(tx: Tx, *, profile: str) -> list[Project]:
    """The projects of a profile by name, with the number of sessions in each."""
    return [
        Project(no, id, name, colour, from_micros(created_at), count)
        for no, id, name, colour, created_at, count in tx.all("list_projects", profile=profile)
    ]


def change(tx: Tx, no: int, *, name: str, colour: str | None) -> None:
    """Write a project's name and colour."""
    tx.run("rename_project", no=no, name=name, colour=colour)


def delete(tx: Tx, no: int) -> None:
    """Delete a project; its sessions stay, without one."""
    tx.run("set_project_for_all", project_no=no)
    tx.run("delete_project", no=no)


def move_session(tx: Tx, session_no: int, *, project_no: int | None) -> None:
    """Put a session into a project, or with None into none."""
    tx.run("set_project", no=session_no, project_no=project_no)


def session_numbers(tx: Tx, no: int, *, limit: int) -> list[int]:
    """Return the numbers of sessions in a project."""
    return [session_no for (session_no,) in tx.all("projects_sessions", project_no=no, limit=limit)]
