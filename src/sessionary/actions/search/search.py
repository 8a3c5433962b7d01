"""Finding what was said: candidates from the index, hits from the log."""

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sessionary.actions.search import index
from sessionary.actions.search.hits import Hit, hits
from sessionary.actions.search.index import CANDIDATES, Candidates, IndexSearch, Ranking, Scores
from sessionary.errors import BadInput
from sessionary.model import query as queries
from sessionary.model.query import Query
from sessionary.model.session import Cursor
from sessionary.model.view import head_json, time_text
from sessionary.store.database import Tx
from sessionary.store.search import indexer

SORTS = ("relevance", "newest")
MOST_HITS = 200
COUNTED_STEPS = 100
# So many letters may be missing, too many or others in what was perhaps meant.
_EDITS = 2


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How the answer shall look."""

    sort: str = "relevance"
    limit: int = 20
    cursor: str | None = None
    all_hits: bool = False
    steps: bool = False
    session: str | None = None
    source: str | None = None
    sources: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()

    def narrow(self, query: Query) -> Query:
        """The query in the places that are wished for besides those it names."""
        sources = self.sources if self.source is None else (self.source,)
        return queries.narrowed(query, sources=sources, roles=self.roles)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer to a search. `more`: there are more matches than were counted.

    `behind`: so many changes are not in the index yet. `missing`: what the query names and
    is not there. `step_hits`: matches in tool output and reasoning that are not shown.
    `relaxed`: nothing has all of the words, these have some. `beginnings`: nothing has the words
    as they were typed, these have longer words that begin with them.
    """

    hits: tuple[Hit, ...]
    total: int
    more: bool
    next: str | None
    words: str
    relaxed: bool = False
    beginnings: bool = False
    step_hits: int = 0
    behind: int = 0
    suggestion: str | None = None
    missing: str | None = None

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)


def search(tx: Tx, text: str, *, profile: str, wish: SearchOptions, now: datetime) -> SearchResult:
    """Find messages by what a person typed; an answer always says what it left out."""
    if not 1 <= wish.limit <= MOST_HITS:
        raise BadInput(f"A search gives 1 to {MOST_HITS} hits at a time, not {wish.limit}.")
    if wish.sort not in SORTS:
        raise BadInput(f"Hits are sorted by {' or '.join(SORTS)}, not by {wish.sort!r}.")
    place = None if wish.cursor is None else _place(wish.cursor)
    typed = queries.parse(text, now=now)
    query = wish.narrow(typed)
    behind = indexer.state(tx).behind
    if query.is_empty:
        return SearchResult((), 0, False, None, query.describe(), behind=behind)
    steps = wish.steps or "tool" in query.filters.roles or not query.groups
    areas = index.areas(steps=steps)
    asking = _Asking(tx, query, profile, wish, None if place is None else place[0])
    finder = asking.finder(query)
    # What looks like operators may be the text itself: then it is looked for everywhere.
    literal = queries.literal(typed)
    quoted = {} if literal is None else asking.quoted(wish.narrow(literal), areas)
    is_older = place is not None and place[1] == 0
    candidates, used, attempt = _find(finder, query, areas, quoted, is_older=is_older)
    found = candidates.found
    ranking = Ranking(finder, found, by_relevance=wish.sort == "relevance")
    begin = 0 if place is None else place[1]
    one_each = not wish.all_hits and wish.session is None
    page = ranking.page(begin, wish.limit, one_each=one_each)
    return SearchResult(
        hits=hits(tx, page, used, times=ranking.times),
        total=ranking.total,
        more=candidates.more,
        next=_following(ranking, candidates, place=place, end=begin + wish.limit),
        words=used.describe(),
        relaxed=attempt.relaxed,
        beginnings=attempt.beginnings,
        step_hits=min(candidates.others, COUNTED_STEPS),
        behind=behind,
        suggestion=None if page else _suggest(tx, query),
        missing=finder.missing,
    )


class _Attempt(NamedTuple):
    """How a query was widened after finding nothing."""

    beginnings: bool = False
    relaxed: bool = False


_AS_TYPED = _Attempt()
_WIDER = (
    _Attempt(beginnings=True),
    _Attempt(relaxed=True),
    _Attempt(beginnings=True, relaxed=True),
)


