"""The index file: opened, recognised, and deleted when it is damaged or another's.

Every page has a checksum: a damaged page of a full-text index mostly reads as «no such word».
SQLite's checksum extension makes that an error; where apsw came without it, there are no checksums.
"""

import fcntl
import os
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import apsw

from sessionary.store.database import logger
from sessionary.store.search import fts5, indexer
from sessionary.store.search.fts5 import IndexTx
from sessionary.store.sqlite import db_file
from sessionary.store.sqlite.db_file import translate
from sessionary.store.tables.meta import get as get_meta

INDEX_VERSION = 6
BUSY_MS = 10_000
CHECKSUM_VFS = "cksmvfs"
CHECKSUM_BYTES = 8
_DAMAGE = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, apsw.SchemaChangeError)
_loading = threading.Lock()


class IndexLost(Exception):
    """The index cannot be used as it is and must be rebuilt."""


class LogSetBack(IndexLost):
    """The log ends before the last change that the index has seen."""


def is_damage(error: BaseException) -> bool:
    """Whether rebuilding the index would help."""
    return isinstance(error, (IndexLost, *_DAMAGE)) or (
        isinstance(error, apsw.Error)
        and getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA  # a wrong checksum
    )


class IndexFile:
    """The file beside a log, and the connection of one thread to it."""

    def __init__(self, log: str) -> None:
        self.path = f"{log}-search"
        self._log = log
        self._connection: apsw.Connection | None = None
        self._identity: tuple[int, int] | None = None
        # Where no file can be made beside the log, the index is made in a temporary one.
        self._is_temporary = False

    def connected(self) -> apsw.Connection:
        """The connection; a new one if the file was replaced since."""
        if self._is_temporary and self._connection is not None:
            return self._connection
        if self._connection is not None and self._identity != _identity(self.path):
            self.disconnect()
        if self._connection is None:
            # Before and after: `delete` must know which file could not be opened.
            self._identity = _identity(self.path)
            self._connection = self._connect()
            self._identity = _identity(self.path)
        return self._connection

    def disconnect(self) -> None:
        """Close the connection."""
        if self._connection is None:
            return
        if self._identity != _identity(self.path):
            # Another file has our name now: a checkpoint on close would delete its WAL.
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._connection.close(True)
        self._connection = None

    def rebuild(self, error: BaseException) -> None:
        """Delete a damaged file; raise `Damaged` if the log, not the index, is damaged."""
        self.check_log(error)
        self.delete()
        logger(__name__).info(
            "The search index %s was unusable (%r); it is rebuilt from the log.", self.path, error
        )

    def delete(self) -> None:
        """Delete the file, unless another process has done so already."""
        if self._is_temporary:
            self.disconnect()
            return
        try:
            self._delete()
        except OSError as error:
            if error.errno not in db_file.READ_ONLY_ERRNOS:
                raise
            self.disconnect()
            self._is_temporary = True

    def _delete(self) -> None:
        opened = self._identity or _identity(self.path)
        with _file_lock(f"{self.path}-lock"):
            if self._connection is not None:
                self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                self._connection.close(True)
                self._connection = None
            if _identity(self.path) == opened:
                for name in (self.path, f"{self.path}-wal", f"{self.path}-shm"):
                    if os.path.lexists(name):
                        os.remove(name)
        self._identity = None

    def check_log(self, error: BaseException) -> None:
        """Raise `Damaged` if the log, not the index, caused the error.

        Both are read through one connection, and SQLite does not say which file is damaged. An index
        rebuilt from a damaged log would only hide what the log has lost.
        """
        if isinstance(error, LogSetBack):
            suspect = "log"
        elif isinstance(error, apsw.CorruptError) and not _is_of_full_text(error):
            suspect = "main"
        else:
            return
        try:
            connection = db_file.connect_index_reader(self.path, self._log, vfs=checksum_vfs())
        except apsw.Error:
            return
        try:
            is_whole = connection.pragma("quick_check", 1, schema=suspect) == "ok"
            if is_whole == (suspect == "log"):
                return
        except apsw.Error:
            if suspect == "main":
                return
        finally:
            connection.close(True)
        if suspect == "main" and self._identity not in (None, _identity(self.path)):
            return  # another process has replaced the damaged index, and the new one is sound
        raise translate(apsw.CorruptError(str(error) or "it ends too early"), self._log)

    def examine(self) -> tuple[int, str | None]:
        """Read every page; return how many changes the index has not seen, and what is wrong with it.

        Raises SQLite's error for a damaged file, and `IndexLost` for another store's.
        """
        connection = db_file.connect_index_reader(self.path, self._log, vfs=checksum_vfs())
        try:
            self._recognise(connection)
            found = connection.pragma("quick_check", 1, schema="main")
            if found != "ok":
                raise apsw.CorruptError(str(found))
            with transaction(connection, "BEGIN"):
                tx = IndexTx(connection)
                behind = indexer.state(tx).behind
                return behind, tx.first_without_words() or indexer.find_drift(tx)
        finally:
            connection.close(True)

    @staticmethod
    def make_in(tx: IndexTx) -> None:
        """Create the index's tables in a database in memory."""
        _register_functions(tx.connection)
        tx.script(db_file.script("search"))
        tx.run("begin_index", store_id="")

    def _connect(self) -> apsw.Connection:
        if self._is_temporary:
            return self._connect_temporary()
        try:
            with _file_lock(f"{self.path}-lock"):
                connection = db_file.connect_index(self.path, self._log, vfs=checksum_vfs())
                return _closed_on_failure(connection, self._prepare)
        except (apsw.CantOpenError, apsw.ReadOnlyError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in db_file.READ_ONLY_ERRNOS:
                raise
            if _identity(self.path) is None:
                return self._connect_temporary()
            connection = db_file.connect_index_reader(self.path, self._log, vfs=checksum_vfs())
            return _closed_on_failure(connection, self._recognise)

    def _connect_temporary(self) -> apsw.Connection:
        """An index in a temporary file that SQLite deletes with the connection."""
        connection = db_file.connect_index(db_file.TEMPORARY, self._log, vfs=None)
        made = _closed_on_failure(connection, self._prepare)
        self._is_temporary = True
        return made

    def _prepare(self, connection: apsw.Connection) -> None:
        if connection.pragma("page_count", schema="main") == 0 and checksum_vfs():
            _reserve_checksums(connection)
        connection.execute(db_file.script("index_writer")).fetchall()
        connection.set_busy_timeout(BUSY_MS)
        with transaction(connection, "BEGIN IMMEDIATE"):
            tx = IndexTx(connection)
            if connection.pragma("user_version", schema="main") == 0:
                connection.execute(db_file.script("search")).fetchall()
                tx.run("begin_index", store_id=_store_identity(tx))
        self._recognise(connection)

    def _recognise(self, connection: apsw.Connection) -> None:
        """Refuse an index of another store or version, or of a log that was set back."""
        if connection.pragma("user_version", schema="main") != INDEX_VERSION:
            raise IndexLost("it is of another version")
        tx = IndexTx(connection)
        row = tx.one("index_identity")
        if row is None:
            raise IndexLost("it has no state")
        store_id, watermark, last_position = row
        if store_id != _store_identity(tx):
            raise IndexLost("it is of another store")
        if watermark > last_position:
            raise LogSetBack
        _register_functions(connection)


def _register_functions(connection: apsw.Connection) -> None:
    connection.register_fts5_function(fts5.SCORE, fts5.score)
    connection.register_fts5_function(fts5.COUNT, fts5.count)


def _closed_on_failure(
    connection: apsw.Connection, prepare: Callable[[apsw.Connection], None]
) -> apsw.Connection:
    try:
        prepare(connection)
    except BaseException:
        connection.close(True)
        raise
    return connection


def _is_of_full_text(error: apsw.Error) -> bool:
    """Whether the full-text index reports its own damage."""
    return getattr(error, "extendedresult", 0) == apsw.SQLITE_CORRUPT_VTAB


def _store_identity(tx: IndexTx) -> str:
    return "/".join(get_meta(tx, name) or "" for name in ("store_id", "generation"))


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def transaction(connection: apsw.Connection, begin: str) -> Iterator[None]:
    """Commit the block, or roll it back if it raises."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _file_lock(path: str) -> Iterator[None]:
    """Hold a lock file beside the index, so that nobody opens the index while it is deleted."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@cache
def checksum_vfs() -> str | None:
    """The name of the VFS that checks pages, or None where apsw came without it."""
    folder = os.path.join(os.path.dirname(apsw.__file__), "sqlite_extra_binaries")
    for name in ("cksumvfs.so", "cksumvfs.dylib", "cksumvfs.dll"):
        if os.path.exists(path := os.path.join(folder, name)):
            return _load_checksum_vfs(path)
    return None


def _load_checksum_vfs(path: str) -> str | None:
    with _loading:
        usual = apsw.vfs_names()[0]
        if CHECKSUM_VFS not in apsw.vfs_names():
            scratch = apsw.Connection(":memory:")
            try:
                scratch.enable_load_extension(True)
                scratch.load_extension(path)
            except apsw.Error as error:
                logger(__name__).info("The search index has no checksums: %s", error)
                return None
            finally:
                scratch.close()
            # The extension made itself the default; the log is not read through it.
            apsw.set_default_vfs(usual)
    return CHECKSUM_VFS


def _reserve_checksums(connection: apsw.Connection) -> None:
    """Reserve the bytes of a checksum on each page of a new database."""
    wanted = array("i", [CHECKSUM_BYTES])
    connection.file_control("main", apsw.SQLITE_FCNTL_RESERVE_BYTES, wanted.buffer_info()[0])
