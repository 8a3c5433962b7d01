"""A few threads that work off a queue, started as they are needed.

Like an executor without futures: whoever hands work over has its own way to learn the outcome,
and the way there is short.
"""

import queue
import threading
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
        """Finish what was handed over, and end the threads."""
        with self._lock:
            self._is_closing = True
            threads = tuple(self._threads)
        for _ in threads:
            self._queue.put(None)
        for thread in threads:
            thread.join()

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
