"""A fair queue for the write lock between the processes that share one SQLite file.

SQLite's own waiting is a busy loop with growing sleeps: under four writers one of
them starves. Here a writer first takes its place in the queue, then the turn; while
it waits for the turn it holds the queue, so the one that has just finished cannot
overtake it. Both are flocks on files beside the database, never on the database
itself, and the kernel lets go of them when a process dies.
"""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sessionary.errors import RetryLater


class Turnstile:
    """Lets one process at a time write."""

    def __init__(self, database: str, wait_seconds: float) -> None:
        self._queue = _Lock(f"{database}-queue")
        self._turn = _Lock(f"{database}-turn")
        self._wait_seconds = wait_seconds

    @contextmanager
    def pass_through(self) -> Iterator[None]:
        """Wait in line, hold the turn for the length of the block."""
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


class _Lock:
    """A flock with a time limit: the blocking call runs in a thread of its own."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def acquire(self, wait_seconds: float) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._wait(wait_seconds)

    def release(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._file)

    def _wait(self, wait_seconds: float) -> None:
        waiting = _Waiter(self._file)
        waiting.start()
        if waiting.granted.wait(wait_seconds):
            return
        # The waiter still sits in the kernel's queue on the old open file; it ends with it.
        waiting.abandon()
        self._file = os.open(
            self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        raise RetryLater(
            f"Another program has kept the store's write lock for {wait_seconds:.0f} s; nothing was written. Try again."
        )


class _Waiter(threading.Thread):
    def __init__(self, file: int) -> None:
        super().__init__(name="sessionary-turnstile", daemon=True)
        self._held = file
        self._abandoned = False
        self._state = threading.Lock()
        self.granted = threading.Event()

    def run(self) -> None:
        fcntl.flock(self._held, fcntl.LOCK_EX)
        with self._state:
            if self._abandoned:
                os.close(self._held)
            else:
                self.granted.set()

    def abandon(self) -> None:
        with self._state:
            if self.granted.is_set():
                os.close(self._held)
            self._abandoned = True
