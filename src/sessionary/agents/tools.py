"""Runs the tools that a model calls: each result is a step, and a failure is a result."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic_ai.messages import BinaryContent, ToolCallPart, ToolReturnPart
from pydantic_ai.tools import ToolDefinition

from sessionary.agents.model import ModelOptions
from sessionary.agents.provider import Answer, Conversation, arguments_of, result_text
from sessionary.engine.ports import Step
from sessionary.errors import AgentFailed
from sessionary.model.message import Message, Role, ToolResult


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The result of a tool call. Malformed: the call was invalid, and nothing was run."""

    content: Any
    is_error: bool = False
    is_malformed: bool = False


class OpenTools(Protocol):
    """Tools that are connected."""

    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        """Return the definitions that the model is given."""

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolOutcome:
        """Call a tool."""


class NoTools:
    """No tools are configured."""

    definitions: Sequence[ToolDefinition] = ()

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolOutcome:
        """Never called: there are no tools."""
        raise KeyError(name)


class TurnTools:
    """The tools of one turn, and the number of invalid calls."""

    def __init__(self, tools: OpenTools, options: ModelOptions) -> None:
        self._tools = tools
        self._options = options
        self._malformed = 0

    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        """Return the definitions that the model is given."""
        return self._tools.definitions

    async def steps(self, answer: Answer, conversation: Conversation) -> AsyncGenerator[Step]:
        """Run the tool calls of a response concurrently, and add their results to the conversation."""
        tasks = [asyncio.create_task(self._outcome(call)) for call in answer.calls]
        results: list[ToolReturnPart] = []
        outcomes: list[ToolOutcome] = []
        try:
            for call, task in zip(answer.calls, tasks, strict=True):
                outcome = await task
                outcomes.append(outcome)
                step, result = self._answered(call, outcome)
                results.append(result)
                yield step
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._count(outcomes)
        conversation.take(answer.response, results)

    async def _outcome(self, call: ToolCallPart) -> ToolOutcome:
        names = [definition.name for definition in self._tools.definitions]
        if call.tool_name not in names:
            known = f"There are: {', '.join(names)}." if names else "There are no tools."
            problem = f"There is no tool {call.tool_name!r}. {known}"
            return ToolOutcome(problem, is_error=True, is_malformed=True)
        arguments = arguments_of(call)
        if not isinstance(arguments, dict):
            problem = "The arguments are not a JSON object. Call the tool again with correct ones."
            return ToolOutcome(problem, is_error=True, is_malformed=True)
        return await self._tools.call(call.tool_name, arguments)

    def _answered(self, call: ToolCallPart, outcome: ToolOutcome) -> tuple[Step, ToolReturnPart]:
        text = result_text(outcome.content, longest=self._options.most_tool_characters)
        if outcome.is_error:
            text = f"Error: {text}"
        kept = ToolResult(call.tool_call_id, text, call.tool_name, is_error=outcome.is_error)
        # The model reads what the log stores, so that the next turn only extends it; pictures, which
        # the log does not store, are for this turn only.
        native = outcome.content if _has_pictures(outcome.content) else text
        step = Step(Message(Role.TOOL, (kept,)))
        return step, ToolReturnPart(call.tool_name, native, call.tool_call_id)

    def _count(self, outcomes: Sequence[ToolOutcome]) -> None:
        is_wrong = any(outcome.is_malformed for outcome in outcomes)
        self._malformed = self._malformed + 1 if is_wrong else 0
        if self._malformed > self._options.most_malformed:
            raise AgentFailed(
                f"The model called its tools wrongly {self._malformed} times in a row "
                "and was stopped."
            )


class Tools:
    """The tools in an agent's settings."""

    def __init__(self, options: ModelOptions) -> None:
        self._options = options
        self._servers = None
        if options.tools:
            from sessionary.agents.mcp_tools import ToolServers

            self._servers = ToolServers(options.tools, timeout_seconds=options.tool_timeout_seconds)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[TurnTools]:
        """Yield the tools for one turn."""
        if self._servers is None:
            yield TurnTools(NoTools(), self._options)
            return
        async with self._servers.opened() as tools:
            yield TurnTools(tools, self._options)

    async def close(self) -> None:
        """Stop the servers that we started."""
        if self._servers is not None:
            await self._servers.close()


def _has_pictures(content: Any) -> bool:
    found = content if isinstance(content, list) else [content]
    return any(isinstance(each, BinaryContent) for each in found)
