"""Any provider through pydantic-ai; loaded by `model` on first use, because it takes seconds."""

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, cast
from urllib.parse import urlsplit

from msgspec.structs import replace
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import (
    AgentRunError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelServerError,
    ModelUnavailableError,
    UserError,
)
from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    PartDeltaEvent,
    PartStartEvent,
    SystemPromptPart,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.providers import Provider as LibraryProvider
from pydantic_ai.providers import infer_provider_class
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_core import to_jsonable_python

from sessionary import prices
from sessionary.agents.model import SESSION_SETTINGS, ModelOptions
from sessionary.engine.ports import Delta, Step, TurnRequest
from sessionary.errors import (
    AgentFailed,
    BadInput,
    ContextTooLong,
    NotAllowed,
    NotFound,
    RetryLater,
    SessionaryError,
)
from sessionary.model import codec
from sessionary.model.media import BYTES, media_type_of
from sessionary.model.message import (
    Attachment,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    Unknown,
)
from sessionary.model.terminal import one_line
from sessionary.model.tokens import estimate
from sessionary.model.transcript import (
    Chat,
    ChatAttachment,
    ChatText,
    attachment_note,
    chat_text,
    chats_of,
)
from sessionary.model.turn_options import OutputFormat, TurnOptions
from sessionary.model.usage import CostStatus, Usage

FAILURES = (AgentRunError, UserError)
_LONGEST = 300
_TRANSIENT = (
    ModelUnavailableError,
    ModelServerError,
    ModelConnectionError,
    ModelRequestTimeout,
)
_RETRIED_STATUSES = {408, 409, 425, 500, 502, 503, 504, 529}
# How servers say that a request is longer than the window, beside those that the library recognizes.
_TOO_LONG = re.compile(
    r"""
    context_length_exceeded | exceed_context_size | reduce\ the\ length\ of\ the\ messages
    | maximum\ (context|prompt|model)\ length          # OpenAI, Azure, vLLM, OpenRouter, xAI, Mistral
    | context\ length\ (is|of)\ only                   # vLLM since 0.16, LM Studio
    | prompt\ (is\ )?too\ long                         # Anthropic, Ollama
    | exceeds?\ (the\ |max\ )*context\ (window|length|limit)  # OpenAI's responses, Anthropic, Ollama
    | exceeds?\ the\ available\ context\ size          # llama.cpp
    | input\ tokens\ exceed | input\ is\ too\ long     # OpenAI, Bedrock
    | number\ of\ tokens\ allowed                      # Gemini
    | n_keep\ .*n_ctx | greater\ than\ the\ context\ length | reached\ context\ length  # LM Studio
    | exceeded\ model\ token\ limit | context\ window\ exceeds\ limit  # Kimi, MiniMax
    | prompt\ token\ count\ of\ \d+\ exceeds          # GitHub Copilot
    """,
    re.IGNORECASE | re.VERBOSE,
)
# The size of the window in those messages.
_WINDOW = re.compile(
    r"""
    (?: maximum\ (?:context|prompt|model)\ length\ (?:is|of)
      | context\ length\ (?:is|of)\ only | reached\ context\ length\ of
      | context\ window\ of | context\ size | number\ of\ tokens\ allowed
      | tokens\ > | context\ limit:\ \d+\ \+\ \d+\ >
      | >=\ n_ctx | configured\ limit\ of | token\ limit: | exceeds\ the\ limit\ of
    ) \s* \(? (?P<after>\d+)
    | (?P<before>\d+)\ maximum\ context\ length
    """,
    re.IGNORECASE | re.VERBOSE,
)


