"""Another program's SQLite file, read and nothing else.

It may be hostile or broken: it is opened read-only, its schema is not trusted, its functions and
views cannot act, and a question that takes too long is stopped.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import apsw

from hansard.errors import BadInput
from hansard.store import queries
from hansard.store.database import Row

BUSY_MS = 5000
STEPS = 1_000_000
# A question may make so many million steps; reading a row takes about a hundred.
MOST_MILLIONS = 20_000
MAX_VALUE = 64 * 1024 * 1024
FIRST_BYTES = b"SQLite format 3\x00"


class ForeignDatabase:
    """Tables of a file that someone else owns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._connection = _open(path)
            self._tables = {
                name: _columns(self._connection, name)
                for (name,) in self._connection.execute(queries.foreign()["tables"])
                if isinstance(name, str)
            }
        except apsw.Error as error:
            raise BadInput(f"{path} cannot be read as a SQLite database ({error}).") from error

    def has(self, table: str, *columns: str) -> bool:
        """Whether there is a table with at least these columns."""
        return set(columns) <= set(self._tables.get(table, ())) and table in self._tables

    def columns(self, table: str) -> tuple[str, ...]:
        """The columns of a table; none when there is no such table."""
        return self._tables.get(table, ())

    def rows(
        self,
        table: str,
        columns: Sequence[str],
        *,
        where: tuple[str, Any] | None = None,
        between: tuple[str, Any, Any] | None = None,
        order: Sequence[str] = (),
    ) -> Iterator[Row]:
        """Some columns of a table's rows; a column that this file lacks is None in every row."""
        if table not in self._tables:
            return
        known = self._tables[table]
        by = [_quoted(each) for each in order if each in known] or ["1"]
        names = {
            "columns": ", ".join(_quoted(each) if each in known else "NULL" for each in columns),
            "table": _quoted(table),
            "order": ", ".join(by),
        }
        if where is not None:
            yield from self._ask("where", where[1:], column=_quoted(where[0]), **names)
        elif between is not None:
            yield from self._ask("between", between[1:], column=_quoted(between[0]), **names)
        else:
            yield from self._ask("all", (), **names)

    def fingerprint(self, table: str, columns: Sequence[str]) -> Row:
        """How many rows a table has, and the largest of some columns: what tells of change."""
        if table not in self._tables:
            return ()
        known = [each for each in columns if each in self._tables[table]]
        largest = queries.foreign()["largest"]
        wanted = "".join(largest.format(column=_quoted(each)) for each in known)
        return next(self._ask("fingerprint", (), columns=wanted, table=_quoted(table)), ())

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, name: str, params: Sequence[Any], **names: str) -> Iterator[Row]:
        text = queries.foreign()[name].format(**names)
        left = MOST_MILLIONS

        def too_long() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        cursor = self._connection.cursor()
        self._connection.set_progress_handler(too_long, STEPS)
        try:
            yield from cursor.execute(text, params)
        except apsw.Error as error:
            raise BadInput(f"{self.path} cannot be read further ({error}).") from error
        finally:
            cursor.close()


def is_sqlite(path: Path) -> bool:
    """Whether the file of that name begins as SQLite's do. Never asked of our own store."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return is_regular and file.read(len(FIRST_BYTES)) == FIRST_BYTES


def _open(path: Path) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOFOLLOW
    try:
        found = os.lstat(path)
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}).") from error
    if not stat.S_ISREG(found.st_mode):
        raise BadInput(f"{path} is not a regular file; it was left alone.")
    connection = apsw.Connection(f"file:{quote(str(path))}?mode=ro", flags=flags)
    connection.set_busy_timeout(BUSY_MS)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_VALUE)
    connection.execute(queries.foreign()["guard"])
    return connection


def _columns(connection: apsw.Connection, table: str) -> tuple[str, ...]:
    rows = connection.execute(queries.foreign()["columns"], (table,))
    return tuple(name for (name,) in rows)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
