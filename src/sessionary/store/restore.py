"""A backup in the place of a store: checked first, swapped in one step, the old one kept.

The restored store is the one that was backed up, in its next generation, so that the search
index and whoever follows the feed begin anew.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import apsw

from sessionary.clock import Clock, Ids
from sessionary.errors import BadInput, Conflict, StoreUnavailable
from sessionary.store import copy_store, migrations
from sessionary.store.backup import (
    Contents,
    Progress,
    check_draft,
    closing_connection,
    copy_pages,
    drafted,
    inspect,
    is_same_file,
    silent,
    sync,
)
from sessionary.store.open import open_store, sqlite_path
from sessionary.store.sqlite import db_file
from sessionary.store.sqlite.db_file import SqliteTx

BUSY_MS = 1000
WAIT_SECONDS = 2.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RestoreReport:
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
    progress: Progress = silent,
) -> RestoreReport:
    """Put a backup in the place of the store at a URL; with `force` also where there is one.

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
    if is_same_file(backup_file, target):
        raise BadInput(f"{backup_file} is the store itself; nothing was changed.")
    is_there = os.path.exists(target) and os.stat(target).st_size > 0
    if is_there and not force:
        raise Conflict(
            f"There is a store at {target}; it was left as it is. Force it to replace it."
        )
    if not os.path.isdir(os.path.dirname(target)):
        raise BadInput(f"There is no directory {os.path.dirname(target)}; nothing was made.")
    generation = max(contents.generation, _generation(target) if is_there else 0) + 1
    with drafted(target, ids.new(clock.now())) as draft:
        with closing_connection(db_file.connect_immutable, backup_file) as connection:
            copy_pages(connection, draft, progress=progress)
        restored = check_draft(draft, generation=generation)
        kept = _kept_name(target, clock.now()) if os.path.exists(target) else None
        _swap(draft, target, kept, restored.store_id)
    return RestoreReport(restored, kept)


def _generation(path: str) -> int:
    """The generation of the store that is replaced, if it can still be read."""
    try:
        connection = db_file.connect_reader(path)
    except apsw.Error:
        return 0
    try:
        row = SqliteTx(connection).one("get_meta", name=copy_store.GENERATION)
    except apsw.Error:
        return 0
    finally:
        connection.close(True)
    return 0 if row is None else int(row[0])


def _swap(draft: str, target: str, kept: str | None, store_id: str) -> None:
    """Let the draft be the store; the old file keeps another name."""
    with hold_store(target) if kept is not None else nullcontext():
        # Killed from here on, there is no side file, and the next start writes it anew.
        db_file.identity_file(target).unlink(missing_ok=True)
        if kept is not None:
            _keep(target, kept)
        os.replace(draft, target)
        sync(os.path.dirname(target))
    db_file.write_identity(target, store_id)


@contextmanager
def hold_store(target: str) -> Iterator[None]:
    """Keep everyone else out of a store, or refuse when someone is in it.

    Leaving WAL mode needs the file for oneself, and folds the WAL into it: the file that is
    kept is whole, and no WAL of the old store is left for the new one to be mistaken for its own.
    """
    with db_file.write_lock(target, WAIT_SECONDS), _exclusively(target):
        yield


@contextmanager
def _exclusively(target: str) -> Iterator[None]:
    connection = apsw.Connection(target, flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(BUSY_MS)
    old = os.stat(target)
    try:
        _take(connection, target)
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


def _take(connection: apsw.Connection, target: str) -> None:
    try:
        if connection.pragma("journal_mode", "delete") != "delete":
            raise apsw.BusyError("the journal mode did not change")
        connection.execute("BEGIN EXCLUSIVE")
    except (apsw.BusyError, apsw.LockedError) as error:
        raise Conflict(
            f"Another program uses the store at {target}; nothing was changed. Stop it first."
        ) from error
    except (apsw.CorruptError, apsw.NotADBError):
        return  # what cannot be read can only be kept; the write lock keeps writers out


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
        with closing_connection(db_file.connect_immutable, file) as connection:
            tx = SqliteTx(connection)

            def read(action: Callable[..., T], /, *args: Any) -> T:
                return action(tx, *args)

            if migrations.pending(tx, "sqlite"):
                raise StoreUnavailable(
                    f"{file} was made by an older Sessionary; nothing was copied. Restore it to a "
                    "file, open that once, and copy it with `sessionary migrate`."
                )
            report = copy_store.copy(
                read, target, progress=lambda _, rows: progress(rows, 0), generations=1
            )
    finally:
        target.close()
    restored = Contents(contents.store_id, report.generation, contents.sessions, contents.entries)
    return RestoreReport(restored, None)
