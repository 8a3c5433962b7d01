"""Imports other tools' records continuously, as they grow."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import watchfiles

from sessionary.app import imports
from sessionary.app.context import AppContext
from sessionary.app.imports import ImportProgress, ImportRequest, OnProgress, ToolImport
from sessionary.errors import SessionaryError
from sessionary.importers.base import files
from sessionary.importers.base.driver import Fault

# After the last change, wait for answers that were held back; recheck for changes that were missed.
SETTLE_SECONDS = 150.0
RECHECK_SECONDS = 600.0
# Imports take at most this share of the time.
MAX_LOAD = 0.1
STOP_SECONDS = 2.0
_TICK_MS = 500
_DEBOUNCE_MS = 1000
log = logging.getLogger(__name__)


@asynccontextmanager
async def in_background(client: AppContext, names: Sequence[str]) -> AsyncIterator[None]:
    """Import the named tools' records inside the block."""
    requests = imports.default_requests(imports.this_user(), names, must_exist=False)
    stop = threading.Event()
    work = asyncio.create_task(
        asyncio.to_thread(
            watch, client, requests, stop=stop, on_import=_log_outcome, on_failure=_log_failure
        )
    )
    try:
        yield
    finally:
        stop.set()
        # A long import is not waited for: it fails when the store closes, and resumes next time.
        await asyncio.wait({work}, timeout=STOP_SECONDS)


def _log_outcome(done: ToolImport) -> None:
    log.info(
        "%s: %d sessions added, %d extended, %d messages, %d skipped",
        *(done.tool, done.added, done.extended, done.messages, done.skipped),
    )


def _log_failure(error: SessionaryError) -> None:
    log.warning("An import failed and is tried again: %s", error)


class ImportStopped(Exception):
    """The watch was stopped during an import; what was read is stored."""


def watch(
    client: AppContext,
    requests: Sequence[ImportRequest],
    *,
    stop: threading.Event,
    on_import: Callable[[ToolImport], None],
    on_progress: OnProgress = lambda _: None,
    on_failure: Callable[[SessionaryError], None] | None = None,
) -> None:
    """Import what is there, then what is added, until `stop` is set.

    Failures are passed to `on_failure` and retried later; without it they are raised.
    """
    loop = _WatchLoop(
        client, stop=stop, on_import=on_import, on_progress=on_progress, on_failure=on_failure
    )
    while not stop.is_set():
        present = [request for request in requests if _exists(request)]
        if not present:
            stop.wait(RECHECK_SECONDS / 10)
            continue
        for changes in watchfiles.watch(
            *{str(request.place) for request in present},
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
            loop.note(is_changed=bool(changes))
            # The first import runs here, too: changes during it are noticed already.
            if loop.is_due:
                loop.run_imports(present)
                if [request for request in requests if _exists(request)] != present:
                    break


class _WatchLoop:
    """Decides when to import again."""

    def __init__(
        self,
        client: AppContext,
        *,
        stop: threading.Event,
        on_import: Callable[[ToolImport], None],
        on_progress: OnProgress,
        on_failure: Callable[[SessionaryError], None] | None,
    ) -> None:
        self._client, self._stop = client, stop
        self._on_import, self._on_progress, self._on_failure = on_import, on_progress, on_failure
        # The faults of the last import of each request and tool.
        self._reported_faults: dict[tuple[ImportRequest, str], tuple[Fault, ...]] = {}
        self._changed_at: float | None = None
        self._has_settled = True
        self._looked_at, self._cost = -RECHECK_SECONDS, 0.0

    def note(self, *, is_changed: bool) -> None:
        """Note a change, or that time has passed."""
        if is_changed:
            self._changed_at, self._has_settled = time.monotonic(), False

    @property
    def is_due(self) -> bool:
        """Whether there is a reason to import, and the last import is long enough ago."""
        now = time.monotonic()
        since = now - self._looked_at
        if since < self._cost / MAX_LOAD:
            return False
        if self._changed_at is not None and self._changed_at > self._looked_at:
            return True
        is_settled_now = (
            not self._has_settled
            and self._changed_at is not None
            and now - self._changed_at > SETTLE_SECONDS
        )
        return is_settled_now or since > RECHECK_SECONDS

    def run_imports(self, requests: Sequence[ImportRequest]) -> None:
        """Import what is new now."""
        self._looked_at = began = time.monotonic()
        if self._changed_at is not None and began - self._changed_at > SETTLE_SECONDS:
            self._has_settled = True
        for request in requests:
            try:
                self._import(request)
            except ImportStopped:
                break
            except SessionaryError as error:
                # The other places go on.
                if self._on_failure is None:
                    raise
                self._on_failure(error)
        self._cost = time.monotonic() - began

    def _import(self, request: ImportRequest) -> None:
        for outcome in imports.run(self._client, [request], self._check_stop).outcomes:
            # Faults come again with every import: they are reported when they change.
            key, faults = (request, outcome.tool), outcome.faults
            is_new = faults != self._reported_faults.get(key, ())
            self._reported_faults[key] = faults
            if outcome.added or outcome.extended or is_new:
                self._on_import(outcome)

    def _check_stop(self, progress: ImportProgress) -> None:
        self._on_progress(progress)
        if self._stop.is_set():
            raise ImportStopped


def _exists(request: ImportRequest) -> bool:
    return files.is_directory(request.place) or files.is_file(request.place)
