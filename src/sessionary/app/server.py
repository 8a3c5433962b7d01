"""Everything in one process: engine, channels, index, HTTP."""

import asyncio
import importlib.util
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sessionary import config
from sessionary.actions import verify
from sessionary.app.context import AppContext
from sessionary.app.engine import Agents, build_engine
from sessionary.compat.hermes.state_file import export_state
from sessionary.config.engine import read_engine
from sessionary.config.proxy import read_proxy
from sessionary.config.server import WebSettings, read_imports, read_push, read_telemetry, read_web
from sessionary.engine.context import EventBus, LiveEvent
from sessionary.engine.ports import Adapter
from sessionary.errors import (
    BadInput,
    Damaged,
    PluginFailed,
    RetryLater,
    StoreReadOnly,
    StoreUnavailable,
)
from sessionary.model.view import time_text
from sessionary.store import backup
from sessionary.store.database import REMEDY, Store, Tx
from sessionary.store.open import sqlite_path
from sessionary.store.sqlite import db_file
from sessionary.store.sqlite.store import SqliteStore
from sessionary.telemetry.ingest import TelemetryIngest
from sessionary.version import __version__
from sessionary.web import server
from sessionary.web.context import (
    BackupOutcome,
    BrokenInvariant,
    FoundRecords,
    ImportOutcome,
    ImportProgressInfo,
    ShrinkOutcome,
    StoreOverview,
    UpkeepOutcome,
    UpkeepProgress,
    UpkeepTask,
    VerifyOutcome,
    WebContext,
)
from sessionary.web.server import Ready

if TYPE_CHECKING:
    from sessionary.app.imports import Discovery, ToolImport
    from sessionary.channels.push.sender import PushSender
    from sessionary.telemetry.instrument import TelemetryExporter


CHECK_SECONDS = 24 * 3600.0
# After a check that failed because the store was busy or away.
RETRY_SECONDS = 300.0
BACKUP_FOLDER = "backups"
SHOWN_BROKEN = 100
_OTEL_NEEDED = "OpenTelemetry needs an extra: install sessionary[otel]"
Tell = Callable[[UpkeepProgress], None]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen."""

    host: str = "127.0.0.1"
    port: int = 8741
    exposed: bool = False


async def serve(
    app: AppContext,
    address: ListenAddress,
    *,
    adapters: Mapping[str, Adapter] | None = None,
    on_ready: Callable[[Ready], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Run until asked to stop; then stop intake, finish or interrupt turns, and close the channels.

    Stopping takes at most 15 seconds, even if the store does not answer: 5 for requests, 2 for an import,
    8 for turns and channels.
    """
    settings = read_engine(app.config)
    web = read_web(app.config, config.environment())
    # A server checks its own files.
    path = sqlite_path(app.store.url)
    is_unclean = path is not None and db_file.has_unfolded_wal(path)
    is_over = threading.Event()
    is_read_only = await _is_read_only(app.store)
    agents = Agents(settings, folder=app.config.home)
    exporter = open_exporter(app)
    instrumentation = None if exporter is None else exporter.instrumentation
    push = open_push(app)
    engine = build_engine(
        app, adapters=adapters, agents=agents, instrumentation=instrumentation, push=push
    )
    ingest = open_ingest(app)
    running = engine.context.adapters
    parts = WebContext(
        store=engine.context.store,
        profile=app.profile,
        engine=None if is_read_only else engine,
        settings=web,
        policies=app.policies,
        clock=app.clock,
        ids=app.ids,
        webhooks={name: each.webhook for name, each in running.items() if each.webhook},
        challenges={name: each.challenge for name, each in running.items() if each.challenge},
        webhook_bytes={name: each.webhook_bytes for name, each in running.items()},
        traces=None if ingest is None else ingest.ingest_spans,
        logs=None if ingest is None else ingest.ingest_logs,
        imports=WebImports(app),
        upkeep=WebUpkeep(app, web),
        push=push,
        export_state=export_state,
    )
    await server.check_exposure(parts, address.host, exposed=address.exposed)
    if not is_read_only:
        app.store.index_in_background()
        await engine.start()
        app.live = _publisher(engine.context.bus)
    checking = (
        None
        if path is None
        else asyncio.create_task(_check_regularly(app.store, path, is_over, at_once=is_unclean))
    )
    try:
        async with AsyncExitStack() as stack:
            if not is_read_only:
                await stack.enter_async_context(import_watcher(app))
                await stack.enter_async_context(recording_proxy(app))
            await server.serve(
                parts,
                host=address.host,
                port=address.port,
                on_ready=on_ready,
                stop=stop,
                exposed=address.exposed,
            )
    finally:
        app.live = None
        is_over.set()
        if checking is not None:
            checking.cancel()
        await engine.stop()
        await agents.close()
        if exporter is not None:
            # It may wait for a collector that does not answer.
            await asyncio.to_thread(exporter.close)


