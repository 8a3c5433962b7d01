"""An MCP server for tests: a program whose tools return lines, repeat a text, and wait for a file."""

import asyncio
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("lines", log_level="CRITICAL")


@server.tool()
def read_lines(count: int) -> str:
    """Read lines."""
    return "\n".join(f"line {number:>6} of the output that it reads" for number in range(count))


@server.tool()
def echo(text: str) -> str:
    """Repeat a text."""
    return text


@server.tool()
async def wait(path: str) -> str:
    """Wait until a file is there."""
    while not Path(path).exists():  # noqa: ASYNC110, ASYNC240 - the file is made by another process
        await asyncio.sleep(0.01)
    return "It is there."


if __name__ == "__main__":
    server.run("stdio")
