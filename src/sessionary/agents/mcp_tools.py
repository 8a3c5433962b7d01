"""Tools of MCP servers, through pydantic-ai's tool sets; loaded only where some are configured."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import anyio
import httpx2
from fastmcp.client.elicitation import ElicitRequestParams, ElicitResult
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import FastMCPError
from mcp.shared.exceptions import MCPError
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.tools import ToolDefinition

from sessionary.agents.elicitation import read_elicitation
from sessionary.agents.model import ToolServer
from sessionary.agents.tools import ToolClass, ToolOutcome
from sessionary.errors import AgentFailed, BadInput, NotAllowed, SessionaryError
from sessionary.model.question import NewQuestion, Question
from sessionary.model.terminal import one_line

log = logging.getLogger(__name__)
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


class AskPeople(Protocol):
    """Asks people something while a call stays open, and returns the question when it is decided."""

    async def __call__(self, question: NewQuestion, /) -> Question: ...


@dataclass(eq=False, slots=True)
class _RunningCall:
    """A call that its server has not answered yet."""

    turn: "McpTools"
    tool: str
    limit: asyncio.Timeout
    seconds: float
    # The questions of its server for which it is kept open.
    asking: set["asyncio.Task[Question]"] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def begin_asking(self, task: "asyncio.Task[Question]") -> None:
        """Stop the clock: a person may need longer than a tool."""
        self.asking.add(task)
        self.limit.reschedule(None)

    def end_asking(self, task: "asyncio.Task[Question]") -> None:
        """Give the tool its full time again."""
        self.asking.discard(task)
        if not self.asking:
            self.limit.reschedule(asyncio.get_running_loop().time() + self.seconds)


# The call that this task makes. What a server asks over HTTP, or as a part of its answer, is read in its context.
_CALL: ContextVar[_RunningCall | None] = ContextVar("running_call", default=None)


class _Server:
    """A configured server: its connection, and the calls that run on it, of all turns."""

    def __init__(self, settings: ToolServer, *, read_seconds: float) -> None:
        self.settings = settings
        self.toolset = _toolset(settings, read_seconds=read_seconds)
        self.toolset.client.set_elicitation_callback(self._elicit)
        self._calls: list[_RunningCall] = []

    @contextmanager
    def running(self, call: _RunningCall) -> Iterator[None]:
        """Note that a call runs; when it ends, nobody waits for the answers to its questions any more."""
        token = _CALL.set(call)
        self._calls.append(call)
        try:
            yield
        finally:
            _CALL.reset(token)
            self._calls.remove(call)
            for task in call.asking:
                if not any(task in other.asking for other in self._calls):
                    task.cancel()

    def _calls_that_ask(self) -> list[_RunningCall]:
        """Return the call during which the server asks, or several of one turn; none if that cannot be told."""
        running = [call for call in self._calls if not call.limit.expired()]
        own = [call for call in running if call is _CALL.get()]
        if own:
            return own
        # A program asks over its only connection, which says nothing about the call.
        return running if len({call.turn for call in running}) == 1 else []

    async def _elicit(
        self, message: str, _: Any, params: ElicitRequestParams, __: Any
    ) -> ElicitResult[dict[str, Any]]:
        """Answer a question of the server: ask the people of the turn, and wait for them."""
        calls, label = self._calls_that_ask(), self.settings.label
        if not calls:
            log.warning("%s asks something, and it cannot be told in which conversation", label)
            return ElicitResult(action="cancel")
        call = calls[0]
        if params.mode == "url":
            place = one_line(urlsplit(str(params.url)).hostname or "?", _LONGEST)
            call.notes.append(f"[The tool wanted a person to open a page of {place}: declined.]")
            log.warning("%s wants a person to open a page, which was declined", label)
            return ElicitResult(action="decline")
        try:
            asked = read_elicitation(
                call.tool, message, params.requested_schema, name=f"{one_line(call.tool, 100)}:ask"
            )
        except SessionaryError as error:
            call.notes.append(f"[The tool asked something that cannot be asked: {error}]")
            log.warning("%s asks something that cannot be asked: %s", label, error)
            return ElicitResult(action="cancel")
        task = asyncio.ensure_future(call.turn.ask(asked.question))
        for each in calls:
            each.begin_asking(task)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            for each in calls:
                if each in self._calls:
                    each.end_asking(task)
        if task.cancelled():
            return ElicitResult(action="cancel")
        try:
            decided = task.result()
        except SessionaryError as error:
            log.warning("what %s asks was not answered: %s", label, error)
            return ElicitResult(action="cancel")
        if decided.answered is None:
            return ElicitResult(action="cancel")
        content = asked.content(decided)
        if content is None:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content=content)


@dataclass(frozen=True, slots=True)
class _Tool:
    server: _Server
    name: str
    definition: ToolDefinition
    tool_class: ToolClass
    # The argument that is the idempotency key.
    key_argument: str | None


class McpTools:
    """The tools of one turn."""

    def __init__(
        self, tools: Mapping[str, _Tool], *, timeout_seconds: float, ask: AskPeople
    ) -> None:
        self._tools = tools
        self._timeout = timeout_seconds
        self.ask = ask

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
        notes: list[str] = []
        try:
            async with asyncio.timeout(self._timeout) as limit:
                call = _RunningCall(self, name, limit, self._timeout, notes=notes)
                with tool.server.running(call):
                    content = await tool.server.toolset.direct_call_tool(
                        tool.name, arguments, metadata={_KEY_IN_META: key}
                    )
                outcome = ToolOutcome(content)
        except (ModelRetry, ToolFailed) as error:
            outcome = ToolOutcome(error.message, is_error=True)
        except TimeoutError:
            problem = f"The tool {name} did not answer in {self._timeout:g} seconds."
            outcome = ToolOutcome(problem, is_error=True)
        except _BROKEN as error:
            outcome = ToolOutcome(f"The tool {name} failed: {_said(error)}", is_error=True)
        return replace(outcome, note="\n".join(notes))


async def _ask_nobody(question: NewQuestion, /) -> Question:
    raise NotAllowed(f"There is nobody to ask: {one_line(question.text, _LONGEST)}")


class ToolServers:
    """The configured servers; programs start with the first turn and keep running."""

    def __init__(
        self,
        servers: Sequence[ToolServer],
        *,
        timeout_seconds: float,
        question_seconds: float = 0.0,
    ) -> None:
        """`question_seconds` is how long a server that asks people something may wait besides."""
        self._timeout = timeout_seconds
        # The connection must wait longer than we do for a call.
        read_seconds = timeout_seconds + question_seconds + _START_SECONDS
        self._servers = [_Server(server, read_seconds=read_seconds) for server in servers]

    @asynccontextmanager
    async def opened(self, ask: AskPeople = _ask_nobody) -> AsyncIterator[McpTools]:
        """Connect, and yield the tools; concurrent turns share a connection. What a server asks is asked with `ask`."""
        tools: dict[str, _Tool] = {}
        async with AsyncExitStack() as stack:
            for server in self._servers:
                for tool in await _connected(stack, server):
                    if tool.definition.name in tools:
                        raise BadInput(
                            f"Two MCP servers have a tool {tool.definition.name!r}: "
                            f"give {server.settings.label} a name."
                        )
                    tools[tool.definition.name] = tool
            yield McpTools(tools, timeout_seconds=self._timeout, ask=ask)

    async def close(self) -> None:
        """Stop the server programs."""
        for server in self._servers:
            # A connection that failed raises its error again.
            with contextlib.suppress(*_BROKEN):
                await server.toolset.client.close()  # type: ignore[no-untyped-call]


async def _connected(stack: AsyncExitStack, server: _Server) -> list[_Tool]:
    try:
        await stack.enter_async_context(server.toolset)
        listed = await server.toolset.list_tools()
    except _BROKEN as error:
        raise AgentFailed(
            f"The tools of {server.settings.label} cannot be reached: {_said(error)}"
        ) from error
    return [_tool(server, each) for each in listed]


def _tool(server: _Server, listed: Any) -> _Tool:
    settings = server.settings
    shown = f"{settings.name}_{listed.name}" if settings.name else listed.name
    schema = getattr(listed, "input_schema", None) or getattr(listed, "inputSchema", None)
    key_argument = _key_argument(schema or {})
    definition = ToolDefinition(
        name=shown,
        description=listed.description,
        parameters_json_schema=_without(schema or _NO_PARAMETERS, key_argument),
    )
    is_safe = key_argument is not None or _says_safe(listed.annotations)
    tool_class = _class(settings, listed.name, is_safe=is_safe)
    return _Tool(server, listed.name, definition, tool_class, key_argument)


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


def _toolset(server: ToolServer, *, read_seconds: float) -> MCPToolset[Any]:
    if server.url is None:
        program, *arguments = server.command
        transport = StdioTransport(
            program,
            arguments,
            env=dict(server.environ) or None,
            cwd=server.folder,
            log_file=Path(os.devnull),
        )
        return MCPToolset(
            transport,
            init_timeout=_START_SECONDS,
            read_timeout=read_seconds,
            tool_error_behavior="failed",
        )
    return MCPToolset(
        server.url,
        headers=dict(server.headers) or None,
        auth=None if server.key is None else server.key.reveal(),
        init_timeout=_START_SECONDS,
        read_timeout=read_seconds,
        tool_error_behavior="failed",
    )


def _said(error: BaseException) -> str:
    return one_line(str(error) or type(error).__name__, _LONGEST)
