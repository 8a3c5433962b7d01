"""Any provider through pydantic-ai; loaded by `model` on first use, because it takes seconds."""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers import Provider as LibraryProvider
from pydantic_ai.providers import infer_provider_class
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from sessionary.agents import convert
from sessionary.agents.failures import FAILURES, translated
from sessionary.agents.model_options import SESSION_SETTINGS, ModelOptions
from sessionary.engine.ports import Delta, TurnRequest
from sessionary.errors import BadInput, NotFound, RetryLater
from sessionary.model.message import Message
from sessionary.model.usage import Usage

# A key is asked for even by servers that want none.
NO_KEY = "none"
OPENAI = "openai"

_ADDRESSES = {"ollama": "http://127.0.0.1:11434/v1"}
# Where the library tells us the finish reason as the provider gave it.
_SAY_WHY_ENDED = tuple(f"pydantic_ai.models.{name}" for name in ("openai", "anthropic", "google"))
_WANTED = re.compile(r"Set the `(\w+)` environment variable")


@dataclass(frozen=True, slots=True)
class Answer:
    """One finished response of the model."""

    response: ModelResponse
    message: Message
    calls: tuple[ToolCallPart, ...]

    @property
    def response_id(self) -> str:
        """What the provider calls this response; not unique with every provider."""
        return self.response.provider_response_id or "call"

    def usage(self, *, call_id: str, at: datetime, base_url: str | None, task: str | None) -> Usage:
        """What it used and cost."""
        return convert.usage_of(self.response, call_id=call_id, at=at, base_url=base_url, task=task)


@dataclass(slots=True)
class Conversation:
    """What the model has read and said in one turn, and how it is asked."""

    model: Model
    messages: list[ModelMessage]
    settings: ModelSettings
    tools: Sequence[ToolDefinition] = ()
    requires_finish_reason: bool = True

    async def ask(self) -> AsyncGenerator[Delta | Answer]:
        """Stream the next response, then give it whole. A failure is one of ours."""
        parameters = ModelRequestParameters(function_tools=list(self.tools))
        try:
            async with model_request_stream(
                self.model,
                self.messages,
                model_settings=self.settings,
                model_request_parameters=parameters,
            ) as stream:
                async for event in stream:
                    delta = _delta(event)
                    if delta is not None:
                        yield delta
                response = stream.get()
        except FAILURES as error:
            raise translated(error, self.model.model_name) from error
        if self.requires_finish_reason and _lacks_finish_reason(self.model, response):
            # The connection was closed in good order, but too early: what came is not the whole answer.
            raise RetryLater(
                f"The model {self.model.model_name} closed the connection before its answer was complete.",
                0.0,
            )
        answer = Answer(response, convert.message_of(response), tuple(response.tool_calls))
        if not answer.calls and not answer.message.text:
            # Some servers end a stream that broke as if it were complete.
            raise RetryLater(f"The model {self.model.model_name} ended without an answer.", 0.0)
        yield answer

    def take(self, response: ModelResponse, results: Sequence[ToolReturnPart]) -> None:
        """Go on from a response and what its tools answered, exactly as they were."""
        self.messages += [response, ModelRequest(parts=list(results))]