def translated(error: AgentRunError | UserError, model: str) -> SessionaryError:
    """Return our error for the library's; `RetryLater` for a transient one."""
    after = getattr(error, "retry_after", None) or 0.0
    match error:
        case ModelRateLimitError():
            return RetryLater(
                f"The model provider asks to wait: too many requests ({model}).", after
            )
        case ModelQuotaExceededError():
            return NotAllowed(f"The model provider says that the quota is used up: {_said(error)}")
        case ModelAuthenticationError():
            return NotAllowed(
                f"The model provider refused the key for {model}: check that it is valid and may "
                "use this model."
            )
        case ModelAPIError() if _is_too_long(error):
            return ContextTooLong(
                f"The conversation is longer than {model} can read: compact it, or begin a new one.",
                _window_in(error),
            )
        case ModelNotFoundError():
            return BadInput(f"The model provider knows no model {model}: {_said(error)}")
        case ModelRequestRejectedError():
            return BadInput(f"The model provider refused the request: {_said(error)}")
        case _ if is_transient(error):
            return RetryLater(f"The model provider cannot answer now: {_said(error)}", after)
        case UserError():
            return BadInput(f"The model {model} cannot be used: {_said(error)}")
        case _:
            return AgentFailed(f"The model {model} failed: {_said(error)}")


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, ModelHTTPError):
        return error.status_code in _RETRIED_STATUSES
    return isinstance(error, _TRANSIENT)


def _is_too_long(error: ModelAPIError) -> bool:
    if isinstance(error, ModelContextWindowExceededError):
        return True
    given = (error.provider_error_code, error.provider_error_type, _message_in(error))
    return any(_TOO_LONG.search(text) for text in given if text)


def _window_in(error: ModelAPIError) -> int | None:
    """Return the size of the window that the provider's message names."""
    match error.body:
        # llama.cpp
        case {"n_ctx": int(window)} | {"error": {"n_ctx": int(window)}}:
            return window
    found = _WINDOW.search(_message_in(error))
    return None if found is None else int(found["after"] or found["before"])


def _said(error: AgentRunError | UserError) -> str:
    """Return the provider's message on one line, without the request."""
    status = f" (status {error.status_code})" if isinstance(error, ModelHTTPError) else ""
    return one_line(_message_in(error), _LONGEST) + status


def _message_in(error: AgentRunError | UserError) -> str:
    """Return the provider's own message, as it stands in the body of its answer."""
    match error.body if isinstance(error, ModelAPIError) else None:
        case {"error": {"message": str(words)}} | {"message": str(words)}:
            return words
        case {"error": str(words)} | {"detail": str(words)} | str(words):
            return words
        case _:
            return str(error)


LARGEST_ATTACHMENT = 20 * 1024 * 1024
_NO_WORDS = "(no text)"
# How the name of a file ends, where that is not the second part of its media type.
_ENDINGS = {"jpeg": "jpg", "mpeg": "mp3", "plain": "txt", "markdown": "md", "octet-stream": "bin"}
_LONGEST_ENDING = 12
# The files that the library can send to each kind of model. One that it cannot would fail this turn of its session and
# every later one, because the file stays in the context.
_SEEN = {
    "OpenAIChatModel": ("image/", "application/pdf", "audio/wav", "audio/mpeg"),
    "OpenAIResponsesModel": ("image/", "application/pdf"),
    "AnthropicModel": ("image/", "application/pdf"),
    "GoogleModel": ("image/", "application/pdf", "audio/", "video/"),
    "BedrockConverseModel": ("image/", "application/pdf", "video/"),
    "MistralModel": ("image/", "application/pdf"),
    "XaiModel": ("image/", "application/pdf"),
    "CohereModel": (),
}
_SEEN_BY_OTHERS = ("image/",)
_READ = ("text/", "application/json", "application/xml", "application/yaml", "application/toml")
Blob = Callable[[str], Awaitable[bytes]]


def seen_by(model: Model) -> tuple[str, ...]:
    """Return how the types of the files begin that can be shown to a model; texts are shown to every one."""
    kinds = (kind.__name__ for kind in type(model).__mro__)
    return next((_SEEN[kind] for kind in kinds if kind in _SEEN), _SEEN_BY_OTHERS)


