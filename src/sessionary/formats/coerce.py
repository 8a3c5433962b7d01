"""JSON that other programs wrote: decoded within limits, its values coerced to the types we need."""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from sessionary.model.usage import MAX_TOKENS

# No tool nests its values deeper; other programs could not read deeper ones.
MAX_DEPTH = 200
# Texts from LARGE bytes on are refused if their values would take more than _HEAVY bytes.
LARGE = 8 * 1024 * 1024
_HEAVY = 512 * 1024 * 1024
_PER_BRACKET = 64
_PER_QUOTE = 28
_decode = msgspec.json.Decoder().decode


def is_heavy(text: bytes | str) -> bool:
    """Whether decoding a JSON text would take far more memory than the text itself."""
    if len(text) < LARGE:
        return False
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    brackets = data.count(b"[") + data.count(b"{")
    return _PER_BRACKET * brackets + _PER_QUOTE * data.count(b'"') > _HEAVY


def decode_json(text: bytes) -> Any:
    """Decode JSON, even with half a surrogate pair; raises ValueError or RecursionError."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(text)


def is_deep(data: Any) -> bool:
    """Whether lists and objects are nested deeper than `MAX_DEPTH`."""
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
    """Return a text; an empty one if it is none."""
    return value if isinstance(value, str) else ""


def name(value: object) -> str | None:
    """Return a text that is not blank; None otherwise."""
    return value if isinstance(value, str) and value.strip() else None


def first_name(*values: object) -> str | None:
    """Return the first value that is a text and not blank; None without one."""
    return next(filter(None, map(name, values)), None)


def record(value: object) -> Json:
    """Return an object; an empty one if it is none."""
    return value if isinstance(value, dict) else {}


def records(value: object) -> list[Json]:
    """Return the objects of a list; other items are ignored."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def items(value: object) -> list[Any]:
    """Return a list; an empty one if it is none."""
    return value if isinstance(value, list) else []


def count(value: object) -> int:
    """Return a token count; 0 if it is none, or more than a model call can use."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value <= MAX_TOKENS else 0


def parse_json(text: object) -> Any:
    """Return the value of a JSON text; None if it is none, or nested too deeply."""
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
    """Return the object or list of a JSON text; any other value unchanged."""
    found = parse_json(text)
    return found if isinstance(found, dict | list) else text


def parse_record(text: object) -> Json:
    """Return the object of a JSON text; an empty one if it is none."""
    return record(parse_json(text))


_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_LONE = re.compile("[\ud800-\udfff]")


def replace_lone_surrogates(line: bytes) -> bytes:
    """Replace lone surrogates in a line of JSON: libraries that check texts refuse the whole line.

    Programs that count UTF-16 units cut texts in the middle of a pair.
    """
    if _HALF.search(line) is None:
        return line
    try:
        text = json.dumps(json.loads(line), ensure_ascii=False)
    except (ValueError, RecursionError):
        return line
    return _LONE.sub("\ufffd", text).encode()
