"""Connections to PostgreSQL: a pool that can be cut, transactions, and its errors in our words."""

import logging
import os
import select
import socket
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors as pg
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool

from sessionary.errors import (
    BadInput,
    Committed,
    Conflict,
    Damaged,
    RetryLater,
    SessionaryError,
    StoreFull,
    StoreUnavailable,
)
from sessionary.model import codec
from sessionary.store import queries
from sessionary.store.database import MANY, Row, Statement

if TYPE_CHECKING:
    from sessionary.model.query import Query

log = logging.getLogger(__name__)

Connection = psycopg.Connection[Row]
# Another transaction was first: the same function, run again, sees its result.
RACES = (
    pg.SerializationFailure,
    pg.DeadlockDetected,
    pg.UniqueViolation,
    pg.ForeignKeyViolation,
    pg.ExclusionViolation,
)


def translate(error: psycopg.Error, *, committed: Committed = "no") -> SessionaryError:
    """Say what happened, what is safe and what to do: the only place that translates these errors."""
    lines = (error.diag.message_primary or str(error)).strip().splitlines()
    reason = lines[0] if lines else type(error).__name__
    match error:
        case pg.DiskFull() | pg.OutOfMemory():
            return StoreFull(f"PostgreSQL has no room ({reason}); nothing was written. Free space.")
        case pg.DataCorrupted() | pg.IndexCorrupted():
            return Damaged(
                f"PostgreSQL found damage ({reason}). Restore from a backup.", committed=committed
            )
        case pg.ReadOnlySqlTransaction():
            log.warning("PostgreSQL refuses writes: it only reads at the moment (a failover?).")
            return StoreUnavailable(
                "This PostgreSQL server only reads at the moment; nothing was written."
            )
        case pg.QueryCanceled() | pg.LockNotAvailable():
            return RetryLater(
                f"PostgreSQL was too busy ({reason}); nothing was written. Try again."
            )
        case pg.ProgramLimitExceeded():
            return BadInput(
                f"A name or an id in it is too long for PostgreSQL ({reason}); nothing was written."
            )
        case pg.IntegrityError():
            return Conflict(f"The record does not allow that ({reason}); nothing was changed.")
        case pg.OperationalError() | pg.InterfaceError():
            safe = (
                "Whether the last write is there is not known: repeat it with its idempotency key."
                if committed == "unknown"
                else "Nothing was written."
            )
            return StoreUnavailable(
                f"PostgreSQL cannot be reached ({reason}). {safe}", committed=committed
            )
    return StoreUnavailable(f"PostgreSQL refused: {reason}.", committed=committed)


class Pool(ConnectionPool[Connection]):
    """The library's pool; it also knows the connections in use, and logs losses and recoveries."""

    def __init__(self, url: str, *, connections: int, wait_seconds: float) -> None:
        super().__init__(
            url,
            min_size=1,
            max_size=connections,
            timeout=wait_seconds,
            reconnect_timeout=wait_seconds,
            check=self._check,
            configure=self._configure,
            reconnect_failed=self._note_failure,
            open=False,
            kwargs={"prepare_threshold": 2, "connect_timeout": max(2, int(wait_seconds))},
        )
        self._lent: set[Connection] = set()
        self._has_lost = False

    def getconn(self, timeout: float | None = None) -> Connection:
        """Lend a connection."""
        connection = super().getconn(timeout)
        self._lent.add(connection)
        return connection

    def putconn(self, conn: Connection) -> None:
        """Take a connection back."""
        self._lent.discard(conn)
        if conn.broken:
            self._note_loss()
        super().putconn(conn)

    def cut(self) -> None:
        """Shut down the connections in use, so that nobody waits for a silent server."""
        for connection in tuple(self._lent):
            try:
                with socket.socket(fileno=os.dup(connection.fileno())) as line:
                    line.shutdown(socket.SHUT_RDWR)
            except (OSError, psycopg.Error):
                pass  # it has ended by itself

    def _check(self, connection: Connection) -> None:
        """Refuse a connection that the server has closed; ask the server only if there is input.

        A server that stops or dies ends the connection, which makes it readable; a healthy idle one
        is not. Asking each time would double the round trips of a small transaction.
        """
        waiting = select.poll()
        waiting.register(connection.fileno(), select.POLLIN)
        if waiting.poll(0):
            try:
                self.check_connection(connection)
            except psycopg.Error:
                self._note_loss()
                raise

    def _configure(self, connection: Connection) -> None:
        """Prepare a new connection."""
        PostgresTx(connection).one("set_up_connection")
        connection.commit()
        if self._has_lost:
            self._has_lost = False
            log.info("Connected to PostgreSQL again.")

    def _note_loss(self) -> None:
        self._has_lost = True
        log.info("PostgreSQL closed a connection; the pool connects again.")

    def _note_failure(self, _: Any) -> None:
        self._has_lost = True
        log.warning(
            "PostgreSQL cannot be reached for %.0f s; the next call tries again.",
            self.reconnect_timeout,
        )


