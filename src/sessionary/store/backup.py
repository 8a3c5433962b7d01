"""A backup: the store as it was when the backup began, in one file, checked before it is named.

An SQLite store is copied by SQLite's own backup, on one snapshot, while others write; nothing
else ever opens the live file. Any other store is copied row by row, on one snapshot, into an
SQLite store. Either way the file is a Sessionary store that can be opened as it is.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import apsw

from sessionary.clock import Clock, Ids
from sessionary.errors import (
    BadInput,
    Conflict,
    Damaged,
    NotFound,
    SessionaryError,
    StoreFull,
    StoreUnavailable,
)
from sessionary.store import copy_store, filesystem, migrations
from sessionary.store.database import Store, Tx
from sessionary.store.open import open_store
from sessionary.store.sqlite import db_file
from sessionary.store.sqlite.db_file import SqliteTx, translate
from sessionary.store.sqlite.store import SqliteStore

STEP_PAGES = 2048
# What may stand beside a database file.
BESIDE = ("-wal", "-shm", "-journal", "-identity", "-queue", "-turn", "-search")

T = TypeVar("T")
# How much is done, and of how much; of nothing when that is not known.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Contents:
    """What a store file holds."""

    store_id: str
    generation: int
    sessions: int
    entries: int


@dataclass(frozen=True, slots=True)
class BackupReport:
    """The file that was made, and what is in it."""

    file: str
    bytes: int
    contents: Contents


def silent(done: int, whole: int) -> None:
    """Tell nobody how far it has come."""


def backup(
    source: Store,
    file: str | Path,
    *,
    clock: Clock,
    ids: Ids,
    overwrite: bool = False,
    progress: Progress = silent,
) -> BackupReport:
    """Write a backup of everything acknowledged before this call; the store stays in use."""
    target = os.path.abspath(file)
    path = source.path if isinstance(source, SqliteStore) else db_file.MEMORY
    _check_target(target, path, overwrite=overwrite)
    with drafted(target, ids.new(clock.now())) as draft:
        if path == db_file.MEMORY:
            _copy_rows(source, draft, clock=clock, ids=ids, progress=progress)
        else:
            with closing_connection(db_file.connect_reader, path) as connection:
                copy_pages(connection, draft, progress=progress)
        contents = check_draft(draft)
        size = os.stat(draft).st_size
        _name(draft, target, overwrite=overwrite)
    return BackupReport(target, size, contents)


def inspect(file: str | Path) -> Contents:
    """Say what a backup holds; refuse one that is damaged, not ours, or not whole."""
    path = os.path.abspath(file)
    if not os.path.exists(path):
        raise NotFound(f"There is no file {path}; nothing was changed.")
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise BadInput(f"{path} is not a file; nothing was changed.")
    wal = Path(f"{path}-wal")
    if wal.exists() and wal.stat().st_size:
        raise Conflict(f"{path} is in use, so it is no backup; nothing was changed.")
    with closing_connection(db_file.connect_immutable, path) as connection:
        return check(connection, path)


def check(connection: apsw.Connection, path: str) -> Contents:
    """Look through a whole store file: its pages, its references, whose it is."""
    tx = SqliteTx(connection)
    db_file.check_is_ours(connection, path)
    for query in ("check_integrity", "check_references"):
        for row in tx.all(query):
            if row[0] != "ok":
                raise Damaged(f"{path} is damaged ({row[0]}); it was not used.")
    migrations.pending(tx, "sqlite")
    store_id, marker = _meta(tx, "store_id"), _meta(tx, copy_store.MARKER)
    counted = tx.one("count_content")
    if store_id is None or counted is None:
        raise StoreUnavailable(f"{path} has no identity: it is not a Sessionary store.")
    if marker is not None:
        raise StoreUnavailable(f"{path} is a copy that is not whole; it was not used.")
    return Contents(store_id, int(_meta(tx, copy_store.GENERATION) or 0), *counted)


def copy_pages(connection: apsw.Connection, draft: str, *, progress: Progress) -> None:
    """Copy a database into an empty file, as it is now: a read transaction holds the moment."""
    connection.execute("BEGIN")
    SqliteTx(connection).one("get_meta", name="store_id")
    target = apsw.Connection(draft, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        # The draft is thrown away if anything fails, and synced as a whole when it is done.
        target.pragma("journal_mode", "off")
        target.pragma("synchronous", "off")
        with target.backup("main", connection, "main") as pages:
            while not pages.done:
                pages.step(STEP_PAGES)
                progress(pages.page_count - pages.remaining, pages.page_count)
    finally:
        target.close(True)
        connection.execute("ROLLBACK")


def check_draft(draft: str, *, generation: int | None = None) -> Contents:
    """Check a finished draft, perhaps after giving it a generation, and bring it to the disk."""
    with closing_connection(db_file.connect_writer, draft) as connection:
        if generation is not None:
            tx = SqliteTx(connection)
            tx.run("set_meta", name=copy_store.GENERATION, value=str(generation))
        contents = check(connection, draft)
    sync(draft)
    return contents


@contextmanager
def drafted(target: str, name: str) -> Iterator[str]:
    """A private, empty file beside the target; nothing of it stays unless it is renamed."""
    draft = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.{name}")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        yield draft
    except apsw.Error as error:
        raise _told(translate(error, target), target) from error
    except OSError as error:
        raise _told(_refused(error, target), target) from error
    except SessionaryError as error:
        raise _told(error, target) from error
    finally:
        for end in ("", *BESIDE):
            with suppress(FileNotFoundError):
                os.unlink(draft + end)


@contextmanager
def closing_connection(
    connect: Callable[[str], apsw.Connection], path: str
) -> Iterator[apsw.Connection]:
    """A connection for the length of a block, its errors in our words."""
    try:
        connection = connect(path)
        try:
            yield connection
        finally:
            connection.close(True)
    except apsw.Error as error:
        raise translate(error, path) from error


def sync(path: str) -> None:
    """Bring a file or a directory to the disk. Never a live database: closing it drops locks."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        filesystem.sync(descriptor)
    finally:
        os.close(descriptor)


