"""Counts what a store does to its database: statements, commits and round trips.

SQLite reports each statement that it runs. What is sent to PostgreSQL is read by a proxy that the store connects to.
"""

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw
from psycopg.conninfo import conninfo_to_dict

CONTROL = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE")
_AT_ONCE = 64 * 1024


class StatementCounter:
    """The counts since the last `clear`; `names` has each statement's first words."""

    def __init__(self) -> None:
        self.statements = 0
        self.commits = 0
        self.round_trips = 0
        self.names: Counter[str] = Counter()
        self._lock = threading.Lock()

    def clear(self) -> None:
        """Begin again from 0."""
        with self._lock:
            self.statements = self.commits = self.round_trips = 0
            self.names.clear()

    def count(self, sql: str) -> None:
        """Count a statement; the beginning of a transaction is none."""
        with self._lock:
            if sql.startswith("COMMIT"):
                self.commits += 1
            elif not sql.startswith(CONTROL):
                self.statements += 1
                self.names[" ".join(sql.split())[:60]] += 1

    def count_round_trip(self) -> None:
        """Count a request that the server answers."""
        with self._lock:
            self.round_trips += 1


@contextlib.contextmanager
def counted_sqlite(counter: StatementCounter) -> Iterator[None]:
    """Count the statements of every connection that is opened within the block."""

    def trace(event: dict[str, Any]) -> None:
        if not event["sql"].startswith("--"):  # a trigger's
            counter.count(event["sql"])

    def hook(connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, trace)

    apsw.connection_hooks.append(hook)
    try:
        yield
    finally:
        apsw.connection_hooks.remove(hook)


@contextlib.contextmanager
def counted_sqlite_steps() -> Iterator[Callable[[], int]]:
    """Yield a function that tells how many steps SQLite has taken, on every connection opened within the block."""
    taken = 0
    lock = threading.Lock()

    def trace(event: dict[str, Any]) -> None:
        nonlocal taken
        with lock:
            taken += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    def hook(connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, trace)

    apsw.connection_hooks.append(hook)
    try:
        yield lambda: taken
    finally:
        apsw.connection_hooks.remove(hook)


@contextlib.contextmanager
def counted_postgres(url: str, counter: StatementCounter) -> Iterator[str]:
    """Yield a URL of the same database whose statements and round trips are counted."""
    target = conninfo_to_dict(url)
    login = str(target["user"])
    if "password" in target:
        login += f":{quote(str(target['password']))}"
    # Without encryption, so that the messages can be read.
    options = "sslmode=disable&gssencmode=disable"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=_accept, args=(listener, target, counter))
        accepting.start()
        port = listener.getsockname()[1]
        try:
            yield f"postgresql://{login}@127.0.0.1:{port}/{target['dbname']}?{options}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()


def _accept(listener: socket.socket, target: dict[str, Any], counter: StatementCounter) -> None:
    connections: list[threading.Thread] = []
    with contextlib.suppress(OSError):  # the listener was shut down
        while True:
            client, _ = listener.accept()
            connection = _Connection(client, _connect(target), counter)
            connections.append(threading.Thread(target=connection.run))
            connections[-1].start()
    for each in connections:
        each.join()


def _connect(target: dict[str, Any]) -> socket.socket:
    host, port = str(target.get("host") or "127.0.0.1"), int(target.get("port") or 5432)
    if not host.startswith("/"):
        return socket.create_connection((host, port))
    made = socket.socket(socket.AF_UNIX)
    made.connect(str(Path(host) / f".s.PGSQL.{port}"))
    return made


class _Connection:
    """Forwards one connection in two threads, and reads the client's messages."""

    def __init__(
        self, client: socket.socket, server: socket.socket, counter: StatementCounter
    ) -> None:
        self._client = client
        self._server = server
        self._counter = counter
        self._is_answered = True
        # The first message of a connection has no type.
        self._buffer = bytearray(b"?")
        self._prepared: dict[bytes, str] = {}
        self._bound = ""

    def run(self) -> None:
        """Forward until both sides have ended."""
        with self._client, self._server:
            back = threading.Thread(
                target=self._pass, args=(self._server, self._client, self._see_response)
            )
            back.start()
            self._pass(self._client, self._server, self._see_request)
            back.join()

    def _pass(
        self, reader: socket.socket, writer: socket.socket, see: Callable[[bytes], None]
    ) -> None:
        with contextlib.suppress(OSError):
            while data := reader.recv(_AT_ONCE):
                see(data)
                writer.sendall(data)
        with contextlib.suppress(OSError):
            writer.shutdown(socket.SHUT_WR)

    def _see_response(self, _: bytes) -> None:
        self._is_answered = True

    def _see_request(self, data: bytes) -> None:
        if self._is_answered:
            self._is_answered = False
            self._counter.count_round_trip()
        self._buffer += data
        while len(self._buffer) >= 5:
            end = 1 + int.from_bytes(self._buffer[1:5])
            if len(self._buffer) < end:
                return
            kind, body = bytes(self._buffer[:1]), bytes(self._buffer[5:end])
            del self._buffer[:end]
            self._see_message(kind, body)

    def _see_message(self, kind: bytes, body: bytes) -> None:
        match kind:
            case b"Q":
                self._counter.count(body[:-1].decode())
            case b"P":
                name, sql, _ = body.split(b"\0", 2)
                self._prepared[name] = sql.decode()
            case b"B":
                _, name, _ = body.split(b"\0", 2)
                self._bound = self._prepared[name]
            case b"E":
                self._counter.count(self._bound)
