"""Worker processes that read units for an import, so that reading and merging use different cores.

A worker runs the importer and prepares its events; this process merges and writes them, in the order of the units. A
worker is a fresh interpreter that talks through its standard input and output: jobs go in, frames of events come
out. At most `_MOST_FRAMES` of them wait here; then the pipe is full, and the worker waits. A worker ends when its
input does, also if this process was killed. If a worker fails, its unit is read again, by this process.
"""

import logging
import pickle
import queue
import subprocess
import sys
import threading
from collections import deque
from datetime import datetime
from typing import Any, Self

import msgspec

from sessionary.importers.base.driver import EventStream, ReaderLost
from sessionary.importers.base.events import Importer, Resume, Unit
from sessionary.importers.base.prepared import PreparedMessage, prepared_events
from sessionary.importers.worker import END, FAILED, FRAME, JOB, read_frame

logger = logging.getLogger(__name__)
# How many units a worker may be given before it has read the first of them.
_MOST_QUEUED = 2
# Frames that wait to be merged, of about 256 kB each: as much as a worker reads while a batch is written.
_MOST_FRAMES = 24
_decode = msgspec.msgpack.Decoder(list[PreparedMessage | bytes]).decode
Job = tuple[Unit, Resume | None]


class WorkerPool:
    """Reads units in worker processes. Leaving a `with` block ends them."""

    def __init__(self, importer: Importer, count: int, *, now: datetime) -> None:
        self._importer, self._count, self._now = importer, count, now
        self._workers: list[_Worker] = []
        # After a worker has failed, none is started any more: this process reads instead.
        self._may_start = True
        # How many units after the one that is merged may be read.
        self.lookahead = max(0, count * _MOST_QUEUED - 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.end()

    def expect(self, unit: Unit, resume: Resume | None) -> bool:
        """Give a unit to a worker; return whether one takes it. Units are given in the order in which they are read."""
        if len(self._workers) < self._count and self._may_start:
            try:
                self._workers.append(_Worker(self._importer.name, self._now))
            except OSError as error:
                self._may_start = False
                logger.warning("No worker process can be started (%s); this process reads.", error)
        free = [each for each in self._workers if len(each.jobs) < _MOST_QUEUED]
        if not free:
            return False
        worker = min(free, key=lambda each: sum(unit.size for unit, _ in each.jobs))
        worker.give((unit, resume))
        return True

    def read(self, unit: Unit, resume: Resume | None) -> EventStream:
        """Yield the events of a unit; raises what the importer raises, and `ReaderLost` if a worker fails."""
        for worker in list(self._workers):
            if (unit, resume) in worker.jobs:
                if worker.jobs[0] == (unit, resume):
                    return self._events_of(worker)
                # It reads a unit that nobody wants any more.
                self._end(worker)
        return prepared_events(self._importer, unit, resume, now=self._now)

    def _end(self, worker: "_Worker") -> None:
        self._workers.remove(worker)
        worker.end()

    def _events_of(self, worker: "_Worker") -> EventStream:
        is_finished = False
        try:
            yield from worker.events()
            is_finished = True
        except ReaderLost:
            self._may_start = False
            raise
        except Exception:
            # What the importer raised: the worker is ready for the next unit.
            is_finished = True
            raise
        finally:
            worker.jobs.popleft()
            if not is_finished:
                # The rest of the unit is not wanted, and the worker may have gigabytes of it to send.
                self._end(worker)


class _Worker:
    """One process, and the units that it has been given; the first is the one that it reads."""

    def __init__(self, tool: str, now: datetime) -> None:
        self.jobs: deque[Job] = deque()
        # The paths of this process: a script's own folder, or those of a test, are not in the environment.
        code = f"import sys; sys.path[:] = {sys.path!r}; from sessionary.importers import worker; worker.main()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        # A thread takes the frames: while a batch is written, the worker goes on. None is the end.
        self._frames: queue.Queue[tuple[bytes, bytes] | None] = queue.Queue(_MOST_FRAMES)
        self._is_over = False
        self._thread = threading.Thread(target=self._receive, name="import-frames", daemon=True)
        self._thread.start()
        self._send((tool, now))

    def _receive(self) -> None:
        frame: tuple[bytes, bytes] | None = (JOB, b"")
        while frame is not None:
            frame = read_frame(self._output)
            self._frames.put(frame)

    def _next_frame(self) -> tuple[bytes, bytes] | None:
        if self._is_over:
            return None
        frame = self._frames.get()
        self._is_over = frame is None
        return frame

    def give(self, job: Job) -> None:
        """Add a unit to those that the worker reads."""
        self.jobs.append(job)
        self._send(job)

    def _send(self, value: Any) -> None:
        data = pickle.dumps(value)
        try:
            self._input.write(FRAME.pack(JOB, len(data)) + data)
            self._input.flush()
        except OSError:
            # It has ended: the next read from it says so.
            logger.debug("A worker process has ended.", exc_info=True)

    def events(self) -> EventStream:
        """Yield the events of its first unit."""
        while True:
            frame = self._next_frame()
            if frame is None:
                code = self._process.wait()
                unit = self.jobs[0][0]
                logger.warning(
                    "A worker process ended with code %s; %s is read again by this process.",
                    code,
                    unit.name,
                )
                raise ReaderLost
            kind, data = frame
            if kind == END:
                return
            if kind == FAILED:
                raise pickle.loads(data)
            for each in _decode(data):
                yield pickle.loads(each) if isinstance(each, bytes) else each

    def end(self) -> None:
        """End the process: it has nothing to finish."""
        self._process.kill()
        self._process.wait()
        while self._next_frame() is not None:
            # The thread may wait for room.
            continue
        self._thread.join()
        self._output.close()
        try:
            self._input.close()
        except OSError:
            logger.debug("A worker process had ended.", exc_info=True)
