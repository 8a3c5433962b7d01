"""Other tools' records are read as they grow, until someone says stop."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import watchfiles

from sessionary.app import imports
from sessionary.app.imports import Outcome, Progress, Tell, Wish
from sessionary.client.client import Sessionary
from sessionary.errors import SessionaryError
from sessionary.importers.base import files
from sessionary.importers.base.driver import Fault

# A file system need not tell of every change; and what was held back is read when it is whole.
SETTLED_SECONDS = 150.0
LOOK_SECONDS = 600.0
# Looking takes at most this part of the time.
SHARE = 0.1
STOP_SECONDS = 2.0
_TICK_MS = 500
_DEBOUNCE_MS = 1000
log = logging.getLogger("sessionary.imports")


@asynccontextmanager
async def in_background(client: Sessionary, names: Sequence[str]) -> AsyncIterator[None]:
    """Import the named tools' records for as long as the block lasts."""
    wishes = imports.default_wishes(imports.here(), names, must_exist=False)
    stop = threading.Event()
    work = asyncio.create_task(
        asyncio.to_thread(watch, client, wishes, stop=stop, tell=_log_outcome, fail=_log_failure)
    )
    try:
        yield
    finally:
        stop.set()
        # A long import is left behind: it ends when the store is closed, and goes on next time.
        await asyncio.wait({work}, timeout=STOP_SECONDS)


def _log_outcome(done: Outcome) -> None:
    log.info(
        "%s: %d sessions added, %d extended, %d messages, %d skipped",
        *(done.tool, done.added, done.extended, done.messages, done.skipped),
    )


def _log_failure(error: SessionaryError) -> None:
    log.warning("An import failed and is tried again: %s", error)


class Stopped(Exception):
    """It was asked to end in the middle of an import; what was read is here."""


def watch(
    client: Sessionary,
    wishes: Sequence[Wish],
    *,
    stop: threading.Event,
    tell: Callable[[Outcome], None],
    progress: Tell = lambda _: None,
    fail: Callable[[SessionaryError], None] | None = None,
) -> None:
    """Import what is there, then what is added; returns when `stop` is set.

    A failure is given to `fail`, and tried again later; without one it is raised.
    """
    round_ = _Round(client, stop=stop, tell=tell, progress=progress, fail=fail)
    while not stop.is_set():
        there = [wish for wish in wishes if _is_there(wish)]
        if not there:
            stop.wait(LOOK_SECONDS / 10)
            continue
        for changes in watchfiles.watch(
            *{str(wish.place) for wish in there},
            watch_filter=None,
            stop_event=stop,
            debounce=_DEBOUNCE_MS,
            rust_timeout=_TICK_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
            ignore_permission_denied=True,
        ):
            if stop.is_set():
                return
            round_.note(is_changed=bool(changes))
            # The first time, too: what changes while we look is noticed, for we watch already.
            if round_.is_due:
                round_.look(there)
                if [wish for wish in wishes if _is_there(wish)] != there:
                    break


class _Round:
    """Looking again and again, not more often than there is reason to."""

    def __init__(
        self,
        client: Sessionary,
        *,
        stop: threading.Event,
        tell: Callable[[Outcome], None],
        progress: Tell,
        fail: Callable[[SessionaryError], None] | None,
    ) -> None:
        self._client, self._stop = client, stop
        self._tell, self._progress, self._fail = tell, progress, fail
        # What could not be read when each tool's records were last looked at.
        self._told: dict[tuple[Wish, str], tuple[Fault, ...]] = {}
        self._changed_at: float | None = None
        self._has_settled = True
        self._looked_at, self._cost = -LOOK_SECONDS, 0.0

    def note(self, *, is_changed: bool) -> None:
        """Something has changed, or time has passed."""
        if is_changed:
            self._changed_at, self._has_settled = time.monotonic(), False

    @property
    def is_due(self) -> bool:
        """Whether there is a reason to look, and the last look is long enough ago."""
        now = time.monotonic()
        since = now - self._looked_at
        if since < self._cost / SHARE:
            return False
        if self._changed_at is not None and self._changed_at > self._looked_at:
            return True
        is_settled_now = (
            not self._has_settled
            and self._changed_at is not None
            and now - self._changed_at > SETTLED_SECONDS
        )
        return is_settled_now or since > LOOK_SECONDS

    def look(self, wishes: Sequence[Wish]) -> None:
        """Import what is new now."""
        self._looked_at = began = time.monotonic()
        if self._changed_at is not None and began - self._changed_at > SETTLED_SECONDS:
            self._has_settled = True
        for wish in wishes:
            try:
                self._import(wish)
            except Stopped:
                break
            except SessionaryError as error:
                # What one place refuses holds up no other.
                if self._fail is None:
                    raise
                self._fail(error)
        self._cost = time.monotonic() - began

    def _import(self, wish: Wish) -> None:
        for outcome in imports.run(self._client, [wish], self._on).outcomes:
            # What cannot be read is found in every round: it is told when it is new.
            key, faults = (wish, outcome.tool), outcome.faults
            is_new = faults != self._told.get(key, ())
            self._told[key] = faults
            if outcome.added or outcome.extended or is_new:
                self._tell(outcome)

    def _on(self, progress: Progress) -> None:
        self._progress(progress)
        if self._stop.is_set():
            raise Stopped


def _is_there(wish: Wish) -> bool:
    return files.is_directory(wish.place) or files.is_file(wish.place)
