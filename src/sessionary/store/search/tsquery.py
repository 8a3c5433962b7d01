"""Queries in PostgreSQL's tsquery language. Words are letters and digits only, so quoting is safe."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

from sessionary.model.query import Query, Term
from sessionary.model.search_text import is_session_facet, session_of_facet
from sessionary.store.queries import pg_array_literal
from sessionary.store.search.indexer import DOCS_PER_CHANGE, HASHED, MAX_POSITIONS, hashed

BLOCK_BITS = 14
# How many blocks are searched first: enough for a common word.
FIRST_BLOCKS = 2
# At most so many blocks are words of a query: each is looked at for each match.
MOST_BLOCKS = 128
# More sessions than this are not words of a query, but compared with those of the matches.
FEW_SESSIONS = 16
_FAR = 2**62


class DocBlocks(NamedTuple):
    """The blocks that may have documents of the times that are asked for, newest first.

    `inside`: those of which all documents are between the times; None when no times are asked for.
    """

    numbers: Sequence[int]
    inside: frozenset[int] | None = None

    @classmethod
    def up_to(cls, position: int, below: int | None) -> "DocBlocks":
        """All blocks up to this position of the feed, of documents with numbers below one."""
        beyond = (position + 1) * DOCS_PER_CHANGE
        last = (beyond if below is None else min(beyond, below)) - 1
        return cls(range(last >> BLOCK_BITS, -1, -1))

    def are_inside(self, numbers: Sequence[int]) -> bool:
        """Whether all documents of these blocks are between the times."""
        return self.inside is None or self.inside.issuperset(numbers)


def match_params(
    query: Query,
    facets: Sequence[Sequence[str]],
    *,
    without: Sequence[str],
    blocks: DocBlocks,
    below: int | None,
    limit: int,
) -> Generator[dict[str, Any], int | None, None]:
    """Yield the parameters of the queries to run: first on the newest blocks, at last on everything.

    GIN finds all matches before it returns one; with blocks as words of the query it finds few. The
    caller sends how many each query has found, which tells how many blocks it takes to find `limit`.
    """
    below = _FAR if below is None else below
    has_times = blocks.inside is not None
    facets, sessions = _without_many_sessions(facets)
    given = {"sessions": pg_array_literal(sessions)}
    rest = blocks.numbers
    found = searched = 0
    count = FIRST_BLOCKS
    while rest:
        if len(rest) <= 2 * count:
            count = len(rest)  # hardly more is left: all of it at once
        if count > MOST_BLOCKS or (count == len(rest) and not has_times):
            break
        some, rest = rest[:count], rest[count:]
        is_sure = not sessions and blocks.are_inside(some)
        params = _params(query, [*facets, list(map(_block, some))], without) | given
        found += (yield params | {"below": below, "is_sure": is_sure}) or 0
        searched += count
        below = min(below, some[-1] << BLOCK_BITS)
        # As many as it takes if the rest is like what was searched, and some more.
        needed = (limit - found) * searched * 5 // (4 * found) if found else len(rest)
        count = max(1, needed)
    if rest or not has_times:
        is_sure = not sessions and blocks.are_inside(rest)
        params = _params(query, facets, without) | given
        yield params | {"below": below, "is_sure": is_sure and not has_times}


def _without_many_sessions(
    facets: Sequence[Sequence[str]],
) -> tuple[list[Sequence[str]], list[int]]:
    """The facets without a long list of sessions, and the numbers of those."""
    kept: list[Sequence[str]] = []
    numbers: list[int] = []
    for group in facets:
        if len(group) > FEW_SESSIONS and is_session_facet(group[0]):
            numbers = list(map(session_of_facet, group))
        else:
            kept.append(group)
    return kept, numbers


def doc_row(doc: Mapping[str, Any]) -> dict[str, Any]:
    """A document as a row, its words as a vector.

    The vector is written here: in SQL the same took 34 µs of the server's time for a message of 65 words,
    a quarter of all that indexing took.
    """
    no = doc["no"]
    if doc["is_long"]:
        vector = " ".join(map(_quoted, doc["loose"].split(" ")))
    else:
        vector = _with_positions(doc["words"].split(" "))
    vector += f" {_quoted(_block(no >> BLOCK_BITS))}"
    return {
        "no": no,
        "entry_no": doc["entry_no"],
        "at": doc["at"],
        "length": doc["length"],
        "is_long": doc["is_long"],
        "words": vector,
    }


def _with_positions(words: list[str]) -> str:
    pattern, ends = _pattern()
    return pattern[: ends[len(words)]] % tuple(words)


@cache
def _pattern() -> tuple[str, list[int]]:
    """A pattern for vectors of any length, and where it ends for each number of words.

    Filling in a pattern takes a third of the time of formatting each word.
    """
    pieces = [f"'%s':{position} " for position in range(1, MAX_POSITIONS + 1)]
    return "".join(pieces), list(accumulate(map(len, pieces), initial=0))


def _params(
    query: Query, facets: Sequence[Sequence[str]], without: Sequence[str]
) -> dict[str, Any]:
    given = [_any(map(_quoted, group)) for group in facets]
    given += [f"!{_quoted(word)}" for word in without]
    wanted = [_any(map(_term, group)) for group in query.groups]
    unwanted = [f"!{_term(term)}" for term in query.unwanted]
    # The words of a long text have no positions: a match must be confirmed in the text itself.
    loose = [_any(map(_loose, group)) for group in query.groups]
    return {
        "match": " & ".join([*wanted, *unwanted, *given]),
        "loose": " & ".join([*loose, *given]),
        "rank": " & ".join(wanted) or " & ".join(given),
    }


def _block(number: int) -> str:
    """The word of all documents of a block."""
    return f"\ue000block{number}"


def _term(term: Term) -> str:
    words = [_quoted(word.text) for word in term.words]
    if term.is_open_ended:
        words[-1] += ":*"
    found = " <-> ".join(words)
    return f"({found})" if term.with_signs is None else f"({found} & {_quoted(term.with_signs)})"


def _loose(term: Term) -> str:
    words = [_either(word.text) for word in term.words]
    if term.is_open_ended:
        words[-1] = f"({_quoted(term.words[-1].text)}:* | {_quoted(HASHED)})"
    if term.with_signs is not None:
        words.append(_either(term.with_signs))
    return f"({' & '.join(words)})"


def _either(word: str) -> str:
    return f"({_quoted(word)} | {_quoted(hashed(word))})"


def _any(alternatives: Iterable[str]) -> str:
    return f"({' | '.join(alternatives)})"


def _quoted(word: str) -> str:
    return f"'{word}'"
