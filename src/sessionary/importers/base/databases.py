"""SQLite databases of other tools: each session in one is a unit."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sessionary.errors import BadInput
from sessionary.formats.coerce import Json
from sessionary.importers.base import files
from sessionary.importers.base.events import Unit
from sessionary.store.sqlite.external_file import ExternalDatabase, is_sqlite


class DatabaseSession(NamedTuple):
    """A session of a database: its id there, what changes with it, what its reader needs."""

    id: str
    stamp: tuple[Any, ...]
    hint: Any
    beside: tuple[Path, ...] = ()
    # Whether its hint names a parent, which must be imported first.
    is_child: bool = False


def units(
    path: Path, sessions: Callable[[ExternalDatabase], Iterable[DatabaseSession]]
) -> Iterator[Unit]:
    """Yield the sessions of a database, children last. An unreadable database is one unit."""
    try:
        with ExternalDatabase(path) as database:
            found = list(sessions(database))
    except BadInput:
        yield files.unit(path)
        return
    share = files.size_of(path) // max(1, len(found))
    for session in sorted(found, key=lambda each: each.is_child):
        stamp = repr((*session.stamp, files.stamp_of(*session.beside)))
        yield Unit(f"{path}#{session.id}", path, stamp, share, session.beside, hint=session.hint)


def opened(unit: Unit) -> ExternalDatabase:
    """Open the unit's database; raises `BadInput` if it cannot be read."""
    database = ExternalDatabase(unit.path)
    if unit.hint is None:
        database.close()
        raise BadInput(f"{unit.path} cannot be read further; it was left alone.")
    return database


def passes(path: Path, test: Callable[[ExternalDatabase], bool]) -> bool:
    """Whether a file is a SQLite database that can be read and passes a test."""
    if not is_sqlite(path):
        return False
    try:
        with ExternalDatabase(path) as database:
            return test(database)
    except BadInput:
        return False


def has(path: Path, table: str, *columns: str) -> bool:
    """Whether a file is a SQLite database with that table and columns."""
    return passes(path, lambda database: database.has(table, *columns))


def marks(database: ExternalDatabase, table: str, by: str, *largest: str) -> dict[Any, Any]:
    """Return how many rows have each value of a column, and their largest values of others."""
    return {value: tuple(rest) for value, *rest in database.groups(table, by, largest=largest)}


def records(
    database: ExternalDatabase, table: str, columns: Sequence[str], **which: Any
) -> Iterator[Json]:
    """Yield rows as dictionaries; `which` is `where` and `order` of `ExternalDatabase.rows`."""
    for row in database.rows(table, columns, **which):
        yield dict(zip(columns, row, strict=True))


def value(database: ExternalDatabase, table: str, column: str, *, where: tuple[str, Any]) -> Any:
    """Return a column of the first row where another column has a value; None without one."""
    return next((found for (found,) in database.rows(table, (column,), where=where)), None)
