"""An MCP server on an open house."""

import asyncio
import signal
import socket

import hansard
from hansard.app.house import House
from hansard.errors import Conflict
from hansard.mcp import server, standard_input
from hansard.mcp.tools import Tools


async def serve_mcp(house: House, *, write: bool, http: str | None) -> None:
    """Serve until the client leaves, or over HTTP until the process is asked to end."""
    address = None if http is None else server.check_address(http)
    tools = Tools(house.store, house.profile, house.machine.clock, house.machine.ids)
    built = server.build(tools, write=write, version=hansard.__version__)
    if address is None:
        await _over_standard_input(built)
    else:
        _refuse_taken(*address)
        await built.run_streamable_http_async(host=address[0], port=address[1])


def _refuse_taken(host: str, port: int) -> None:
    """Look before the library does: it would end the process with a word of its own."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as looking:
        looking.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            looking.bind((host, port))
        except OSError as error:
            raise Conflict(
                f"Port {port} of {host} cannot be taken ({error.strerror}); nothing was started. "
                "Choose another with --http."
            ) from error


async def _over_standard_input(built: server.Server) -> None:
    """Serve until the client closes our standard input, or someone presses Ctrl-C."""
    loop, was_interrupted = asyncio.get_running_loop(), asyncio.Event()
    with standard_input.endable() as end:

        def interrupt() -> None:
            was_interrupted.set()
            end()

        loop.add_signal_handler(signal.SIGINT, interrupt)
        try:
            await built.run_stdio_async()
        except ExceptionGroup as several:
            if several.split(BrokenPipeError)[1] is not None:
                raise
            # The client no longer reads: it is gone, whatever it left open.
            raise BrokenPipeError from several
        finally:
            loop.remove_signal_handler(signal.SIGINT)
    if was_interrupted.is_set():
        raise KeyboardInterrupt
