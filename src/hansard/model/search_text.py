"""What of a message is searched: its words, the parts of its names, its steps, its facets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hansard.model import document, words
from hansard.model.entry import Body, Message, body_to_json

STEP_CHARACTERS = 20_000
_FACET = "\ue000"
_JOINT = "\ue001"


@dataclass(frozen=True, slots=True)
class SearchText:
    """A document of the index: four lists of words."""

    body: list[str]
    parts: list[str]
    steps: list[str]
    facets: list[str]


def of_title(title: str, *, profile: str, platform: str) -> SearchText:
    """A session's title as a document."""
    facets = [facet("profile", profile), facet("source", platform), facet("role", "title")]
    return SearchText(words.words(title), [*words.humps(title), *words.sticky(title)], [], facets)


def of_message(role: str, data: Mapping[str, Any], *, profile: str, platform: str) -> SearchText:
    """A message, from its JSON as the log keeps it, as a document."""
    facets = [facet("profile", profile), facet("source", platform), facet("role", role)]
    for part in data.get("parts", ()):
        if part.get("type") in ("tool_call", "tool_result") and part.get("name"):
            facets.append(facet("tool", _text(part["name"])))
    text, quiet = _areas(role, data)
    parts = [*words.humps(text), *words.sticky(text)]
    return SearchText(words.words(text), parts, words.words(quiet) if quiet else [], facets)


def searchable_text(body: Body, area: str) -> str:
    """The text of a message that one area of the index was made from."""
    if not isinstance(body, Message):
        return ""
    text, quiet = _areas(body.role, body_to_json(body))
    return text if area == "body" else quiet


def _areas(role: str, data: Mapping[str, Any]) -> tuple[str, str]:
    """What was said, and what was done or thought on the way: the second is not searched by default."""
    said: list[str] = []
    steps: list[str] = []
    for part in data.get("parts", ()):
        match part.get("type"):
            case "text":
                said.append(_text(part.get("text")))
            case "tool_call":
                said.append(f"{_text(part.get('name'))} {_text(part.get('arguments'))}")
            case "tool_result":
                steps.append(_text(part.get("content")))
            case "reasoning":
                steps.append(_text(part.get("text")))
            case "attachment":
                said.append(_text(part.get("name")))
            case _:
                steps.append(_text(part))
    text = said[0] if len(said) == 1 else "\n".join(said)
    if role == "tool":
        # What a tool says as plain text is its output all the same.
        return "", "\n".join((*said, *steps))[:STEP_CHARACTERS]
    return text, "\n".join(steps)[:STEP_CHARACTERS]


def facet(kind: str, value: str) -> str:
    """A fact about a message as a word that no text can contain."""
    plain = "".join(
        char if char.isalnum() else _JOINT for char in words.fold(value)[: words.LONGEST]
    )
    return f"{_FACET}{kind}{_JOINT}{plain}"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else document.encode(value)