def _publisher(bus: EventBus) -> Callable[[LiveEvent], None]:
    """Return a function that publishes an event on this event loop's bus, from any thread."""
    loop = asyncio.get_running_loop()

    def publish(live: LiveEvent) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            loop.call_soon_threadsafe(bus.publish, live)

    return publish


async def _check_regularly(
    store: Store, path: str, is_over: threading.Event, *, at_once: bool
) -> None:
    """Look for damage once a day, and at once if the last stop was not clean; tell the store what is found."""
    if not at_once:
        await asyncio.sleep(CHECK_SECONDS)
    while store.damage is None:
        try:
            found = await asyncio.to_thread(db_file.find_damage, path, is_stopped=is_over.is_set)
        except Damaged as error:
            store.note_damage(error)
            return
        except (RetryLater, StoreUnavailable) as error:
            log.warning("The database could not be checked: %s", error)
            await asyncio.sleep(RETRY_SECONDS)
            continue
        if found is not None:
            store.note_damage(Damaged(f"{path} is damaged ({found}). {REMEDY}"))
            return
        await asyncio.sleep(CHECK_SECONDS)


async def _is_read_only(store: Store) -> bool:
    """Whether the disk refuses writes: then the server only reads."""
    try:
        await store.write(_nothing)
    except StoreReadOnly:
        return True
    except (RetryLater, StoreUnavailable):
        pass  # full, busy or away: it may accept writes again soon
    return False


def _nothing(_: Tx) -> None:
    """Do nothing: beginning the transaction shows whether writes are possible."""


async def serve_and_close(
    app: AppContext,
    address: ListenAddress,
    *,
    adapters: Mapping[str, Adapter],
    on_ready: Callable[[Ready], None],
) -> None:
    """Run until the process is asked to stop, then close the store: that takes at most 20 seconds."""
    try:
        await serve(app, address, adapters=adapters, on_ready=on_ready)
    finally:
        # Closed here: later, a thread that waits for a silent database would delay the end of the loop.
        await asyncio.to_thread(app.store.close)


def import_watcher(app: AppContext) -> AbstractAsyncContextManager[None]:
    """Import other tools' records as they grow, if that is configured."""
    names = read_imports(app.config).watch
    if not names:
        return nullcontext()
    # Imported here: the importers and the file watcher take 70 ms of CPU that other servers save.
    from sessionary.app.import_watch import in_background

    return in_background(app, names)


def recording_proxy(app: AppContext) -> AbstractAsyncContextManager[None]:
    """Run the recording proxy on its port, if it has one."""
    if read_proxy(app.config).port is None:
        return nullcontext()
    from sessionary.app.proxy import beside_server  # only who uses the proxy loads it

    return beside_server(app)


def channels_of(app: AppContext) -> dict[str, Adapter]:
    """Build the configured channels. One whose plug-in cannot be used is left out, with a line in the log."""
    named = read_engine(app.config).channels
    if not named:
        return {}
    # Loads the base of all channels and reads the metadata of all installed packages: about 100 ms.
    from sessionary.channels import registry

    built: dict[str, Adapter] = {}
    for name, values in named.items():
        try:
            built[name] = registry.build(name, values, config.environment())
        except PluginFailed as error:
            log.error("The channel %s is not started, the others are: %s", name, error)  # noqa: TRY400 - one line
    return built


def open_exporter(app: AppContext) -> "TelemetryExporter | None":
    """Start sending our spans and metrics; None if that is not configured."""
    settings = read_telemetry(app.config, config.environment())
    if not settings.export:
        return None
    try:
        # The SDK belongs to an extra, and would add 0.4 s of CPU to every start.
        from sessionary.telemetry.instrument import TelemetryExporter
    except ModuleNotFoundError as error:
        if settings.is_asked_for:
            raise BadInput(f"{_OTEL_NEEDED}, or set export = false in [telemetry].") from error
        log.warning("%s; the variables OTEL_* name a collector that gets nothing.", _OTEL_NEEDED)
        return None
    return TelemetryExporter(
        endpoint=settings.endpoint, content=settings.content, version=__version__
    )


def open_push(app: AppContext) -> "PushSender | None":
    """Return what notifies browsers of questions; None without the extra that it needs."""
    if importlib.util.find_spec("cryptography") is None:
        return None
    # Loads the base of all channels: 10 ms. `cryptography` is loaded with the first notification.
    from sessionary.channels.push.sender import PushSender

    return PushSender(app.store, read_push(app.config), clock=app.clock)


