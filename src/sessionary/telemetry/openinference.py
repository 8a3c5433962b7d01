"""Translates spans of the OpenInference conventions into the conventions for generative AI."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sessionary.telemetry import messages
from sessionary.telemetry.span import Span

KIND = "openinference.span.kind"
Json = dict[str, Any]
_MESSAGE = re.compile(r"(\d{1,4})\.message\.(.+)")
_NUMBERED = re.compile(r"(\d{1,4})\.(.+)")
_OPERATIONS = {"LLM": "chat", "AGENT": "invoke_agent", "EMBEDDING": "embeddings"}
_NAMES = {
    "session.id": "gen_ai.conversation.id",
    "llm.model_name": "gen_ai.response.model",
    "embedding.model_name": "gen_ai.response.model",
    "llm.provider": "gen_ai.provider.name",
    "llm.system": "gen_ai.system",
    "llm.token_count.prompt": "gen_ai.usage.input_tokens",
    "llm.token_count.completion": "gen_ai.usage.output_tokens",
    "llm.token_count.prompt_details.cache_read": "gen_ai.usage.cache_read.input_tokens",
    "llm.token_count.prompt_details.cache_write": "gen_ai.usage.cache_creation.input_tokens",
    "llm.token_count.completion_details.reasoning": "gen_ai.usage.reasoning.output_tokens",
}


def kind_of(span: Span) -> str | None:
    """The kind of an OpenInference span, in capitals; None for any other span."""
    found = span.attributes.get(KIND)
    return None if found is None else str(found).upper()[:40]


def translate(span: Span) -> Span:
    """Add the attributes of the conventions for generative AI to an OpenInference span.

    Attributes that the span already has stay. A span of a kind without messages (a chain, a
    retriever) gets only its conversation's id.
    """
    kind = kind_of(span)
    if kind is None:
        return span
    given = span.attributes
    made: Json = {}
    if kind in _OPERATIONS:
        made["gen_ai.operation.name"] = _OPERATIONS[kind]
        made |= {ours: given[name] for name, ours in _NAMES.items() if name in given}
        inputs, outputs = _input_messages(given, kind), _output_messages(given, kind)
        if inputs:
            made["gen_ai.input.messages"] = inputs
        if outputs:
            made["gen_ai.output.messages"] = outputs
    elif kind == "TOOL" and (call_id := given.get("tool_call.id") or given.get("tool.id")):
        made["gen_ai.operation.name"] = "execute_tool"
        made["gen_ai.tool.call.id"] = call_id
        made["gen_ai.tool.name"] = given.get("tool.name") or span.name
        if "output.value" in given:
            made["gen_ai.tool.call.result"] = given["output.value"]
    if "session.id" in given:
        made["gen_ai.conversation.id"] = given["session.id"]
    return replace(span, attributes={**made, **given})


def _input_messages(given: Mapping[str, Any], kind: str) -> list[Json]:
    found = _messages(given, "llm.input_messages.")
    if found:
        return found
    value = _value(given, "input")
    if isinstance(value, str) and value and kind != "EMBEDDING":
        return [{"role": "user", "content": value}]
    if isinstance(value, dict) and isinstance(value.get("messages"), list) and kind == "LLM":
        return [each for each in value["messages"] if isinstance(each, dict)]
    return []


def _output_messages(given: Mapping[str, Any], kind: str) -> list[Json]:
    found = _messages(given, "llm.output_messages.")
    value = _value(given, "output")
    if not found and isinstance(value, str) and value and kind != "EMBEDDING":
        found = [{"role": "assistant", "content": value}]
    if not found and isinstance(value, dict) and kind == "LLM":
        choices = value.get("choices")
        found = [
            each["message"]
            for each in (choices if isinstance(choices, list) else ())
            if isinstance(each, dict) and isinstance(each.get("message"), dict)
        ]
    reason = given.get("llm.finish_reason")
    return [{"finish_reason": reason, **each} for each in found] if reason else found


def _value(given: Mapping[str, Any], side: str) -> Any:
    """The input or output of a span as one value: a text, or decoded JSON."""
    value = given.get(f"{side}.value")
    if given.get(f"{side}.mime_type") == "application/json":
        found = messages.decode_json(value)
        return None if isinstance(found, str) else found
    return value


def _messages(given: Mapping[str, Any], prefix: str) -> list[Json]:
    chats: dict[int, Json] = {}
    for name, value in given.items():
        found = _MESSAGE.fullmatch(name.removeprefix(prefix)) if name.startswith(prefix) else None
        if found is not None:
            _put(chats.setdefault(int(found[1]), {}), found[2], value)
    return [_chat(chat) for _, chat in sorted(chats.items())]


def _put(chat: Json, path: str, value: Any) -> None:
    """Put `tool_calls.0.tool_call.id` and the like where they belong."""
    first, _, rest = path.partition(".")
    found = _NUMBERED.fullmatch(rest) if first in ("contents", "tool_calls") else None
    if found is None:
        chat[path] = value
    else:
        chat.setdefault(first, {}).setdefault(int(found[1]), {})[found[2]] = value


def _chat(chat: Json) -> Json:
    calls = [
        {
            "id": call.get("tool_call.id"),
            "function": {
                "name": call.get("tool_call.function.name"),
                "arguments": call.get("tool_call.function.arguments"),
            },
        }
        for _, call in sorted(chat.pop("tool_calls", {}).items())
    ]
    pieces = [_piece(piece) for _, piece in sorted(chat.pop("contents", {}).items())]
    if "function_call_name" in chat:  # as older versions have it
        arguments = chat.pop("function_call_arguments_json", None)
        function = {"name": chat.pop("function_call_name"), "arguments": arguments}
        calls.append({"id": None, "function": function})
    if calls:
        chat["tool_calls"] = calls
    if pieces and not chat.get("content"):
        chat["content"] = pieces
    return chat


def _piece(piece: Json) -> Json:
    kind = piece.get("message_content.type")
    url = piece.get("message_content.image.image.url")
    if url is not None:
        return {"type": "image_url", "image_url": {"url": url}}
    text = piece.get("message_content.text")
    return {"type": str(kind or "text"), "text": text if isinstance(text, str) else ""}
