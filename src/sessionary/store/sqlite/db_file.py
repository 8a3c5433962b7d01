"""The database file: its connections, transactions, locks and identity, and SQLite's errors in our words.

It is touched only through SQLite: a plain open and close of a live file would drop every lock that
this process holds on it.
"""

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import apsw

from sessionary.errors import (
    BadInput,
    Committed,
    Conflict,
    Damaged,
    NotFound,
    RetryLater,
    SessionaryError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from sessionary.model import codec
from sessionary.store import filesystem, queries
from sessionary.store.database import MANY, REMEDY, Row, Statement, logger

if TYPE_CHECKING:
    from sessionary.model.query import Query

MEMORY = ":memory:"
# SQLite's name for a database that is deleted when it is closed.
TEMPORARY = ""
APPLICATION_ID = 1213416260
BUSY_MS = 5000
CACHED_STATEMENTS = 400
# Virtual machine steps between two calls of a progress handler: some milliseconds.
PROGRESS_STEPS = 100_000
# A longer wait for the write lock is worth a log line.
LONG_WAIT_SECONDS = 1.0
READ_ONLY_ERRNOS = (errno.EROFS, errno.EACCES, errno.EPERM)
# Other releases from 3.7.0 on can corrupt a WAL database that several connections write to.
FIRST_SOUND = (3, 51, 3)
SOUND_LINES = {(3, 50): 7, (3, 44): 6}

_umask = threading.Lock()


def translate(error: apsw.Error, path: str, *, committed: Committed = "no") -> SessionaryError:
    """Say what happened, what is safe and what to do: the only place that translates SQLite's errors."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return RetryLater(
                "Another program is writing to the store; nothing was written. Try again."
            )
        case apsw.FullError():
            return StoreFull(
                f"There is no room left to write to {path}; nothing was written, reading works. Free space."
            )
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return _read_only_error(path)
        case apsw.NotADBError():
            return StoreUnavailable(f"{path} is not a Sessionary store; it was left as it is.")
        case apsw.CorruptError():
            return Damaged(f"{path} is damaged ({error}); it was left as it is. {REMEDY}")
        case apsw.CantOpenError() if os.path.exists(path) and not _is_folder_writable(path):
            return _read_only_error(path)  # what SQLite could not make is the WAL beside it
        case apsw.CantOpenError():
            return StoreUnavailable(
                f"{path} cannot be opened; nothing was changed. Check the path and its permissions."
            )
        case apsw.TooBigError():
            return BadInput(
                "That is larger than the store takes in one piece; nothing was written."
            )
        case apsw.IOError():
            return StoreUnavailable(
                f"The disk under {path} failed ({error}). "
                + (
                    "Whether the last write is there is not known: repeat it with its idempotency key."
                    if committed == "unknown"
                    else "Nothing was written."
                ),
                committed=committed,
            )
        case apsw.ConstraintError():
            return Conflict(f"The record does not allow that ({error}); nothing was changed.")
    return StoreUnavailable(f"SQLite refused {path}: {error}.", committed=committed)


def _read_only_error(path: str) -> StoreReadOnly:
    return StoreReadOnly(
        f"{path} cannot be written to; nothing was changed. Check its permissions and its disk."
    )


def _is_folder_writable(path: str) -> bool:
    return os.access(os.path.dirname(path) or ".", os.W_OK)


class SqliteTx:
    """Runs named queries on one connection; events wait here for the commit."""

    __slots__ = ("_connection", "_execute", "_texts", "events")

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._texts = queries.load("sqlite")
        self.events: list[Any] = []

    @property
    def connection(self) -> apsw.Connection:
        """The connection itself, for what only SQLite can do."""
        return self._connection

    def one(self, name: str, /, **params: Any) -> Row | None:
        # All rows are fetched: an unfinished statement would keep its locks.
        rows = self.all(name, **params)
        return rows[0] if rows else None

    def all(self, name: str, /, **params: Any) -> list[Row]:
        text = self._texts[name]
        if not text:
            return []
        try:
            return self._execute(text, params).fetchall()
        except UnicodeDecodeError as error:
            raise _damaged_text(error) from error

    def run(self, name: str, /, **params: Any) -> int:
        text = self._texts[name]
        if not text:
            return 0
        self._execute(text, params)
        return self._connection.changes()

    def many(self, name: str, rows: Iterable[Mapping[str, Any] | Row], /) -> int:
        before = self._connection.total_changes()
        self._connection.executemany(self._texts[name], rows)
        return self._connection.total_changes() - before

    def batch(self, statements: Sequence[Statement], /) -> list[list[Row]]:
        texts, execute = self._texts, self._execute
        try:
            return [
                execute(text, params).fetchall() if (text := texts[name]) else []
                for name, params in statements
            ]
        except UnicodeDecodeError as error:
            raise _damaged_text(error) from error

    def overlapped(self) -> AbstractContextManager[object]:
        return nullcontext()

    def script(self, text: str) -> None:
        self._connection.execute(text).fetchall()

    @contextmanager
    def only_reading(self) -> Iterator[None]:
        """Refuse every write within the block, and publish none of its events."""
        before = len(self.events)
        self._connection.pragma("query_only", True)
        try:
            yield
        finally:
            self._connection.pragma("query_only", False)
            del self.events[before:]

    def match(
        self,
        query: "Query",
        facets: Sequence[Sequence[str]],
        *,
        without: Sequence[str] = (),
        between: tuple[int, int] | None = None,
        below: int | None = None,
        limit: int = MANY,
    ) -> Generator[dict[str, Any], int | None, None]:
        """Only a transaction on the index can search: see `IndexTx`."""
        raise NotImplementedError

    def after_commit(self, event: Any) -> None:
        self.events.append(event)


def _damaged_text(error: UnicodeDecodeError) -> Damaged:
    # All text is written as UTF-8: these bytes are not what was stored.
    return Damaged(f"A row of the store is damaged ({error.reason} in a text). {REMEDY}")


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
    store_id = read_identity(path)
    if os.path.exists(path) and os.stat(path).st_size > 0:
        return True
    if store_id is not None:
        raise StoreUnavailable(
            f"The store at {path} is gone or empty, but it was here ({store_id}). Nothing was made in its place. "
            f"Bring the file back, run `sessionary restore`, or remove {identity_file(path)} to start an empty one."
        )
    if not create:
        raise NotFound(f"There is no store at {path}; nothing was made.")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise StoreUnavailable(f"There is no directory {folder}; nothing was made.")
    return False


def connect_writer(path: str) -> apsw.Connection:
    """A connection that writes; the caller owns it in one thread."""
    connection = _connect(path, apsw.SQLITE_OPEN_READWRITE)
    connection.execute(script("writer")).fetchall()
    return connection


def connect_reader(path: str) -> apsw.Connection:
    """A connection that cannot write."""
    try:
        return _connect_read_only(path, "mode=ro")
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        if _is_folder_writable(path) or has_unfolded_wal(path):
            raise
        # A read-only directory without a WAL to fold in: nobody can change the file.
        return connect_immutable(path)


def connect_immutable(path: str) -> apsw.Connection:
    """A connection to a file that nobody changes, such as a backup; nothing is made beside it."""
    return _connect_read_only(path, "mode=ro&immutable=1")


def connect_memory() -> apsw.Connection:
    """A database that lives as long as its connection."""
    connection = apsw.Connection(MEMORY, statementcachesize=CACHED_STATEMENTS)
    _keep_plans(connection)
    connection.execute(script("writer")).fetchall()
    return connection


def connect_index(path: str, log: str, *, vfs: str | None) -> apsw.Connection:
    """A connection that writes the index file at a path and reads the log, attached as `log`."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
    with _private_files():
        connection = _connect(path, flags, vfs=vfs)
        _attach(connection, log)
    return connection


def connect_index_reader(path: str, log: str, *, vfs: str | None) -> apsw.Connection:
    """The same where the index cannot be written."""
    uri = _uri(path, "mode=ro" if os.path.exists(f"{path}-wal") else "mode=ro&immutable=1")
    connection = _connect(uri, apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, vfs=vfs)
    _attach(connection, log)
    return connection


def create(path: str) -> None:
    """Create the file, marked as ours from its first page on."""
    with _private_files():
        connection = _connect(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        try:
            mark_as_ours(connection)
        finally:
            connection.close()


def is_unfinished(connection: apsw.Connection) -> bool:
    """Whether the file was created, but has no schema yet: its maker died, or is still at it."""
    mark = connection.pragma("application_id")
    return connection.pragma("schema_version") == 0 and mark in (0, APPLICATION_ID)


def mark_as_ours(connection: apsw.Connection) -> None:
    """Mark an empty database as a store; can be repeated."""
    connection.execute(script("create")).fetchall()


def check_is_ours(connection: apsw.Connection, path: str) -> None:
    """Refuse a database that is not ours."""
    if connection.pragma("application_id") != APPLICATION_ID:
        raise StoreUnavailable(
            f"{path} is an SQLite database, but not a Sessionary store; it was left as it is."
        )


def copy_aside(connection: apsw.Connection, target: str) -> None:
    """Copy the store into another file and check the copy, before a migration changes the store."""
    draft = f"{target}.draft"
    for old in (draft, target):
        if os.path.exists(old):
            os.remove(old)
    with _private_files():
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
    connection.set_progress_handler(is_stopped, PROGRESS_STEPS)
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


@contextmanager
def _private_files() -> Iterator[None]:
    """Files created in the block are private from the first byte. A process has one umask: hence the lock."""
    with _umask:
        before = os.umask(0o077)
        try:
            yield
        finally:
            os.umask(before)


def _connect(path: str, flags: int, *, vfs: str | None = None) -> apsw.Connection:
    connection = apsw.Connection(
        path, flags=flags | apsw.SQLITE_OPEN_NOFOLLOW, vfs=vfs, statementcachesize=CACHED_STATEMENTS
    )
    connection.set_busy_timeout(BUSY_MS)
    _keep_plans(connection)
    return connection


def _keep_plans(connection: apsw.Connection) -> None:
    """Plan a statement once. Otherwise SQLite plans it again for each call's values: ten times slower."""
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def _connect_read_only(path: str, options: str) -> apsw.Connection:
    connection = _connect(_uri(path, options), apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    connection.execute(script("reader")).fetchall()
    return connection


def _attach(connection: apsw.Connection, log: str) -> None:
    try:
        has_wal = os.path.exists(f"{log}-wal") or _is_folder_writable(log)
        options = "mode=ro" if has_wal else "mode=ro&immutable=1"
        connection.execute("ATTACH ? AS log", (_uri(log, options),))
    except BaseException:
        connection.close()
        raise


def _uri(path: str, options: str) -> str:
    return f"file:{quote(os.path.abspath(path))}?{options}"


@cache
def script(name: str) -> str:
    """One of our scripts for SQLite alone."""
    return (Path(__file__).parent.parent / "sql" / "sqlite" / f"{name}.sql").read_text(
        encoding="utf-8"
    )


class FairFileLock:
    """A first come, first served write lock between the processes that share one SQLite file.

    SQLite's own waiting is a busy loop with growing sleeps: of four writers one starves. Here a
    writer first takes the queue lock, then the write lock; while it waits for the second it holds
    the first, so the process that has just finished cannot overtake it. Both are flocks on files
    beside the database, never on the database itself; the kernel releases them when a process dies.
    """

    def __init__(self, database: str, wait_seconds: float) -> None:
        self._queue = _FileLock(f"{database}-queue")
        self._turn = _FileLock(f"{database}-turn")
        self._wait_seconds = wait_seconds

    @contextmanager
    def acquire(self) -> Iterator[None]:
        """Hold the lock for the length of the block; raises `RetryLater` when the wait is too long."""
        self._queue.acquire(self._wait_seconds)
        try:
            self._turn.acquire(self._wait_seconds)
        finally:
            self._queue.release()
        try:
            yield
        finally:
            self._turn.release()

    def close(self) -> None:
        self._queue.close()
        self._turn.close()


@contextmanager
def write_lock(path: str, wait_seconds: float) -> Iterator[None]:
    """Hold the write lock of a database for the length of the block."""
    lock = FairFileLock(path, wait_seconds)
    try:
        with lock.acquire():
            yield
    finally:
        lock.close()


class _FileLock:
    """A flock with a time limit: the blocking call runs in a thread of its own."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._open()

    def acquire(self, wait_seconds: float) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._wait(wait_seconds)

    def release(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._file)

    def _open(self) -> None:
        self._file = os.open(
            self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )

    def _wait(self, wait_seconds: float) -> None:
        began = time.monotonic()
        waiter = _LockWaiter(self._file)
        waiter.start()
        if waiter.granted.wait(wait_seconds):
            if (waited := time.monotonic() - began) > LONG_WAIT_SECONDS:
                logger(__name__).info("Waited %.1f s for the lock %s.", waited, self._path)
            return
        # The waiter still sits in the kernel's queue on the old open file; it ends with it.
        waiter.abandon()
        self._open()
        logger(__name__).warning(
            "Another program has kept the lock %s for %.0f s; a write was refused.",
            self._path,
            wait_seconds,
        )
        raise RetryLater(
            f"Another program has kept the store's write lock for {wait_seconds:.0f} s; nothing was written. Try again."
        )


class _LockWaiter(threading.Thread):
    def __init__(self, file: int) -> None:
        super().__init__(name="sessionary-lock", daemon=True)
        self._file = file
        self._abandoned = False
        self._state = threading.Lock()
        self.granted = threading.Event()

    def run(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        with self._state:
            if self._abandoned:
                os.close(self._file)
            else:
                self.granted.set()

    def abandon(self) -> None:
        with self._state:
            if self.granted.is_set():
                os.close(self._file)
            self._abandoned = True


def identity_file(path: str) -> Path:
    """Where a store's id is kept beside its file, so that a missing or swapped file is noticed."""
    return Path(f"{path}-identity")


def confirm_identity(path: str, store_id: str) -> None:
    """Refuse a file that replaced another store; remember the id of a new one."""
    known = read_identity(path)
    if known is None:
        write_identity(path, store_id)
    elif known != store_id:
        raise StoreUnavailable(
            f"{path} is another store ({store_id}) than the one that was here ({known}); it was left as it is. "
            f"If that is meant, remove {identity_file(path)}."
        )


def read_identity(path: str) -> str | None:
    """The id of the store that was last opened at this path."""
    try:
        known = codec.decode(identity_file(path).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        raise StoreUnavailable(
            f"{identity_file(path)} cannot be read: {error.strerror}. Nothing was opened."
        ) from error
    store_id = known.get("store_id") if isinstance(known, dict) else None
    return store_id if isinstance(store_id, str) else None


def write_identity(path: str, store_id: str) -> None:
    """Remember which store is here; a read-only directory goes without."""
    target = identity_file(path)
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        if error.errno in READ_ONLY_ERRNOS:
            return
        raise StoreUnavailable(f"Cannot write beside {path}: {error.strerror}.") from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(codec.encode({"store_id": store_id}))
        file.flush()
        filesystem.sync(file.fileno())
    os.replace(draft, target)


def vacuum(path: str, *, wait_seconds: float, on_step: Callable[[], None] = lambda: None) -> None:
    """Rewrite the file without its free pages; other writers wait. A crash leaves it as it was.

    `on_step` is called every few milliseconds; an exception that it raises stops the work.
    """

    def step() -> bool:
        on_step()
        return False

    with _sole_writer(path, wait_seconds) as connection:
        connection.set_progress_handler(step, PROGRESS_STEPS)
        connection.execute("VACUUM")
        connection.set_progress_handler(None)
        _truncate_wal(connection)  # only then is the disk space free


def empty_wal(path: str, *, wait_seconds: float) -> None:
    """Fold the WAL into the file and truncate it, unless a reader still needs it."""
    with _sole_writer(path, wait_seconds) as connection:
        _truncate_wal(connection)


def _truncate_wal(connection: apsw.Connection) -> None:
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.BusyError:
        # A reader still needs it. Its pages are overwritten when the WAL starts again.
        logger(__name__).info("The WAL could not be truncated: a reader still needs it.")


@contextmanager
def _sole_writer(path: str, wait_seconds: float) -> Iterator[apsw.Connection]:
    try:
        with write_lock(path, wait_seconds):
            connection = connect_writer(path)
            try:
                yield connection
            finally:
                connection.close()
    except apsw.Error as error:
        raise translate(error, path) from error
