"""Everything in one process: engine, channels, index, HTTP."""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from sessionary import config
from sessionary.app import telemetry
from sessionary.app.engine import Agents, build_engine
from sessionary.app.import_port import WebImports
from sessionary.app.upkeep_port import HouseUpkeep
from sessionary.channels import registry
from sessionary.client.client import Sessionary
from sessionary.config import engine as engine_config
from sessionary.config import imports as import_config
from sessionary.config import web as web_config
from sessionary.config.web import WebTable
from sessionary.engine.ports import Adapter
from sessionary.errors import Damaged, RetryLater, StoreReadOnly, StoreUnavailable
from sessionary.store.database import REMEDY, Store, Tx
from sessionary.store.open import sqlite_path
from sessionary.store.sqlite import db_file
from sessionary.web import server
from sessionary.web.context import WebContext, WebSettings
from sessionary.web.server import Ready

CHECK_SECONDS = 24 * 3600.0
# When a check could not be made, because the store was busy or away.
RETRY_SECONDS = 300.0
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    host: str = "127.0.0.1"
    port: int = 8741
    exposed: bool = False


async def serve(
    client: Sessionary,
    address: Address,
    *,
    adapters: Mapping[str, Adapter] | None = None,
    on_ready: Callable[[Ready], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Run the house until it is asked to end; then stop intake, finish or park turns, let go.

    That takes 15 seconds at most, however dead the store is: 5 for requests, 2 for an import, 8 for
    turns and channels.
    """
    registry.quiet_libraries()
    settings = engine_config.read(client.config)
    web = web_config.read(client.config, config.environment())
    # A server checks its own files.
    path = sqlite_path(client.store.url)
    is_unclean = path is not None and db_file.has_unfolded_wal(path)
    is_over = threading.Event()
    is_read_only = await _is_read_only(client.store)
    agents = Agents(settings, folder=client.config.home)
    exporter = telemetry.open_exporter(client)
    instrumentation = None if exporter is None else exporter.instrumentation
    engine = build_engine(client, adapters=adapters, agents=agents, instrumentation=instrumentation)
    ingest = telemetry.open_ingest(client)
    running = engine.context.adapters
    parts = WebContext(
        store=engine.context.store,
        profile=client.profile,
        engine=None if is_read_only else engine,
        settings=_web_settings(web, client.config.zone),
        policies=client.policies,
        clock=client.machine.clock,
        ids=client.machine.ids,
        webhooks={name: each.webhook for name, each in running.items() if each.webhook},
        challenges={name: each.challenge for name, each in running.items() if each.challenge},
        traces=None if ingest is None else ingest.ingest_spans,
        logs=None if ingest is None else ingest.ingest_logs,
        imports=WebImports(client),
        upkeep=HouseUpkeep(client, web),
    )
    await server.check_exposure(parts, address.host, exposed=address.exposed)
    if not is_read_only:
        client.store.index_in_background()
        await engine.start()
    checking = (
        None
        if path is None
        else asyncio.create_task(_check_regularly(client.store, path, is_over, at_once=is_unclean))
    )
    try:
        async with nullcontext() if is_read_only else watched(client):
            await server.serve(
                parts,
                host=address.host,
                port=address.port,
                on_ready=on_ready,
                stop=stop,
                exposed=address.exposed,
            )
    finally:
        is_over.set()
        if checking is not None:
            checking.cancel()
        await engine.stop()
        await agents.close()
        if exporter is not None:
            # It may wait for a collector that does not answer.
            await asyncio.to_thread(exporter.close)


async def _check_regularly(
    store: Store, path: str, is_over: threading.Event, *, at_once: bool
) -> None:
    """Look for damage once a day, and now if the last stop was not clean; the store notes what is found."""
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
    """Whether the disk allows no write: then nothing is begun that would, and reading goes on."""
    try:
        await store.write(_nothing)
    except StoreReadOnly:
        return True
    except (RetryLater, StoreUnavailable):
        pass  # full, busy or away: it may take writes again in a moment
    return False


def _nothing(_: Tx) -> None:
    """A transaction without content: what fails is beginning it."""


async def serve_to_the_end(
    client: Sessionary,
    address: Address,
    *,
    adapters: Mapping[str, Adapter],
    on_ready: Callable[[Ready], None],
) -> None:
    """Run the house until the process is asked to end, and close its store: 20 seconds at most."""
    try:
        await serve(client, address, adapters=adapters, on_ready=on_ready)
    finally:
        # Not later: a thread that waits for a silent server would hold up the end of the loop.
        await asyncio.to_thread(client.store.close)


def watched(client: Sessionary) -> AbstractAsyncContextManager[None]:
    """Other tools' records are imported as they grow, where the configuration asks for it."""
    names = import_config.read(client.config).watch
    if not names:
        return nullcontext()
    # Imported here: the importers and the file watcher take 70 ms of CPU that other servers save.
    from sessionary.app.import_watch import in_background

    return in_background(client, names)


def _web_settings(web: WebTable, zone: ZoneInfo) -> WebSettings:
    """The configuration in the web's own words."""
    port = web.webhook_port
    return WebSettings(
        allowed_hosts=frozenset(web.allowed_hosts),
        password_hash=None if web.password_hash is None else web.password_hash.reveal(),
        trusted_proxies=web.trusted_proxies,
        webhook_address=None if port is None else (web.webhook_host, port),
        zone=zone,
    )


def channels_of(client: Sessionary) -> dict[str, Adapter]:
    """The channels that the configuration names, ready to be run."""
    named = engine_config.read(client.config).channels
    environ = config.environment()
    return {name: registry.build(name, values, environ) for name, values in named.items()}
