"""Whether a query matches a text: the rule that both indexes implement, in plain Python."""

from hansard.model import words
from hansard.model.query import Query, Term


def matches(query: Query, text: str) -> bool:
    """Every group met by one of its terms, and no unwanted term."""
    found = words.words(text)
    parts = {*words.humps(text), *words.sticky(text)}
    wanted = all(any(_stands(term, found, parts) for term in group) for group in query.groups)
    return wanted and not any(_stands(term, found, parts) for term in query.unwanted)


def _stands(term: Term, found: list[str], parts: set[str]) -> bool:
    if term.sticky is not None and term.sticky not in parts:
        return False
    wanted = [word.text for word in term.words]
    open_ended = term.prefix or term.words[-1].begins
    if len(wanted) == 1:
        if open_ended:
            return any(word.startswith(wanted[0]) for word in (*found, *parts))
        return wanted[0] in parts or wanted[0] in found
    return any(
        _stands_at(found, at, wanted, open_ended) for at in range(len(found) - len(wanted) + 1)
    )


def _stands_at(found: list[str], at: int, wanted: list[str], open_ended: bool) -> bool:
    last = at + len(wanted) - 1
    if found[at:last] != wanted[:-1]:
        return False
    return found[last].startswith(wanted[-1]) if open_ended else found[last] == wanted[-1]
