"""The table of projects."""

from datetime import datetime
from typing import NamedTuple

from sessionary.clock import from_micros, to_micros
from sessionary.store.database import Tx
from sessionary.store.tables.sessions import column


class ProjectRow(NamedTuple):
    """A project; a name or an id finds it."""

    no: int
    id: str
    name: str
    colour: str | None
    created_at: datetime


def find(tx: Tx, name: str, *, profile: str) -> ProjectRow | None:
    """Return the project with a name or id."""
    row = tx.one("get_project", profile=profile, name=column(name))
    if row is None:
        return None
    no, id, found, colour, created_at = row
    return ProjectRow(no, id, found, colour, from_micros(created_at))


def insert(tx: Tx, id: str, name: str, *, profile: str, colour: str | None, at: datetime) -> int:
    """Write a project; return its number."""
    row = tx.one(
        "insert_project", id=id, profile=profile, name=name, colour=colour, at=to_micros(at)
    )
    assert row is not None
    return int(row[0])


def session_numbers(tx: Tx, no: int, *, limit: int) -> list[int]:
    """Return the numbers of sessions in a project."""
    return [session_no for (session_no,) in tx.all("projects_sessions", project_no=no, limit=limit)]