class Provider:
    """A provider's models; connections are shared by all turns."""

    def __init__(self, options: ModelOptions) -> None:
        self._options = options
        self._kind, self._default = _kind_and_name(options)
        self._lock = asyncio.Lock()
        self._is_open = False
        try:
            self._library = _library_provider(self._kind, options)
            self._models = {self._default: _model(self._kind, self._default, self._library)}
        except FAILURES as error:
            raise translated(error, options.model) from error
        except ImportError as error:
            raise BadInput(
                f"The model {options.model} needs a library that is not installed: {error}."
            ) from error

    async def conversation(
        self, request: TurnRequest, tools: Sequence[ToolDefinition]
    ) -> Conversation:
        """The turn's conversation up to here."""
        await self._open()
        name = str(request.settings.get("model") or self._default).removeprefix(f"{self._kind}:")
        if name not in self._models:
            self._models[name] = _model(self._kind, name, self._library)
        messages = await convert.history(request.system_prompt, request.context, request.blob)
        settings = self._settings(request.settings)
        is_strict = self._options.requires_finish_reason
        return Conversation(self._models[name], messages, settings, tools, is_strict)

    async def question(self, system_prompt: str, text: str) -> Conversation:
        """A conversation of one question, without tools."""
        await self._open()
        messages = await convert.history(system_prompt, [{"role": "user", "content": text}], _none)
        is_strict = self._options.requires_finish_reason
        return Conversation(
            self._models[self._default],
            messages,
            self._settings({}),
            requires_finish_reason=is_strict,
        )

    async def close(self) -> None:
        """Close the connections; a later question opens them again."""
        async with self._lock:
            if self._is_open:
                self._is_open = False
                await self._library.__aexit__(None, None, None)

    async def _open(self) -> None:
        async with self._lock:
            if not self._is_open:
                await self._library.__aenter__()
                self._is_open = True

    def _settings(self, of_session: Mapping[str, Any]) -> ModelSettings:
        own = {name: of_session[name] for name in SESSION_SETTINGS if name in of_session}
        # The library's own retries would hide from us what was waited for.
        base: dict[str, Any] = {"max_retries": 0, "timeout": self._options.timeout_seconds}
        if self._kind == "anthropic":
            base["cache"] = True
        return cast(ModelSettings, base | dict(self._options.settings) | own)


async def _none(blob: str) -> bytes:
    raise NotFound(f"There is no attachment {blob}.")


def _kind_and_name(options: ModelOptions) -> tuple[str, str]:
    """The provider's name and the model's; `provider:model`, where no provider is named."""
    if options.provider is not None:
        return options.provider, options.model.removeprefix(f"{options.provider}:")
    kind, _, name = options.model.partition(":")
    if name and _is_known(kind):
        return kind, name
    if options.base_url is not None:
        return OPENAI, options.model
    raise BadInput(
        f"The model {options.model!r} names no provider: write provider:model, as in openai:gpt-5."
    )


def _is_known(kind: str) -> bool:
    try:
        infer_provider_class(kind)
    except ValueError:
        return False
    except ImportError:
        return True
    return True


def _library_provider(kind: str, options: ModelOptions) -> LibraryProvider[Any]:
    try:
        made: Any = infer_provider_class(kind)
    except ValueError:
        raise BadInput(f"There is no model provider {kind!r}.") from None
    given: dict[str, Any] = {}
    base_url = options.base_url or _ADDRESSES.get(kind)
    if base_url is not None:
        given["base_url"] = base_url
        # The key of the provider's own service is in the environment; it is not for others.
        given["api_key"] = NO_KEY
    if options.key is not None:
        given["api_key"] = options.key.reveal()
    try:
        provider: LibraryProvider[Any] = made(**given)
    except TypeError as error:
        raise BadInput(f"The provider {kind} cannot be given {' and '.join(given)}.") from error
    except UserError as error:
        variable = _WANTED.search(str(error))
        if variable is None:
            raise
        raise BadInput(
            f"The model {options.model} needs a key: name one with api_key_env or api_key_file, "
            f"or set {variable[1]}."
        ) from error
    return provider


def _model(kind: str, name: str, library: LibraryProvider[Any]) -> Model:
    if kind == OPENAI:
        # What other servers speak too, unlike OpenAI's newer interface (`openai-responses`).
        return OpenAIChatModel(name, provider=library)
    return infer_model(f"{kind}:{name}", provider_factory=lambda _: library)


def _lacks_finish_reason(model: Model, response: ModelResponse) -> bool:
    """Whether a provider that says why an answer ended did not say it."""
    families = {each.__module__ for each in type(model).__mro__}
    if not any(name.startswith(_SAY_WHY_ENDED) for name in families):
        return False
    # For OpenAI's form the library puts `stop` where nothing came; what came is in the details.
    said = (response.provider_details or {}).get("finish_reason")
    return said is None and response.finish_reason != "content_filter"


def _delta(event: object) -> Delta | None:
    match event:
        case PartStartEvent(part=TextPart(content=text)) if text:
            return Delta(text)
        case PartStartEvent(part=ThinkingPart(content=text)) if text:
            return Delta(text, thinking=True)
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
            return Delta(text)
        case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))) if text:
            return Delta(text, thinking=True)
        case _:
            return None
