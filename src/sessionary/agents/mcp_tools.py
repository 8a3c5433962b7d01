"""Tools of MCP servers, through pydantic-ai's tool sets; loaded only where some are configured."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import FastMCPError
from mcp.shared.exceptions import MCPError
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.tools import ToolDefinition

from sessionary.agents.model import ToolServer
from sessionary.agents.tools import ToolOutcome
from sessionary.errors import AgentFailed, BadInput
from sessionary.model.terminal import one_line

_LONGEST = 300
_START_SECONDS = 30.0
_NO_PARAMETERS = {"type": "object", "properties": {}}
# What a server or the connection to it can raise; anything else is a bug of ours.
_BROKEN = (
    OSError,
    RuntimeError,
    FastMCPError,
    MCPError,
    httpx2.HTTPError,
    anyio.ClosedResourceError,
    anyio.BrokenResourceError,
)


@dataclass(frozen=True, slots=True)
class _Tool:
    toolset: MCPToolset[Any]
    name: str
    definition: ToolDefinition


class McpTools:
    """The tools of one turn."""

    def __init__(self, tools: Mapping[str, _Tool], *, timeout_seconds: float) -> None:
        self._tools = tools
        self._timeout = timeout_seconds

    @property
    def definitions(self) -> list[ToolDefinition]:
        """Return the definitions that the model is given."""
        return [tool.definition for tool in self._tools.values()]

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolOutcome:
        """Call a tool; a failure is returned as its result."""
        tool = self._tools[name]
        try:
            async with asyncio.timeout(self._timeout):
                return ToolOutcome(await tool.toolset.direct_call_tool(tool.name, arguments))
        except (ModelRetry, ToolFailed) as error:
            return ToolOutcome(error.message, is_error=True)
        except TimeoutError:
            problem = f"The tool {name} did not answer in {self._timeout:g} seconds."
            return ToolOutcome(problem, is_error=True)
        except _BROKEN as error:
            return ToolOutcome(f"The tool {name} failed: {_said(error)}", is_error=True)


class ToolServers:
    """The configured servers; programs start with the first turn and keep running."""

    def __init__(self, servers: Sequence[ToolServer], *, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        self._servers = [(server, _toolset(server)) for server in servers]

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[McpTools]:
        """Connect, and yield the tools; concurrent turns share a connection."""
        tools: dict[str, _Tool] = {}
        async with AsyncExitStack() as stack:
            for server, toolset in self._servers:
                for tool in await _connected(stack, server, toolset):
                    if tool.definition.name in tools:
                        raise BadInput(
                            f"Two MCP servers have a tool {tool.definition.name!r}: "
                            f"give {server.label} a name."
                        )
                    tools[tool.definition.name] = tool
            yield McpTools(tools, timeout_seconds=self._timeout)

    async def close(self) -> None:
        """Stop the server programs."""
        for _, toolset in self._servers:
            # A connection that failed raises its error again.
            with contextlib.suppress(*_BROKEN):
                await toolset.client.close()  # type: ignore[no-untyped-call]


async def _connected(
    stack: AsyncExitStack, server: ToolServer, toolset: MCPToolset[Any]
) -> list[_Tool]:
    try:
        await stack.enter_async_context(toolset)
        listed = await toolset.list_tools()
    except _BROKEN as error:
        raise AgentFailed(
            f"The tools of {server.label} cannot be reached: {_said(error)}"
        ) from error
    return [_tool(server, toolset, each) for each in listed]


def _tool(server: ToolServer, toolset: MCPToolset[Any], listed: Any) -> _Tool:
    shown = f"{server.name}_{listed.name}" if server.name else listed.name
    schema = getattr(listed, "input_schema", None) or getattr(listed, "inputSchema", None)
    definition = ToolDefinition(
        name=shown,
        description=listed.description,
        parameters_json_schema=schema or _NO_PARAMETERS,
    )
    return _Tool(toolset, listed.name, definition)


def _toolset(server: ToolServer) -> MCPToolset[Any]:
    if server.url is None:
        program, *arguments = server.command
        transport = StdioTransport(
            program,
            arguments,
            env=dict(server.environ) or None,
            cwd=server.folder,
            log_file=Path(os.devnull),
        )
        return MCPToolset(transport, init_timeout=_START_SECONDS, tool_error_behavior="failed")
    return MCPToolset(
        server.url,
        headers=dict(server.headers) or None,
        auth=None if server.key is None else server.key.reveal(),
        init_timeout=_START_SECONDS,
        tool_error_behavior="failed",
    )


def _said(error: BaseException) -> str:
    return one_line(str(error) or type(error).__name__, _LONGEST)
