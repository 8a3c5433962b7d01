"""The server: uvicorn on a socket of ours, started and stopped in order."""

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import uvicorn

from hansard.errors import BadInput, Conflict
from hansard.web.app import create_app
from hansard.web.login import has_password, offer_link
from hansard.web.parts import WebParts

STOP_SECONDS = 5.0
BACKLOG = 256
log = logging.getLogger("hansard.web")


@dataclass(frozen=True, slots=True)
class Ready:
    """Where the server listens, and the link that lets one browser in."""

    address: str
    port: int
    login_link: str


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


async def serve(
    parts: WebParts,
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
    await check_exposure(parts, host, exposed=exposed)
    listening = _listen(host, port)
    port_taken = int(listening.getsockname()[1])
    address = _address(host, port_taken)
    server = _Server(_config(parts))
    ending = asyncio.Event() if stop is None else stop
    with _signals(ending) if stop is None else contextlib.nullcontext():
        running = asyncio.create_task(server.serve(sockets=[listening]))
        stopping = asyncio.create_task(_stop_when(ending, server))
        try:
            up = asyncio.create_task(server.up.wait())
            await asyncio.wait({up, running}, return_when=asyncio.FIRST_COMPLETED)
            up.cancel()
            if server.started and on_ready is not None:
                link = await offer_link(parts, address)
                on_ready(Ready(address, port_taken, link))
            await running
        finally:
            server.leave()
            stopping.cancel()
            await asyncio.gather(running, stopping, return_exceptions=True)
            listening.close()


async def check_exposure(parts: WebParts, host: str, *, exposed: bool) -> None:
    """Refuse an address that others can reach without a password, or by accident."""
    if is_loopback(host):
        return
    if not await has_password(parts):
        raise BadInput(f"{host} can be reached by others; set a password before serving there.")
    if not exposed:
        raise BadInput(f"{host} can be reached by others; say so explicitly to serve there.")


class _Server(uvicorn.Server):
    """Uvicorn without its own signals; it ends open streams before it waits for them."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to whoever started us."""
        yield

    def leave(self) -> None:
        """Stop taking requests, end the streams, finish what was begun."""
        app = self.config.app
        app.state.streams.close()  # type: ignore[union-attr]
        self.should_exit = True


def _config(parts: WebParts) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(parts),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        limit_concurrency=parts.settings.limits.connections,
        timeout_graceful_shutdown=int(STOP_SECONDS),
        h11_max_incomplete_event_size=64 * 1024,
    )


def _listen(host: str, port: int) -> socket.socket:
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


def _address(host: str, port: int) -> str:
    name = f"[{host.strip('[]')}]" if ":" in host else host
    return f"http://{name}:{port}"


async def _stop_when(ending: asyncio.Event, server: _Server) -> None:
    await ending.wait()
    server.leave()


@contextlib.contextmanager
def _signals(ending: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, ending.set)
    try:
        yield
    finally:
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)
