"""The server: uvicorn on a socket of ours, started and stopped in order."""

import asyncio
import contextlib
import ipaddress
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import uvicorn
from fastapi import FastAPI

from sessionary.errors import BadInput, Conflict, StoreUnavailable
from sessionary.web.app import create_app, create_webhook_app
from sessionary.web.connections import ServerConfig
from sessionary.web.context import WebContext
from sessionary.web.routes.login import has_password, offer_link

BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class Ready:
    """Where the server listens, and the link that lets one browser in.

    Without a link, `cannot_write` says why the store takes no writes at the moment.
    """

    address: str
    port: int
    login_link: str | None
    webhook_address: str | None = None
    cannot_write: str | None = None


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


async def serve(
    context: WebContext,
    *,
    host: str = "127.0.0.1",
    port: int = 8741,
    on_ready: Callable[[Ready], None] | None = None,
    stop: asyncio.Event | None = None,
    exposed: bool = False,
) -> None:
    """Serve until `stop` is set, or without one until the process is asked to end.

    An address that others can reach needs a password and `exposed`.
    """
    await check_exposure(context, host, exposed=exposed)
    with contextlib.ExitStack() as stack:
        main_socket = stack.enter_context(contextlib.closing(listen(host, port)))
        servers = {_UvicornServer(create_app(context)): main_socket}
        hooks = context.settings.webhook_address
        if hooks is not None:
            webhook_socket = stack.enter_context(contextlib.closing(listen(*hooks)))
            servers[_UvicornServer(create_webhook_app(context))] = webhook_socket
        stopping = asyncio.Event() if stop is None else stop
        if stop is None:
            stack.enter_context(_signals(stopping))

        async def ready() -> None:
            if on_ready is not None:
                addresses = [address_of(each) for each in servers.values()]
                link, cannot_write = None, None
                try:
                    link = await offer_link(context, addresses[0])
                except StoreUnavailable as error:
                    # Full, read-only or damaged: what is there can still be read.
                    cannot_write = str(error)
                hooks = addresses[1] if len(addresses) > 1 else None
                on_ready(
                    Ready(addresses[0], main_socket.getsockname()[1], link, hooks, cannot_write)
                )

        await _run(servers, ready, stopping)


async def _run(
    servers: "Mapping[_UvicornServer, socket.socket]",
    ready: Callable[[], Awaitable[None]],
    stopping: asyncio.Event,
) -> None:
    """Run until it is time to end, or until one of them ends; then all end."""
    running = [
        asyncio.create_task(server.serve(sockets=[taken])) for server, taken in servers.items()
    ]
    up = asyncio.gather(*(server.up.wait() for server in servers))
    over = asyncio.create_task(stopping.wait())
    first: set[asyncio.Future[Any]] = {up, *running}
    then: set[asyncio.Future[Any]] = {over, *running}
    try:
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if up.done():
            await ready()
        await asyncio.wait(then, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for server in servers:
            server.leave()
        up.cancel()
        over.cancel()
        ended = await asyncio.gather(*running, return_exceptions=True)
    for error in filter(None, ended):
        raise error


async def check_exposure(context: WebContext, host: str, *, exposed: bool) -> None:
    """Refuse an address that others can reach without a password, or by accident."""
    if is_loopback(host):
        return
    if not await has_password(context):
        raise BadInput(
            f"{host} can be reached by others; nothing was begun. Set a password first: "
            "sessionary password set"
        )
    if not exposed:
        raise BadInput(
            f"{host} can be reached by others; nothing was begun. If that is meant: --exposed"
        )


class _UvicornServer(uvicorn.Server):
    """Uvicorn without its own signals; it ends open streams before it waits for them."""

    def __init__(self, app: FastAPI) -> None:
        super().__init__(ServerConfig(app, app.state.connections))
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
        await super().startup(sockets)
        for each in sockets or ():
            # asyncio has set the queue to the number that it accepts at once, which is small.
            each.listen(BACKLOG)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the program that started us."""
        yield

    def leave(self) -> None:
        """Stop taking requests, end streams and waits, finish what was begun."""
        app: Any = self.config.app
        if hasattr(app.state, "streams"):
            app.state.streams.close()
            app.state.waits.close()
            app.state.exchanges.close()
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at an address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP: only then asyncio sends small answers at once, and not after 40 ms.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host.strip("[]"), port))
    except (OSError, OverflowError) as error:
        made.close()
        raise Conflict(
            f"Port {port} of {host} cannot be used: {getattr(error, 'strerror', error)}. "
            "Choose another, or 0 for any free one."
        ) from error
    made.listen(BACKLOG)
    made.setblocking(False)
    return made


def address_of(listening: socket.socket) -> str:
    """The address that a client writes to reach a socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.contextmanager
def _signals(stopping: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stopping.set)
    try:
        yield
    finally:
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)
