"""What of a message is searched: its words, and facts about it as words that no text contains.

A message is one or two documents. What was said is one; what was done or thought on the way
(tool output, reasoning) is another, which a search leaves out unless it is asked for.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from sessionary.model import codec, tokenizer

STEP_CHARACTERS = 20_000
SAID = "said"
STEPS = "steps"
AREAS = (SAID, STEPS)
TITLE = "title"
SUMMARY = "summary"
_FACET = "\ue000"
_SESSION = f"{_FACET}no"
_SIGN = 0xE200
MOST_NAME_WORDS = 8


class Origin(NamedTuple):
    """Where and when something was said."""

    profile: str
    platform: str
    session_no: int
    at: datetime


class SearchText(NamedTuple):
    """A document of the index: its area, and its words in order, facets first."""

    area: str
    session_no: int
    words: list[str]


def of_title(title: str, origin: Origin) -> SearchText:
    """A session's title as a document."""
    return SearchText(SAID, origin.session_no, [*_facets(TITLE, origin), *_all_words(title)])


def of_entry(role: str | None, data: Mapping[str, Any], origin: Origin) -> list[SearchText]:
    """An entry, from its JSON as the log keeps it, as documents: a message or a compaction summary."""
    said, steps = _areas(role, data)
    if role is None and not said:
        return []  # a retraction
    facets = _facets(role or SUMMARY, origin)
    facets += _facets_of_person(data.get("person"))
    # A fact stands once in a document: whoever counts the words there can leave it out.
    facets += dict.fromkeys(
        facet("tool", _text(part["name"]))
        for part in data.get("parts", ())
        if part.get("type") in ("tool_call", "tool_result") and part.get("name")
    )
    no = origin.session_no
    if not steps:
        return [SearchText(SAID, no, facets + _all_words(said))]
    found = [SearchText(STEPS, no, facets + _all_words(steps))]
    if said:
        found.insert(0, SearchText(SAID, no, facets + _all_words(said)))
    return found


def searchable_text(role: str | None, data: Mapping[str, Any], area: str) -> str:
    """The text of a message that one area of the index was made from."""
    said, steps = _areas(role, data)
    return said if area == SAID else steps


@lru_cache(1000)
def facet(kind: str, value: str) -> str:
    """A fact about a message as a word that no text can contain."""
    plain = "".join(
        char if char.isalnum() else chr(_SIGN + ord(char) % 0x1000)
        for char in tokenizer.fold(value)[: tokenizer.LONGEST]
    )
    return f"{_FACET}{kind}{plain}"


def is_facet(word: str) -> bool:
    """Whether a word of the index is a fact, not something that was said."""
    return word.startswith(_FACET)


def of_profile(profile: str) -> str:
    """The facet of everything in one profile."""
    return facet("profile", profile)


def of_session(session_no: int) -> str:
    """The facet of everything in one session."""
    return f"{_SESSION}{session_no:x}"


def is_session(word: str) -> bool:
    """Whether a word of the index says in which session something is."""
    return word.startswith(_SESSION)


def session_of(word: str) -> int:
    """The session whose facet a word is; the inverse of `of_session`."""
    return int(word[len(_SESSION) :], 16)


def of_month(year: int, month: int) -> str:
    """The facet of a calendar month, in UTC."""
    return f"{_FACET}in{year * 12 + month:x}"


def _facets(role: str, origin: Origin) -> list[str]:
    profile, platform, session_no, at = origin
    return [*_facets_of(role, profile, platform, session_no), of_month(at.year, at.month)]


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
        of_profile(profile),
        facet("role", role),
        facet("source", platform),
        of_session(session_no),
    )


def _all_words(text: str) -> list[str]:
    return tokenizer.words(text) + tokenizer.extras(text)


def _areas(role: str | None, data: Mapping[str, Any]) -> tuple[str, str]:
    """What was said, and what was done or thought on the way."""
    if role is None:
        return _text(data.get("summary")), ""
    said: list[str] = []
    steps: list[str] = []
    for part in data.get("parts", ()):
        match part.get("type"):
            case "text":
                said.append(_text(part.get("text")))
            case "tool_call":
                said.append(f"{_text(part.get('name'))} {_text(part.get('arguments'))}")
            case "tool_result":
                steps.append(f"{_text(part.get('name'))} {_text(part.get('content'))}".lstrip())
            case "reasoning":
                steps.append(_text(part.get("text")))
            case "attachment":
                said.append(_text(part.get("name")))
            case _:
                steps.append(_text(part))
    if role == "tool":
        # What a tool says as plain text is its output all the same.
        return "", _beginning("\n".join((*said, *steps)))
    return "\n".join(said), _beginning("\n".join(steps))


def _beginning(text: str) -> str:
    """As much of a tool's output as is searched, cut between words."""
    if len(text) <= STEP_CHARACTERS:
        return text
    whole = text[: STEP_CHARACTERS + 1].rsplit(maxsplit=1)[0]
    return whole if len(whole) <= STEP_CHARACTERS else text[:STEP_CHARACTERS]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else codec.encode(value)
