"""Who is told about commits. A listener that fails is reported, and disturbs no one else."""

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from sessionary.store.database import Listener


class Listeners:
    """The listeners of one store object."""

    def __init__(self) -> None:
        self._all: list[Listener] = []

    def add(self, listener: Listener) -> Callable[[], None]:
        """Tell this one too from now on; returns how to stop. Stopping twice is stopping."""
        self._all = [*self._all, listener]
        return lambda: self._remove(listener)

    def publish(self, events: Sequence[Any]) -> None:
        """Tell everyone. The callers of the commit wait: no failure may stop the thread."""
        if not events:
            return
        for listener in self._all:
            try:
                listener(events)
            except Exception:  # handed to the hook that reports what fails in a thread
                args = threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
                threading.excepthook(args)

    def _remove(self, listener: Listener) -> None:
        self._all = [each for each in self._all if each is not listener]
