"""Search for messages: options in, a page of hits out."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from msgspec import Struct

from sessionary.actions.search.index import (
    CANDIDATES,
    Candidates,
    IndexSearch,
    Ranking,
    Scores,
    SearchMatch,
    SearchScope,
)
from sessionary.clock import from_micros
from sessionary.errors import BadInput, Damaged
from sessionary.model import message
from sessionary.model import query as queries
from sessionary.model import snippet as snippets
from sessionary.model.query import Query
from sessionary.model.search_text import MESSAGE, STEPS, SUMMARY, TITLE, searchable_text
from sessionary.model.session import Cursor, SessionHead
from sessionary.model.view import head_json, time_text
from sessionary.store.database import REMEDY, Tx
from sessionary.store.search import indexer
from sessionary.store.tables import entries, sessions
from sessionary.store.tables import search as search_table
from sessionary.store.tables.blobs import Unpacker

if TYPE_CHECKING:
    from sessionary.model.json_types import HitRole, SearchHit, SearchPage

SORTS = ("relevance", "newest")
MOST_HITS = 200
COUNTED_STEPS = 100
# Shown for a message that was readable when it was indexed and is damaged now.
UNREADABLE = "(this message is damaged and cannot be read: run `sessionary verify`)"
# A suggestion may differ from a word by this many letters.
_EDITS = 2
_TEXT = 4000
_NEIGHBOUR = 200
_NEAR = 3


class SearchOptions(Struct, frozen=True):
    """How to search besides the words: the order, the page, and where to look."""

    sort: str = "relevance"
    limit: int = 20
    cursor: str | None = None
    all_hits: bool = False
    steps: bool = False
    session: str | None = None
    source: str | None = None
    sources: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    person: str | None = None
    project: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def narrow(self, query: Query) -> Query:
        """The query with these filters, where they are given."""
        filters = queries.Filters(
            roles=self.roles,
            sources=self.sources if self.source is None else (self.source,),
            people=() if self.person is None else (self.person,),
            projects=() if self.project is None else (self.project,),
            after=self.since,
            before=self.until,
        )
        return queries.narrowed(query, filters)


class Hit(Struct, frozen=True):
    """One message that was found, with the beginning of the messages around it."""

    session: SessionHead
    seq: int
    role: str
    snippet: str
    text: str
    at: datetime
    score: float
    before: str | None = None
    after: str | None = None
    in_session: int = 1

    @property
    def id(self) -> str:
        """The name of the entry."""
        return f"{self.session.id}-{self.seq}"


class SearchResult(Struct, frozen=True):
    """The result of a search. `more`: there are more matches than were counted.

    `behind`: the number of changes that are not in the index yet. `missing`: what the query names and
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


