"""Between the items of OpenAI's Responses interface and our messages."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sessionary.formats import openai_items
from sessionary.formats.parts import Content
from sessionary.integrations.files import Files
from sessionary.integrations.readable import parts_of
from sessionary.model import codec
from sessionary.model.message import Message, Part, Reasoning, Role
from sessionary.model.transcript import chats_of

Item = dict[str, Any]

NATIVE = "openai-agents"


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
        found = codec.decode(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def model_of(item: Mapping[str, Any]) -> str | None:
    """The model that made an item, where the item says so."""
    data = item.get("provider_data")
    found = data.get("model") if isinstance(data, Mapping) else None
    return found if isinstance(found, str) else None


def _readable(item: Mapping[str, Any], files: Files) -> tuple[Role, tuple[Part, ...]]:
    content = Content()
    role = openai_items.add_item(content, dict(item))
    return Role(role), tuple(map(_without_details, parts_of(content, files, form="openai")))


def _without_details(part: Part) -> Part:
    """Without what only the model can read of its thoughts: that is long, and in the item."""
    return replace(part, details=None) if isinstance(part, Reasoning) else part


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