class _Asking:
    """Everything in which one search looks, for the query and for its text to the letter."""

    def __init__(
        self, tx: Tx, query: Query, profile: str, wish: SearchOptions, below: int | None
    ) -> None:
        self._tx = tx
        self._wish = wish
        self._below = below
        self._everywhere = index.everywhere(tx, profile, has_words=bool(query.groups))

    def finder(self, query: Query) -> IndexSearch:
        wish = self._wish
        scope = index.narrowed(self._tx, self._everywhere, query.filters, session=wish.session)
        return IndexSearch(self._tx, scope, scored=wish.sort == "relevance", below=self._below)

    def quoted(self, literal: Query, areas: Sequence[str]) -> Scores:
        return self.finder(literal).quoted(literal, areas)


def _find(
    finder: IndexSearch, query: Query, areas: Sequence[str], quoted: Scores, *, is_older: bool
) -> tuple[Candidates, Query, _Attempt]:
    """The newest matches, the query that found them, and how it differs from what was typed.

    While nothing is found, the query is widened: words as beginnings, then any word, then both.
    `is_older`: the page begins behind all that an earlier one had found. It goes on with the query
    that had found that, also where there is nothing more.
    """

    def found_earlier(tried: Query) -> bool:
        return is_older and bool(finder.candidates(tried, areas, from_newest=True).found)

    plain = finder.candidates(query, areas)
    if plain.found or quoted or found_earlier(query):
        return plain._replace(found=_merged(plain.found, quoted)), query, _AS_TYPED
    tried = [query]
    for attempt in _WIDER:
        wider = query.as_beginnings() if attempt.beginnings else query
        wider = wider.relaxed() if attempt.relaxed and len(query.groups) > 1 else wider
        if wider in tried:
            continue
        tried.append(wider)
        candidates = finder.candidates(wider, areas)
        if candidates.found or found_earlier(wider):
            return candidates, wider, attempt
    return plain, query, _AS_TYPED


def _place(cursor: str) -> tuple[int, int]:
    """Below which document a cursor goes on, and how many hits of those it has shown."""
    place = Cursor.parse(cursor)
    if not isinstance(place.at, int):
        raise BadInput("That cursor is of another list; begin again without it.")
    return place.at, place.no


def _following(
    ranking: Ranking, candidates: Candidates, *, place: tuple[int, int] | None, end: int
) -> str | None:
    """Where the next page begins.

    A cursor holds on to the newest match of its first page: what is said later moves nothing.
    """
    found = candidates.found
    if ranking.has(end):
        return str(Cursor(next(iter(found)) + 1 if place is None else place[0], end))
    if candidates.more and found:
        return str(Cursor(next(reversed(found)), 0))  # the older ones
    return None


def _merged(one: Scores, other: Scores) -> Scores:
    """Newest first, each document once."""
    if not one or not other:
        return one or other
    both = other | one
    return {no: both[no] for no in sorted(both, reverse=True)[:CANDIDATES]}


def _suggest(tx: Tx, query: Query) -> str | None:
    """The query with words that are not there replaced by near ones that are."""
    changed = False
    said: list[str] = []
    for term in (term for group in query.groups for term in group):
        near = None if term.is_phrase or term.prefix else _near(tx, term.words[0].text)
        said.append(near or term.text)
        changed = changed or near is not None
    return " ".join(said) if changed else None


def _near(tx: Tx, word: str) -> str | None:
    """The spelling that was perhaps meant, when this one is not there."""
    if len(word) < 4:
        return None
    rows = tx.all(
        "near_words",
        first=word[:2],
        beyond=word[:2] + "\U0010ffff",
        shortest=len(word) - _EDITS,
        longest=len(word) + _EDITS,
        limit=3000,
    )
    letters = set(word)
    known = [row[0] for row in rows if len(letters.intersection(row[0])) >= len(letters) - _EDITS]
    if word in known:
        return None
    difflib = importlib.import_module("difflib")  # seldom needed
    close: list[str] = difflib.get_close_matches(word, known, n=1, cutoff=0.7)
    return close[0] if close else None


def result_json(found: SearchResult) -> dict[str, Any]:
    """The answer to a search."""
    return {
        "items": [hit_json(hit) for hit in found],
        "next": found.next,
        "total": found.total,
        "more": found.more,
        "words": found.words,
        "relaxed": found.relaxed,
        "beginnings": found.beginnings,
        "step_hits": found.step_hits,
        "behind": found.behind,
        "suggestion": found.suggestion,
        "missing": found.missing,
    }


def hit_json(hit: Hit) -> dict[str, Any]:
    """One hit, with the head of its session."""
    return {
        "session": head_json(hit.session),
        "id": hit.id,
        "seq": hit.seq,
        "role": hit.role,
        "snippet": hit.snippet,
        "text": hit.text,
        "at": time_text(hit.at),
        "score": hit.score,
        "before": hit.before,
        "after": hit.after,
        "in_session": hit.in_session,
    }
