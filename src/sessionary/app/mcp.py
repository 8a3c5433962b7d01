"""An MCP server on an open house."""

import asyncio
import signal
from collections.abc import Callable

import sessionary
from sessionary.client.client import Sessionary
from sessionary.mcp import server, stdio
from sessionary.mcp.tools import SessionTools


async def serve_mcp(
    store_client: Sessionary, *, write: bool, http: str | None, tell: Callable[[str], None]
) -> None:
    """Serve until the client leaves, or over HTTP until the process is asked to end."""
    address = None if http is None else server.check_address(http)
    tools = SessionTools(
        store_client.store,
        store_client.profile,
        store_client.machine.clock,
        store_client.machine.ids,
    )
    built = server.build(tools, write=write, version=sessionary.__version__)
    if address is None:
        await _over_standard_input(built)
    else:
        # The web server is loaded only for HTTP: over standard input it would add 0.7 s of CPU to each start.
        from sessionary.app import mcp_http

        await mcp_http.serve(store_client, built, *address, tell=tell)


async def _over_standard_input(built: server.SessionaryMCPServer) -> None:
    """Serve until the client closes our standard input, or someone presses Ctrl-C."""
    loop, was_interrupted = asyncio.get_running_loop(), asyncio.Event()
    with stdio.interruptible_stdin() as end:

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
