"""An MCP server for tests: a program whose tools add, fail, hang, show a picture and end it."""

import asyncio
import os

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("tools", log_level="CRITICAL")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("the kettle is empty")


@server.tool()
async def hang() -> str:
    """Never answer."""
    await asyncio.sleep(60)
    return "never"


@server.tool()
def picture() -> Image:
    """Show a picture."""
    return Image(data=b"\x89PNG", format="png")


@server.tool()
def die() -> str:
    """End the server."""
    os._exit(3)


if __name__ == "__main__":
    server.run("stdio")
