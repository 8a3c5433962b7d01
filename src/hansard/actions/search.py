"""Finding what was said: candidates from the index, hits from the log."""

import importlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from hansard.actions import finding
from hansard.actions.finding import CANDIDATES, Candidate, Candidates, Finder, Match
from hansard.actions.ranking import Ranking
from hansard.clock import from_micros
from hansard.errors import BadInput
from hansard.model import query as queries
from hansard.model import snippet as snippets
from hansard.model.cursor import Cursor
from hansard.model.entry import Entry, Message
from hansard.model.query import Query
from hansard.model.search_text import TITLE, searchable_text
from hansard.model.session import SessionHead
from hansard.store import indexing, sessions
from hansard.store.database import Tx

SORTS = ("relevance", "newest")
MOST_HITS = 200
COUNTED_STEPS = 100
_TEXT = 4000
_NEIGHBOUR = 200
_NEAR = 3


@dataclass(frozen=True, slots=True)
class Wish:
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
class Hit:
    """One message that was found, with what stands around it in the same session."""

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


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to a search. `more`: there are more matches than were counted.

    `behind`: so many changes are not in the index yet. `missing`: what the query names and
    is not there. `step_hits`: matches in tool output and reasoning that are not shown.
    """

    hits: tuple[Hit, ...]
    total: int
    more: bool
    next: str | None
    words: str
    relaxed: bool = False
    step_hits: int = 0
    behind: int = 0
    suggestion: str | None = None
    missing: str | None = None

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)


def search(tx: Tx, text: str, *, profile: str, wish: Wish, now: datetime) -> Found:
    """Find messages by what a person typed; an answer always says what it left out."""
    if not 1 <= wish.limit <= MOST_HITS:
        raise BadInput(f"A search gives 1 to {MOST_HITS} hits at a time, not {wish.limit}.")
    if wish.sort not in SORTS:
        raise BadInput(f"Hits are sorted by {' or '.join(SORTS)}, not by {wish.sort!r}.")
    place = None if wish.cursor is None else Cursor.parse(wish.cursor)
    typed = queries.parse(text, now=now)
    query = wish.narrow(typed)
    behind = indexing.state(tx).behind
    if query.is_empty:
        return Found((), 0, False, None, query.describe(), behind=behind)
    steps = wish.steps or "tool" in query.filters.roles or not query.groups
    areas = finding.areas(steps=steps)
    finder = _finder(tx, query, profile=profile, wish=wish)
    # What looks like operators may be the text itself: then it is looked for everywhere.
    literal = queries.literal(typed)
    quoted = [] if literal is None else _quoted(tx, wish.narrow(literal), areas, profile, wish)
    candidates, used = _find(finder, query, areas, quoted)
    found = candidates.found
    ranking = Ranking(finder, found, by_relevance=wish.sort == "relevance")
    begin = 0 if place is None else place.no
    one_each = not wish.all_hits and wish.session is None
    page = ranking.page(begin, wish.limit, one_each=one_each)
    return Found(
        hits=tuple(_hit(tx, match, used, ranking.times(match)) for match in page),
        total=ranking.total,
        more=candidates.more,
        next=_following(ranking, candidates, place=place, end=begin + wish.limit),
        words=used.describe(),
        relaxed=used is not query,
        step_hits=min(candidates.others, COUNTED_STEPS),
        behind=behind,
        suggestion=None if page else _suggest(tx, query),
        missing=finder.missing,
    )


def _quoted(
    tx: Tx, literal: Query, areas: Sequence[str], profile: str, wish: Wish
) -> list[Candidate]:
    return _finder(tx, literal, profile=profile, wish=wish).quoted(literal, areas)


def _finder(tx: Tx, query: Query, *, profile: str, wish: Wish) -> Finder:
    scope = finding.scope_of(
        tx,
        query.filters,
        profile=profile,
        session=wish.session,
        has_words=bool(query.groups),
    )
    below = None if wish.cursor is None else Cursor.parse(wish.cursor).at
    return Finder(tx, scope, scored=wish.sort == "relevance", below=below)


def _find(
    finder: Finder, query: Query, areas: Sequence[str], quoted: list[Candidate]
) -> tuple[Candidates, Query]:
    """The newest matches, and the query that found them."""
    plain = finder.candidates(query, areas)
    if plain.found or quoted or len(query.groups) < 2:
        return plain._replace(found=_merged([plain.found, quoted])), query
    relaxed = query.relaxed()
    return finder.candidates(relaxed, areas), relaxed


def _following(
    ranking: Ranking, candidates: Candidates, *, place: Cursor | None, end: int
) -> str | None:
    """Where the next page begins.

    A cursor holds on to the newest match of its first page: what is said later moves nothing.
    """
    found = candidates.found
    if ranking.has(end):
        return str(Cursor(found[0].no + 1 if place is None else place.at, end))
    if candidates.more and found:
        return str(Cursor(found[-1].no, 0))  # the older ones
    return None


def _hit(tx: Tx, match: Match, query: Query, times: int) -> Hit:
    head = sessions.get_by_no(tx, match.session_no)
    at, score = from_micros(match.at), round(match.score, 6)
    if match.seq == 0:
        title = head.title or ""
        shown = snippets.snippet(title, query)
        return Hit(head, 0, TITLE, shown, title, at, score, in_session=times)
    around = finding.around(tx, match, distance=_NEAR)
    body = around[match.seq].body
    assert isinstance(body, Message), f"entry {match.entry_no} is indexed but no message"
    text = searchable_text(body, match.area)
    return Hit(
        session=head,
        seq=match.seq,
        role=body.role,
        snippet=snippets.snippet(text, query),
        text=text[:_TEXT],
        at=at,
        score=score,
        before=_said(around[seq] for seq in sorted(around, reverse=True) if seq < match.seq),
        after=_said(around[seq] for seq in sorted(around) if seq > match.seq),
        in_session=times,
    )


def _said(near: Iterable[Entry]) -> str | None:
    """The first words of the nearest message that has any."""
    texts = (entry.body.text for entry in near if isinstance(entry.body, Message))
    return next((text[:_NEIGHBOUR] for text in texts if text), None)


def _merged(several: Sequence[list[Candidate]]) -> list[Candidate]:
    """Newest first, each document once."""
    several = [found for found in several if found]
    if len(several) < 2:
        return several[0] if several else []
    by_no = {each.no: each for found in reversed(several) for each in found}
    return sorted(by_no.values(), key=lambda each: -each.no)[:CANDIDATES]


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
    rows = tx.all("near_words", first=word[:2], beyond=word[:2] + "\U0010ffff", limit=3000)
    known = [row[0] for row in rows]
    if word in known:
        return None
    difflib = importlib.import_module("difflib")  # seldom needed
    close: list[str] = difflib.get_close_matches(word, known, n=1, cutoff=0.7)
    return close[0] if close else None
