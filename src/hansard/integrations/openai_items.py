"""Between the items of OpenAI's Responses interface and our messages."""

import json
from collections.abc import Mapping
from typing import Any

from hansard.integrations.files import Files
from hansard.model import document
from hansard.model.entry import Message, Role
from hansard.model.part import Part, Reasoning, Text, ToolCall, ToolResult, Unknown
from hansard.model.transcript import chats_of

Item = dict[str, Any]

NATIVE = "openai-agents"
_LONGEST_SHOWN = 500
_ROLES = {"assistant": Role.ASSISTANT, "system": Role.SYSTEM, "developer": Role.SYSTEM}


def message_of(item: Mapping[str, Any], files: Files, *, model: str | None = None) -> Message:
    """An item as a message that people read, with the item itself beside it, to the letter."""
    role, parts = _readable(item, files)
    return Message(
        role,
        parts,
        model=model if role is Role.ASSISTANT else None,
        extra={NATIVE: json.dumps(item)},
    )


def items_of(said: Message) -> list[Item]:
    """The item as it came; of a message that came another way, the items that say the same."""
    found = item_in(said.extra.get(NATIVE))
    if found is not None:
        return [found]
    return [item for chat in chats_of(said) for item in _from_chat(chat)]


def item_in(text: Any) -> Item | None:
    """The item that a text is, as it came; None when it is none, or was spoilt."""
    try:
        found = document.decode(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def model_of(item: Mapping[str, Any]) -> str | None:
    """The model that made an item, where the item says so."""
    data = item.get("provider_data")
    found = data.get("model") if isinstance(data, Mapping) else None
    return found if isinstance(found, str) else None


def _readable(item: Mapping[str, Any], files: Files) -> tuple[Role, tuple[Part, ...]]:
    kind = item.get("type", "message")
    if kind == "message" and "role" in item:
        role = _ROLES.get(str(item["role"]), Role.USER)
        return role, _content(item.get("content"), files)
    if kind == "reasoning":
        return Role.ASSISTANT, (Reasoning(_summary(item)),)
    call_id = item.get("call_id") or item.get("id")
    if isinstance(kind, str) and isinstance(call_id, str):
        if kind.endswith("_call_output"):
            return Role.TOOL, (ToolResult(call_id, _output(item.get("output"))),)
        if kind.endswith("_call"):
            return Role.ASSISTANT, (_call(kind, call_id, item),)
    return Role.SYSTEM, (_shown(item),)


def _call(kind: str, call_id: str, item: Mapping[str, Any]) -> ToolCall:
    name = item.get("name")
    known = ("arguments", "action", "input", "code", "queries", "operation")
    given = next((item[field] for field in known if field in item), None)
    return ToolCall(call_id, name if isinstance(name, str) else kind.removesuffix("_call"), given)


def _content(content: Any, files: Files) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(content),)
    if not isinstance(content, list):
        return ()
    return tuple(_piece(piece, files) for piece in content if isinstance(piece, Mapping))


def _piece(piece: Mapping[str, Any], files: Files) -> Part:
    words = piece.get("text", piece.get("refusal"))
    if isinstance(words, str):
        return Text(words)
    url = piece.get("image_url", piece.get("file_data"))
    return files.add_url(url, piece.get("filename")) or _shown(piece)


def _shown(data: Mapping[str, Any]) -> Unknown:
    """What we have no part for, its long texts cut; the whole of it is in the item."""
    return Unknown({name: _cut(value) for name, value in data.items()} | {"type": _kind(data)})


def _kind(data: Mapping[str, Any]) -> str:
    return f"openai:{data.get('type', 'item')}"


def _cut(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value)
    return value if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _summary(item: Mapping[str, Any]) -> str:
    pieces = [*(item.get("summary") or ()), *(item.get("content") or ())]
    texts = (piece.get("text") for piece in pieces if isinstance(piece, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))


def _output(output: Any) -> Any:
    if not isinstance(output, list):
        return output
    found = [piece.get("text") for piece in output if isinstance(piece, Mapping)]
    texts = [text for text in found if isinstance(text, str)]
    return "\n".join(texts) if len(texts) == len(output) else output


def _from_chat(chat: Mapping[str, Any]) -> list[Item]:
    if chat["role"] == "tool":
        call_id, output = chat["tool_call_id"], chat["content"]
        return [{"type": "function_call_output", "call_id": call_id, "output": output}]
    content = chat["content"]
    items: list[Item] = []
    if content:
        items.append({"role": chat["role"], "content": _words(content)})
    for call in chat.get("tool_calls", ()):
        function = call["function"]
        items.append({"type": "function_call", "call_id": call["id"], **function})
    return items


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(
        str(piece.get("text") or f"[{piece.get('name') or 'a file'}]") for piece in content
    )