async def history(
    system_prompt: str,
    context: Sequence[Chat],
    blob: Blob,
    *,
    seen: tuple[str, ...] = _SEEN_BY_OTHERS,
) -> list[ModelMessage]:
    """Return the conversation in the library's form: requests and responses in alternation."""
    messages: list[ModelMessage] = []
    waiting: list[ModelRequestPart] = (
        [SystemPromptPart(sendable(system_prompt))] if system_prompt else []
    )
    names: dict[str, str] = {}
    for chat in context:
        if chat["role"] == "assistant":
            if waiting:
                messages.append(ModelRequest(parts=waiting))
                waiting = []
            response = _response(chat)
            names |= {call.tool_call_id: call.tool_name for call in response.tool_calls}
            messages.append(response)
        else:
            waiting.append(await _request_part(chat, names, blob, seen))
    if waiting:
        messages.append(ModelRequest(parts=waiting))
    return messages


def message_of(response: ModelResponse) -> Message:
    """Return the model's response as a message."""
    attached = iter(_attachments(_files_in(response)))
    parts = [
        next(attached) if isinstance(part, FilePart) and _is_kept(part.content) else _part(part)
        for part in response.parts
        if _says_something(part)
    ]
    if any(isinstance(part, Reasoning) and part.details for part in parts):
        parts = _with_details(parts, response)
    return Message(
        Role.ASSISTANT,
        tuple(parts),
        model=response.model_name,
        finish_reason=response.finish_reason,
        token_count=response.usage.output_tokens or None,
    )


def usage_of(
    response: ModelResponse, *, call_id: str, at: datetime, base_url: str | None, task: str | None
) -> Usage:
    """Return the usage and cost of a call; cached input is counted apart."""
    used = response.usage
    cached = used.cache_read_tokens + used.cache_write_tokens
    usage = Usage(
        model=response.model_name,
        input_tokens=max(0, used.input_tokens - cached),
        output_tokens=used.output_tokens,
        cache_read_tokens=used.cache_read_tokens,
        cache_write_tokens=used.cache_write_tokens,
        cache_write_1h_tokens=min(used.cache_write_1h_tokens, used.cache_write_tokens),
        reasoning_tokens=used.output_reasoning_tokens or used.details.get("reasoning_tokens", 0),
        # Another server may offer a model of a known name: the price depends on the endpoint.
        provider=response.provider_name if base_url is None else None,
        base_url=base_url,
        task=task,
        call_id=call_id,
        at=at,
        **_reported_cost(used.cost),
    )
    if used.input_tokens + used.output_tokens > 0:
        usage = prices.priced(usage, at=at)
    # By its endpoint, not by the API that it is compatible with: its price may differ.
    return usage if usage.provider else replace(usage, provider=urlsplit(base_url or "").hostname)


def _reported_cost(cost: Decimal | None) -> dict[str, Any]:
    if cost is None:
        return {}
    micros = int((cost * 1_000_000).to_integral_value(ROUND_HALF_UP))
    return {"cost_microusd": micros, "cost_status": CostStatus.REPORTED}


async def _request_part(
    chat: Chat, names: dict[str, str], blob: Blob, seen: tuple[str, ...]
) -> ModelRequestPart:
    match chat["role"]:
        case "system":
            return SystemPromptPart(sendable(chat_text(chat["content"])) or _NO_WORDS)
        case "tool":
            call_id = chat["tool_call_id"]
            name = names.get(call_id) or chat.get("tool_name") or "tool"
            text = sendable(chat_text(chat["content"]))
            shown = [await _user_content(each, blob, seen) for each in chat.get("attachments", ())]
            files = [each for each in shown if not isinstance(each, str)]
            text = "\n".join([text, *(each for each in shown if isinstance(each, str))])
            return ToolReturnPart(name, [text, *files] if files else text, call_id)
    content = chat["content"]
    if isinstance(content, str):
        return UserPromptPart(sendable(content) or _NO_WORDS)
    return UserPromptPart(
        [await _user_content(piece, blob, seen) for piece in content] or _NO_WORDS
    )


