"""Messages in the JSON of the semantic conventions: read from other programs, written for our spans."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sessionary.model import message as parts_of
from sessionary.model.message import (
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from sessionary.model.usage import Usage

Json = dict[str, Any]
_ROLES = {
    "user": Role.USER,
    "human": Role.USER,
    "assistant": Role.ASSISTANT,
    "ai": Role.ASSISTANT,
    "model": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}
_NUMBERED = re.compile(r"(\d{1,4})\.(.+)")
_RESULTS = ("tool_call_response", "tool_result", "tool_return")
MAX_CHARACTERS = 200_000


def decode_json(value: Any) -> Any:
    """Decode an attribute that holds JSON; return anything else as it is."""
    if not isinstance(value, str) or value[:1] not in ("[", "{", '"'):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def decode_messages(value: Any, *, role: str = "user") -> list[Message]:
    """Decode a list of messages, in any form that instrumentations send."""
    listed = decode_json(value)
    if isinstance(listed, str):
        listed = [{"role": role, "content": listed}] if listed else []
    if isinstance(listed, dict):
        listed = [listed]
    if not isinstance(listed, list):
        return []
    return [made for each in listed for made in _decode_message(each, role)]


def decode_numbered(attributes: Mapping[str, Any], prefix: str, *, role: str) -> list[Message]:
    """The messages of attributes like `gen_ai.prompt.0.content`."""
    chats: dict[int, Json] = {}
    for name, value in attributes.items():
        found = _NUMBERED.fullmatch(name.removeprefix(prefix)) if name.startswith(prefix) else None
        if found is not None:
            _set_field(chats.setdefault(int(found[1]), {}), found[2], value)
    return [made for _, chat in sorted(chats.items()) for made in _decode_message(chat, role)]


def decode_text(value: Any) -> str | None:
    """The text of a system instruction: a string or a list of parts."""
    listed = decode_json(value)
    if isinstance(listed, str):
        return listed or None
    if isinstance(listed, list):
        found = [_part_text(each) for each in listed]
        return "\n\n".join(text for text in found if text) or None
    return None


def _set_field(chat: Json, path: str, value: Any) -> None:
    """Set `tool_calls.0.name` and the like where a chat dictionary has them."""
    first, _, rest = path.partition(".")
    found = _NUMBERED.fullmatch(rest)
    if first == "tool_calls" and found is not None:
        calls: dict[int, Json] = chat.setdefault("tool_calls", {})
        calls.setdefault(int(found[1]), {})[found[2]] = value
    else:
        chat[path] = value


def _decode_message(chat: Any, role: str) -> Iterator[Message]:
    """Decode one message; each tool result in it becomes a message of its own."""
    if isinstance(chat, str):
        chat = {"content": chat}
    if not isinstance(chat, dict):
        return
    named = str(chat.get("role") or role).lower()
    known = _ROLES.get(named, Role.USER)
    parts = list(_decode_parts(chat, known))
    reason = chat.get("finish_reason")
    results = [part for part in parts if isinstance(part, ToolResult)]
    others = tuple(part for part in parts if not isinstance(part, ToolResult))
    # Tool results come first: they answer what came before the text.
    yield from (Message(Role.TOOL, (result,)) for result in results)
    if others:
        role_of_others = Role.USER if known is Role.TOOL and results else known
        is_reply = isinstance(reason, str) and role_of_others is Role.ASSISTANT
        yield Message(role_of_others, others, finish_reason=reason if is_reply else None)


def _decode_parts(chat: Json, role: Role) -> Iterator[Part]:
    content = decode_json(chat["parts"]) if "parts" in chat else chat.get("content")
    content = (
        decode_json(content) if not isinstance(content, str) or content[:1] == "[" else content
    )
    if role is Role.TOOL and "parts" not in chat:
        if content is None:
            return  # the instrumentation does not send it
        call_id = chat.get("tool_call_id") or chat.get("id") or ""
        name = chat.get("name")
        yield ToolResult(str(call_id), content or "", name if isinstance(name, str) else None)
        return
    if isinstance(content, str):
        if content:
            yield Text(content)
    elif isinstance(content, list):
        yield from (_decode_part(each) for each in content)
    elif content is not None:
        yield _decode_part(content)
    yield from _decode_calls(chat.get("tool_calls"))


def _decode_part(data: Any) -> Part:
    if not isinstance(data, dict):
        return Text(data) if isinstance(data, str) else _decode_unknown({"value": data})
    match data.get("type"):
        case "text" | "input_text" | "output_text":
            return Text(str(data.get("content", data.get("text")) or ""))
        case "reasoning" | "thinking":
            return Reasoning(str(data.get("content", data.get("text")) or ""))
        case "tool_call":
            return _decode_call(data)
        case kind if kind in _RESULTS:
            return _decode_result(data)
    return _decode_unknown(data)


def _decode_call(data: Mapping[str, Any]) -> ToolCall:
    function = data.get("function")
    facts = function if isinstance(function, dict) else data
    name = facts.get("name")
    return ToolCall(str(data.get("id") or ""), str(name or "unknown"), facts.get("arguments"))


def _decode_result(data: Mapping[str, Any]) -> ToolResult:
    answers = (data[name] for name in ("response", "result", "content") if name in data)
    name = data.get("name")
    return ToolResult(
        str(data.get("id") or data.get("tool_call_id") or ""),
        next(answers, ""),
        name if isinstance(name, str) else None,
    )


def _decode_calls(value: Any) -> Iterable[ToolCall]:
    listed = decode_json(value)
    if isinstance(listed, dict):
        listed = [each for _, each in sorted(listed.items(), key=lambda pair: str(pair[0]))]
    if not isinstance(listed, list):
        return []
    return [_decode_call(each) for each in listed if isinstance(each, dict)]


def _decode_unknown(data: Mapping[str, Any]) -> Unknown:
    """Keep a part as it came; under another type if ours has that name."""
    made = parts_of.from_json(dict(data))
    return made if isinstance(made, Unknown) else Unknown({"type": "as_given", "value": dict(data)})


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        return str(part.get("content", part.get("text")) or "")
    return ""


def encode_messages(messages: Iterable[Message]) -> str:
    """Messages as the conventions' JSON."""
    return json.dumps([_encode_message(each) for each in messages], ensure_ascii=False)[
        :MAX_CHARACTERS
    ]


def encode_context(context: Iterable[Mapping[str, Any]]) -> str:
    """A model's context as the conventions' JSON."""
    return json.dumps([_encode_chat(each) for each in context], ensure_ascii=False)[:MAX_CHARACTERS]


def encode_usage(used: Iterable[Usage]) -> Json:
    """The tokens of calls; the conventions count cached tokens as input."""
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


def _encode_message(message: Message) -> Json:
    encoded: Json = {
        "role": str(message.role),
        "parts": [made for part in message.parts if (made := _encode_part(part)) is not None],
    }
    return (
        encoded
        if message.finish_reason is None
        else encoded | {"finish_reason": message.finish_reason}
    )


def _encode_part(part: Part) -> Json | None:
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


def _encode_chat(chat: Mapping[str, Any]) -> Json:
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
