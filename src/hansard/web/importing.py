"""One import at a time: begun by a request, run beside everything else, told as it goes."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hansard.errors import Conflict, HansardError, NotFound
from hansard.model.view import time_text
from hansard.web.parts import Imports, WebParts

KEPT = 20
LAST = "last"
TOLD_SECONDS = 0.25
Json = dict[str, Any]
log = logging.getLogger("hansard.web")


class Stopped(Exception):
    """Someone has asked the import to end; what was read is here."""


@dataclass(slots=True)
class Job:
    """An import, or a look at what it would bring."""

    id: str
    tools: list[str]
    dry_run: bool
    began_at: str | None
    state: str = "running"
    progress: Json | None = None
    outcomes: list[Json] = field(default_factory=list)
    error: str | None = None
    ended_at: str | None = None
    # Grows with every change; who has seen this much has seen all.
    version: int = 0
    stop: threading.Event = field(default_factory=threading.Event)
    told_at: float = 0.0

    def to_json(self) -> Json:
        """The job as callers see it."""
        names = ("id", "tools", "dry_run", "state", "progress", "outcomes", "error")
        times = {"began_at": self.began_at, "ended_at": self.ended_at}
        return {name: getattr(self, name) for name in names} | times


class Jobs:
    """The imports of this process. What they brought is in the record; they themselves are not."""

    def __init__(self, parts: WebParts, wake: Callable[[], None]) -> None:
        self._parts = parts
        self._wake = wake
        self._jobs: dict[str, Job] = {}
        self._keys: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None
        self._version = 0

    @property
    def jobs(self) -> list[Job]:
        """The latest, newest first."""
        return list(reversed(self._jobs.values()))

    def get(self, id: str) -> Job:
        """A job by its id; `last` is the newest."""
        if id == LAST and self._jobs:
            return self.jobs[0]
        if id not in self._jobs:
            raise NotFound(f"There is no import {id}.")
        return self._jobs[id]

    def start(
        self, records: Imports, tools: Sequence[str], *, dry_run: bool, key: str | None
    ) -> Job:
        """Begin, unless one runs; the same key again is the same job."""
        if key is not None and key in self._keys:
            return self.get(self._keys[key])
        if self._task is not None and not self._task.done():
            raise Conflict("An import is running; nothing was begun. Wait for it, or stop it.")
        when = self._parts.occasion()
        job = Job(when.new_id(), list(tools), dry_run, time_text(when.now))
        self._jobs[job.id] = job
        for old in list(self._jobs)[:-KEPT]:
            del self._jobs[old]
        if key is not None:
            self._keys[key] = job.id
            self._keys = {each: id for each, id in self._keys.items() if id in self._jobs}
        self._task = asyncio.create_task(self._run(job, records))
        self._tell(job)
        return job

    async def close(self) -> None:
        """Stop what runs, and wait for it."""
        for job in self._jobs.values():
            job.stop.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def news(self, seen: int) -> tuple[list[Json], int]:
        """The jobs that have changed since, and up to where that is."""
        fresh = [job for job in self._jobs.values() if job.version > seen]
        return [job.to_json() for job in fresh], self._version

    async def _run(self, job: Job, records: Imports) -> None:
        loop = asyncio.get_running_loop()

        def tell(progress: Json) -> None:
            if job.stop.is_set():
                raise Stopped
            job.progress = progress
            if time.monotonic() - job.told_at > TOLD_SECONDS:
                job.told_at = time.monotonic()
                loop.call_soon_threadsafe(self._tell, job)

        work = asyncio.ensure_future(
            asyncio.to_thread(records.run, job.tools, dry_run=job.dry_run, tell=tell)
        )
        await asyncio.wait({work})
        error = work.exception()
        match error:
            case None:
                job.state, job.outcomes = "done", work.result()
            case Stopped():
                job.state = "stopped"
            case HansardError():
                job.state, job.error = "failed", str(error)
            case _:
                log.error("an import failed", exc_info=error)
                job.state, job.error = "failed", "Something went wrong here; the log says what."
        job.ended_at = time_text(self._parts.clock.now())
        self._tell(job)

    def _tell(self, job: Job) -> None:
        self._version += 1
        job.version = self._version
        self._wake()
