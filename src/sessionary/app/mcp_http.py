"""The MCP server over HTTP on this machine, for programs with a token."""

import contextlib
from collections.abc import Callable

import uvicorn

from sessionary.client.client import Sessionary
from sessionary.mcp.server import SessionaryMCPServer, TokenGuard
from sessionary.web.connections import OpenConnections, ServerConfig
from sessionary.web.context import Limits
from sessionary.web.server import address_of, listen

LIMITS = Limits(connections=128)


async def serve(
    client: Sessionary,
    built: SessionaryMCPServer,
    host: str,
    port: int,
    *,
    tell: Callable[[str], None],
) -> None:
    """Serve until the process is asked to end."""
    built.requires_token = True
    app = TokenGuard(built.streamable_http_app(host=host), client.store, profile=client.profile)
    with contextlib.closing(listen(host, port)) as listening:
        server = uvicorn.Server(ServerConfig(app, OpenConnections(LIMITS, knows_callers=False)))
        tell(
            f"MCP is served at {address_of(listening)}/mcp, for programs with a token of: "
            "sessionary tokens add"
        )
        await server.serve(sockets=[listening])
