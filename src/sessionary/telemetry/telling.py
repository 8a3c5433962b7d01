"""Our messages in the words of the semantic conventions: what `told` reads, written."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sessionary.model.message import Message, Part, Reasoning, Text, ToolCall, ToolResult
from sessionary.model.usage import Usage

Json = dict[str, Any]
LONGEST = 200_000


def messages_text(said: Iterable[Message]) -> str:
    """Messages as the conventions' JSON."""
    return json.dumps([_message(each) for each in said], ensure_ascii=False)[:LONGEST]


def context_text(context: Iterable[Mapping[str, Any]]) -> str:
    """What a model reads, as the conventions' JSON."""
    return json.dumps([_chat(each) for each in context], ensure_ascii=False)[:LONGEST]


def usage_attributes(used: Iterable[Usage]) -> Json:
    """What calls used; the conventions count cached tokens as a part of the input."""
    calls = list(used)
    if not calls:
        return {}
    read, written = (
        sum(getattr(each, name) for each in calls)
        for name in ("cache_read_tokens", "cache_write_tokens")
    )
    found: Json = {
        "gen_ai.usage.input_tokens": sum(each.input_tokens for each in calls) + read + written,
        "gen_ai.usage.output_tokens": sum(each.output_tokens for each in calls),
        "gen_ai.usage.cache_read.input_tokens": read,
        "gen_ai.usage.cache_creation.input_tokens": written,
        "gen_ai.response.model": next((each.model for each in calls if each.model), None),
        "gen_ai.provider.name": next((each.provider for each in calls if each.provider), None),
    }
    return {name: value for name, value in found.items() if value is not None}


def _message(said: Message) -> Json:
    told: Json = {
        "role": str(said.role),
        "parts": [made for part in said.parts if (made := _part(part)) is not None],
    }
    return told if said.finish_reason is None else told | {"finish_reason": said.finish_reason}


def _part(part: Part) -> Json | None:
    match part:
        case Text(text):
            return {"type": "text", "content": text}
        case Reasoning(text):
            return {"type": "reasoning", "content": text}
        case ToolCall(id=id, name=name, arguments=arguments):
            return {"type": "tool_call", "id": id, "name": name, "arguments": arguments}
        case ToolResult(call_id=call_id, content=content):
            return {"type": "tool_call_response", "id": call_id, "response": content}
    return None


def _chat(chat: Mapping[str, Any]) -> Json:
    content = chat.get("content")
    if chat["role"] == "tool":
        answer = {"type": "tool_call_response", "id": chat.get("tool_call_id"), "response": content}
        return {"role": "tool", "parts": [answer]}
    parts: list[Json] = []
    if content:
        parts.append({"type": "text", "content": content})
    for call in chat.get("tool_calls", ()):
        facts = call["function"]
        parts.append({"type": "tool_call", "id": call["id"], **facts})
    return {"role": chat["role"], "parts": parts}
