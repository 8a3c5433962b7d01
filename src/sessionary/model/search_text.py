"""What the index holds of a message: its words, and facets, which are facts as words that no text contains.

A message is one or two documents: one for its text, and one for its steps (tool output and
reasoning), which a search leaves out unless it is asked for.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from sessionary.model import codec, tokenizer

STEP_CHARACTERS = 20_000
MESSAGE = "message"
STEPS = "steps"
AREAS = (MESSAGE, STEPS)
TITLE = "title"
SUMMARY = "summary"
_FACET = "\ue000"
_SESSION = f"{_FACET}no"
# Every document has one facet of each of these kinds; it may have several people and tools.
_SINGLE = tuple(f"{_FACET}{kind}" for kind in ("profile", "role", "source", "no", "in"))
_SIGN = 0xE200
MOST_NAME_WORDS = 8


class Origin(NamedTuple):
    """Which session an entry or a title belongs to, and when it was written."""

    profile: str
    platform: str
    session_no: int
    at: datetime


class SearchText(NamedTuple):
    """A document of the index: its area, and its words in order, facets first."""

    area: str
    session_no: int
    words: list[str]


def title_document(title: str, origin: Origin) -> SearchText:
    """A session's title as a document."""
    return SearchText(MESSAGE, origin.session_no, [*_facets(TITLE, origin), *_all_words(title)])


def entry_documents(role: str | None, data: Mapping[str, Any], origin: Origin) -> list[SearchText]:
    """An entry, from its JSON as the log keeps it, as documents: a message or a compaction summary."""
    text, steps = _areas(role, data)
    if role is None and not text:
        return []  # a retraction
    facets = _facets(role or SUMMARY, origin)
    facets += _facets_of_person(data.get("person"))
    # A facet occurs once in a document, so that counts of words can leave it out.
    facets += dict.fromkeys(
        facet("tool", _text(part["name"]))
        for part in data.get("parts", ())
        if part.get("type") in ("tool_call", "tool_result") and part.get("name")
    )
    no = origin.session_no
    if not steps:
        return [SearchText(MESSAGE, no, facets + _all_words(text))]
    found = [SearchText(STEPS, no, facets + _all_words(steps))]
    if text:
        found.insert(0, SearchText(MESSAGE, no, facets + _all_words(text)))
    return found


def searchable_text(role: str | None, data: Mapping[str, Any], area: str) -> str:
    """The text of a message that one area of the index was made from."""
    text, steps = _areas(role, data)
    return text if area == MESSAGE else steps


@lru_cache(1000)
def facet(kind: str, value: str) -> str:
    """A fact about a message as a word that no text can contain."""
    plain = "".join(
        char if char.isalnum() else chr(_SIGN + ord(char) % 0x1000)
        for char in tokenizer.fold(value)[: tokenizer.LONGEST]
    )
    return f"{_FACET}{kind}{plain}"


def has_one_of(group: Sequence[str]) -> bool:
    """Whether a document that has one of these facets has no other of them."""
    return len(group) == 1 or all(word.startswith(_SINGLE) for word in group)


def is_facet(word: str) -> bool:
    """Whether a word of the index is a facet, not a word of a text."""
    return word.startswith(_FACET)


def profile_facet(profile: str) -> str:
    """The facet of everything in one profile."""
    return facet("profile", profile)


def session_facet(session_no: int) -> str:
    """The facet of everything in one session."""
    return f"{_SESSION}{session_no:x}"


def is_session_facet(word: str) -> bool:
    """Whether a word of the index is the facet of a session."""
    return word.startswith(_SESSION)


def session_of_facet(word: str) -> int:
    """The session whose facet a word is; the inverse of `session_facet`."""
    return int(word[len(_SESSION) :], 16)


def month_facet(year: int, month: int) -> str:
    """The facet of a calendar month, in UTC."""
    return f"{_FACET}in{year * 12 + month:x}"


def _facets(role: str, origin: Origin) -> list[str]:
    profile, platform, session_no, at = origin
    return [*_facets_of(role, profile, platform, session_no), month_facet(at.year, at.month)]


def _facets_of_person(person: Mapping[str, Any] | None) -> list[str]:
    """Who wrote, by id and by name, whole and by each word of the name."""
    if not person:
        return []
    name = person.get("name") or ""
    known = (person.get("id"), person.get("alt_id"), name, *name.split()[:MOST_NAME_WORDS])
    return list(dict.fromkeys(facet("from", each) for each in known if each))


@lru_cache(1000)
def _facets_of(role: str, profile: str, platform: str, session_no: int) -> tuple[str, ...]:
    return (
        profile_facet(profile),
        facet("role", role),
        facet("source", platform),
        session_facet(session_no),
    )


def _all_words(text: str) -> list[str]:
    return tokenizer.words(text) + tokenizer.extras(text)


def _areas(role: str | None, data: Mapping[str, Any]) -> tuple[str, str]:
    """The text of a message, and its steps."""
    if role is None:
        return _text(data.get("summary")), ""
    text: list[str] = []
    steps: list[str] = []
    for part in data.get("parts", ()):
        match part.get("type"):
            case "text":
                text.append(_text(part.get("text")))
            case "tool_call":
                text.append(f"{_text(part.get('name'))} {_text(part.get('arguments'))}")
            case "tool_result":
                steps.append(f"{_text(part.get('name'))} {_text(part.get('content'))}".lstrip())
            case "reasoning":
                steps.append(_text(part.get("text")))
            case "attachment":
                text.append(_text(part.get("name")))
            case _:
                steps.append(_text(part))
    if role == "tool":
        # Plain text of a tool is output too.
        return "", _beginning("\n".join((*text, *steps)))
    return "\n".join(text), _beginning("\n".join(steps))


def _beginning(text: str) -> str:
    """The part of a tool's output that is indexed, cut between words."""
    if len(text) <= STEP_CHARACTERS:
        return text
    whole = text[: STEP_CHARACTERS + 1].rsplit(maxsplit=1)[0]
    return whole if len(whole) <= STEP_CHARACTERS else text[:STEP_CHARACTERS]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else codec.encode(value)
