"""What a message is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sessionary.errors import BadInput

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Text:
    """Words for people."""

    text: str
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What a model thought; the provider's own details are kept as they came."""

    text: str
    details: Any = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A request of the model to run a tool."""

    id: str
    name: str
    arguments: Any = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered."""

    call_id: str
    content: Any = ""
    name: str | None = None
    is_error: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file, named by the hash of its bytes."""

    blob: str
    media_type: str = "application/octet-stream"
    name: str | None = None
    size: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A part of a kind we do not know, kept as it came."""

    data: Mapping[str, Any]


Part = Text | Reasoning | ToolCall | ToolResult | Attachment | Unknown

_Typed = Text | Reasoning | ToolCall | ToolResult | Attachment
_NULL = type(None)
_CLASSES: dict[str, type[_Typed]] = {
    "text": Text,
    "reasoning": Reasoning,
    "tool_call": ToolCall,
    "tool_result": ToolResult,
    "attachment": Attachment,
}
_NAMES = {cls: name for name, cls in _CLASSES.items()}
# What each field may hold; a part that does not fit is kept as unknown.
_FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "text": {"text": (str,)},
    "reasoning": {"text": (str,), "details": (object,)},
    "tool_call": {"id": (str,), "name": (str,), "arguments": (object,)},
    "tool_result": {
        "call_id": (str,),
        "content": (object,),
        "name": (str, _NULL),
        "is_error": (bool,),
    },
    "attachment": {
        "blob": (str,),
        "media_type": (str,),
        "name": (str, _NULL),
        "size": (int, _NULL),
    },
}
_REQUIRED = {
    "text": {"text"},
    "reasoning": {"text"},
    "tool_call": {"id", "name"},
    "tool_result": {"call_id"},
    "attachment": {"blob"},
}
# What a field that is left out means; anything else, 0 and null included, is written down.
_LEFT_OUT: Json = {
    "details": None,
    "arguments": None,
    "content": "",
    "name": None,
    "is_error": False,
    "media_type": "application/octet-stream",
    "size": None,
}
_PLAIN = len({"type", "text"})


def to_json(part: Part) -> Json:
    """The part as a dictionary; optional fields that say nothing are left out."""
    if isinstance(part, Unknown):
        return dict(part.data)
    if type(part) is Text and not part.extra:
        return {"type": "text", "text": part.text}
    kind = _NAMES[type(part)]
    out: Json = {"type": kind}
    for name in _FIELDS[kind]:
        value = getattr(part, name)
        if name in _REQUIRED[kind] or not _is_left_out(name, value):
            out[name] = value
    return out | dict(part.extra) if part.extra else out


def _is_left_out(name: str, value: Any) -> bool:
    meant = _LEFT_OUT[name]
    return type(value) is type(meant) and bool(value == meant)


def from_json(data: Any) -> Part:
    """The part a dictionary describes; what we do not understand is kept as it came."""
    if not isinstance(data, dict):
        raise BadInput(f"A part of a message must be a JSON object, not {type(data).__name__}.")
    kind = data.get("type")
    if kind == "text" and len(data) == _PLAIN and type(data.get("text")) is str:
        return Text(data["text"])
    if not isinstance(kind, str) or kind not in _CLASSES or not _fits(kind, data):
        return Unknown(data)
    known = {name: data[name] for name in _FIELDS[kind] if name in data}
    extra = {name: value for name, value in data.items() if name != "type" and name not in known}
    return _CLASSES[kind](**known, extra=extra) if extra else _CLASSES[kind](**known)


def text_of(parts: tuple[Part, ...]) -> str:
    """The words of a message, without reasoning and tools."""
    if len(parts) == 1 and type(parts[0]) is Text:
        return parts[0].text
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def required_fields(kind: str) -> list[str]:
    """The fields that a part of a known type must have."""
    return sorted(_REQUIRED[kind])


def wrong_field(data: Mapping[str, Any]) -> str | None:
    """The first field of a part of a known type that holds a value of the wrong kind."""
    fields = _FIELDS[data["type"]]
    for name, kinds in fields.items():
        if name in data and not isinstance(data[name], kinds):
            return name
    return None


def _fits(kind: str, data: Json) -> bool:
    return _REQUIRED[kind] <= data.keys() and wrong_field(data) is None
