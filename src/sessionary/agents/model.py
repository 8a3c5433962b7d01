"""An agent that asks a model, of any provider, with tools."""

import asyncio
import importlib.util
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from sessionary import prices
from sessionary.agents.registry import AgentContext, AgentKind
from sessionary.clock import Clock, Ids, RandomIds, SystemClock
from sessionary.config.secret import Secret
from sessionary.config.setting import MAX_SECONDS, MAY_BE_EMPTY, Seconds, Setting, Texts, TextTable
from sessionary.engine.ports import Ask, Delta, Event, Step, TurnRequest, TurnServices
from sessionary.errors import AgentFailed, BadInput, ContextTooLong, RetryLater
from sessionary.model.transcript import fill_results, has_answer
from sessionary.model.usage import Usage

if TYPE_CHECKING:
    from sessionary.agents.provider import Conversation, ModelAnswer, Provider
    from sessionary.agents.tools import Tools


# What a session's own settings may override.
SESSION_SETTINGS = (
    "frequency_penalty",
    "logit_bias",
    "max_tokens",
    "parallel_tool_calls",
    "presence_penalty",
    "seed",
    "stop_sequences",
    "temperature",
    "thinking",
    "top_p",
)


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
    safe: Annotated[
        Texts,
        Setting(
            "patterns of the tools that may be run again if a crash lost their result",
            example=["read_*", "list"],
        ),
    ] = ()
    once: Annotated[
        Texts,
        Setting(
            "patterns of the tools that are never run again, even if `safe` has them",
            example=["send*"],
        ),
    ] = ()

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
    window: Annotated[
        int | None,
        Setting(
            "how many tokens the model reads; default: known for most models", ge=1, example=32_768
        ),
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
    question_seconds: Annotated[
        Seconds, Setting("how long a tool that asks people something waits for their answer")
    ] = 600.0
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
    report_unknown_calls: Annotated[
        bool, Setting("tell the person when it is not known whether a tool ran")
    ] = False
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
    """Calls the model, and the tools that it asks for, until it answers without a tool call.

    A call of a tool that a program has brought for this turn ends the turn: the program runs it.
    """

    takes_turn_options = True

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
        # Smaller windows than are known, by model: as its provider has said.
        self._windows: dict[str, int] = {}
        self._loading = asyncio.Lock()
        self._loaded: tuple[Provider, Tools] | None = None

    @property
    def reports_unknown_calls(self) -> bool:
        """Whether the person is told when it is not known whether a tool ran."""
        return self._options.report_unknown_calls

    def window(self, model: str | None = None) -> int | None:
        """Return how many tokens the model, or another one of the same provider, reads; None if that is unknown."""
        known, said = self._known_window(model), self._windows.get(self._model_name(model))
        return known if said is None else min(known or said, said)

    def _model_name(self, model: str | None) -> str:
        provider = self._options.provider or self._options.model.partition(":")[0]
        return (model or self.model).removeprefix(f"{provider}:")

    def _known_window(self, model: str | None) -> int | None:
        options = self._options
        if options.window is not None:
            return options.window
        provider, name = options.provider, model or options.model
        if provider is None and ":" in options.model:
            provider = options.model.partition(":")[0]
        if provider is not None:
            name = name.removeprefix(f"{provider}:")
        # Another server may offer a model of a known name with a smaller window.
        return prices.window_of(
            name, provider if options.base_url is None else None, options.base_url
        )

    @property
    def model(self) -> str:
        """The name of the model without its provider."""
        options = self._options
        if options.provider is not None:
            return options.model.removeprefix(f"{options.provider}:")
        if options.base_url is not None:  # then a colon may belong to the name
            return options.model
        return options.model.partition(":")[2] or options.model

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        """Stream the model's output; each response and each tool result is a step.

        A turn that is continued begins with the tool calls that have no result, and goes on with the next model call.
        If it has its answer already, and only its end was not recorded, nothing is left to do.
        """
        if has_answer(request.steps):
            return
        provider, tool_sets = await self._load()
        services, options = request.services, self._options
        async with tool_sets.opened(request) as tools:
            context = list(request.context)
            if request.unfinished:
                async with aclosing(tools.resumed_steps(request.steps)) as steps:
                    async for step in steps:
                        if isinstance(step, Step):
                            fill_results(context, step.message)
                        yield step
                        if isinstance(step, Ask):
                            return
                if tools.has_program_calls(request.unfinished):
                    return
            conversation = await provider.conversation(request, context, tools.definitions)
            window = self.window(request.settings.get("model"))
            await services.record_request(
                model=conversation.model.model_name,
                tools=conversation.tool_facts,
                settings=provider.session_settings(request.settings),
                window=window,
            )
            calls_before = len([step for step in request.steps if step.tool_calls])
            for number in range(calls_before + 1, options.most_calls + 1):
                if number > 1:
                    await conversation.add(await services.new_messages())
                compacted = await services.fit(window=window, overhead=conversation.overhead)
                if compacted is not None:
                    await conversation.replace(compacted)
                answer: ModelAnswer | None = None
                async with aclosing(self._fitting_answer(conversation, services)) as answered:
                    async for event in answered:
                        if isinstance(event, Delta):
                            yield event
                        else:
                            answer = event
                assert answer is not None
                call_id = f"{answer.response_id}:{request.turn_id}:{number}"
                decided = await tools.decide(answer)
                yield Step(decided.message, self._usage(answer, call_id, task=None), answer.files)
                if not answer.calls:
                    return
                async with aclosing(tools.steps(decided, conversation)) as steps:
                    async for step in steps:
                        yield step
                        if isinstance(step, Ask):
                            return
                if tools.has_program_calls(decided.calls.values()):
                    return
                conversation.tool_choice = None  # it was for the first call
        raise AgentFailed(f"The model asked for tools {options.most_calls} times and was stopped.")

    async def _fitting_answer(
        self, conversation: "Conversation", services: TurnServices
    ) -> "AsyncGenerator[Delta | ModelAnswer]":
        """Return the next response; if the provider says that the context is too long, compact it and try once more."""
        try:
            async with aclosing(self._answered(conversation)) as answered:
                async for event in answered:
                    yield event
            return
        except ContextTooLong as error:
            refused = error
        name = conversation.model.model_name
        if refused.window is not None:
            self._windows[self._model_name(name)] = refused.window
        compacted = await services.fit(
            window=self.window(name), overhead=conversation.overhead, is_too_long=True
        )
        if compacted is None:
            raise self._too_long(refused, name) from refused
        await conversation.replace(compacted)
        try:
            async with aclosing(self._answered(conversation)) as answered:
                async for event in answered:
                    yield event
        except ContextTooLong as error:
            raise self._too_long(error, name) from error

    def _too_long(self, error: ContextTooLong, model: str) -> ContextTooLong:
        """Return the error for a turn that is too long although nothing is left to compact."""
        window = self.window(model)
        size = "" if window is None else f" ({window:,} tokens)"
        return ContextTooLong(
            f"The message is longer than {model} can read at once{size}, with what belongs to it: send less at a time, "
            "or begin a new conversation.",
            error.window,
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

    @property
    def tool_names(self) -> Sequence[str] | None:
        """The names of its tools; None while no turn has asked the servers for them."""
        if not self._options.tools:
            return ()
        return None if self._loaded is None else self._loaded[1].names

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

    async def _answered(
        self, conversation: "Conversation"
    ) -> "AsyncGenerator[Delta | ModelAnswer]":
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

    def _usage(self, answer: "ModelAnswer", call_id: str, *, task: str | None) -> Usage:
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
    resumes=True,
)
