"""Backup, restore and move of a store's files.

A backup is the store as it was when the backup began, in one file, checked before it gets its name.
An SQLite store is copied by SQLite's own backup, on one snapshot, while others write; nothing else
ever opens the live file. Any other store is copied row by row into an SQLite store. Either way the
file is a Sessionary store that can be opened as it is.

A restored store is the one that was backed up, in its next generation, so that the search index and
readers of the feed begin again.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import apsw
from msgspec import Struct

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
from sessionary.store.open import open_store, sqlite_path
from sessionary.store.sqlite import db_file
from sessionary.store.sqlite.db_file import SqliteTx, translate
from sessionary.store.sqlite.store import SqliteStore
from sessionary.store.tables.meta import get as get_meta

STEP_PAGES = 2048
BUSY_MS = 1000
LOCK_SECONDS = 2.0
# The endings of the files beside a database file.
BESIDE = ("-wal", "-shm", "-journal", "-identity", "-queue", "-turn", "-search")
# Backups in a folder have such names; no other file is ever deleted.
_BACKUP_NAME = re.compile(r"sessionary-[0-9]{8}T[0-9]{6}Z\.db")

T = TypeVar("T")
# Called with how much is done, and of how much (0: not known).
Progress = Callable[[int, int], None]


class Contents(Struct, frozen=True):
    """What a store file holds."""

    store_id: str
    generation: int
    sessions: int
    entries: int


class BackupReport(Struct, frozen=True):
    """The file that was made, and what is in it."""

    file: str
    bytes: int
    contents: Contents


def no_progress(done: int, whole: int) -> None:
    """Report to nobody."""


def backup(
    source: Store,
    file: str | Path,
    *,
    clock: Clock,
    ids: Ids,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> BackupReport:
    """Write a backup of everything acknowledged before this call; the store stays in use."""
    target = os.path.abspath(file)
    path = source.path if isinstance(source, SqliteStore) else db_file.MEMORY
    _check_target(target, path, overwrite=overwrite)
    with _draft_file(target, ids.new(clock.now())) as draft:
        if path == db_file.MEMORY:
            _copy_rows(source, draft, clock=clock, ids=ids, progress=progress)
        else:
            with _connected(db_file.connect_reader, path) as connection:
                _copy_pages(connection, draft, progress=progress)
        contents = _check_draft(draft)
        size = os.stat(draft).st_size
        _rename_draft(draft, target, overwrite=overwrite)
    return BackupReport(target, size, contents)


def inspect(file: str | Path) -> Contents:
    """Say what a backup holds; refuse one that is damaged, not ours, or not whole."""
    path = os.path.abspath(file)
    if not os.path.exists(path):
        raise NotFound(f"There is no file {path}; nothing was changed.")
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise BadInput(f"{path} is not a file; nothing was changed.")
    if db_file.has_unfolded_wal(path):
        raise Conflict(f"{path} is in use, so it is no backup; nothing was changed.")
    with _connected(db_file.connect_immutable, path) as connection:
        return _check(connection, path)


def _check(connection: apsw.Connection, path: str) -> Contents:
    """Check a whole store file: its pages, its references, whose it is."""
    tx = SqliteTx(connection)
    db_file.check_is_ours(connection, path)
    for query in ("check_integrity", "check_references"):
        for finding, *_ in tx.all(query):
            if finding != "ok":
                raise Damaged(f"{path} is damaged ({finding}); it was not used.")
    migrations.pending(tx, "sqlite")
    store_id, marker = get_meta(tx, "store_id"), get_meta(tx, copy_store.MARKER)
    counts = tx.one("count_content")
    if store_id is None or counts is None:
        raise StoreUnavailable(f"{path} has no identity: it is not a Sessionary store.")
    if marker is not None:
        raise StoreUnavailable(f"{path} is a copy that is not whole; it was not used.")
    return Contents(store_id, int(get_meta(tx, copy_store.GENERATION) or 0), *counts)


def _copy_pages(connection: apsw.Connection, draft: str, *, progress: Progress) -> None:
    """Copy a database into an empty file, on one snapshot."""
    connection.execute("BEGIN")
    get_meta(SqliteTx(connection), "store_id")  # the first read takes the snapshot
    target = apsw.Connection(draft, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        # The draft is deleted if anything fails, and synced as a whole when it is done.
        target.pragma("journal_mode", "off")
        target.pragma("synchronous", "off")
        with target.backup("main", connection, "main") as pages:
            while not pages.done:
                pages.step(STEP_PAGES)
                progress(pages.page_count - pages.remaining, pages.page_count)
    finally:
        target.close(True)
        connection.execute("ROLLBACK")


def _check_draft(draft: str, *, generation: int | None = None) -> Contents:
    """Set the generation of a finished draft, if one is given; check it and sync it to the disk."""
    with _connected(db_file.connect_writer, draft) as connection:
        if generation is not None:
            tx = SqliteTx(connection)
            tx.run("set_meta", name=copy_store.GENERATION, value=str(generation))
        contents = _check(connection, draft)
    _sync(draft)
    return contents


@contextmanager
def _draft_file(target: str, name: str) -> Iterator[str]:
    """A private, empty file beside the target; nothing of it stays unless it is renamed."""
    draft = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.{name}")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        yield draft
    except apsw.Error as error:
        raise _without_room(translate(error, target), target) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise _without_room(StoreFull(""), target) from error
        raise StoreUnavailable(
            f"{target} cannot be written ({error.strerror}); nothing was made."
        ) from error
    except StoreFull as error:
        raise _without_room(error, target) from error
    finally:
        for end in ("", *BESIDE):
            with suppress(FileNotFoundError):
                os.unlink(draft + end)


@contextmanager
def _connected(connect: Callable[[str], apsw.Connection], path: str) -> Iterator[apsw.Connection]:
    """A connection for the length of a block; its errors are translated."""
    try:
        connection = connect(path)
        try:
            yield connection
        finally:
            connection.close(True)
    except apsw.Error as error:
        raise translate(error, path) from error


def _sync(path: str) -> None:
    """Sync a file or a directory to the disk. Never a live database: closing it drops locks."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        filesystem.sync(descriptor)
    finally:
        os.close(descriptor)


