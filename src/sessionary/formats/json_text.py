"""JSON that others wrote: read as it is, refused when it is too much."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec

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


def decode(text: bytes) -> Any:
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
