"""The database file: how it is made, opened, recognised. It is touched only through SQLite.

A plain open and close of a live file would drop every lock this process holds on it.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import quote

import apsw

from sessionary.errors import Damaged, NotFound, StoreUnavailable
from sessionary.store.sqlite import identity
from sessionary.store.sqlite.errors import translate

MEMORY = ":memory:"
# SQLite's name for a database that is deleted when it is closed.
TEMPORARY = ""
APPLICATION_ID = 1213416260
INDEX_FORM = 6
BUSY_MS = 5000
STATEMENTS = 400
# How many steps of its machine SQLite takes before a check looks whether it shall stop: milliseconds.
STEPS_BETWEEN_LOOKS = 100_000
# Releases from 3.7.0 on can corrupt a WAL database that several connections write to.
FIRST_SOUND = (3, 51, 3)
SOUND_LINES = {(3, 50): 7, (3, 44): 6}

_umask = threading.Lock()


def version() -> tuple[int, int, int]:
    """The release of SQLite that is linked."""
    major, minor, patch = apsw.sqlite_lib_version().split(".")[:3]
    return int(major), int(minor), int(patch)


def is_sound(release: tuple[int, int, int]) -> bool:
    """Whether this release is free of the WAL-reset bug."""
    return release >= FIRST_SOUND or release[2] >= SOUND_LINES.get(release[:2], 1 << 30)


def is_there(path: str, *, create: bool) -> bool:
    """Whether a file is at the path; refuses what can never become a store."""
    if not is_sound(version()):
        raise StoreUnavailable(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt a store; nothing was opened. "
            "Install a newer apsw (SQLite 3.51.3 or later)."
        )
    if os.path.isdir(path):
        raise StoreUnavailable(f"{path} is a directory, not a Sessionary store.")
    there = os.path.exists(path) and os.stat(path).st_size > 0
    identity.check(path, there=there)
    if not there and not create:
        raise NotFound(f"There is no store at {path}; nothing was made.")
    folder = os.path.dirname(path) or "."
    if not there and not os.path.isdir(folder):
        raise StoreUnavailable(f"There is no directory {folder}; nothing was made.")
    return there


def connect_writer(path: str) -> apsw.Connection:
    """A connection that writes; the caller owns it in one thread."""
    connection = _connect(path, apsw.SQLITE_OPEN_READWRITE)
    connection.execute(script("writer")).fetchall()
    return connection


def connect_reader(path: str) -> apsw.Connection:
    """A connection that cannot write."""
    try:
        return _reader(path, "mode=ro")
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        wal = Path(f"{path}-wal")
        if os.access(os.path.dirname(path) or ".", os.W_OK) or (
            wal.exists() and wal.stat().st_size
        ):
            raise
        # A read-only directory without unfinished business: nobody can change the file under us.
        return _reader(path, "mode=ro&immutable=1")


def connect_still(path: str) -> apsw.Connection:
    """A connection to a file that nobody changes, such as a backup; nothing is made beside it."""
    return _reader(path, "mode=ro&immutable=1")


def is_unfinished(connection: apsw.Connection) -> bool:
    """Whether someone died, or still is, between making the file and making it a store."""
    mark = connection.pragma("application_id")
    return connection.pragma("schema_version") == 0 and mark in (0, APPLICATION_ID)


def finish(connection: apsw.Connection) -> None:
    """Make an empty database ours; doing it twice is doing it once."""
    connection.execute(script("create")).fetchall()


def recognise(connection: apsw.Connection, path: str) -> None:
    """Refuse a database that is not ours."""
    application = connection.pragma("application_id")
    if application != APPLICATION_ID:
        raise StoreUnavailable(
            f"{path} is an SQLite database, but not a Sessionary store; it was left as it is."
        )


def connect_index(path: str, log: str, *, vfs: str | None) -> apsw.Connection:
    """A connection that writes the index file at a path and sees the log beside it, read-only."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
    with _private():
        connection = _connect(path, flags, vfs=vfs)
        _attach(connection, log)
    return connection


