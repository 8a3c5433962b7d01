"""Whether a query matches a text: the rule that both indexes implement, in plain Python."""

from collections.abc import Sequence

from sessionary.model import words
from sessionary.model.query import Query, Term


def matches(query: Query, text: str) -> bool:
    """Every group met by one of its terms, and no unwanted term."""
    found = [*words.words(text), *words.extras(text)]
    known = set(found)
    wanted = all(any(_stands(term, found, known) for term in group) for group in query.groups)
    return wanted and not any(_stands(term, found, known) for term in query.unwanted)


def _stands(term: Term, found: Sequence[str], known: set[str]) -> bool:
    if term.sticky is not None and term.sticky not in known:
        return False
    wanted = [word.text for word in term.words]
    if not known.issuperset(wanted[:-1]):
        return False
    if len(wanted) == 1:
        return _meets(known, wanted[0], open_ended=term.is_open_ended)
    places = [at for at, word in enumerate(found) if word == wanted[0]]
    return any(_stands_at(found, at, wanted, open_ended=term.is_open_ended) for at in places)


def _meets(known: set[str], word: str, *, open_ended: bool) -> bool:
    return any(each.startswith(word) for each in known) if open_ended else word in known


def _stands_at(found: Sequence[str], at: int, wanted: list[str], *, open_ended: bool) -> bool:
    last = at + len(wanted) - 1
    if last >= len(found) or found[at:last] != wanted[:-1]:
        return False
    return found[last].startswith(wanted[-1]) if open_ended else found[last] == wanted[-1]