def search(
    tx: Tx, text: str, *, profile: str, options: SearchOptions, now: datetime
) -> SearchResult:
    """Find messages by what a person typed; the result always says what it left out."""
    if not 1 <= options.limit <= MOST_HITS:
        raise BadInput(f"A search gives 1 to {MOST_HITS} hits at a time, not {options.limit}.")
    if options.sort not in SORTS:
        raise BadInput(f"Hits are sorted by {' or '.join(SORTS)}, not by {options.sort!r}.")
    place = None if options.cursor is None else _place(options.cursor)
    typed = queries.parse(text, now=now)
    query = options.narrow(typed)
    behind = indexer.state(tx).behind
    if query.is_empty:
        return SearchResult((), 0, False, None, query.describe(), behind=behind)
    steps = options.steps or "tool" in query.filters.roles or not query.groups
    areas = (MESSAGE, STEPS) if steps else (MESSAGE,)
    by_relevance = options.sort == "relevance"
    everything = SearchScope.of_profile(tx, profile, has_words=bool(query.groups))

    def index_search(query: Query) -> IndexSearch:
        scope = everything.narrowed(tx, query.filters, session=options.session)
        below = None if place is None else place[0]
        return IndexSearch(tx, scope, scored=by_relevance, below=below)

    index = index_search(query)
    # What looks like operators may be the text itself, which is then looked for everywhere.
    literal = queries.literal(typed)
    quoted: Scores = {}
    if literal is not None:
        literal = options.narrow(literal)
        quoted = index_search(literal).exact_matches(literal, areas)
    is_older = place is not None and place[1] == 0
    candidates, used, attempt = _find(index, query, areas, quoted, is_older=is_older)
    ranking = Ranking(index, candidates.found, by_relevance=by_relevance)
    begin = 0 if place is None else place[1]
    one_each = not options.all_hits and options.session is None
    page = ranking.page(begin, options.limit, one_each=one_each)
    return SearchResult(
        hits=_hits(tx, page, used, times=ranking.times),
        total=ranking.total,
        more=candidates.more,
        next=_next_cursor(ranking, candidates, place=place, end=begin + options.limit),
        words=used.describe(),
        relaxed=attempt.relaxed,
        beginnings=attempt.beginnings,
        step_hits=min(candidates.others, COUNTED_STEPS),
        behind=behind,
        suggestion=None if page else _suggest(tx, query),
        missing=index.missing,
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


def _find(
    index: IndexSearch, query: Query, areas: Sequence[str], quoted: Scores, *, is_older: bool
) -> tuple[Candidates, Query, _Attempt]:
    """The newest matches, the query that found them, and how it differs from what was typed.

    While nothing is found, the query is widened: words as beginnings, then any word, then both.
    `is_older`: the page begins behind all candidates of an earlier page. It must use the query
    that found those, even if that finds nothing more.
    """

    def found_earlier(tried: Query) -> bool:
        return is_older and bool(index.candidates(tried, areas, from_newest=True).found)

    plain = index.candidates(query, areas)
    if plain.found or quoted or found_earlier(query):
        return plain._replace(found=_merged(plain.found, quoted)), query, _AS_TYPED
    tried = [query]
    for attempt in _WIDER:
        wider = query.as_beginnings() if attempt.beginnings else query
        wider = wider.relaxed() if attempt.relaxed and len(query.groups) > 1 else wider
        if wider in tried:
            continue
        tried.append(wider)
        candidates = index.candidates(wider, areas)
        if candidates.found or found_earlier(wider):
            return candidates, wider, attempt
    return plain, query, _AS_TYPED


def _place(cursor: str) -> tuple[int, int]:
    """Below which document a cursor continues, and how many hits of those it has shown."""
    place = Cursor.parse(cursor)
    if not isinstance(place.at, int):
        raise BadInput("That cursor is of another list; begin again without it.")
    return place.at, place.no


def _next_cursor(
    ranking: Ranking, candidates: Candidates, *, place: tuple[int, int] | None, end: int
) -> str | None:
    """Where the next page begins. A cursor names the newest match of its first page, so that new
    messages do not shift the pages.
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
    """The query with words that are not in the index replaced by similar ones that are."""
    changed = False
    words: list[str] = []
    for term in (term for group in query.groups for term in group):
        other = None if term.is_phrase or term.prefix else _similar(tx, term.words[0].text)
        words.append(other or term.text)
        changed = changed or other is not None
    return " ".join(words) if changed else None


def _similar(tx: Tx, word: str) -> str | None:
    """The most similar word in the index; None when the word itself is there."""
    if len(word) < 4:
        return None
    near = search_table.words_near(
        tx, word[:2], shortest=len(word) - _EDITS, longest=len(word) + _EDITS
    )
    letters = set(word)
    known = [each for each in near if len(letters.intersection(each)) >= len(letters) - _EDITS]
    if word in known:
        return None
    import difflib  # seldom needed

    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=0.7)), None)


def _hits(
    tx: Tx, page: Sequence[SearchMatch], query: Query, *, times: Callable[[SearchMatch], int]
) -> tuple[Hit, ...]:
    """What a page of matches shows; the log is read once for all of them."""
    unpacker = Unpacker(tx)
    heads = sessions.by_numbers(tx, {match.session_no for match in page})
    around = search_table.entries_around(
        tx, [match.entry_no for match in page if match.seq], distance=_NEAR
    )

    def beginning(near: Mapping[int, tuple[str | None, str]], numbers: Iterable[int]) -> str | None:
        """The first words of the first of these entries that has any."""
        for number in numbers:
            if number in near:
                data = entries.readable(tx, number, near[number][1], unpacker) or {}
                if text := _words_of(data.get("parts", ())):
                    return text[:_NEIGHBOUR]
        return None

    def hit(match: SearchMatch) -> Hit:
        head = heads[match.session_no]
        at, score = from_micros(match.at), round(match.score, 6)
        if match.seq == 0:
            title = head.title or ""
            snippet = snippets.snippet(title, query)
            return Hit(head, 0, TITLE, snippet, title, at, score, in_session=times(match))
        near = around[match.entry_no]
        if match.entry_no not in near:
            raise Damaged(
                f"Entry {match.seq} of session {head.id} is missing from the log: "
                f"the store is damaged. {REMEDY}"
            )
        role, body = near[match.entry_no]
        data = entries.readable(tx, match.entry_no, body, unpacker)
        text = "" if data is None else searchable_text(role, data, match.area)
        return Hit(
            session=head,
            seq=match.seq,
            role=role or SUMMARY,
            snippet=UNREADABLE if data is None else snippets.snippet(text, query),
            text=text[:_TEXT],
            at=at,
            score=score,
            before=beginning(near, range(match.entry_no - 1, match.entry_no - _NEAR - 1, -1)),
            after=beginning(near, range(match.entry_no + 1, match.entry_no + _NEAR + 1)),
            in_session=times(match),
        )

    return tuple(map(hit, page))


def _words_of(parts: Sequence[Mapping[str, Any]]) -> str:
    """What `message.text_of` returns, mostly without making a value of each part."""
    if len(parts) == 1 and parts[0].get("type") == "text" and type(parts[0].get("text")) is str:
        return str(parts[0]["text"])
    return message.text_of(tuple(map(message.from_json, parts)))


def result_json(found: SearchResult, *, now: datetime) -> "SearchPage":
    """A search result as the interfaces show it."""
    return {
        "items": [hit_json(hit, now=now) for hit in found],
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


def hit_json(hit: Hit, *, now: datetime) -> "SearchHit":
    """One hit, with the head of its session."""
    return {
        "session": head_json(hit.session, now=now),
        "id": hit.id,
        "seq": hit.seq,
        "role": cast("HitRole", hit.role),
        "snippet": hit.snippet,
        "text": hit.text,
        "at": time_text(hit.at),
        "score": hit.score,
        "before": hit.before,
        "after": hit.after,
        "in_session": hit.in_session,
    }