def is_same_file(path: str, other: str) -> bool:
    """Whether two names lead to one file."""
    return os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other)


def _check_target(target: str, store_path: str, *, overwrite: bool) -> None:
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise NotFound(f"There is no directory {folder}; nothing was made.")
    if any(is_same_file(target, store_path + end) for end in ("", *BESIDE)):
        raise BadInput(f"{target} is the store itself; nothing was made. Name another file.")
    if not os.path.lexists(target):
        return
    if not os.path.isfile(target) or os.path.islink(target):
        raise BadInput(f"{target} is not a file; nothing was made. Name a file.")
    if not overwrite:
        raise Conflict(f"There is a file {target} already; it was left as it is.")
    if db_file.identity_file(target).exists() or os.path.exists(f"{target}-wal"):
        raise Conflict(f"{target} is a store that is in use; it was left as it is.")


def _copy_rows(source: Store, draft: str, *, clock: Clock, ids: Ids, progress: Progress) -> None:
    """Copy a store that is no file, on one snapshot of it."""
    target = open_store(f"sqlite:///{draft}", create=True, clock=clock, ids=ids, half_copied=True)
    try:
        source.read(_copy_snapshot, target, progress).result()
    finally:
        target.close()


def _copy_snapshot(tx: Tx, target: Store, progress: Progress) -> None:
    def read(action: Callable[..., T], /, *args: Any) -> T:
        return action(tx, *args)

    done: dict[str, int] = {}

    def count(table: str, rows: int) -> None:
        done[table] = rows
        progress(sum(done.values()), 0)

    copy_store.copy(read, target, progress=count, generations=0)


def _name(draft: str, target: str, *, overwrite: bool) -> None:
    """Give the finished draft its name; never in the place of a file that came meanwhile."""
    if overwrite:
        os.replace(draft, target)
    else:
        try:
            os.link(draft, target)
        except FileExistsError:
            raise Conflict(f"There is a file {target} already; it was left as it is.") from None
        except OSError:
            if os.path.lexists(target):
                raise
            os.rename(draft, target)  # a file system without links
    sync(os.path.dirname(target))


def _told(error: SessionaryError, target: str) -> SessionaryError:
    """Say of a failure that nothing was left behind."""
    if isinstance(error, StoreFull):
        folder = os.path.dirname(target)
        return StoreFull(f"There is no room in {folder}; nothing was left there. Free space.")
    return error


def _refused(error: OSError, target: str) -> SessionaryError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StoreFull(f"There is no room for {target}.")
    return StoreUnavailable(f"{target} cannot be written ({error.strerror}); nothing was made.")


def _meta(tx: Tx, name: str) -> str | None:
    row = tx.one("get_meta", name=name)
    return None if row is None else row[0]
