"""Tools of MCP servers, through pydantic-ai's tool sets; loaded only where some are configured."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
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
from sessionary.agents.tools import ToolClass, ToolOutcome
from sessionary.errors import AgentFailed, BadInput
from sessionary.model.terminal import one_line

_LONGEST = 300
_START_SECONDS = 30.0
_NO_PARAMETERS = {"type": "object", "properties": {}}
# Where a call has its idempotency key: for tools that take one as an argument, and for all others.
_KEY_ARGUMENTS = ("idempotency_key", "idempotencyKey")
_KEY_IN_META = "sessionary/idempotency_key"
_LONGEST_KEY = 36
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
    tool_class: ToolClass
    # The argument that is the idempotency key.
    key_argument: str | None


class McpTools:
    """The tools of one turn."""

    def __init__(self, tools: Mapping[str, _Tool], *, timeout_seconds: float) -> None:
        self._tools = tools
        self._timeout = timeout_seconds

    @property
    def definitions(self) -> list[ToolDefinition]:
        """Return the definitions that the model is given."""
        return [tool.definition for tool in self._tools.values()]

    def tool_class(self, name: str) -> ToolClass:
        """Return whether a tool may be run again."""
        return self._tools[name].tool_class

    async def call(self, name: str, arguments: dict[str, Any], *, key: str) -> ToolOutcome:
        """Call a tool, with its idempotency key; a failure is returned as its result."""
        tool = self._tools[name]
        if tool.key_argument is not None:
            arguments = arguments | {tool.key_argument: key}
        try:
            async with asyncio.timeout(self._timeout):
                content = await tool.toolset.direct_call_tool(
                    tool.name, arguments, metadata={_KEY_IN_META: key}
                )
                return ToolOutcome(content)
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
    key_argument = _key_argument(schema or {})
    definition = ToolDefinition(
        name=shown,
        description=listed.description,
        parameters_json_schema=_without(schema or _NO_PARAMETERS, key_argument),
    )
    is_safe = key_argument is not None or _says_safe(listed.annotations)
    return _Tool(
        toolset, listed.name, definition, _class(server, listed.name, is_safe=is_safe), key_argument
    )


def _class(server: ToolServer, name: str, *, is_safe: bool) -> ToolClass:
    """Return the class of a tool: what the settings say, else what the tool itself says."""
    if any(fnmatchcase(name, pattern) for pattern in server.once):
        return ToolClass.ONCE
    if is_safe or any(fnmatchcase(name, pattern) for pattern in server.safe):
        return ToolClass.SAFE
    return ToolClass.ONCE


def _says_safe(annotations: Any) -> bool:
    """Whether a tool says that it changes nothing, or that running it twice is the same as once."""
    given = {} if annotations is None else annotations.model_dump(by_alias=True)
    return given.get("readOnlyHint") is True or given.get("idempotentHint") is True


def _key_argument(schema: Mapping[str, Any]) -> str | None:
    """Return the argument that is an idempotency key, if it may be any text that is long enough for ours."""
    for name in _KEY_ARGUMENTS:
        given = schema.get("properties", {}).get(name)
        if not isinstance(given, dict):
            continue
        for kind in (given, *given.get("anyOf", ()), *given.get("oneOf", ())):
            is_text = kind.get("type") == "string" or "string" in _listed(kind.get("type"))
            is_long = kind.get("maxLength", _LONGEST_KEY) >= _LONGEST_KEY
            if is_text and is_long and not {"format", "pattern", "enum", "const"} & kind.keys():
                return name
    return None


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else []


def _without(schema: dict[str, Any], argument: str | None) -> dict[str, Any]:
    """Return a schema without an argument: the model neither sees it nor has to give it."""
    if argument is None:
        return schema
    kept = {name: each for name, each in schema["properties"].items() if name != argument}
    required = [name for name in schema.get("required", ()) if name != argument]
    rest = {name: value for name, value in schema.items() if name != "required"}
    return rest | {"properties": kept} | ({"required": required} if required else {})


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
