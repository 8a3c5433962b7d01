"""A query in FTS5's language. Words are letters and digits only, so quoting them is safe."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import apsw

if TYPE_CHECKING:
    from hansard.model.query import Query, Term

SCORE = "hansard_score"
_FAR = 2**62
_LENGTH_SHARE = 0.75
_SATURATION = 1.2
_USUAL_LENGTH = 60.0


def asked(
    query: "Query", facets: Sequence[Sequence[str]], *, without: Sequence[str], below: int | None
) -> list[dict[str, Any]]:
    """The parameters of the question; one is enough here."""
    wanted = [_any(map(_term, group)) for group in query.groups]
    wanted += [_any(map(_quoted, group)) for group in facets]
    unwanted = [*map(_term, query.unwanted), *map(_quoted, without)]
    match = " AND ".join(wanted)
    if unwanted:
        match = f"({match}) NOT {_any(unwanted)}"
    phrases = sum(1 + (term.sticky is not None) for group in query.groups for term in group)
    return [
        {"match": match, "loose": "", "rank": phrases, "below": _FAR if below is None else below}
    ]


def score(api: apsw.FTS5ExtensionApi, /, *given: Any) -> float:
    """How well a document matches: often, but in a short text more than in a long one."""
    phrases: int = given[0]
    length = api.column_size(0)
    weight = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * length / _USUAL_LENGTH)
    total = 0.0
    for phrase in range(phrases):
        times = len(api.phrase_column_offsets(phrase, 0))
        total += times / (times + weight)
    return total


def _any(alternatives: Iterable[str]) -> str:
    return f"({' OR '.join(alternatives)})"


def _term(term: "Term") -> str:
    found = " + ".join(_quoted(word.text) for word in term.words)
    if term.is_open_ended:
        found += " *"
    return found if term.sticky is None else f"({found} AND {_quoted(term.sticky)})"


def _quoted(word: str) -> str:
    return f'"{word}"'
