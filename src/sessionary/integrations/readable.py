"""What people read of a message whose own form is kept beside it, to the letter."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sessionary.formats.parts import Content
from sessionary.integrations.files import Files
from sessionary.model.message import Part, ToolResult, Unknown, from_json

_LONGEST_SHOWN = 500


def parts_of(content: Content, files: Files, *, form: str) -> tuple[Part, ...]:
    """The parts of a content, its files on their way into the store.

    What we have no part for is called by its form and kind, its long texts cut.
    """
    for data in content.blobs:
        files.add(data, None)
    return tuple(_shown(from_json(part), form) for part in content.parts)


def _shown(part: Part, form: str) -> Part:
    match part:
        case Unknown(data):
            return Unknown(_cut_fields(data) | {"type": f"{form}:{data.get('type')}"})
        case ToolResult(content=list(given)):
            return replace(part, content=_cut(given))
    return part


def _cut_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _cut(value) for name, value in data.items()}


def _cut(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value)
    return value if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