def _is_same_file(path: str, other: str) -> bool:
    """Whether two paths name the same file."""
    return os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other)


def _check_target(target: str, store_path: str, *, overwrite: bool) -> None:
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise NotFound(f"There is no directory {folder}; nothing was made.")
    if any(_is_same_file(target, store_path + end) for end in ("", *BESIDE)):
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
    done: dict[str, int] = {}

    def count(table: str, rows: int) -> None:
        done[table] = rows
        progress(sum(done.values()), 0)

    def copy_snapshot(tx: Tx, target: Store) -> None:
        copy_store.copy_rows(_reader(tx), target, progress=count, generations=0)

    target = open_store(f"sqlite:///{draft}", create=True, clock=clock, ids=ids, half_copied=True)
    try:
        source.read(copy_snapshot, target).result()
    finally:
        target.close()


def _reader(tx: Tx) -> copy_store.ReadPage:
    def read(action: Callable[..., T], /, *args: Any) -> T:
        return action(tx, *args)

    return read


def _rename_draft(draft: str, target: str, *, overwrite: bool) -> None:
    """Give the finished draft its name; a file that appeared meanwhile is not replaced."""
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
    _sync(os.path.dirname(target))


def _without_room(error: SessionaryError, target: str) -> SessionaryError:
    """Say of a full disk which directory is meant, and that nothing was left there."""
    if not isinstance(error, StoreFull):
        return error
    folder = os.path.dirname(target)
    return StoreFull(f"There is no room in {folder}; nothing was left there. Free space.")


class BackupFile(Struct, frozen=True):
    """A backup in a folder."""

    name: str
    bytes: int


def new_backup_path(folder: Path, now: datetime) -> Path:
    """The file for a backup that is made now."""
    if not folder.is_dir():
        raise StoreUnavailable(f"There is no directory {folder}; nothing was made.")
    return folder / f"sessionary-{now:%Y%m%dT%H%M%SZ}.db"


