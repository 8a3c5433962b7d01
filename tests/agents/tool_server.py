"""An MCP server for tests: a program whose tools add, fail, hang, show a picture and end it.

Others say by their annotations whether they may be run again, or take an idempotency key and return it.
"""

import asyncio
import os

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

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


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def read_note(name: str) -> str:
    """Read a note."""
    return f"the note {name}"


@server.tool(annotations=ToolAnnotations(idempotent_hint=True, destructive_hint=True))
def save_note(name: str) -> str:
    """Save a note."""
    return f"saved {name}"


@server.tool(annotations=ToolAnnotations(destructive_hint=False))
def send_note(name: str, context: Context) -> str:
    """Send a note; return the key that came beside the arguments."""
    meta = context.request_context.meta or {}
    return f"sent {name} {meta.get('sessionary/idempotency_key')}"


@server.tool()
def pay(amount: int, idempotency_key: str) -> str:
    """Pay."""
    return f"paid {amount} {idempotency_key}"


@server.tool()
def book(day: str, idempotencyKey: str | None = None) -> str:  # noqa: N803 (as some servers call it)
    """Book a day."""
    return f"booked {day} {idempotencyKey}"


if __name__ == "__main__":
    server.run("stdio")
