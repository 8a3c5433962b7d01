"""The MCP server on an open store: over standard input, or over HTTP for programs with a token."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import closing

from sessionary.app.context import AppContext
from sessionary.mcp import server, stdio
from sessionary.mcp.tools import SessionTools
from sessionary.version import __version__

HTTP_CONNECTIONS = 128


async def serve_mcp(
    app: AppContext, *, write: bool, http: str | None, tell: Callable[[str], None]
) -> None:
    """Serve until the client leaves, or over HTTP until the process is asked to stop."""
    address = None if http is None else server.check_address(http)
    tools = SessionTools(app.store, app.profile, app.clock, app.ids, app.budgets())
    built = server.build(tools, write=write, version=__version__)
    if address is None:
        await _serve_standard_input(built)
    else:
        await _serve_http(app, built, *address, tell=tell)


async def _serve_standard_input(built: server.SessionaryMCPServer) -> None:
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
            # The client no longer reads: it has gone, even if it left other streams open.
            raise BrokenPipeError from several
        finally:
            loop.remove_signal_handler(signal.SIGINT)
    if was_interrupted.is_set():
        raise KeyboardInterrupt


async def _serve_http(
    app: AppContext,
    built: server.SessionaryMCPServer,
    host: str,
    port: int,
    *,
    tell: Callable[[str], None],
) -> None:
    # Only HTTP needs the web server: it would add 0.7 s of CPU to a start over standard input.
    import uvicorn

    from sessionary.config.server import Limits
    from sessionary.web.connections import OpenConnections, ServerConfig
    from sessionary.web.server import address_of, listen

    built.requires_token = True
    guarded = server.TokenGuard(
        built.streamable_http_app(host=host), app.store, profile=app.profile
    )
    connections = OpenConnections(Limits(connections=HTTP_CONNECTIONS), knows_callers=False)
    with closing(listen(host, port)) as listening:
        tell(
            f"MCP is served at {address_of(listening)}/mcp. Programs need a token: sessionary tokens add"
        )
        await uvicorn.Server(ServerConfig(guarded, connections)).serve(sockets=[listening])
