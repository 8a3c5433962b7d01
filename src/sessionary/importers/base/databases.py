"""Databases that hold many sessions: each session is a unit of its own."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sessionary.errors import BadInput
from sessionary.importers.base import files
from sessionary.importers.base.events import Unit
from sessionary.store.sqlite.external_file import ExternalDatabase


class DatabaseSession(NamedTuple):
    """A session of a database: its name there, what changes with it, what its reader must know."""

    id: str
    stamp: tuple[Any, ...]
    hint: Any
    beside: tuple[Path, ...] = ()


def units(
    path: Path, sessions: Callable[[ExternalDatabase], Iterable[DatabaseSession]]
) -> Iterator[Unit]:
    """The sessions of a database; one that cannot be read is a unit that cannot be read."""
    try:
        with ExternalDatabase(path) as database:
            found = list(sessions(database))
    except BadInput:
        yield Unit(str(path), path, files.stamp_of(path), files.size_of(path))
        return
    share = files.size_of(path) // max(1, len(found))
    for kept in found:
        stamp = repr((*kept.stamp, files.stamp_of(*kept.beside)))
        yield Unit(f"{path}#{kept.id}", path, stamp, share, kept.beside, hint=kept.hint)


def opened(unit: Unit) -> ExternalDatabase:
    """The unit's database; `BadInput` when it cannot be read."""
    database = ExternalDatabase(unit.path)
    if unit.hint is None:
        database.close()
        raise BadInput(f"{unit.path} cannot be read further; it was left alone.")
    return database


def has(path: Path, table: str, *columns: str) -> bool:
    """Whether a file is a database with that table."""
    try:
        with ExternalDatabase(path) as database:
            return database.has(table, *columns)
    except BadInput:
        return False


def marks(database: ExternalDatabase, table: str, by: str, *largest: str) -> dict[Any, Any]:
    """For each value of a column, what tells that its rows changed: how many, the largest."""
    return {row[0]: row[1:] for row in database.groups(table, by, largest=largest)}
