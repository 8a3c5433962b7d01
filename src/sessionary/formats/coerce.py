"""JSON that other programs wrote: decoded within limits, its values coerced to the types we need."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from sessionary.model.usage import MAX_TOKENS

# Deeper than any tool writes; what is deeper could be read here and not everywhere.
MAX_DEPTH = 200
# A text of so many bytes may become so many bytes of values: brackets are few in what tools write.
LARGE = 8 * 1024 * 1024
_HEAVY = 512 * 1024 * 1024
_PER_BRACKET = 64
_PER_QUOTE = 28
_decode = msgspec.json.Decoder().decode


def is_heavy(text: bytes | str) -> bool:
    """Whether a text of JSON would take far more memory than it has bytes."""
    if len(text) < LARGE:
        return False
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    brackets = data.count(b"[") + data.count(b"{")
    return _PER_BRACKET * brackets + _PER_QUOTE * data.count(b'"') > _HEAVY


def decode_json(text: bytes) -> Any:
    """Read JSON, half of a surrogate pair included; raises ValueError or RecursionError."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(text)


def is_deep(data: Any) -> bool:
    """Whether lists and objects stand deeper in each other than `MAX_DEPTH`."""
    level = [data]
    for _ in range(MAX_DEPTH):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return False
    return True


def _inside(data: Any) -> Iterator[Any]:
    within = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return (each for each in within if isinstance(each, dict | list))


Json = dict[str, Any]


def text(value: object) -> str:
    """A text; empty when it is none."""
    return value if isinstance(value, str) else ""


def name(value: object) -> str | None:
    """A text that says something; None when it does not."""
    return value if isinstance(value, str) and value.strip() else None


def record(value: object) -> Json:
    """An object; an empty one when it is none."""
    return value if isinstance(value, dict) else {}


def records(value: object) -> list[Json]:
    """The objects of a list; what else is in it is passed over."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def items(value: object) -> list[Any]:
    """A list; an empty one when it is none."""
    return value if isinstance(value, list) else []


def count(value: object) -> int:
    """A number of things; 0 when it is none, or more than a model call can have used."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value <= MAX_TOKENS else 0


def parse_json(text: object) -> Any:
    """What a JSON text says; None when it is none, or nested deeper than anyone writes."""
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    if not isinstance(text, bytes):
        return None
    try:
        found = decode_json(text)
    except (ValueError, RecursionError):
        return None
    may_be_deep = text.count(b"{") + text.count(b"[") > MAX_DEPTH
    return None if may_be_deep and is_deep(found) else found


def parse_json_or_keep(text: object) -> Any:
    """What a JSON text says, if it is an object or a list; else the value as it came."""
    found = parse_json(text)
    return found if isinstance(found, dict | list) else text
