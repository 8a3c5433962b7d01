"""An MCP server for tests: a program whose tools return lines, repeat a text, draw, and wait for a file."""

import asyncio
from pathlib import Path

from mcp.server.mcpserver import Image, MCPServer

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
def draw(what: str, count: int = 1) -> list[str | Image]:
    """Draw pictures, each below its title."""
    drawn: list[str | Image] = []
    for number in range(1, count + 1):
        data = f"\x89PNG\r\n\x1a\n{what} {number}".encode("latin-1")
        drawn += [f"{what} {number}", Image(data=data, format="png")]
    return drawn


@server.tool()
async def wait(path: str) -> str:
    """Wait until a file is there."""
    while not Path(path).exists():  # noqa: ASYNC110, ASYNC240 - the file is made by another process
        await asyncio.sleep(0.01)
    return "It is there."


if __name__ == "__main__":
    server.run("stdio")