def open_ingest(app: AppContext) -> TelemetryIngest | None:
    """What receives other programs' spans and log records; None if that is turned off."""
    settings = read_telemetry(app.config, config.environment())
    if not settings.receive:
        return None
    return TelemetryIngest(app.store, app.clock, app.ids)


class WebUpkeep:
    """Backup, verify and shrink for the web interface, as the commands do them."""

    def __init__(self, app: AppContext, web: WebSettings) -> None:
        self._app = app
        self._folder = web.backup_folder or app.config.home / BACKUP_FOLDER
        self._keep = web.keep_backups

    def overview(self) -> StoreOverview:
        """Return the backups there are, and the size of the store."""
        store = self._app.store
        tasks: list[UpkeepTask] = ["backup", "verify"]
        if isinstance(store, SqliteStore):
            tasks.append("shrink")
        return {
            "folder": str(self._folder),
            "keep": self._keep,
            "backups": [
                {"name": each.name, "bytes": each.bytes}
                for each in backup.list_backups(self._folder)
            ],
            "bytes": _size(store.path) if isinstance(store, SqliteStore) else None,
            "tasks": tasks,
        }

    def run(self, task: str, tell: Tell) -> UpkeepOutcome:
        """Run one task to its end."""
        match task:
            case "backup":
                return self._backup(tell)
            case "verify":
                return self._verify(tell)
            case _:
                return self._shrink(tell)

    def _backup(self, tell: Tell) -> BackupOutcome:
        """Back up all profiles; the file gets its name only after it was checked."""
        app = self._app
        _make_folder(self._folder)
        file = backup.new_backup_path(self._folder, app.clock.now())
        made = backup.backup(
            app.store,
            file,
            clock=app.clock,
            ids=app.ids,
            progress=lambda done, whole: tell({"done": done, "whole": whole}),
        )
        deleted = [] if self._keep is None else backup.delete_old_backups(self._folder, self._keep)
        held = made.contents
        return {
            "file": made.file,
            "bytes": made.bytes,
            "sessions": held.sessions,
            "entries": held.entries,
            "deleted": deleted,
        }

    def _verify(self, tell: Tell) -> VerifyOutcome:
        found = verify.verify(
            self._app.store, progress=lambda done: tell({"done": done, "whole": 0})
        )
        broken: list[BrokenInvariant] = [
            {"invariant": each.invariant, "where": each.where, "what": each.what}
            for each in found.broken[:SHOWN_BROKEN]
        ]
        return {
            "sessions": found.sessions,
            "entries": found.entries,
            "broken": broken,
            "broken_count": len(found.broken),
        }

    def _shrink(self, tell: Tell) -> ShrinkOutcome:
        store = self._app.store
        assert isinstance(store, SqliteStore)
        before = _size(store.path)
        store.shrink(on_step=lambda: tell({"done": 0, "whole": 0}))
        return {"before": before, "bytes": _size(store.path)}


def _make_folder(folder: Path) -> None:
    """Create a private directory."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(
            f"The directory {folder} cannot be created: {error.strerror}; no backup was made."
        ) from error


def _size(path: str) -> int:
    return sum(os.stat(each).st_size for each in (path, f"{path}-wal") if os.path.exists(each))


class WebImports:
    """Imports for the web interface, as the command does them.

    The importers are loaded on first use: they would add 70 ms of CPU to every start.
    """

    def __init__(self, app: AppContext) -> None:
        self._app = app

    def discover(self) -> list[FoundRecords]:
        """Return the records that are on this machine, by tool."""
        from sessionary.app import imports

        now = self._app.clock.now()
        return [
            cast(FoundRecords, _fields(each))
            for each in imports.discover(self._app, imports.this_user(), now=now)
        ]

    def run(
        self, tools: Sequence[str], *, dry_run: bool, tell: Callable[[ImportProgressInfo], None]
    ) -> list[ImportOutcome]:
        """Import from where the tools keep their records, or with `dry_run` only report."""
        from sessionary.app import imports

        requests = imports.default_requests(imports.this_user(), tools)
        if dry_run:
            found = imports.preview(self._app, requests, is_profile_chosen=True)
            return [cast(ImportOutcome, _fields(each)) for each in found.outcomes]
        # The browser is logged in to this profile alone: nothing is written to another.
        done = imports.run(
            self._app,
            requests,
            lambda progress: tell(cast(ImportProgressInfo, asdict(progress))),
            is_profile_chosen=True,
        )
        return [cast(ImportOutcome, _fields(each)) for each in done.outcomes]


def _fields(value: "Discovery | ToolImport") -> dict[str, Any]:
    """Return the fields of a result, with times as text."""
    return {
        name: time_text(each) if isinstance(each, datetime) else each
        for name, each in asdict(value).items()
    }
