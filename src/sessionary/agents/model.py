"""An agent that asks a model, of any provider, with tools."""

import asyncio
import importlib.util
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sessionary.agents.settings import Options
from sessionary.clock import Clock, Ids, RandomIds, SystemClock
from sessionary.config.secret import Secret
from sessionary.engine.ports import Delta, Event, Step, TurnRequest
from sessionary.errors import AgentFailed, BadInput, RetryLater
from sessionary.model.usage import Usage

if TYPE_CHECKING:
    from sessionary.agents.provider import Answer, Conversation, Provider
    from sessionary.agents.tools import Tools


# What a session's own settings may override.
SESSION_SETTINGS = ("max_tokens", "seed", "temperature", "thinking", "top_p")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolServer:
    """An MCP server: a program to start, or a URL. Its name is the prefix of its tools' names."""

    command: tuple[str, ...] = ()
    url: str | None = None
    name: str | None = None
    folder: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    key: Secret | None = None

    @property
    def label(self) -> str:
        """Return its name for messages."""
        return self.name or self.url or " ".join(self.command[:2])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """The model, its endpoint, its tools, and the time limits."""

    model: str
    provider: str | None = None
    base_url: str | None = None
    key: Secret | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[ToolServer, ...] = ()
    timeout_seconds: float = 120.0
    tool_timeout_seconds: float = 120.0
    attempts: int = 3
    first_wait_seconds: float = 0.5
    longest_wait_seconds: float = 30.0
    most_calls: int = 50
    most_malformed: int = 3
    most_tool_characters: int = 100_000
    requires_finish_reason: bool = True


def model_options(options: Options) -> ModelOptions:
    """Read the options of a model agent."""
    return ModelOptions(
        model=options.required("model"),
        provider=options.text("provider"),
        base_url=options.text("base_url"),
        key=options.secret("api_key"),
        settings=options.mapping("settings"),
        tools=tuple(_tool_server(each) for each in options.tables("mcp")),
        timeout_seconds=options.number("timeout_seconds", 120.0, least=0.001),
        tool_timeout_seconds=options.number("tool_timeout_seconds", 120.0, least=0.001),
        attempts=int(options.number("attempts", 3, least=1)),
        longest_wait_seconds=options.number("longest_wait_seconds", 30.0),
        most_calls=int(options.number("most_calls", 50, least=1)),
        requires_finish_reason=options.flag("requires_finish_reason", default=True),
    )


def _tool_server(options: Options) -> ToolServer:
    server = ToolServer(
        command=options.texts("command"),
        url=options.text("url"),
        name=options.text("name"),
        folder=options.text("folder"),
        environ=options.mapping("env"),
        headers=options.mapping("headers"),
        key=options.secret("api_key"),
    )
    options.refuse_unknown()
    if bool(server.command) == bool(server.url):
        raise options.bad("an MCP server has either a command or a url.")
    return server


LIBRARY = "pydantic_ai"
_LATER_SECONDS = 5.0
Sleep = Callable[[float], Awaitable[None]]


def require_library(agent: str) -> None:
    """Raise an error that says what to install if the library is missing."""
    if importlib.util.find_spec(LIBRARY) is None:
        raise BadInput(
            f"{agent} asks a model; install what it needs: pip install 'sessionary[agents]'."
        )


class ModelRunner:
    """Calls the model, and the tools that it asks for, until it answers without a tool call."""

    def __init__(
        self,
        options: ModelOptions,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._ids = ids or RandomIds()
        self._sleep = sleep
        self._loading = asyncio.Lock()
        self._loaded: tuple[Provider, Tools] | None = None

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        """Stream the model's output; each response and each tool result is a step."""
        provider, tool_sets = await self._load()
        async with tool_sets.opened() as tools:
            conversation = await provider.conversation(request, tools.definitions)
            for number in range(1, self._options.most_calls + 1):
                answer: Answer | None = None
                async with aclosing(self._answered(conversation)) as answered:
                    async for event in answered:
                        if isinstance(event, Delta):
                            yield event
                        else:
                            answer = event
                assert answer is not None
                call_id = f"{answer.response_id}:{request.turn_id}:{number}"
                yield Step(answer.message, self._usage(answer, call_id, task=None))
                if not answer.calls:
                    return
                async with aclosing(tools.steps(answer, conversation)) as steps:
                    async for step in steps:
                        yield step
        raise AgentFailed(
            f"The model asked for tools {self._options.most_calls} times and was stopped."
        )

    async def ask(self, system_prompt: str, text: str, *, task: str) -> tuple[str, Usage]:
        """Ask one question outside a turn; the usage is recorded under `task`."""
        provider, _ = await self._load()
        conversation = await provider.question(system_prompt, text)
        async with aclosing(self._answered(conversation)) as answered:
            async for event in answered:
                if not isinstance(event, Delta):
                    call_id = f"{event.response_id}:{self._ids.new(self._clock.now())}"
                    return event.message.text, self._usage(event, call_id, task=task)
        raise AgentFailed("The model said nothing.")

    async def close(self) -> None:
        """Close connections and stop the tools' programs."""
        if self._loaded is not None:
            for each in self._loaded:
                await each.close()

    async def _load(self) -> "tuple[Provider, Tools]":
        async with self._loading:
            if self._loaded is None:
                require_library(self._options.model)
                # Importing the library takes seconds: done in a thread, so that leases are renewed meanwhile.
                self._loaded = await asyncio.to_thread(_loaded, self._options)
        return self._loaded

    async def _answered(self, conversation: "Conversation") -> "AsyncGenerator[Delta | Answer]":
        """Return the next response; retry a transient failure as long as nothing was streamed."""
        waits = self._waits()
        while True:
            shown = False
            try:
                async with aclosing(conversation.ask()) as asked:
                    async for event in asked:
                        shown = shown or isinstance(event, Delta)
                        yield event
                return
            except RetryLater as error:
                if shown:
                    raise AgentFailed(f"The answer broke off. {error}") from error
                backoff = next(waits, None)
                if backoff is None or error.after > self._options.longest_wait_seconds:
                    raise RetryLater(str(error), error.after or _LATER_SECONDS) from error
                await self._sleep(max(backoff, error.after))

    def _waits(self) -> Iterator[float]:
        """Yield the pauses before each retry."""
        for attempt in range(self._options.attempts - 1):
            yield min(
                self._options.first_wait_seconds * 2**attempt, self._options.longest_wait_seconds
            )

    def _usage(self, answer: "Answer", call_id: str, *, task: str | None) -> Usage:
        return answer.usage(
            call_id=call_id, at=self._clock.now(), base_url=self._options.base_url, task=task
        )


def _loaded(options: ModelOptions) -> "tuple[Provider, Tools]":
    from sessionary.agents.provider import Provider
    from sessionary.agents.tools import Tools

    return Provider(options), Tools(options)