async def _user_content(
    piece: ChatText | ChatAttachment, blob: Blob, seen: tuple[str, ...]
) -> UserContent:
    if piece["type"] != "attachment":
        return sendable(piece["text"]) or _NO_WORDS
    media_type = piece["media_type"]
    label = sendable(f"{piece['name'] or 'a file'} ({media_type})")
    try:
        data = await blob(piece["blob"])
    except NotFound:
        return f"[attachment {label}: no longer kept]"
    if len(data) > LARGEST_ATTACHMENT:
        return f"[attachment {label}: too large to show, {len(data)} bytes]"
    if media_type.startswith(seen):
        shown = BinaryContent(data, media_type=media_type)
        with suppress(ValueError):  # the library does not know the type, and could not send it
            if shown.format:
                return shown
    if media_type.startswith(_READ):
        return f"[attachment {label}]\n{data.decode(errors='replace')}"
    return f"[attachment {label}: cannot be shown to the model]"


def _response(chat: Chat) -> ModelResponse:
    details = [each for each in chat.get("reasoning_details", ()) if _is_ours(each)]
    thoughts = sendable(chat.get("reasoning", ""))
    parts: list[ModelResponsePart] = list(_thoughts(thoughts, details))
    text = sendable(chat_text(chat["content"]))
    if text:
        parts.append(TextPart(text))
    for call in chat.get("tool_calls", ()):
        function, own = call["function"], call.get("details")
        known: dict[str, Any] = own if isinstance(own, dict) else {}
        parts.append(
            ToolCallPart(
                function["name"],
                function["arguments"],
                call["id"],
                id=known.get("id"),
                provider_name=known.get("provider"),
                provider_details=known.get("details"),
            )
        )
    first = details[0] if details else {}
    return ModelResponse(
        parts=parts or [TextPart(_NO_WORDS)],
        provider_name=first.get("provider"),
        canonical_system=first.get("system"),
    )


# A text may hold half of a character, which cannot be sent: every later turn of the conversation would fail.
sendable = codec.storable_text


def _thoughts(text: str, details: list[dict[str, Any]]) -> list[ThinkingPart]:
    """Return the reasoning parts with their signatures; unsigned ones cannot be sent back."""
    if sum(each["length"] + 1 for each in details) - 1 != len(text):
        return []
    parts, at = [], 0
    for each in details:
        parts.append(
            ThinkingPart(
                text[at : at + each["length"]],
                id=each.get("id"),
                signature=each.get("signature"),
                provider_name=each.get("provider"),
                provider_details=each.get("details"),
            )
        )
        at += each["length"] + 1
    return parts


def _is_ours(details: Any) -> bool:
    return isinstance(details, dict) and isinstance(details.get("length"), int)


def _part(part: ModelResponsePart) -> Part:
    match part:
        case TextPart():
            return Text(part.content)
        case ThinkingPart():
            details = _details_of(part, signature=part.signature)
            return Reasoning(part.content, details=details or None)
        case ToolCallPart():
            details = _details_of(part)
            return ToolCall(
                part.tool_call_id,
                part.tool_name,
                arguments_of(part),
                extra={"details": details} if details else {},
            )
        case FilePart():
            size = len(part.content.data)
            return Text(f"[the model made a file of {size} bytes: {part.content.media_type}]")
        case _:
            data = to_jsonable_python(part, bytes_mode="base64", serialize_unknown=True)
            return Unknown({"type": f"model_{part.part_kind}".replace("-", "_"), "data": data})


def _details_of(part: ThinkingPart | ToolCallPart, **more: Any) -> dict[str, Any]:
    """Return what a provider wants back with a part: an id, a signature and the like."""
    given = {"id": part.id, **more, "details": part.provider_details}
    known = {name: value for name, value in given.items() if value is not None}
    if part.provider_name is not None and (known or isinstance(part, ThinkingPart)):
        known["provider"] = part.provider_name
    made: dict[str, Any] = to_jsonable_python(known)
    return made


