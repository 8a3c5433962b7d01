"""Long outputs of tools, cut to what a page shows first; the rest is fetched when someone wants it."""

from typing import Any

SHOWN_LINES = 40
SHOWN_CHARACTERS = 16_000
Json = dict[str, Any]


def shortened(entry: Json) -> Json:
    """The entry with the beginning of each long output; `cut` says how much there is."""
    if not any(_is_long(part) for part in entry.get("parts", ())):
        return entry
    return entry | {"parts": [_cut(part) if _is_long(part) else part for part in entry["parts"]]}


def _is_long(part: Any) -> bool:
    if not isinstance(part, dict) or part.get("type") != "tool_result":
        return False
    return len(_text(part.get("content"))) > SHOWN_CHARACTERS


def _cut(part: Json) -> Json:
    text = _text(part["content"])
    lines = text.removesuffix("\n").split("\n")
    shown = "\n".join(lines[:SHOWN_LINES])[:SHOWN_CHARACTERS]
    return part | {"content": shown, "cut": {"lines": len(lines), "characters": len(text)}}


def _text(content: Any) -> str:
    """An output as a page shows it: a text, or blocks of text one under the other."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [each.get("text") if isinstance(each, dict) else None for each in content]
    if not texts or not all(isinstance(each, str) for each in texts):
        return ""
    return "\n".join(str(each) for each in texts)
