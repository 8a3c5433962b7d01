"""PostgreSQL: the same functions on pooled connections."""

import importlib
import os
import select
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from sessionary.errors import Damaged, NotFound, SessionaryError, StoreUnavailable
from sessionary.store import migrations
from sessionary.store.database import (
    CROSSED_FORK,
    DamageLatch,
    Listener,
    Listeners,
    Pending,
    Row,
    Tx,
    announce,
    failed_with,
)
from sessionary.store.postgres.errors import translate
from sessionary.store.postgres.pool import Pool
from sessionary.store.postgres.tx import PostgresTx, SnapshotTx
from sessionary.store.postgres.workers import Workers
from sessionary.store.postgres.writer import PostgresWriter

if TYPE_CHECKING:
    from sessionary.store.search.indexer import IndexState

P = ParamSpec("P")
T = TypeVar("T")

CONNECTIONS = 16
WAIT_SECONDS = 10.0
PATIENCE_SECONDS = 30.0
CONNECT_SECONDS = 5
# What was begun may take so long to finish when the store is closed; then it is cut.
FINISH_SECONDS = 3.0
CUT_SECONDS = 0.5
# Changes above the watermark are compared one by one: not more of them than this.
MOST_UNSETTLED = 2000


class PostgresStore:
    """A store on a PostgreSQL server, shared by any number of machines."""

    dialect = "postgres"

    def __init__(
        self, url: str, *, connections: int = CONNECTIONS, wait_seconds: float = WAIT_SECONDS
    ) -> None:
        self.url = url
        self._pool = Pool(
            url,
            min_size=1,
            max_size=connections,
            timeout=wait_seconds,
            reconnect_timeout=wait_seconds,
            check=_check,
            configure=_configure,
            open=False,
            kwargs={"prepare_threshold": 2, "connect_timeout": max(2, int(wait_seconds))},
        )
        self._workers = Workers(connections, "sessionary-postgres")
        self._listeners = Listeners()
        self._writer = PostgresWriter(self._pool, self._workers, publish=self._listeners.publish)
        self._pid = os.getpid()
        self._guard = threading.Lock()
        self._closed = False
        self._feeding = False
        self._latch = DamageLatch()
        self._pool.open()

    @property
    def damage(self) -> Damaged | None:
        """The first structural damage that was met; while there is one, writes are refused."""
        return self._latch.found

    def note_damage(self, error: Damaged) -> None:
        """Take note of damage that a check found."""
        self._latch.note(error)

    def write(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        """Run an action in a transaction; the answer comes after the commit is durable."""
        if (refusal := self._latch.refusal()) is not None:
            return failed_with(refusal)
        self._check_process()
        pending: Pending[T] = Pending(self._latch.note)
        # Of one that watches another, the other's: what is known of a function is known by its code.
        code = getattr(getattr(action, "__wrapped__", action), "__code__", type(action))
        with self._guard:
            self._check_open()
            self._writer.submit(code, lambda tx: action(tx, *args, **kwargs), pending)
        return pending

    def read(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        """Run an action that only reads, on one consistent snapshot."""
        return self._submit(self._read_once, lambda tx: action(tx, *args, **kwargs))

    def search(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        """Run an action that reads log and index, which has seen every append that returned."""
        return self._submit(self._search_once, lambda tx: action(tx, *args, **kwargs))

    def catch_up(self, seconds: float | None = None) -> "Pending[IndexState]":
        """Feed the index for so long, or until it is complete; how far it has come."""
        indexing = _indexing()

        def feed(action: Callable[[Tx], T]) -> T:
            self._feed_for(seconds)
            return self._read_once(action)

        return self._submit(feed, indexing.state)

    def rebuild_index(self) -> Pending[None]:
        """Forget the index; it is made again from the log, by whoever asks it next."""
        return self._submit(self._writer.alone, _indexing().clear)

    def index_in_background(self) -> None:
        """From now on feed the index as the log grows, not only when someone searches."""
        self.listen(lambda _: self._feed_soon())
        self._feed_soon()

    def scrub(self) -> None:
        """Nothing to do: the server's own files are its administrator's business."""

    def shrink(self) -> None:
        """Nothing to do: the server uses freed room again by itself."""

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call back with the events of every commit; returns how to stop."""
        return self._listeners.add(listener)

    def close(self) -> None:
        """Finish what was begun and give the connections back.

        Whoever still waits then for a server that is gone or silent is told so.
        """
        if os.getpid() != self._pid:
            return  # it belongs to the parent process
        with self._guard:
            if self._closed:
                return
            self._closed = True
        self._writer.close()
        self._workers.close()
        is_finished = self._workers.join(FINISH_SECONDS)
        self._pool.close(timeout=CUT_SECONDS)
        if not is_finished:
            self._pool.cut()
            self._workers.join(CUT_SECONDS)

    def _submit(
        self, how: Callable[[Callable[[Tx], T]], T], action: Callable[[Tx], T]
    ) -> Pending[T]:
        self._check_process()
        pending: Pending[T] = Pending(self._latch.note)
        with self._guard:
            self._check_open()
            self._workers.submit(_settle, pending, how, action)
        return pending

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("The store is closed.")

    def _check_process(self) -> None:
        # Before the guard: another thread may have held it at the moment of the fork.
        if os.getpid() != self._pid:
            raise StoreUnavailable(CROSSED_FORK)

    def _search_once(self, action: Callable[[Tx], T]) -> T:
        """Search in the transaction that finds the index complete; feed it first when it is not."""
        indexing = _indexing()

        def search(tx: Tx) -> T:
            state = indexing.state(tx)
            if state.behind or state.unsettled > MOST_UNSETTLED:
                raise _Behind
            return action(tx)

        try:
            return self._read_once(search)
        except _Behind:
            self._feed_for(PATIENCE_SECONDS)
            return self._read_once(action)

    def _feed_for(self, seconds: float | None) -> None:
        indexing = _indexing()
        until = None if seconds is None else time.monotonic() + seconds
        state = self._read_once(indexing.state)
        while state.behind and not self._closed:
            if until is not None and time.monotonic() > until:
                return
            self._writer.alone(indexing.step)
            state = self._read_once(indexing.state)
        if state.unsettled > MOST_UNSETTLED and not self._closed:
            self._writer.alone(indexing.step)  # nothing new: the watermark moves up

    def _feed_soon(self) -> None:
        """One feeder at a time; whatever comes while it runs is taken by the same run."""
        with self._guard:
            if self._feeding or self._closed:
                return
            self._feeding = True
            self._workers.submit(self._feed)

    def _feed(self) -> None:
        try:
            self._feed_for(None)
        except (psycopg.Error, PoolTimeout, SessionaryError) as error:
            self._latch.note(error)  # the next search meets any other error again, and tells
        finally:
            self._feeding = False

    def _read_once(self, action: Callable[[Tx], T]) -> T:
        with self._pool.connection() as connection:
            if not connection.read_only:
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                connection.read_only = True
            return action(SnapshotTx(connection))


class _Behind(Exception):
    """The index has not seen everything yet."""


def _configure(connection: psycopg.Connection[Row]) -> None:
    """Make a new connection ready."""
    PostgresTx(connection).run("plan_by_index")
    connection.commit()


def _check(connection: psycopg.Connection[Row]) -> None:
    """Refuse a connection that the server has cut; ask it only when it has something to say.

    A server that stops or dies ends the connection, and an ended connection can be read from. An
    idle one that is well cannot: asking each time would double the way of a small transaction.
    """
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)
    if waiting.poll(0):
        ConnectionPool.check_connection(connection)


def _indexing() -> Any:
    """The index, loaded by whoever searches; all others start without it."""
    return importlib.import_module("sessionary.store.search.indexer")


def prepare(store: PostgresStore, *, create: bool, facts: dict[str, Any]) -> None:
    """Reach the server and bring its schema up to date."""
    try:
        psycopg.connect(store.url, connect_timeout=CONNECT_SECONDS).close()
    except (psycopg.Error, ValueError) as error:
        raise StoreUnavailable(
            f"PostgreSQL cannot be reached: {_why(error, store.url)}. Nothing was changed."
        ) from error
    if store.read(migrations.pending, store.dialect).result():
        store.write(_migrate, create=create, facts=facts).result()


def _why(error: Exception, url: str) -> str:
    """What the client library says of the last address it tried; its advice comes after that."""
    # It may repeat the address that was given, and the password in it.
    lines = str(error).replace(url, "the address").splitlines()
    told = [line for line in lines if line.strip() and not line.startswith("\t")]
    return (told or [type(error).__name__])[-1].strip().rstrip(".")


def _migrate(tx: Tx, *, create: bool, facts: dict[str, Any]) -> None:
    # Two programs that start at once must not both create the tables.
    tx.one("lock_key", profile="", key="schema")
    if not create and tx.one("has_migrations") is None:
        raise NotFound("There is no store in this PostgreSQL database; nothing was made.")
    assert isinstance(tx, PostgresTx)
    migrations.apply(tx, "postgres", **facts)


def _settle(
    pending: Pending[T], how: Callable[[Callable[[Tx], T]], T], action: Callable[[Tx], T]
) -> None:
    try:
        pending.settle(how(action), None)
    except PoolTimeout:
        pending.settle(None, StoreUnavailable("PostgreSQL cannot be reached. Nothing was written."))
    except psycopg.Error as error:
        pending.settle(None, translate(error))
    except BaseException as error:  # the action's own; it is handed to the caller
        pending.settle(None, error)
    announce((pending,))
