"""Another program's SQLite file, opened only to read.

It may be hostile or broken: its schema is not trusted, its functions and views cannot run, and a
query that takes too long is stopped. No file is made beside it: SQLite would make a `-wal` and a
`-shm` for a file in WAL mode even to read it.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import apsw

from sessionary.errors import BadInput
from sessionary.store import queries
from sessionary.store.database import Row

BUSY_MS = 5000
STEPS = 1_000_000
# A query is stopped after this many million steps; reading a row takes about a hundred.
MAX_MILLION_STEPS = 20_000
MAX_VALUE = 64 * 1024 * 1024
FIRST_BYTES = b"SQLite format 3\x00"
_HEAD = 100
_MODE_AT = 18
_WAL_MODE = 2


class ExternalDatabase:
    """The tables of another program's file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept = ExitStack()
        _refuse_irregular(path)
        try:
            self._connection = self._open()
            self._tables = {
                name: _columns(self._connection, name)
                for (name,) in self._connection.execute(queries.external()["tables"])
                if isinstance(name, str)
            }
        except (apsw.Error, OSError, UnicodeDecodeError) as error:
            self._kept.close()
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
            yield from self._query("where", where[1:], column=_quoted(where[0]), **names)
        elif between is not None:
            yield from self._query("between", between[1:], column=_quoted(between[0]), **names)
        else:
            yield from self._query("all", (), **names)

    def fingerprint(self, table: str, columns: Sequence[str]) -> Row:
        """How many rows a table has, and the largest values of some columns: they show a change."""
        if table not in self._tables:
            return ()
        known = [each for each in columns if each in self._tables[table]]
        largest = queries.external()["largest"]
        wanted = "".join(largest.format(column=_quoted(each)) for each in known)
        return next(self._query("fingerprint", (), columns=wanted, table=_quoted(table)), ())

    def groups(
        self,
        table: str,
        by: str,
        *,
        largest: Sequence[str] = (),
        sizes: Sequence[str] = (),
        sums: Sequence[str] = (),
    ) -> Iterator[Row]:
        """For each value of a column: the number of rows; largest values, sizes and sums of others."""
        if not self.has(table, by):
            return
        wanted = "".join(
            queries.external()[name].format(column=_quoted(each))
            for name, columns in (("largest", largest), ("sizes", sizes), ("sums", sums))
            for each in columns
            if each in self._tables[table]
        )
        yield from self._query("groups", (), by=_quoted(by), columns=wanted, table=_quoted(table))

    def measure(self, table: str, column: str, bounds: tuple[Any, Any], *, value: str) -> Row:
        """How many rows lie between two values of a column, and the bytes of another in them."""
        if not self.has(table, column, value):
            return ()
        names = {"table": _quoted(table), "column": _quoted(column), "value": _quoted(value)}
        return next(self._query("measure", bounds, **names), ())

    def close(self) -> None:
        """Close the file."""
        self._kept.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def _query(self, name: str, params: Sequence[Any], **names: str) -> Iterator[Row]:
        text = queries.external()[name].format(**names)
        left = MAX_MILLION_STEPS

        def too_long() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        cursor = self._connection.cursor()
        self._connection.set_progress_handler(too_long, STEPS)
        try:
            yield from cursor.execute(text, params)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise BadInput(f"{self.path} cannot be read further ({error}).") from error
        finally:
            cursor.close()
        if self._still is not None and _state(self.path) != self._still:
            raise BadInput(f"{self.path} was written while it was read; it is read another time.")

    def _open(self) -> apsw.Connection:
        """Open the file so that nothing is made beside it.

        A file in WAL mode without a WAL is opened as immutable, and checked for changes. With a WAL,
        its owner's `-shm` is used; if there is none, both files are copied to a temporary folder.
        """
        path, way = self.path, "mode=ro"
        self._still: tuple[int, int] | None = None
        head = _head(path)
        has_log = _size(_beside(path, "-wal")) > 0
        if not has_log and _size(path) < _full_size(head):
            raise BadInput(f"{path} is shorter than it says; not all of it is there.")
        if head[_MODE_AT] == _WAL_MODE:
            if not has_log:
                self._still = _state(path)
                way = "immutable=1"
            elif _size(_beside(path, "-shm")):
                way = "mode=ro&readonly_shm=1"
            else:
                folder = self._kept.enter_context(tempfile.TemporaryDirectory(prefix="sessionary-"))
                path = _copied(path, Path(folder))
        connection = _opened(path, way)
        self._kept.callback(connection.close)
        return connection


def is_sqlite(path: Path) -> bool:
    """Whether the file begins as SQLite's files do. Must not be called for our own store."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return is_regular and os.read(descriptor, len(FIRST_BYTES)) == FIRST_BYTES
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _refuse_irregular(path: Path) -> None:
    """Refuse all but regular files, for the file and its WAL: no link, no pipe."""
    for each in (path, _beside(path, "-wal")):
        try:
            found = os.lstat(each)
        except OSError as error:
            if each == path:
                raise BadInput(f"{path} cannot be read ({error.strerror}).") from error
            continue
        if not stat.S_ISREG(found.st_mode):
            raise BadInput(f"{each} is not a regular file; it was left alone.")


def _head(path: Path) -> bytes:
    """Read through SQLite: a plain open and close would drop our locks if it were our own store."""
    connection = _opened(path, "immutable=1")
    try:
        return connection.read("main", 0, 0, _HEAD)[1]
    finally:
        connection.close()


def _full_size(head: bytes) -> int:
    """The size of the file by its own header; 0 when the header is not up to date."""
    page_size, change, pages, valid_for = (
        int.from_bytes(head[at : at + size]) for at, size in ((16, 2), (24, 4), (28, 4), (92, 4))
    )
    if change != valid_for or page_size & (page_size - 1):
        return 0
    return (page_size if page_size > 1 else 65_536) * pages


def _beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def _size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _state(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


def _copied(path: Path, folder: Path) -> Path:
    copy = folder / "copy.db"
    shutil.copyfile(_beside(path, "-wal"), _beside(copy, "-wal"), follow_symlinks=False)
    shutil.copyfile(path, copy, follow_symlinks=False)
    return copy


def _opened(path: Path, way: str) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOFOLLOW
    connection = apsw.Connection(f"file:{quote(str(path))}?{way}", flags=flags)
    connection.set_busy_timeout(BUSY_MS)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_VALUE)
    connection.execute(queries.external()["guard"])
    return connection


def _columns(connection: apsw.Connection, table: str) -> tuple[str, ...]:
    rows = connection.execute(queries.external()["columns"], (table,))
    return tuple(name for (name,) in rows)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
