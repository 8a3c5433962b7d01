"""An MCP server on an open house."""

import hansard
from hansard.app.house import House
from hansard.mcp import server
from hansard.mcp.tools import Tools


async def serve_mcp(house: House, *, write: bool, http: str | None) -> None:
    """Serve until the client leaves, or over HTTP until the process is asked to end."""
    address = None if http is None else server.check_address(http)
    tools = Tools(house.store, house.profile, house.machine.clock, house.machine.ids)
    built = server.build(tools, write=write, version=hansard.__version__)
    if address is None:
        await built.run_stdio_async()
    else:
        await built.run_streamable_http_async(host=address[0], port=address[1])
