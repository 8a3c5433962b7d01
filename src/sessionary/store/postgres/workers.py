"""A few threads that work off a queue, started as they are needed.

Like an executor without futures: whoever hands work over has its own way to learn the outcome,
and the way there is short.
"""

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

Work = tuple[Callable[..., object], tuple[Any, ...]]


class Workers:
    """At most so many threads."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._unfinished = 0
        self._is_closing = False

    def submit(self, work: Callable[..., object], *args: Any) -> None:
        """Have the work done by the next thread that is free; when closing, by none."""
        with self._lock:
            if self._is_closing:
                return
            self._unfinished += 1
            if self._unfinished > len(self._threads) < self._most:
                thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._threads.add(thread)
                thread.start()
            self._queue.put((work, args))

    def close(self) -> None:
        """Take nothing more; the threads end when they have finished what was handed over."""
        with self._lock:
            self._is_closing = True
            for _ in self._threads:
                self._queue.put(None)

    def join(self, seconds: float) -> bool:
        """Wait until the threads have ended; say whether they did so in time."""
        until = time.monotonic() + seconds
        with self._lock:
            threads = tuple(self._threads)
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _work(self) -> None:
        try:
            while (taken := self._queue.get()) is not None:
                work, args = taken
                try:
                    work(*args)
                finally:
                    with self._lock:
                        self._unfinished -= 1
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())
