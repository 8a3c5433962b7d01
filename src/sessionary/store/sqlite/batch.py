"""What the writer takes at once: everything that waits, and those who are just coming back.

Callers that were answered by one commit often write again at once. Committing as soon as the
first of them is here would make each of the others wait for a whole fsync. So the writer waits
a moment for as many as it has just answered: never longer than a commit takes, only while they
keep coming, and more and more rarely where they do not come. A single caller never waits.
"""

import queue
import time
from typing import Generic, TypeVar

T = TypeVar("T")

MOST = 512
POLL_SECONDS = 0.00005
LONGEST_SECONDS = 0.003
PATIENCE = 2
RAREST = 32


class Gathering(Generic[T]):
    """Takes jobs from a queue in batches; None in the queue means that the store is closing."""

    def __init__(self, jobs: "queue.SimpleQueue[T | None]") -> None:
        self._jobs = jobs
        self._expected = 1
        self._pass_over = 0
        self._in_vain = 0
        self.closing = False

    def take(self, *, commit_seconds: float) -> list[T]:
        """The next batch, at least one job; empty when the store is closing."""
        first = self._jobs.get()
        if first is None:
            self.closing = True
            return []
        if self._expected > 1:
            self._wait(min(commit_seconds, LONGEST_SECONDS))
        return self._drain([first])

    def answered(self, count: int) -> None:
        """So many callers have their answer now; they may come back beside those that wait."""
        self._expected = min(count + self._jobs.qsize(), MOST)

    def _wait(self, seconds: float) -> None:
        if self._pass_over > 0:
            self._pass_over -= 1
            return
        wanted = self._expected - 1
        at_first = last = self._jobs.qsize()
        until = time.monotonic() + seconds
        idle = 0
        while last < wanted and idle < PATIENCE and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
            now = self._jobs.qsize()
            idle = idle + 1 if now == last else 0
            last = now
        if last == at_first < wanted:
            self._in_vain = min(2 * self._in_vain + 1, RAREST)
            self._pass_over = self._in_vain
        else:
            self._in_vain = 0

    def _drain(self, batch: list[T]) -> list[T]:
        while len(batch) < MOST:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self.closing = True
                break
            batch.append(job)
        return batch