def _with_details(parts: list[Part], response: ModelResponse) -> list[Part]:
    """Note the length of each reasoning part: the context joins them into one text."""
    system = response.canonical_system
    named: dict[str, Any] = {} if system is None else {"system": system}
    return [
        Reasoning(part.text, named | {"length": len(part.text)} | (part.details or {}))
        if isinstance(part, Reasoning)
        else part
        for part in parts
    ]


def arguments_of(call: ToolCallPart) -> Any:
    """Return the arguments as an object, or unchanged if they are not one."""
    if not isinstance(call.args, str):
        return dict(call.args or {})
    try:
        read = codec.decode(call.args or "{}")
    except ValueError:
        return call.args
    return read if isinstance(read, dict) else call.args


def _says_something(part: ModelResponsePart) -> bool:
    return not isinstance(part, TextPart) or bool(part.content)


@dataclass(frozen=True, slots=True)
class ResultContent:
    """The content of a tool's result: a text, which names the files where they were, and the files."""

    text: str
    attachments: tuple[Attachment, ...] = ()
    files: tuple[bytes, ...] = ()


def result_content(content: Any, *, longest: int) -> ResultContent:
    """Return what is kept of a tool's result; of a file that cannot be kept, the type and size."""
    pieces = content if isinstance(content, list) else [content]
    found = [each for each in pieces if isinstance(each, BinaryContent)]
    if not found:
        return ResultContent(_cut(_as_text(content), longest))
    files = [each for each in found if _is_kept(each)]
    attachments = _attachments(files)
    notes = iter(attachment_note(each.name, each.media_type) for each in attachments)
    lines = []
    for each in pieces:
        if not isinstance(each, BinaryContent):
            lines.append(_as_text(each))
        elif _is_kept(each):
            lines.append(next(notes))
        else:
            why = "too large to keep" if each.data else "empty"
            lines.append(f"[{each.media_type}, {len(each.data)} bytes: {why}]")
    text = _cut("\n".join(lines), longest)
    return ResultContent(text, tuple(attachments), tuple(each.data for each in files))


def _as_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return codec.encode(to_jsonable_python(content, serialize_unknown=True))


def _cut(text: str, longest: int) -> str:
    left_out = len(text) - longest
    return text if left_out <= 0 else f"{text[:longest]}\n[{left_out} characters were left out]"


def _files_in(response: ModelResponse) -> list[BinaryContent]:
    """Return the files that the model made and that are kept."""
    found = [part.content for part in response.parts if isinstance(part, FilePart)]
    return [each for each in found if _is_kept(each)]


def _is_kept(content: BinaryContent) -> bool:
    return 0 < len(content.data) <= LARGEST_ATTACHMENT


def _attachments(files: Sequence[BinaryContent]) -> list[Attachment]:
    """Return the parts for files, which have no names of their own."""
    made = []
    for number, file in enumerate(files, 1):
        media_type = _media_type(file)
        kind, _, subtype = media_type.partition("/")
        kind = kind if kind in ("image", "audio", "video") else "file"
        ending = f".{_ENDINGS.get(subtype, subtype)}" if len(subtype) <= _LONGEST_ENDING else ""
        name, blob = f"{kind}-{number}{ending}", hashlib.sha256(file.data).hexdigest()
        made.append(Attachment(blob, media_type, name, len(file.data)))
    return made


def _media_type(file: BinaryContent) -> str:
    """Return what a file is by its bytes: providers refuse a picture that is declared as another kind of picture."""
    found = media_type_of(file.data, file.media_type)
    return one_line(file.media_type, _LONGEST) if found == BYTES else found


