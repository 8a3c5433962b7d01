"""The index file: opened, recognised, and taken away when it is damaged or another's."""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import apsw

from sessionary.store.search import checksums, indexer
from sessionary.store.search.fts5 import IndexTx
from sessionary.store.search.fts5_query import SCORE, score
from sessionary.store.sqlite import db_file
from sessionary.store.sqlite.errors import translate

BUSY_MS = 10_000
_DAMAGE = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, apsw.SchemaChangeError)
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


class IndexLost(Exception):
    """The index cannot be used as it is; it is made again."""


class LogSetBack(IndexLost):
    """The log ends before the change that the index has seen last."""


def is_damage(error: BaseException) -> bool:
    """Whether making the index again would help."""
    return isinstance(error, (IndexLost, *_DAMAGE)) or (
        isinstance(error, apsw.Error) and checksums.is_mismatch(error)
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
        """The connection; made anew when the file is not the one that it was made to."""
        if self._is_temporary and self._connection is not None:
            return self._connection
        if self._connection is not None and self._identity != _identity(self.path):
            self.disconnect()
        if self._connection is None:
            # Also when the file cannot be opened: `replace` must know which file it was.
            self._identity = _identity(self.path)
            self._connection = self._connect()
            self._identity = _identity(self.path)
        return self._connection

    def disconnect(self) -> None:
        """Let go of the file."""
        if self._connection is None:
            return
        if self._identity != _identity(self.path):
            # Another file has our name now: a usual close would take away its journal.
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._connection.close(True)
        self._connection = None

    def replace(self) -> None:
        """Take the file away, unless another process has done so already."""
        if self._is_temporary:
            self.disconnect()
            return
        try:
            self._replace()
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise
            self.disconnect()
            self._is_temporary = True

    def _replace(self) -> None:
        known = self._identity or _identity(self.path)
        with _alone(f"{self.path}-lock"):
            if self._connection is not None:
                self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                self._connection.close(True)
                self._connection = None
            if _identity(self.path) == known:
                for name in (self.path, f"{self.path}-wal", f"{self.path}-shm"):
                    if os.path.lexists(name):
                        os.remove(name)
        self._identity = None

    def check_log(self, error: BaseException) -> None:
        """Raise `Damaged` if it is the log, not the index, that caused the error.

        Both are read through one connection, and SQLite does not say which file is damaged. An index
        made again from a damaged log would only hide what the log has lost.
        """
        if isinstance(error, LogSetBack):
            suspect = "log"
        elif isinstance(error, apsw.CorruptError) and not _is_of_full_text(error):
            suspect = "main"
        else:
            return
        try:
            connection = db_file.connect_index_reader(self.path, self._log, vfs=checksums.shim())
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
        """Read every page, change nothing: how many changes the index has not seen, and what is wrong.

        Raises what SQLite says of a file that is damaged, and `IndexLost` for another store's.
        """
        connection = db_file.connect_index_reader(self.path, self._log, vfs=checksums.shim())
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
        """Make the index's tables in a database that has no files."""
        tx.connection.register_fts5_function(SCORE, score)
        tx.script(db_file.script("search"))
        tx.run("begin_index", store_id="")

    def _connect(self) -> apsw.Connection:
        if self._is_temporary:
            return self._connect_temporary()
        try:
            with _alone(f"{self.path}-lock"):
                connection = db_file.connect_index(self.path, self._log, vfs=checksums.shim())
                return _closed_on_failure(connection, self._prepare)
        except (apsw.CantOpenError, apsw.ReadOnlyError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in _READ_ONLY:
                raise
            if _identity(self.path) is None:
                return self._connect_temporary()
            connection = db_file.connect_index_reader(self.path, self._log, vfs=checksums.shim())
            return _closed_on_failure(connection, self._recognise)

    def _connect_temporary(self) -> apsw.Connection:
        """An index that SQLite keeps in a file of its own and deletes with the connection."""
        connection = db_file.connect_index(db_file.TEMPORARY, self._log, vfs=None)
        made = _closed_on_failure(connection, self._prepare)
        self._is_temporary = True
        return made

    def _prepare(self, connection: apsw.Connection) -> None:
        if connection.pragma("page_count", schema="main") == 0 and checksums.shim():
            checksums.reserve(connection)
        connection.execute(db_file.script("index_writer")).fetchall()
        connection.set_busy_timeout(BUSY_MS)
        with transaction(connection, "BEGIN IMMEDIATE"):
            tx = IndexTx(connection)
            if connection.pragma("user_version", schema="main") == 0:
                connection.execute(db_file.script("search")).fetchall()
                tx.run("begin_index", store_id=_store_facts(tx))
        self._recognise(connection)

    def _recognise(self, connection: apsw.Connection) -> None:
        """Refuse an index of another store or form, or of a log that was set back."""
        if connection.pragma("user_version", schema="main") != db_file.INDEX_FORM:
            raise IndexLost
        tx = IndexTx(connection)
        row = tx.one("index_identity")
        if row is None or row[0] != _store_facts(tx):
            raise IndexLost
        if row[1] > row[2]:
            raise LogSetBack
        connection.register_fts5_function(SCORE, score)


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
    """Whether the full-text index says of itself that it is damaged."""
    return getattr(error, "extendedresult", 0) == apsw.SQLITE_CORRUPT_VTAB


def _store_facts(tx: IndexTx) -> str:
    rows = [tx.one("get_meta", name=name) for name in ("store_id", "generation")]
    return "/".join("" if row is None else str(row[0]) for row in rows)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def transaction(connection: apsw.Connection, begin: str) -> Iterator[None]:
    """All of it or nothing."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """Hold a lock file beside the index: nobody opens it while another takes it away."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