def connect_index_reader(path: str, log: str, *, vfs: str | None) -> apsw.Connection:
    """The same where the index cannot be written."""
    uri = _uri(path, "mode=ro" if os.path.exists(f"{path}-wal") else "mode=ro&immutable=1")
    connection = _connect(uri, apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, vfs=vfs)
    _attach(connection, log)
    return connection


def _attach(connection: apsw.Connection, log: str) -> None:
    try:
        wal = os.path.exists(f"{log}-wal") or os.access(os.path.dirname(log) or ".", os.W_OK)
        how = "mode=ro" if wal else "mode=ro&immutable=1"
        connection.execute("ATTACH ? AS log", (_uri(log, how),))
    except BaseException:
        connection.close()
        raise


def copy_aside(connection: apsw.Connection, target: str) -> None:
    """Keep the store as it is in another file, checked, before something changes all of it."""
    draft = f"{target}.draft"
    for old in (draft, target):
        if os.path.exists(old):
            os.remove(old)
    with _private():
        connection.execute("VACUUM INTO ?", (draft,))
    copy = _connect(draft, apsw.SQLITE_OPEN_READONLY)
    try:
        found = copy.pragma("integrity_check")
    finally:
        copy.close()
    if found != "ok":
        os.remove(draft)
        raise Damaged(
            f"The store could not be copied before its upgrade ({found}); it was left as it is."
        )
    os.replace(draft, target)


def has_unfolded_wal(path: str) -> bool:
    """Whether commits are only in the WAL: the last writer is still running or did not stop cleanly."""
    try:
        return os.stat(f"{path}-wal").st_size > 0
    except OSError:
        return False


def find_damage(path: str, *, is_stopped: Callable[[], bool]) -> str | None:
    """Say what SQLite finds wrong with the file; None when every page is sound, or it was stopped.

    One table after the other: no reader may keep the WAL from being folded in for minutes.
    """
    try:
        connection = connect_reader(path)
    except apsw.Error as error:
        raise translate(error, path) from error
    connection.set_progress_handler(is_stopped, STEPS_BETWEEN_LOOKS)
    try:
        for (name,) in connection.execute(script("tables")).fetchall():
            found = connection.pragma("quick_check", name)
            if found != "ok":
                return " ".join(str(found).split())
    except apsw.InterruptError:
        return None
    except apsw.CorruptError as error:
        return str(error)
    except apsw.Error as error:
        raise translate(error, path) from error
    finally:
        connection.close()
    return None


def memory() -> apsw.Connection:
    """A database that lives as long as its connection."""
    connection = apsw.Connection(MEMORY, statementcachesize=STATEMENTS)
    _keep_plans(connection)
    connection.execute(script("writer")).fetchall()
    return connection


def make(path: str) -> None:
    """Make the file, ours from its first page on."""
    with _private():
        connection = _connect(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        try:
            finish(connection)
        finally:
            connection.close()


@contextmanager
def _private() -> Iterator[None]:
    """Files made in the block are private from the first byte. One at a time: one umask."""
    with _umask:
        before = os.umask(0o077)
        try:
            yield
        finally:
            os.umask(before)


def _connect(path: str, flags: int, *, vfs: str | None = None) -> apsw.Connection:
    connection = apsw.Connection(
        path, flags=flags | apsw.SQLITE_OPEN_NOFOLLOW, vfs=vfs, statementcachesize=STATEMENTS
    )
    connection.set_busy_timeout(BUSY_MS)
    _keep_plans(connection)
    return connection


def _keep_plans(connection: apsw.Connection) -> None:
    """Plan a statement once. Else SQLite plans it anew for each call's values: ten times slower."""
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def _reader(path: str, how: str) -> apsw.Connection:
    connection = _connect(_uri(path, how), apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    connection.execute(script("reader")).fetchall()
    return connection


def _uri(path: str, how: str) -> str:
    return f"file:{quote(os.path.abspath(path))}?{how}"


@cache
def script(name: str) -> str:
    """One of our scripts for SQLite alone."""
    return (Path(__file__).parent.parent / "sql" / "sqlite" / f"{name}.sql").read_text(
        encoding="utf-8"
    )