# The library requires a key even for servers that need none.
NO_KEY = "none"
OPENAI = "openai"
_ADDRESSES = {"ollama": "http://127.0.0.1:11434/v1"}
# Where the library puts the provider's own finish reason.
_SAY_WHY_ENDED = tuple(f"pydantic_ai.models.{name}" for name in ("openai", "anthropic", "google"))
_WANTED = re.compile(r"Set the `(\w+)` environment variable")


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """One finished response of the model."""

    response: ModelResponse
    message: Message
    calls: tuple[ToolCallPart, ...]

    @property
    def files(self) -> tuple[bytes, ...]:
        """Return the bytes of the files that the model made; the message has their names."""
        return tuple(each.data for each in _files_in(self.response))

    @property
    def response_id(self) -> str:
        """Return the provider's id of this response; not every provider's is unique."""
        return self.response.provider_response_id or "call"

    def usage(self, *, call_id: str, at: datetime, base_url: str | None, task: str | None) -> Usage:
        """Return its usage and cost."""
        return usage_of(self.response, call_id=call_id, at=at, base_url=base_url, task=task)


@dataclass(slots=True)
class Conversation:
    """The messages of one turn so far, and how to get the next response."""

    model: Model
    system_prompt: str
    messages: list[ModelMessage]
    settings: ModelSettings
    blob: "Blob"
    tools: Sequence[ToolDefinition] = ()
    requires_finish_reason: bool = True
    # What a program asks of the answer: which tools must be called first, and in which form it is to be.
    tool_choice: str | list[str] | None = None
    output: OutputFormat | None = None

    @property
    def overhead(self) -> int:
        """The estimated tokens of what is sent besides the messages."""
        return estimate(self.system_prompt) + estimate(self.tool_facts)

    @property
    def tool_facts(self) -> list[dict[str, Any]]:
        """The tools as the model is told of them."""
        return [
            {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters_json_schema,
            }
            for tool in self.tools
        ]

    async def replace(self, context: Sequence[Chat]) -> None:
        """Go on with another context: the conversation was compacted."""
        self.messages = await history(
            self.system_prompt, context, self.blob, seen=seen_by(self.model)
        )

    async def add(self, chats: Sequence[Chat]) -> None:
        """Add messages of people."""
        for message in await history("", chats, self.blob, seen=seen_by(self.model)):
            last = self.messages[-1] if self.messages else None
            if isinstance(message, ModelRequest) and isinstance(last, ModelRequest):
                self.messages[-1] = ModelRequest(parts=[*last.parts, *message.parts])
            else:
                self.messages.append(message)

    async def ask(self) -> AsyncGenerator[Delta | ModelAnswer]:
        """Stream the next response, then yield it whole; raise only our own errors."""
        parameters = ModelRequestParameters(function_tools=list(self.tools), **_output(self.output))
        settings: ModelSettings = self.settings
        if self.tool_choice is not None and self.tools:
            settings = cast(ModelSettings, {**settings, "tool_choice": self.tool_choice})
        try:
            async with model_request_stream(
                self.model,
                self.messages,
                model_settings=settings,
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
            # The connection was closed cleanly but too early: the response is incomplete.
            raise RetryLater(
                f"The model {self.model.model_name} closed the connection before its answer was complete.",
                0.0,
            )
        answer = ModelAnswer(response, message_of(response), tuple(response.tool_calls))
        if not answer.calls and not answer.message.text and not answer.files:
            # Some servers end a broken stream as if it were complete.
            raise RetryLater(f"The model {self.model.model_name} ended without an answer.", 0.0)
        yield answer

    async def take(self, answer: ModelAnswer, results: Sequence[Step]) -> None:
        """Add a response and its tool results, in the form in which the next turn reads them from the log."""
        files = {hashlib.sha256(data).hexdigest(): data for step in results for data in step.files}

        async def blob(name: str) -> bytes:
            return files[name] if name in files else await self.blob(name)

        [chat, *_] = chats_of(answer.message)
        names = {call.tool_call_id: call.tool_name for call in answer.calls}
        parts = [
            await _request_part(result, names, blob, seen_by(self.model))
            for step in results
            for result in chats_of(step.message)
        ]
        self.messages += [_response(chat), ModelRequest(parts=parts)]


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
        self, request: TurnRequest, context: Sequence[Chat], tools: Sequence[ToolDefinition]
    ) -> Conversation:
        """Return the conversation of a turn so far."""
        await self._open()
        name = str(request.settings.get("model") or self._default).removeprefix(f"{self._kind}:")
        if name not in self._models:
            self._models[name] = _model(self._kind, name, self._library)
        model = self._models[name]
        return Conversation(
            model,
            request.system_prompt,
            await history(request.system_prompt, context, request.blob, seen=seen_by(model)),
            self._settings(request.settings),
            request.blob,
            tools,
            self._options.requires_finish_reason,
            _tool_choice(request.options),
            request.options.output,
        )

    async def question(self, system_prompt: str, text: str) -> Conversation:
        """Return a conversation of one question, without tools."""
        await self._open()
        return Conversation(
            self._models[self._default],
            system_prompt,
            await history(system_prompt, [{"role": "user", "content": text}], _none),
            self._settings({}),
            _none,
            requires_finish_reason=self._options.requires_finish_reason,
        )

    async def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        async with self._lock:
            if self._is_open:
                self._is_open = False
                await self._library.__aexit__(None, None, None)

    async def _open(self) -> None:
        async with self._lock:
            if not self._is_open:
                await self._library.__aenter__()
                self._is_open = True

    def session_settings(self, of_session: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of the model's calls: the agent's, and those of the session, which override them."""
        own = {name: of_session[name] for name in SESSION_SETTINGS if name in of_session}
        return dict(self._options.settings) | own

    def _settings(self, of_session: Mapping[str, Any]) -> ModelSettings:
        # Retries are ours: the library's own would hide how long a call waited.
        base: dict[str, Any] = {"max_retries": 0, "timeout": self._options.timeout_seconds}
        if self._kind == "anthropic":
            base["cache"] = True
        return cast(ModelSettings, base | self.session_settings(of_session))


def _tool_choice(options: TurnOptions) -> str | list[str] | None:
    chosen = options.tool_choice
    if isinstance(chosen, tuple):
        return list(chosen)
    return None if chosen == "auto" else chosen


def _output(wanted: OutputFormat | None) -> dict[str, Any]:
    """Return how the library is asked for JSON."""
    if wanted is None:
        return {}
    if wanted.schema is None:
        schema = OutputObjectDefinition({"type": "object"})
        return {
            "output_mode": "prompted",
            "output_object": schema,
            "prompted_output_template": False,
        }
    return {
        "output_mode": "native",
        "output_object": OutputObjectDefinition(
            dict(wanted.schema), wanted.name, wanted.description, wanted.strict
        ),
    }


async def _none(blob: str) -> bytes:
    raise NotFound(f"There is no attachment {blob}.")


def _kind_and_name(options: ModelOptions) -> tuple[str, str]:
    """Split `provider:model`, unless the settings name the provider."""
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
        # The key in the environment is for the provider's own service, not for another server.
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
        # Loads OpenAI's library: saves 0.6 s of CPU time for the models of other providers.
        from pydantic_ai.models.openai import OpenAIChatModel

        # The API that compatible servers offer too, unlike OpenAI's newer one (`openai-responses`).
        return OpenAIChatModel(name, provider=library)
    return infer_model(f"{kind}:{name}", provider_factory=lambda _: library)


def _lacks_finish_reason(model: Model, response: ModelResponse) -> bool:
    """Whether the finish reason is missing from a provider that always reports one."""
    families = {each.__module__ for each in type(model).__mro__}
    if not any(name.startswith(_SAY_WHY_ENDED) for name in families):
        return False
    # With OpenAI's API the library reports `stop` where none came; the details hold what came.
    reason = (response.provider_details or {}).get("finish_reason")
    return reason is None and response.finish_reason != "content_filter"


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
