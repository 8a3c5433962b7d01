"""A query in FTS5's language. Words are letters and digits only, so quoting them is safe."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import apsw

from hansard.model.search_text import facet

if TYPE_CHECKING:
    from hansard.model.query import Filters, Query, Term

COLUMNS = {"body": "{body parts}", "steps": "{steps}"}
SCORE = "hansard_score"
_LENGTH_SHARE = 0.75
_SATURATION = 1.2
_USUAL_LENGTH = 60.0


def match(query: "Query", *, profile: str, area: str) -> str:
    """The MATCH expression of a query in one area of the index."""
    wanted = " AND ".join(
        [*(_any(group, area) for group in query.groups), *_facets(query.filters, profile)]
    )
    if not query.unwanted:
        return wanted
    return f"({wanted}) NOT ({' OR '.join(_term(term, area) for term in query.unwanted)})"


def score(api: apsw.FTS5ExtensionApi, *_: object) -> float:
    """How well a document matches: often, but in a short text more than in a long one."""
    length = max(1, sum(api.column_size(column) for column in (0, 2)))
    weight = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * length / _USUAL_LENGTH)
    total = 0.0
    for phrase in range(api.phrase_count):
        times = sum(len(places) for places in api.phrase_locations(phrase)[:3])
        total += times / (times + weight)
    return total


def _any(group: "Sequence[Term]", area: str) -> str:
    return f"({' OR '.join(_term(term, area) for term in group)})"


def _term(term: "Term", area: str) -> str:
    words = [f'"{word.text}"' for word in term.words]
    open_ended = term.prefix or term.words[-1].begins
    found = f"{COLUMNS[area]} : ({' + '.join(words)}{' *' if open_ended else ''})"
    if term.sticky is not None and area == "body":
        return f'({found} AND parts : "{term.sticky}")'
    return found


def _facets(filters: "Filters", profile: str) -> Iterable[str]:
    yield f'facets : "{facet("profile", profile)}"'
    for kind, values in (
        ("role", filters.roles),
        ("source", filters.sources),
        ("tool", filters.tools),
    ):
        if values:
            yield f"facets : ({' OR '.join(_quoted(facet(kind, value)) for value in values)})"


def _quoted(word: str) -> str:
    return f'"{word}"'
