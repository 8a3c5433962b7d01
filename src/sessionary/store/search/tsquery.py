"""Queries in PostgreSQL's tsquery language. Words are letters and digits only, so quoting is safe."""

from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

from sessionary.model.query import Query, Term
from sessionary.model.search_text import is_session_facet, session_facet, session_of_facet
from sessionary.store.queries import pg_array_literal
from sessionary.store.search.indexer import DOCS_PER_CHANGE, HASHED, MAX_POSITIONS, hashed

BLOCK_BITS = 14
# How many blocks are searched first: enough for a common word.
FIRST_BLOCKS = 2
NEXT_BLOCKS = 32
# A word is rare if this many times the blocks that are left would not have enough matches.
RARE = 4
# The most blocks, or sessions, that are words of a query: GIN looks at each of them for each match.
MOST_WORDS = 128
# Of more sessions than this, only those are words of a query that are in the blocks that it searches. The first one has
# about as many as FIRST_SESSIONS.
FEW_SESSIONS = 16
FIRST_SESSIONS = 32
_FAR = 2**62


class DocBlocks(NamedTuple):
    """The blocks that may have documents of the times and sessions that are asked for, newest first.

    `inside`: those of which all documents are between the times; None when no times are asked for.
    `sessions`: those of each block, if many sessions are asked for.
    """

    numbers: Sequence[int]
    inside: frozenset[int] | None = None
    sessions: Mapping[int, Sequence[int]] | None = None

    @classmethod
    def up_to(cls, position: int, below: int | None) -> "DocBlocks":
        """All blocks up to this position of the feed, of documents with numbers below one."""
        beyond = (position + 1) * DOCS_PER_CHANGE
        last = (beyond if below is None else min(beyond, below)) - 1
        return cls(range(last >> BLOCK_BITS, -1, -1))

    def of_sessions(self, places: Iterable[tuple[int, int]]) -> "DocBlocks":
        """Those of some sessions, given each place of each of them: a block, and the session's number."""
        sessions = defaultdict[int, list[int]](list)
        for block, session_no in places:
            sessions[block].append(session_no)
        known = set(self.numbers)
        numbers = sorted(known.intersection(sessions), reverse=True)
        return DocBlocks(numbers, self.inside, sessions)

    def are_inside(self, numbers: Sequence[int]) -> bool:
        """Whether all documents of these blocks are between the times."""
        return self.inside is None or self.inside.issuperset(numbers)

    def words(self, numbers: Sequence[int]) -> list[str]:
        """The words that only documents of these blocks have, or of their sessions."""
        if self.sessions is None:
            return [_block(number) for number in numbers]
        return list(map(session_facet, sorted(self._sessions_of(numbers))))

    def fitting(self, numbers: Sequence[int], count: int) -> tuple[int, list[str]]:
        """Up to `count` of these blocks that are not too many words, and the words; at least one block."""
        count = min(count, MOST_WORDS)
        while len(words := self.words(numbers[:count])) > MOST_WORDS and count > 1:
            count //= 2
        return count, words

    def first(self) -> int:
        """How many blocks to search first."""
        count = FIRST_BLOCKS
        while self.sessions and count < len(self.numbers):
            if len(self._sessions_of(self.numbers[: 2 * count])) > FIRST_SESSIONS:
                break
            count *= 2
        return count

    def _sessions_of(self, numbers: Sequence[int]) -> set[int]:
        assert self.sessions is not None
        return {no for number in numbers for no in self.sessions[number]}


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

    GIN finds all matches before it returns one; with blocks or their sessions as words of the query it
    finds few. The caller sends how many each query has found, which tells how many blocks it takes to
    find `limit`.
    """
    below = _FAR if below is None else below
    has_times = blocks.inside is not None
    facets, sessions = without_many_sessions(facets)
    rest = blocks.numbers
    found = searched = 0
    count = blocks.first()
    while rest:
        if len(rest) <= 2 * count:
            count = len(rest)  # hardly more is left: all of it at once
        if count == len(rest) and not (has_times or sessions):
            break
        count, words = blocks.fitting(rest, count)
        if len(words) > MOST_WORDS:
            break
        some, rest = rest[:count], rest[count:]
        above = some[-1] << BLOCK_BITS
        params = _params(query, [*facets, words], without) | {"sessions": "{}"}
        params |= {"above": above, "below": below, "is_sure": blocks.are_inside(some)}
        found += (yield params) or 0
        searched += count
        below = min(below, above)
        # As many as it takes if the rest is like what was searched, and some more. From the first few blocks that
        # is only guessed: a word that is common elsewhere may be missing there.
        count = max(1, (limit - found) * searched * 5 // (4 * found) if found else _FAR)
        if searched <= FIRST_BLOCKS:
            count = min(count, NEXT_BLOCKS)
        elif count > RARE * len(rest) and (sessions or not has_times or len(rest) > MOST_WORDS):
            break  # it is rare: looked up everywhere, there are not many more matches
    if rest or not (has_times or sessions):
        params = _params(query, facets, without) | {"sessions": pg_array_literal(sessions)}
        yield params | {"above": 0, "below": below, "is_sure": not (has_times or sessions)}


def without_many_sessions(
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
