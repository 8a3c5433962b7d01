"""What a value of a foreign file is taken for, when it may be anything."""

from typing import Any

from hansard.importers import json_lines

Json = dict[str, Any]
_MOST = 2**53
# A text of so many bytes may become so many bytes of values: brackets are few in what tools write.
_LARGE = 8 * 1024 * 1024
_HEAVY = 512 * 1024 * 1024
_PER_BRACKET = 64
_PER_QUOTE = 28


def is_heavy(text: bytes | str) -> bool:
    """Whether a text of JSON would take far more memory than it has bytes."""
    if len(text) < _LARGE:
        return False
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    brackets = data.count(b"[") + data.count(b"{")
    return _PER_BRACKET * brackets + _PER_QUOTE * data.count(b'"') > _HEAVY


def words(value: object) -> str:
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
    """A number of things; 0 when it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value < _MOST else 0


def parsed(text: object) -> Any:
    """What a JSON text says; None when it is none, or nested deeper than anyone writes."""
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    if not isinstance(text, bytes):
        return None
    try:
        found = json_lines.decode(text)
    except (ValueError, RecursionError):
        return None
    may_be_deep = text.count(b"{") + text.count(b"[") > json_lines.MAX_DEPTH
    return None if may_be_deep and json_lines.is_deep(found) else found


def parsed_or_text(text: object) -> Any:
    """What a JSON text says, if it is an object or a list; else the value as it came."""
    found = parsed(text)
    return found if isinstance(found, dict | list) else text
