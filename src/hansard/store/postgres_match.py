"""A query in PostgreSQL's tsquery language. Words are letters and digits only, so quoting them is safe."""

from collections.abc import Iterable

from hansard.model.query import Filters, Query, Term
from hansard.model.search_text import facet


def match(query: Query, *, profile: str, area: str, phrases: bool = True) -> str:
    """The tsquery of a query. Without phrases it finds more: words of a long text have no places."""
    parts = [
        f"({' | '.join(_term(term, area, phrases) for term in group)})" for group in query.groups
    ]
    if phrases:
        parts += [f"!({_term(term, area, phrases)})" for term in query.unwanted]
    return " & ".join([*parts, *_facets(query.filters, profile)])


def _term(term: Term, area: str, phrases: bool) -> str:
    words = [f"'{word.text}'" for word in term.words]
    if term.prefix or term.words[-1].begins:
        words[-1] += ":*"
    found = f"({(' <-> ' if phrases else ' & ').join(words)})"
    if term.sticky is not None and area == "body":
        return f"({found} & '{term.sticky}')"
    return found


def _facets(filters: Filters, profile: str) -> Iterable[str]:
    yield f"'{facet('profile', profile)}'"
    for kind, values in (
        ("role", filters.roles),
        ("source", filters.sources),
        ("tool", filters.tools),
    ):
        if values:
            yield f"({' | '.join(_quoted(facet(kind, value)) for value in values)})"


def _quoted(word: str) -> str:
    return f"'{word}'"