def list_backups(folder: Path) -> list[BackupFile]:
    """The backups of a folder, newest first; none if there is no such folder."""
    try:
        found = sorted(folder.iterdir(), reverse=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreUnavailable(
            f"The directory {folder} cannot be read: {error.strerror}."
        ) from error
    return [
        BackupFile(path.name, path.stat().st_size)
        for path in found
        if _BACKUP_NAME.fullmatch(path.name)
    ]


def delete_old_backups(folder: Path, keep: int) -> list[str]:
    """Delete all but the newest backups; their names sort by time."""
    older = sorted(each.name for each in list_backups(folder))[:-keep]
    for name in older:
        (folder / name).unlink()
    return older


class RestoreReport(Struct, frozen=True):
    """What is in the store now, and where the old one is."""

    contents: Contents
    kept: str | None


def restore(
    file: str | Path,
    url: str,
    *,
    clock: Clock,
    ids: Ids,
    force: bool = False,
    progress: Progress = no_progress,
) -> RestoreReport:
    """Make a backup the store at a URL; with `force` it replaces the store that is there.

    A store that another program uses is refused. On PostgreSQL the database must be empty.
    """
    backup_file = os.path.abspath(file)
    contents = inspect(backup_file)
    path = sqlite_path(url)
    if path is None:
        return _restore_rows(backup_file, url, contents, clock=clock, ids=ids, progress=progress)
    if path == db_file.MEMORY:
        raise BadInput("A store in memory cannot be restored; name a file.")
    target = os.path.realpath(path)
    if _is_same_file(backup_file, target):
        raise BadInput(f"{backup_file} is the store itself; nothing was changed.")
    is_there = os.path.exists(target) and os.stat(target).st_size > 0
    if is_there and not force:
        raise Conflict(
            f"There is a store at {target}; it was left as it is. Force it to replace it."
        )
    if not os.path.isdir(os.path.dirname(target)):
        raise BadInput(f"There is no directory {os.path.dirname(target)}; nothing was made.")
    generation = max(contents.generation, _generation(target) if is_there else 0) + 1
    with _draft_file(target, ids.new(clock.now())) as draft:
        with _connected(db_file.connect_immutable, backup_file) as connection:
            _copy_pages(connection, draft, progress=progress)
        restored = _check_draft(draft, generation=generation)
        kept = _kept_name(target, clock.now()) if os.path.exists(target) else None
        _swap(draft, target, kept, restored.store_id)
    return RestoreReport(restored, kept)


def _generation(path: str) -> int:
    """The generation of the store that is replaced, if it can still be read."""
    try:
        with _connected(db_file.connect_reader, path) as connection:
            return int(get_meta(SqliteTx(connection), copy_store.GENERATION) or 0)
    except SessionaryError:
        return 0


def _swap(draft: str, target: str, kept: str | None, store_id: str) -> None:
    """Make the draft the store; the old file gets another name."""
    with _hold_store(target) if kept is not None else nullcontext():
        # After a crash from here on the identity file is missing, and the next start writes it.
        db_file.identity_file(target).unlink(missing_ok=True)
        if kept is not None:
            _keep(target, kept)
        os.replace(draft, target)
        _sync(os.path.dirname(target))
    db_file.write_identity(target, store_id)


@contextmanager
def _hold_store(target: str) -> Iterator[None]:
    """Keep everyone else out of a store; raise `Conflict` if another program uses it.

    Leaving WAL mode needs the file alone, and folds the WAL into it: the old file is complete, and
    no WAL of it is left that could be taken for the new one's.
    """
    with db_file.write_lock(target, LOCK_SECONDS):
        connection = apsw.Connection(target, flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(BUSY_MS)
        old = os.stat(target)
        try:
            _lock_exclusively(connection, target)
            yield
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if os.path.exists(target) and os.path.samestat(old, os.stat(target)):
                with suppress(apsw.Error):  # it was not ours to change
                    connection.pragma("journal_mode", "wal")
            raise
        finally:
            connection.close(True)


def _lock_exclusively(connection: apsw.Connection, target: str) -> None:
    try:
        if connection.pragma("journal_mode", "delete") != "delete":
            raise apsw.BusyError("the journal mode did not change")
        connection.execute("BEGIN EXCLUSIVE")
    except (apsw.BusyError, apsw.LockedError) as error:
        raise Conflict(
            f"Another program uses the store at {target}; nothing was changed. Stop it first."
        ) from error
    except (apsw.CorruptError, apsw.NotADBError):
        return  # it cannot be read, only kept; the write lock keeps writers out


def _keep(target: str, kept: str) -> None:
    """Give the old file a second name; a WAL that could not be folded in goes with it."""
    for end in ("-wal", "-shm", "-journal"):
        if os.path.exists(target + end):
            os.rename(target + end, kept + end)
    try:
        os.link(target, kept)
    except OSError:
        os.rename(target, kept)  # a file system without links


def _kept_name(target: str, now: datetime) -> str:
    name = f"{target}.before-restore-{now:%Y%m%d-%H%M%S}"
    number = 2
    while os.path.lexists(name):
        name = f"{target}.before-restore-{now:%Y%m%d-%H%M%S}-{number}"
        number += 1
    return name


def _restore_rows(
    file: str, url: str, contents: Contents, *, clock: Clock, ids: Ids, progress: Progress
) -> RestoreReport:
    """Copy a backup into an empty database of a server."""
    target = open_store(url, create=True, clock=clock, ids=ids, half_copied=True)
    try:
        with _connected(db_file.connect_immutable, file) as connection:
            tx = SqliteTx(connection)
            if migrations.pending(tx, "sqlite"):
                raise StoreUnavailable(
                    f"{file} was made by an older Sessionary; nothing was copied. Restore it to a "
                    "file, open that once, and copy it with `sessionary migrate`."
                )
            report = copy_store.copy_rows(
                _reader(tx), target, progress=lambda _, rows: progress(rows, 0), generations=1
            )
    finally:
        target.close()
    restored = Contents(contents.store_id, report.generation, contents.sessions, contents.entries)
    return RestoreReport(restored, None)


def move_home(old: Path, new: Path, *, old_name: str, new_name: str) -> int:
    """Rename a home directory and the files in it; return how many files were renamed.

    An interrupted move can be repeated.
    """
    store = old / f"{old_name}.db"
    try:
        with _hold_store(str(store)) if store.exists() else nullcontext():
            if old != new:
                _rename_folder(old, new)
            names = [each.name for each in new.iterdir() if each.name.startswith(f"{old_name}.")]
            for name in names:
                (new / name).rename(new / (new_name + name.removeprefix(old_name)))
            _sync(str(new))
    except OSError as error:
        raise StoreUnavailable(f"{old} cannot be moved to {new}: {error.strerror}.") from error
    return len(names)


def _rename_folder(old: Path, new: Path) -> None:
    if new.exists() and any(new.iterdir()):
        raise Conflict(f"{new} is there and not empty; nothing was moved. Move what is in it away.")
    if os.path.lexists(new) and not new.is_dir():
        raise BadInput(f"{new} is not a directory; nothing was moved.")
    new.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    old.rename(new)
    _sync(str(new.parent))
