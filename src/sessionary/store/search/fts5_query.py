"""A query in FTS5's language. Words are letters and digits only, so quoting them is safe."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import apsw

if TYPE_CHECKING:
    from sessionary.model.query import Query, Term

SCORE = "sessionary_score"
_SATURATION = 1.2


def asked(
    query: "Query", facets: Sequence[Sequence[str]], *, without: Sequence[str]
) -> dict[str, Any]:
    """The parameters of the question."""
    wanted = [_any(map(_term, group)) for group in query.groups]
    wanted += [_any(map(_quoted, group)) for group in facets]
    unwanted = [*map(_term, query.unwanted), *map(_quoted, without)]
    match = " AND ".join(wanted)
    if unwanted:
        match = f"({match}) NOT {_any(unwanted)}"
    phrases = sum(1 + (term.sticky is not None) for group in query.groups for term in group)
    # A group of one fact stands once in every match: it can be told from the words by counting.
    given = len(facets) if all(len(group) == 1 for group in facets) else -1
    return {"match": match, "loose": "", "rank": phrases, "given": given}


def score(api: apsw.FTS5ExtensionApi, /, *asked: Any) -> float:
    """How well a document matches: the more often, the better, but ever less so."""
    phrases: int = asked[0]
    given: int = asked[1]
    if phrases == 1 and given >= 0:
        times = api.inst_count - given
        return times / (times + _SATURATION)
    total = 0.0
    for phrase in range(phrases):
        times = len(api.phrase_column_offsets(phrase, 0))
        total += times / (times + _SATURATION)
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
