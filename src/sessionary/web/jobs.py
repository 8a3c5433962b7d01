"""Background jobs: begun by a request, one of a kind at a time, with progress in the event stream."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Literal, Self, TypeVar

from sessionary.actions import requests
from sessionary.errors import BadInput, Conflict, NotFound, SessionaryError
from sessionary.model.view import time_text
from sessionary.web.context import Caller, WebContext

KEPT = 20
LAST = "last"
TOLD_SECONDS = 0.25
P = TypeVar("P")
R = TypeVar("R")
JobState = Literal["running", "done", "failed", "stopped"]
log = logging.getLogger(__name__)


class JobStopped(Exception):
    """Raised in a job that was asked to stop; what it has done stays."""


@dataclass(slots=True)
class BackgroundJob(Generic[P, R]):
    """A job: what was asked for, its progress, its result."""

    id: str
    asked: object
    began_at: str
    state: JobState = "running"
    progress: P | None = None
    result: R | None = None
    error: str | None = None
    ended_at: str | None = None
    # Counts the changes of all jobs; a stream sends the jobs with a higher one than it has seen.
    version: int = 0
    stop: threading.Event = field(default_factory=threading.Event)
    told_at: float = 0.0


class BackgroundJobs(Generic[P, R]):
    """The latest jobs of one kind in this process; they are not stored."""

    def __init__(self, context: WebContext, wake: Callable[[], None], *, kind: str) -> None:
        self._context = context
        self._wake = wake
        self._kind = kind
        self._jobs: dict[str, BackgroundJob[P, R]] = {}
        self._keys: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None
        self._version = 0

    def for_caller(self, caller: Caller) -> Self:
        """These jobs, for a caller of the profile that is served here; another profile has none."""
        if caller.profile != self._context.profile:
            raise NotFound(f"There is no such {self._kind}.")
        return self

    @property
    def jobs(self) -> list[BackgroundJob[P, R]]:
        """The latest, newest first."""
        return list(reversed(self._jobs.values()))

    def get(self, id: str) -> BackgroundJob[P, R]:
        """A job by its id; `last` is the newest."""
        if id == LAST and self._jobs:
            return self.jobs[0]
        if id not in self._jobs:
            raise NotFound(f"There is no {self._kind} {id}.")
        return self._jobs[id]

    def start(
        self, work: Callable[[Callable[[P], None]], R], asked: object, *, key: str | None
    ) -> BackgroundJob[P, R]:
        """Begin a job, unless one runs; the same key again is the same job.

        `work` is given a function that reports progress, and returns the result.
        """
        if key is not None and key in self._keys:
            known = self.get(self._keys[key])
            if known.asked != asked:
                raise BadInput(requests.ANOTHER)
            return known
        if self._task is not None and not self._task.done():
            raise Conflict(
                f"Another {self._kind} is running; nothing was begun. Wait for it, or stop it."
            )
        moment = self._context.moment()
        job = BackgroundJob[P, R](moment.new_id(), asked, time_text(moment.now))
        self._jobs[job.id] = job
        for old in list(self._jobs)[:-KEPT]:
            del self._jobs[old]
        if key is not None:
            self._keys[key] = job.id
            self._keys = {each: id for each, id in self._keys.items() if id in self._jobs}
        self._task = asyncio.create_task(self._run(job, work))
        self._tell(job)
        return job

    def stop(self, id: str) -> BackgroundJob[P, R]:
        job = self.get(id)
        if job.state != "running":
            raise NotFound(f"That {self._kind} is over; nothing was stopped.")
        job.stop.set()
        return job

    async def close(self) -> None:
        """Stop what runs, and wait for it."""
        for job in self._jobs.values():
            job.stop.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def changed_since(self, seen: int) -> tuple[list[BackgroundJob[P, R]], int]:
        """The jobs that changed since a version, and the current version."""
        fresh = [job for job in self._jobs.values() if job.version > seen]
        return fresh, self._version

    async def _run(
        self, job: BackgroundJob[P, R], work: Callable[[Callable[[P], None]], R]
    ) -> None:
        loop = asyncio.get_running_loop()

        def tell(progress: P) -> None:
            if job.stop.is_set():
                raise JobStopped
            job.progress = progress
            if time.monotonic() - job.told_at > TOLD_SECONDS:
                job.told_at = time.monotonic()
                loop.call_soon_threadsafe(self._tell, job)

        done = asyncio.ensure_future(asyncio.to_thread(work, tell))
        await asyncio.wait({done})
        error = done.exception()
        match error:
            case None:
                job.state, job.result = "done", done.result()
            case JobStopped():
                job.state = "stopped"
            case SessionaryError():
                job.state, job.error = "failed", str(error)
            case _:
                log.error("%s %s failed", self._kind, job.id, exc_info=error)
                job.state, job.error = "failed", "Something went wrong here; the log says what."
        job.ended_at = time_text(self._context.clock.now())
        self._tell(job)

    def _tell(self, job: BackgroundJob[P, R]) -> None:
        self._version += 1
        job.version = self._version
        self._wake()
