"""Between our chats and messages and those of pydantic-ai. Imported by `provider` alone."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any
from urllib.parse import urlsplit

from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_core import to_jsonable_python

from sessionary import prices
from sessionary.agents.chats import text_of
from sessionary.errors import NotFound
from sessionary.model import codec
from sessionary.model.message import Message, Part, Reasoning, Role, Text, ToolCall, Unknown
from sessionary.model.transcript import Chat
from sessionary.model.usage import CostStatus, Usage

LARGEST_ATTACHMENT = 20 * 1024 * 1024

_NO_WORDS = "(no text)"
_SEEN = ("image/", "audio/", "video/", "application/pdf")
_READ = ("text/", "application/json", "application/xml", "application/yaml", "application/toml")

Blob = Callable[[str], Awaitable[bytes]]


async def history(system_prompt: str, context: Sequence[Chat], blob: Blob) -> list[ModelMessage]:
    """The conversation as the library wants it: requests and responses by turns."""
    messages: list[ModelMessage] = []
    waiting: list[ModelRequestPart] = [SystemPromptPart(system_prompt)] if system_prompt else []
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
            waiting.append(await _request_part(chat, names, blob))
    if waiting:
        messages.append(ModelRequest(parts=waiting))
    return messages


def message_of(response: ModelResponse) -> Message:
    """What the model said, as we keep it."""
    parts = [_part(part) for part in response.parts if _says_something(part)]
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
    """What the call used and cost, in our way of counting: cached input stands apart."""
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
        # Another's server may have a model of a known name: only its address tells its price.
        provider=response.provider_name if base_url is None else None,
        base_url=base_url,
        task=task,
        call_id=call_id,
        at=at,
        **_reported_cost(used.cost),
    )
    if used.input_tokens + used.output_tokens > 0:
        usage = prices.priced(usage, at=at)
    # By its address, not by the name of whose language it speaks: it may be priced once more.
    return usage if usage.provider else replace(usage, provider=urlsplit(base_url or "").hostname)


def _reported_cost(cost: Decimal | None) -> dict[str, Any]:
    if cost is None:
        return {}
    micros = int((cost * 1_000_000).to_integral_value(ROUND_HALF_UP))
    return {"cost_microusd": micros, "cost_status": CostStatus.REPORTED}


async def _request_part(chat: Chat, names: dict[str, str], blob: Blob) -> ModelRequestPart:
    match chat["role"]:
        case "system":
            return SystemPromptPart(text_of(chat["content"]) or _NO_WORDS)
        case "tool":
            call_id = chat["tool_call_id"]
            name = names.get(call_id) or chat.get("tool_name") or "tool"
            return ToolReturnPart(name, chat["content"], call_id)
    content = chat["content"]
    if isinstance(content, str):
        return UserPromptPart(content or _NO_WORDS)
    return UserPromptPart([await _user_content(piece, blob) for piece in content] or _NO_WORDS)


async def _user_content(piece: Chat, blob: Blob) -> UserContent:
    if piece.get("type") != "attachment":
        return str(piece.get("text") or _NO_WORDS)
    media_type = str(piece.get("media_type") or "")
    label = f"{piece.get('name') or 'a file'} ({media_type})"
    try:
        data = await blob(piece["blob"])
    except NotFound:
        return f"[attachment {label}: no longer kept]"
    if len(data) > LARGEST_ATTACHMENT:
        return f"[attachment {label}: too large to show, {len(data)} bytes]"
    if media_type.startswith(_SEEN):
        return BinaryContent(data, media_type=media_type)
    if media_type.startswith(_READ):
        return f"[attachment {label}]\n{data.decode(errors='replace')}"
    return f"[attachment {label}: cannot be shown to the model]"


def _response(chat: Chat) -> ModelResponse:
    details = [each for each in chat.get("reasoning_details", ()) if _is_ours(each)]
    parts: list[ModelResponsePart] = list(_thoughts(chat.get("reasoning", ""), details))
    said = text_of(chat["content"])
    if said:
        parts.append(TextPart(said))
    for call in chat.get("tool_calls", ()):
        function = call["function"]
        parts.append(ToolCallPart(function["name"], function["arguments"], call["id"]))
    first = details[0] if details else {}
    return ModelResponse(
        parts=parts or [TextPart(_NO_WORDS)],
        provider_name=first.get("provider"),
        canonical_system=first.get("system"),
    )


def _thoughts(text: str, details: list[dict[str, Any]]) -> list[ThinkingPart]:
    """The model's thoughts as it signed them; unsigned ones are of no use to it any more."""
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
            given = {
                "id": part.id,
                "signature": part.signature,
                "provider": part.provider_name,
                "details": part.provider_details,
            }
            kept = {name: value for name, value in given.items() if value is not None}
            return Reasoning(part.content, details=to_jsonable_python(kept) or None)
        case ToolCallPart():
            return ToolCall(part.tool_call_id, part.tool_name, arguments_of(part))
        case FilePart():
            return Text(f"[the model made a file: {part.content.media_type}]")
        case _:
            data = to_jsonable_python(part, bytes_mode="base64", serialize_unknown=True)
            return Unknown({"type": f"model_{part.part_kind}".replace("-", "_"), "data": data})


def _with_details(parts: list[Part], response: ModelResponse) -> list[Part]:
    """Say how long each thought is: the context joins them into one text."""
    system = response.canonical_system
    named: dict[str, Any] = {} if system is None else {"system": system}
    return [
        Reasoning(part.text, named | {"length": len(part.text)} | (part.details or {}))
        if isinstance(part, Reasoning)
        else part
        for part in parts
    ]


def arguments_of(call: ToolCallPart) -> Any:
    """The arguments as an object; as they came when they are none."""
    if not isinstance(call.args, str):
        return dict(call.args or {})
    try:
        read = codec.decode(call.args or "{}")
    except ValueError:
        return call.args
    return read if isinstance(read, dict) else call.args


def _says_something(part: ModelResponsePart) -> bool:
    return not isinstance(part, TextPart) or bool(part.content)


def result_text(content: Any, *, longest: int) -> str:
    """A tool's answer as text; what is not text is named."""
    if isinstance(content, str):
        text = content
    elif isinstance(content, BinaryContent):
        text = f"[{content.media_type}, {len(content.data)} bytes]"
    elif isinstance(content, list) and any(isinstance(each, BinaryContent) for each in content):
        text = "\n".join(result_text(each, longest=longest) for each in content)
    else:
        text = codec.encode(to_jsonable_python(content, serialize_unknown=True))
    left_out = len(text) - longest
    return text if left_out <= 0 else f"{text[:longest]}\n[{left_out} characters were left out]"
