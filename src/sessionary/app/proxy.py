"""Composes the recording proxy from the settings: as a process of its own, and beside `serve`."""

import asyncio
import ipaddress
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from msgspec import Struct

from sessionary.app.context import AppContext
from sessionary.config.proxy import (
    DEFAULT_PORT,
    KNOWN_UPSTREAMS,
    ProxySettings,
    UpstreamTable,
    parse_upstream,
    read_proxy,
)
from sessionary.errors import BadInput
from sessionary.proxy.server import ServerOptions
from sessionary.proxy.service import Proxy, ProxyOptions
from sessionary.proxy.upstream import Upstream

# The loop waits at most this long for a thread that reads an exchange: by default 5 ms, longer than most requests take.
SWITCH_SECONDS = 0.0005
_EVERYWHERE = frozenset({"0.0.0.0", "[::]"})


class ProxyAddress(Struct, frozen=True):
    """Where a proxy listens, and the base addresses of its upstreams by what people call them."""

    host: str
    port: int
    upstreams: Mapping[str, str]
    bases: Mapping[str, str]
    needs_token: bool


class ProxyChanges(Struct, frozen=True):
    """What the command line says instead of the settings; None where it says nothing."""

    host: str | None = None
    port: int | None = None
    upstreams: Sequence[str] = ()
    exposed: bool = False
    needs_token: bool = False


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def build(
    app: AppContext,
    settings: ProxySettings,
    changes: ProxyChanges,
    *,
    tell: Callable[[str], None],
) -> tuple[Proxy, Callable[[], ProxyAddress]]:
    """Make a proxy, and a function that says where it is reached once it has started."""
    host = changes.host or settings.host
    exposed = changes.exposed or settings.exposed
    if not _is_loopback(host) and not exposed:
        raise BadInput(
            f"{host} can be reached by others; nothing was begun. If that is meant: --exposed, and every request "
            "needs a token then."
        )
    needs_token = settings.needs_token or changes.needs_token or exposed
    shown = f"[{host.strip('[]')}]" if ":" in host else host
    tables: dict[str | None, UpstreamTable] = {}
    tables.update(settings.upstreams.items())
    tables.update(map(parse_upstream, changes.upstreams))
    if None not in tables:
        # Paths of an upstream without a name may begin with /openai/: its keys are not for OpenAI.
        tables = dict((*KNOWN_UPSTREAMS.items(), *tables.items()))
    upstreams = {name: Upstream(name, each.url, each.provider) for name, each in tables.items()}
    proxy = Proxy(
        app.store,
        upstreams,
        ServerOptions(
            host=host,
            port=changes.port if changes.port is not None else settings.port or DEFAULT_PORT,
            # The address that is printed must work; a page can reach us under that of all addresses.
            allowed_hosts=settings.allowed_hosts | ({shown} - _EVERYWHERE),
            needs_token=needs_token,
            connections=settings.connections,
            idle_seconds=settings.idle_seconds,
        ),
        ProxyOptions(
            profile=app.profile,
            hold_seconds=settings.hold_seconds,
            copy_bytes=settings.copy_bytes,
            memory_bytes=settings.memory_bytes,
            budgets=app.budgets(),
        ),
        clock=app.clock,
        ids=app.ids,
        holder=app.holder,
        tell=tell,
    )

    def address() -> ProxyAddress:
        base = f"http://{shown}:{proxy.port}"
        return ProxyAddress(
            host,
            proxy.port,
            {each.label: each.url for each in upstreams.values()},
            {
                each.label: base if each.name is None else f"{base}/{each.name}"
                for each in upstreams.values()
            },
            needs_token,
        )

    return proxy, address


async def run_proxy(
    app: AppContext,
    changes: ProxyChanges,
    *,
    on_ready: Callable[[ProxyAddress], None],
    tell: Callable[[str], None],
) -> None:
    """Run until the process is asked to stop, then finish what passes and close the store.

    What is recorded is not indexed here, which would delay requests: the next search does it, or a server that runs.
    """
    proxy, address = build(app, read_proxy(app.config), changes, tell=tell)
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    sys.setswitchinterval(SWITCH_SECONDS)
    await proxy.start()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stopping.set)
    try:
        on_ready(address())
        await stopping.wait()
    finally:
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)
        await proxy.stop()
        # Closed here: later, a thread that waits for a silent database would delay the end of the loop.
        await asyncio.to_thread(app.store.close)


@asynccontextmanager
async def beside_server(app: AppContext) -> AsyncIterator[None]:
    """Run the proxy within `serve`; what it would tell is in the log."""
    proxy, _ = build(app, read_proxy(app.config), ProxyChanges(), tell=lambda _: None)
    await proxy.start()
    try:
        yield
    finally:
        await proxy.stop()
