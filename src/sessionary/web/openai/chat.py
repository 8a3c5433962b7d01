"""`POST /v1/chat/completions`: a chat with an agent, in OpenAI's form, streamed or whole."""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

import msgspec
from fastapi import Request
from msgspec import Struct
from starlette.responses import Response

from sessionary.engine.exchange import NamedSession
from sessionary.errors import BadInput
from sessionary.formats.chat_completions import (
    BadParameter,
    call_json,
    read_chat,
    read_output_format,
    read_tool_choice,
    read_tools,
)
from sessionary.model.turn import TurnState
from sessionary.model.turn_answer import TurnAnswer
from sessionary.model.turn_options import TurnOptions
from sessionary.model.usage import UsageTotal
from sessionary.model.view import question_json
from sessionary.web.auth import Writer, context_of
from sessionary.web.openai.conversations import named_session
from sessionary.web.openai.errors import ApiError
from sessionary.web.openai.exchange import (
    SESSION_HEADER,
    Exchange,
    ExchangeEvent,
    ExchangeRequest,
    ExchangeResult,
    ReasoningDelta,
    StreamedAnswer,
    TextDelta,
    begin_exchange,
    facts_of,
    source_of,
)
from sessionary.web.openai.files import with_files
from sessionary.web.requests import read_body
from sessionary.web.responses import encode
from sessionary.web.routing import JSON, api_router

router = api_router(prefix="/v1", include_in_schema=False)
B = TypeVar("B", bound=Struct)
# Where msgspec says that a value is wrong.
_AT = re.compile(r" - at `\$\.?([^`]*)`")
_EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
_MOST_STOPS = 4


class ChatBody(Struct, kw_only=True):
    """The body of a request; what is not here changes nothing, and is ignored."""

    model: str
    messages: list[Any]
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: dict[str, Any] | None = None
    tools: list[Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    modalities: list[str] | None = None
    audio: Any = None
    functions: Any = None
    function_call: Any = None
    web_search_options: Any = None
    user: str | None = None
    safety_identifier: str | None = None
    metadata: dict[str, Any] | None = None
    session: str | dict[str, Any] | None = None
    conversation: str | dict[str, Any] | None = None


async def read_request(request: Request, kind: type[B]) -> B:
    """Read the body of a request; an error names the parameter that is wrong."""
    try:
        return await read_body(request, kind)
    except BadInput as error:
        found = _AT.search(str(error))
        text = _AT.sub("", str(error))
        if isinstance(error.__cause__, msgspec.ValidationError):
            param = None if found is None else found[1] or None
            missing = re.search(r"required field `([^`]+)`", text)
            raise ApiError(
                400,
                f"{param or 'The body'}: {text} Nothing was stored.",
                code="missing_required_parameter" if missing else "invalid_type",
                param=missing[1] if missing else param,
            ) from error
        raise ApiError(400, str(error), code="invalid_json") from error


@router.post("/chat/completions")
async def create_chat_completion(request: Request, caller: Writer) -> Response:
    """Answer a conversation, in the session that it continues."""
    body = await read_request(request, ChatBody)
    _refuse_unsupported(body)
    facts = facts_of(request)
    person = user_of(body.user, body.safety_identifier)
    name = named_session(
        {
            SESSION_HEADER: facts.session,
            "metadata.session": (body.metadata or {}).get("session"),
            "session": body.session,
            "conversation": body.conversation,
        }
    )
    try:
        messages = await with_files(context_of(request), caller, body.messages)
        chat = read_chat(messages, person=source_of(caller, person).person)
        options = _options(body, chat.instructions)
    except BadParameter as error:
        raise ApiError(400, str(error), code="invalid_value", param=error.param) from error
    wanted = ExchangeRequest(
        caller=caller,
        model=body.model,
        messages=chat.messages,
        place=None if name is None else NamedSession(name),
        options=options,
        person=person,
        idempotency_key=facts.idempotency_key,
        fingerprint=facts.fingerprint,
        is_retry=facts.is_retry,
    )
    exchange = await begin_exchange(request, wanted)
    if body.stream:
        chunks = _Chunks(exchange, body)
        return StreamedAnswer(exchange, chunks.frames, error_frame)
    try:
        result = await exchange.result()
    finally:
        await exchange.close()
    result.check()
    return Response(encode(completion(exchange, result)), 200, exchange.headers, JSON)


def user_of(*given: str | None) -> str | None:
    """The user that a program names, by whichever of its fields."""
    return next((each.strip() for each in given if each is not None and each.strip()), None)


def _refuse_unsupported(body: ChatBody) -> None:
    """Refuse what would change the answer and is not there; an answer that ignores it would be wrong."""
    unsupported = {
        "n": body.n not in (None, 1),
        "logprobs": bool(body.logprobs) or bool(body.top_logprobs),
        "modalities": body.modalities is not None and body.modalities != ["text"],
        "audio": body.audio is not None,
        "functions": bool(body.functions),
        "function_call": body.function_call is not None,
        "web_search_options": body.web_search_options is not None,
    }
    instead = {
        "n": "Only one answer can be given",
        "functions": "Use `tools`",
        "function_call": "Use `tool_choice`",
    }
    for param, is_there in unsupported.items():
        if is_there:
            raise ApiError(
                400,
                f"`{param}` is not supported here. {instead.get(param, 'Leave it out')}; nothing was stored.",
                code="unsupported_parameter",
                param=param,
            )


def _options(body: ChatBody, instructions: str) -> TurnOptions:
    choice, tools = read_tool_choice(body.tool_choice, read_tools(body.tools))
    settings = model_settings(
        {
            "temperature": body.temperature,
            "top_p": body.top_p,
            "max_tokens": body.max_tokens
            if body.max_completion_tokens is None
            else body.max_completion_tokens,
            "seed": body.seed,
            "frequency_penalty": body.frequency_penalty,
            "presence_penalty": body.presence_penalty,
            "logit_bias": body.logit_bias or None,
            "stop_sequences": _stops(body.stop),
            "thinking": thinking_of(body.reasoning_effort),
            "parallel_tool_calls": body.parallel_tool_calls if tools else None,
        }
    )
    return TurnOptions(
        instructions=instructions,
        tools=tools,
        tool_choice=choice,
        settings=settings,
        output=read_output_format(body.response_format),
    )


# The least and the most that a number may be.
_RANGES = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
    "max_tokens": (1, 10_000_000),
}


