"""Messages as instrumentations tell them: parts, chat dictionaries, events, numbered attributes."""

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


def decoded(value: Any) -> Any:
    """What an attribute holds: JSON as a value, anything else as it is."""
    if not isinstance(value, str) or value[:1] not in ("[", "{", '"'):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def messages_of(value: Any, *, role: str = "user") -> list[Message]:
    """The messages in a list of them, in whatever form they are told."""
    listed = decoded(value)
    if isinstance(listed, str):
        listed = [{"role": role, "content": listed}] if listed else []
    if isinstance(listed, dict):
        listed = [listed]
    if not isinstance(listed, list):
        return []
    return [made for each in listed for made in _of_chat(each, role)]


def numbered(attributes: Mapping[str, Any], prefix: str, *, role: str) -> list[Message]:
    """The messages of attributes like `gen_ai.prompt.0.content`."""
    chats: dict[int, Json] = {}
    for name, value in attributes.items():
        found = _NUMBERED.fullmatch(name.removeprefix(prefix)) if name.startswith(prefix) else None
        if found is not None:
            _put(chats.setdefault(int(found[1]), {}), found[2], value)
    return [made for _, chat in sorted(chats.items()) for made in _of_chat(chat, role)]


def text_of(value: Any) -> str | None:
    """The words of a system instruction, a text or a list of parts."""
    listed = decoded(value)
    if isinstance(listed, str):
        return listed or None
    if isinstance(listed, list):
        found = [_words(each) for each in listed]
        return "\n\n".join(text for text in found if text) or None
    return None


def _put(chat: Json, path: str, value: Any) -> None:
    """Put `tool_calls.0.name` where a chat dictionary has it."""
    first, _, rest = path.partition(".")
    found = _NUMBERED.fullmatch(rest)
    if first == "tool_calls" and found is not None:
        calls: dict[int, Json] = chat.setdefault("tool_calls", {})
        calls.setdefault(int(found[1]), {})[found[2]] = value
    else:
        chat[path] = value


def _of_chat(chat: Any, role: str) -> Iterator[Message]:
    """One told message; what a person and a tool said in it become messages of their own."""
    if isinstance(chat, str):
        chat = {"content": chat}
    if not isinstance(chat, dict):
        return
    named = str(chat.get("role") or role).lower()
    known = _ROLES.get(named, Role.USER)
    parts = list(_parts(chat, known))
    reason = chat.get("finish_reason")
    results = [part for part in parts if isinstance(part, ToolResult)]
    others = tuple(part for part in parts if not isinstance(part, ToolResult))
    # A tool's answer goes first: a person who speaks in the same breath speaks after it.
    yield from (Message(Role.TOOL, (result,)) for result in results)
    if others:
        spoken = Role.USER if known is Role.TOOL and results else known
        finish = reason if isinstance(reason, str) and spoken is Role.ASSISTANT else None
        yield Message(spoken, others, finish_reason=finish)


def _parts(chat: Json, role: Role) -> Iterator[Part]:
    content = decoded(chat["parts"]) if "parts" in chat else chat.get("content")
    content = decoded(content) if not isinstance(content, str) or content[:1] == "[" else content
    if role is Role.TOOL and "parts" not in chat:
        if content is None:
            return  # the instrumentation keeps the words to itself
        call_id = chat.get("tool_call_id") or chat.get("id") or ""
        name = chat.get("name")
        yield ToolResult(str(call_id), content or "", name if isinstance(name, str) else None)
        return
    if isinstance(content, str):
        if content:
            yield Text(content)
    elif isinstance(content, list):
        yield from (_part(each) for each in content)
    elif content is not None:
        yield _part(content)
    yield from _calls(chat.get("tool_calls"))


def _part(data: Any) -> Part:
    if not isinstance(data, dict):
        return Text(data) if isinstance(data, str) else _other({"value": data})
    match data.get("type"):
        case "text" | "input_text" | "output_text":
            return Text(str(data.get("content", data.get("text")) or ""))
        case "reasoning" | "thinking":
            return Reasoning(str(data.get("content", data.get("text")) or ""))
        case "tool_call":
            return _call(data)
        case kind if kind in _RESULTS:
            return _result(data)
    return _other(data)


def _call(data: Mapping[str, Any]) -> ToolCall:
    function = data.get("function")
    facts = function if isinstance(function, dict) else data
    name = facts.get("name")
    return ToolCall(str(data.get("id") or ""), str(name or "unknown"), facts.get("arguments"))


def _result(data: Mapping[str, Any]) -> ToolResult:
    answers = (data[name] for name in ("response", "result", "content") if name in data)
    name = data.get("name")
    return ToolResult(
        str(data.get("id") or data.get("tool_call_id") or ""),
        next(answers, ""),
        name if isinstance(name, str) else None,
    )


def _calls(value: Any) -> Iterable[ToolCall]:
    listed = decoded(value)
    if isinstance(listed, dict):
        listed = [each for _, each in sorted(listed.items(), key=lambda pair: str(pair[0]))]
    if not isinstance(listed, list):
        return []
    return [_call(each) for each in listed if isinstance(each, dict)]


def _other(data: Mapping[str, Any]) -> Unknown:
    """Kept as it came; under a name of its own where ours means something else."""
    made = parts_of.from_json(dict(data))
    return made if isinstance(made, Unknown) else Unknown({"type": "as_given", "value": dict(data)})


def _words(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        return str(part.get("content", part.get("text")) or "")
    return ""
