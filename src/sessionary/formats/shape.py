"""What a value of a foreign file is taken for, when it may be anything."""

from typing import Any

from sessionary.formats.json_text import MAX_DEPTH, decode, is_deep
from sessionary.model.usage import MAX_TOKENS

Json = dict[str, Any]


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
    """A number of things; 0 when it is none, or more than a model call can have used."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value <= MAX_TOKENS else 0


def parsed(text: object) -> Any:
    """What a JSON text says; None when it is none, or nested deeper than anyone writes."""
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    if not isinstance(text, bytes):
        return None
    try:
        found = decode(text)
    except (ValueError, RecursionError):
        return None
    may_be_deep = text.count(b"{") + text.count(b"[") > MAX_DEPTH
    return None if may_be_deep and is_deep(found) else found


def parsed_or_text(text: object) -> Any:
    """What a JSON text says, if it is an object or a list; else the value as it came."""
    found = parsed(text)
    return found if isinstance(found, dict | list) else text
