"""Where growth is measured: a file of SQLite, a server of PostgreSQL, and what each of them uses."""

import importlib
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks import server_copy
from benchmarks.texts import sql
from sessionary.clock import RandomIds, SystemClock
from sessionary.store.database import Store
from sessionary.store.open import open_store
from sessionary.store.sqlite import db_file

SQLITE, POSTGRES = "SQLite", "PostgreSQL"
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True, slots=True)
class Used:
    """What was used so far: seconds of CPU here and in a server, bytes handed to the disk."""

    cpu: float
    server_cpu: float
    written: int


class Place(Protocol):
    """A database that can be opened again and that reports what it uses."""

    name: str
    url: str

    def used(self) -> Used:
        """Everything so far."""

    def size(self) -> tuple[int, int]:
        """Bytes of the record, and of its index."""


def opened(place: Place) -> Store:
    """The store of a place, made if it is not there."""
    return open_store(place.url, create=True, clock=SystemClock(), ids=RandomIds())


class FilePlace:
    """A file of SQLite."""

    name = SQLITE

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path

    def used(self) -> Used:
        """Of this process: it is the database, too."""
        return Used(time.process_time(), 0.0, _written("self"))

    def size(self) -> tuple[int, int]:
        """All pages, those that wait to be folded in among them."""
        return _pages(self._path), _pages(Path(f"{self._path}-search"))


class ServerPlace:
    """A database of a PostgreSQL that runs for this measurement alone."""

    name = POSTGRES

    def __init__(self, url: str, *, pid: int, connection: Any) -> None:
        self.url = url
        self._pid = pid
        self._ask = connection

    def used(self) -> Used:
        """Of this process and of the server's; written is what went to its log."""
        (written,) = self._ask.execute(sql()["server_written"]).fetchone()
        return Used(time.process_time(), _cpu_of_family(self._pid), int(written))

    def size(self) -> tuple[int, int]:
        """All tables, and those of the index."""
        whole, index = self._ask.execute(sql()["server_size"]).fetchone()
        return int(whole) - int(index), int(index)


class Server:
    """A PostgreSQL of our own, as durable as one in use; it starts when it is first needed."""

    def __init__(self) -> None:
        self._started: Any = None

    @contextmanager
    def copy_of(self, file: Path) -> Iterator[ServerPlace]:
        """A database with all that the store in a file has."""
        # Both are loaded here only: the one is for tests, the other an extra.
        testing = importlib.import_module("tests.support.postgres")
        psycopg = importlib.import_module("psycopg")
        if self._started is None:
            self._started = testing.start_own_server(durable=True)
        url: str = self._started.create_database()
        with closing(psycopg.connect(url, autocommit=True)) as connection:
            place = ServerPlace(url, pid=self._started.pid, connection=connection)
            with closing(opened(place)) as store:
                server_copy.fill(store, connection, file)
            yield place

    def close(self) -> None:
        """Stop the server."""
        if self._started is not None:
            self._started.stop()


@contextmanager
def running() -> Iterator[Server]:
    """A server for the length of a block."""
    with closing(Server()) as server:
        yield server


def _pages(path: Path) -> int:
    if not path.exists():
        return 0
    with closing(db_file.connect_reader(str(path))) as connection:
        rows: Any = connection.execute(sql()["file_size"]).fetchall()
        return int(rows[0][0])


def _written(process: str) -> int:
    """What a process has handed to the disk; nothing where the kernel does not say."""
    file = Path("/proc") / process / "io"
    if not file.exists():
        return 0
    values = dict(line.split(": ") for line in file.read_text().splitlines())
    return int(values["write_bytes"])


def _cpu_of_family(pid: int) -> float:
    """Seconds of CPU of a process, its children, and those that have ended."""
    ticks = 0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(") ")[2].split()
        except OSError:
            continue  # it ended while we looked
        if int(folder.name) == pid:
            ticks += sum(map(int, fields[11:15]))
        elif int(fields[1]) == pid:
            ticks += sum(map(int, fields[11:13]))
    return ticks / _TICKS
