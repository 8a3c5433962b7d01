"""An agent that asks a model, of any provider, with tools."""

import asyncio
import importlib.util
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from sessionary.agents.registry import AgentContext, AgentKind
from sessionary.clock import Clock, Ids, RandomIds, SystemClock
from sessionary.config.secret import Secret
from sessionary.config.setting import MAX_SECONDS, MAY_BE_EMPTY, Seconds, Setting, Texts, TextTable
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

    command: Annotated[
        Texts,
        Setting("a program to start, and its arguments", example=["mcp-server-files", "/data"]),
    ] = ()
    url: Annotated[
        str | None, Setting("or its address", example="https://tools.example.org/mcp")
    ] = None
    name: Annotated[str | None, Setting("the prefix of its tools' names", example="files")] = None
    folder: Annotated[str | None, Setting("where the program is started", example="/data")] = None
    environ: Annotated[
        TextTable, Setting("the program's own environment variables", name="env")
    ] = field(default_factory=dict, repr=False)
    headers: Annotated[TextTable, Setting("headers of the requests to its address")] = field(
        default_factory=dict, repr=False
    )
    key: Annotated[
        Secret | None,
        MAY_BE_EMPTY,
        Setting("the token for its address", name="api_key", example="TOOLS_TOKEN"),
    ] = None

    @property
    def label(self) -> str:
        """Return its name for messages."""
        return self.name or self.url or " ".join(self.command[:2])

    def check(self) -> None:
        """Refuse a server that is both a program and an address, or neither."""
        if bool(self.command) == bool(self.url):
            raise ValueError("an MCP server has either a command or a url.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """The model, its endpoint, its tools, and the time limits."""

    model: Annotated[str, Setting("provider:model", example="openai:gpt-5")]
    provider: Annotated[
        str | None, Setting("the provider, if model is to be used as it is", example="openai")
    ] = None
    base_url: Annotated[
        str | None,
        Setting(
            "another address; without a provider it is called with OpenAI's Chat Completions API",
            example="http://localhost:8000/v1",
        ),
    ] = None
    key: Annotated[
        Secret | None,
        MAY_BE_EMPTY,
        Setting("the provider's key", name="api_key", example="OPENAI_API_KEY"),
    ] = None
    settings: Annotated[
        Mapping[str, Any],
        Setting(
            "temperature, top_p, max_tokens, thinking, seed and other settings of the provider",
            example={"temperature": 0.2, "max_tokens": 4000},
        ),
    ] = field(default_factory=dict)
    timeout_seconds: Annotated[Seconds, Setting("how long to wait for the next data")] = 120.0
    tool_timeout_seconds: Annotated[Seconds, Setting("how long to wait for a tool")] = 120.0
    attempts: Annotated[
        int, Setting("how often a request is tried while no output was shown", ge=1)
    ] = 3
    longest_wait_seconds: Annotated[
        float, Setting("the longest wait between attempts", ge=0, le=MAX_SECONDS)
    ] = 30.0
    most_calls: Annotated[int, Setting("how often it may be called in one turn", ge=1)] = 50
    requires_finish_reason: Annotated[
        bool,
        Setting(
            "an answer without a finish reason counts as cut off; false for servers that never send one"
        ),
    ] = True
    tools: Annotated[
        tuple[ToolServer, ...], Setting("MCP servers whose tools it may call", name="mcp")
    ] = ()
    # Not in the file: for tests.
    first_wait_seconds: float = 0.5
    most_malformed: int = 3
    most_tool_characters: int = 100_000


LIBRARY = "pydantic_ai"
_LATER_SECONDS = 5.0
Sleep = Callable[[float], Awaitable[None]]


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


def create(options: ModelOptions, _: AgentContext) -> ModelRunner:
    """Return the runner for a model; raise `BadInput` if the library is not installed."""
    if importlib.util.find_spec(LIBRARY) is None:
        raise BadInput(
            f"The agent for {options.model} asks a model; install what it needs: "
            f"pip install '{AGENT.extra}'."
        )
    return ModelRunner(options)


AGENT = AgentKind(
    name="model",
    title="A model, with tools",
    settings=ModelOptions,
    create=create,
    extra="sessionary[agents]",
    documentation="docs/agents.md",
)