class PostgresTx:
    """Runs named queries on one connection; events wait here for the commit."""

    __slots__ = ("_cursor", "_reading", "_texts", "events", "has_written")

    def __init__(self, connection: Connection) -> None:
        # In binary, because a search reads thousands of numbers.
        self._cursor = connection.cursor(binary=True)
        self._texts = queries.load_for_psycopg()
        self._reading = queries.only_reading()
        self.events: list[Any] = []
        self.has_written = False

    def one(self, name: str, /, **params: Any) -> Row | None:
        return self._execute(name, params).fetchone() if self._texts[name] else None

    def all(self, name: str, /, **params: Any) -> list[Row]:
        return self._execute(name, params).fetchall() if self._texts[name] else []

    def run(self, name: str, /, **params: Any) -> int:
        return self._execute(name, params).rowcount if self._texts[name] else 0

    def _execute(self, name: str, params: dict[str, Any]) -> psycopg.Cursor[Row]:
        cursor = self._cursor.execute(self._texts[name], params)
        if cursor.rowcount and name not in self._reading:
            self.has_written = True
        return cursor

    def many(self, name: str, rows: Iterable[Mapping[str, Any] | Row], /) -> int:
        if not self._texts[name]:
            return 0
        self.has_written = True
        if name == "insert_doc":
            # Loaded by the indexer, as in `match`.
            from sessionary.store.search import tsquery

            rows = [tsquery.doc_row(dict(row)) for row in rows]
        order = queries.order("postgres", name)
        if order == ("rows",):  # the statement takes them all at once
            return self._execute(name, {"rows": codec.encode(list(rows))}).rowcount
        named = [
            dict(zip(order, row, strict=True)) if isinstance(row, tuple) else row for row in rows
        ]
        self._cursor.executemany(self._texts[name], named)
        return max(0, self._cursor.rowcount)

    def batch(self, statements: Sequence[Statement], /) -> list[list[Row]]:
        connection = self._cursor.connection
        self.has_written = self.has_written or any(
            name not in self._reading for name, _ in statements
        )
        is_idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
        is_first = is_idle and not connection.read_only
        if is_first:
            # The library would wait for its own BEGIN, even in a pipeline. `begin` switches back.
            connection.autocommit = True
        with connection.pipeline():
            if is_first:
                connection.cursor().execute(self._texts["begin"], prepare=False)
            cursors = [
                connection.cursor(binary=True).execute(self._texts[name], params)
                for name, params in statements
            ]
        return [cursor.fetchall() if cursor.description else [] for cursor in cursors]

    def overlapped(self) -> AbstractContextManager[object]:
        return self._cursor.connection.pipeline()

    def script(self, text: str) -> None:
        self.has_written = True
        # Not on our cursor: several statements at once cannot answer in binary.
        self._cursor.connection.execute(text.encode())

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
        """Yield the parameters of queries in the language of tsquery."""
        # Loaded by a search: everyone else saves 30 ms for the word patterns.
        from sessionary.store.search import tsquery

        if between is None:
            blocks = tsquery.DocBlocks.up_to(self._newest_position() or 0, below)
        else:
            after, before = between
            rows = self.all("blocks_between", after=after, before=before)
            if below is not None:
                rows = [row for row in rows if row[0] << tsquery.BLOCK_BITS < below]
            inside = frozenset(no for no, is_inside in rows if is_inside)
            blocks = tsquery.DocBlocks([no for no, _ in rows], inside)
        _, sessions = tsquery.without_many_sessions(facets)
        if sessions:
            places = self.all("places_of_sessions", numbers=queries.pg_array_literal(sessions))
            blocks = blocks.of_sessions(places)
        return tsquery.match_params(
            query, facets, without=without, blocks=blocks, below=below, limit=limit
        )

    def after_commit(self, event: Any) -> None:
        self.events.append(event)

    def _newest_position(self) -> int | None:
        row = self.one("newest_position")
        return None if row is None else row[0]


def begin(connection: Connection, *, read_only: bool = False) -> None:
    """Prepare an idle connection for a transaction: one that may write, or one that reads a snapshot."""
    if connection.autocommit:
        connection.autocommit = False
    if bool(connection.read_only) != read_only:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ if read_only else None
        connection.read_only = True if read_only else None


class SnapshotTx(PostgresTx):
    """Reads at one moment: the state of the index is read once."""

    __slots__ = ("_index_state",)

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._index_state: Row | None = None

    def one(self, name: str, /, **params: Any) -> Row | None:
        if name != "index_state":
            return super().one(name, **params)
        if self._index_state is None:
            self._index_state = super().one(name)
        return self._index_state

    def _newest_position(self) -> int | None:
        row = self.one("index_state")
        if row is None:
            return None
        watermark, _, unsettled = row
        return int(watermark + unsettled)