def model_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a model that were given; raise `BadParameter` for one that no model takes."""
    found = {name: value for name, value in given.items() if value is not None}
    for name, (least, most) in _RANGES.items():
        if name in found and not least <= found[name] <= most:
            raise BadParameter(
                f"`{name}` is from {least} to {most}, not {found[name]}; nothing was stored.", name
            )
    return found


def thinking_of(effort: str | None) -> str | bool | None:
    """Return how much a model is to think; raise `BadParameter` for an unknown word."""
    if effort is None:
        return None
    if effort == "none":
        return False
    if effort not in _EFFORTS:
        raise BadParameter(
            f"reasoning_effort is one of none, {', '.join(_EFFORTS)}; nothing was stored.",
            "reasoning_effort",
        )
    return effort


def _stops(stop: str | list[str] | None) -> list[str] | None:
    stops = [stop] if isinstance(stop, str) else stop
    if stops is not None and len(stops) > _MOST_STOPS:
        raise BadParameter(f"`stop` has at most {_MOST_STOPS} texts; nothing was stored.", "stop")
    return stops or None


def usage_json(used: UsageTotal) -> dict[str, Any]:
    """What a turn used, from the ledger: the model's calls of the agent's own tools included."""
    read = used.input_tokens + used.cache_read_tokens + used.cache_write_tokens
    return {
        "prompt_tokens": read,
        "completion_tokens": used.output_tokens,
        "total_tokens": read + used.output_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cache_read_tokens},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
    }


def finish_reason(answer: TurnAnswer) -> str:
    """Why the answer ended, in OpenAI's words."""
    if answer.calls:
        return "tool_calls"
    known = {"length": "length", "max_tokens": "length", "content_filter": "content_filter"}
    return known.get(answer.finish_reason or "", "stop")


def completion(exchange: Exchange, result: ExchangeResult) -> dict[str, Any]:
    """The whole answer."""
    answer = result.answer
    message: dict[str, Any] = {
        "role": "assistant",
        "content": answer.text if answer.text or not answer.calls else None,
        "refusal": None,
        "annotations": [],
    }
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [call_json(each) for each in answer.calls]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": finish_reason(answer),
    }
    return {
        "id": f"chatcmpl-{exchange.turn_id}",
        "object": "chat.completion",
        "created": exchange.created,
        "model": exchange.wanted.model,
        "choices": [choice],
        "usage": usage_json(result.usage),
        "sessionary": facts_json(exchange, result),
    }


def facts_json(exchange: Exchange, result: ExchangeResult) -> dict[str, Any]:
    """What OpenAI's form has no place for: the session, the turn, and what it asks people."""
    facts: dict[str, Any] = {
        "session_id": exchange.session_id,
        "turn_id": exchange.turn_id,
        "seq": result.last_seq,
        "state": result.turn.state,
    }
    if result.turn.state is TurnState.WAITING:
        facts["questions"] = [question_json(each) for each in result.questions]
    return facts


class _Chunks:
    """The chunks of a streamed answer, each an event."""

    def __init__(self, exchange: Exchange, body: ChatBody) -> None:
        self._exchange = exchange
        self._has_usage = bool((body.stream_options or {}).get("include_usage"))

    async def frames(self, events: AsyncIterator[ExchangeEvent]) -> AsyncIterator[bytes]:
        yield self._chunk({"role": "assistant", "content": "", "refusal": None})
        async for event in events:
            match event:
                case TextDelta(text=text):
                    yield self._chunk({"content": text})
                case ReasoningDelta(text=text):
                    yield self._chunk({"reasoning_content": text})
                case ExchangeResult():
                    for frame in self._end(event):
                        yield frame
        yield b"data: [DONE]\n\n"

    def _end(self, result: ExchangeResult) -> list[bytes]:
        result.check()
        calls = [
            {"index": index, **call_json(each)} for index, each in enumerate(result.answer.calls)
        ]
        frames = [self._chunk({"tool_calls": calls})] if calls else []
        facts = {"sessionary": facts_json(self._exchange, result)}
        frames.append(self._chunk({}, finish=finish_reason(result.answer), more=facts))
        if self._has_usage:
            frames.append(self._frame({"choices": [], "usage": usage_json(result.usage)}))
        return frames

    def _chunk(
        self,
        delta: Mapping[str, Any],
        *,
        finish: str | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self._has_usage else {}
        return self._frame({"choices": [choice], **usage, **(more or {})})

    def _frame(self, data: Mapping[str, Any]) -> bytes:
        chunk = {
            "id": f"chatcmpl-{self._exchange.turn_id}",
            "object": "chat.completion.chunk",
            "created": self._exchange.created,
            "model": self._exchange.wanted.model,
            **data,
        }
        return b"data: " + encode(chunk) + b"\n\n"


def error_frame(error: ApiError) -> bytes:
    """An error in a stream that has begun."""
    return b"data: " + encode(error.body) + b"\n\n"
