"""Floors and peers: raw SQLite, raw fsync, and stores as they are known to work."""

import json
import os
import queue
import threading
import time
from pathlib import Path
from typing import Any

import apsw

from benchmarks.measure import Sample
from benchmarks.texts import sql

TEXT = "The quick brown fox jumps over the lazy dog, and tells a colleague about it later. " * 2
BODY = json.dumps({"parts": [{"type": "text", "text": TEXT}]}, separators=(",", ":"))


class RawLog:
    """The floor: one connection, prepared statements, no objects, many appends a commit."""

    def __init__(self, path: Path, *, sessions: int) -> None:
        self.connection = apsw.Connection(str(path))
        self.connection.execute(sql()["floor_tables"]).fetchall()
        self.connection.execute("BEGIN")
        self.connection.executemany(
            sql()["floor_session"], ((no, no, f"session {no}") for no in range(sessions))
        )
        self.connection.execute("COMMIT")
        self._next = 0
        self._sessions = sessions
        self._texts = (sql()["floor_advance"], sql()["floor_entry"])

    def append(self, count: int) -> int:
        """So many appends, each to another session, in one commit."""
        advance, insert = self._texts
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        for _ in range(count):
            no = self._next = (self._next + 1) % self._sessions
            seq: Any = execute(advance, (no,)).fetchall()[0][0]
            execute(insert, (no << 24 | seq, "user", 1, BODY))
        execute("COMMIT")
        return count

    def close(self) -> None:
        """Close the file."""
        self.connection.close()


class SharedRawLog:
    """The floor for threads: they hand an append over and wait; one of them all commits."""

    def __init__(self, path: Path, *, sessions: int) -> None:
        self._path = path
        self._sessions = sessions
        self._waiting: queue.SimpleQueue[threading.Lock | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def append(self) -> None:
        """One append, durable when this returns."""
        gate = threading.Lock()
        gate.acquire()
        self._waiting.put(gate)
        gate.acquire()

    def close(self) -> None:
        """Close the file."""
        self._waiting.put(None)
        self._writer.join()

    def _write(self) -> None:
        log = RawLog(self._path, sessions=self._sessions)
        while (gate := self._waiting.get()) is not None:
            batch = [gate]
            while self._waiting.qsize() and (more := self._waiting.get()) is not None:
                batch.append(more)
            log.append(len(batch))
            for each in batch:
                each.release()
        log.close()


class KnownStore:
    """A peer: one connection, one commit per message, FTS5 in a trigger of the insert."""

    def __init__(self, path: Path, *, sessions: int) -> None:
        self.connection = apsw.Connection(str(path))
        self.connection.execute(sql()["peer_tables"]).fetchall()
        self.connection.execute("BEGIN")
        self.connection.executemany(
            sql()["peer_session"], ((str(no), f"session {no}", float(no)) for no in range(sessions))
        )
        self.connection.execute("COMMIT")
        self._sessions = sessions
        self._count = 0

    def append(self) -> None:
        """One message, one commit."""
        session = str(self._count % self._sessions)
        self._count += 1
        self.connection.execute("BEGIN IMMEDIATE")
        row = (session, "user", TEXT, time.time())
        self.connection.execute(sql()["peer_message"], row).fetchall()
        self.connection.execute(sql()["peer_count"], (session,)).fetchall()
        self.connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self.connection.close()


class IndexFile:
    """A peer: a JSONL transcript per session, and one JSON index rewritten for every message."""

    def __init__(self, folder: Path, *, sessions: int) -> None:
        folder.mkdir()
        self._folder = folder
        self._index = {
            str(no): {
                "title": f"session {no}",
                "updated_at": no,
                "count": 0,
                "platform": "telegram",
            }
            for no in range(sessions)
        }
        self._count = 0

    def append(self) -> None:
        """One message: its line synced, then the whole index."""
        session = str(self._count % len(self._index))
        self._count += 1
        with (self._folder / f"{session}.jsonl").open("a", encoding="utf-8") as file:
            file.write(BODY + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._index[session]["count"] = self._count
        draft = self._folder / "index.json.draft"
        with draft.open("w", encoding="utf-8") as file:
            json.dump(self._index, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._folder / "index.json")


class RawSync:
    """How often this disk syncs a page."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._page = b"x" * 4096
        self._at = 0

    def sync(self) -> None:
        """Write the next page and sync it."""
        os.pwrite(self._file, self._page, self._at)
        self._at = (self._at + len(self._page)) % (1 << 22)
        os.fdatasync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def steadily(append: object, rate: float, seconds: float) -> Sample:
    """Call `append` at even intervals; a latency counts from when the call was due."""
    assert callable(append)
    latencies: list[float] = []
    began = due = time.perf_counter()
    while due - began < seconds:
        pause = due - time.perf_counter()
        if pause > 0:
            time.sleep(pause)
        append()
        latencies.append(time.perf_counter() - due)
        due += 1 / rate
    return Sample(len(latencies), time.perf_counter() - began, latencies)
