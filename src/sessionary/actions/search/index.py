"""Asking the index: from a parsed query to matches, with the filters of one search."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import log2
from typing import NamedTuple

from sessionary.actions.sessions import read
from sessionary.clock import to_micros
from sessionary.errors import Ambiguous, NotFound
from sessionary.model import search_text, tokenizer
from sessionary.model.message import MAX_SEQ, SEQ_BITS
from sessionary.model.query import Filters, Query, matches
from sessionary.model.search_text import AREAS, SAID, STEPS, searchable_text
from sessionary.model.session import Segment, SessionFolder
from sessionary.store.database import Row, Tx
from sessionary.store.queries import pg_array_literal
from sessionary.store.tables import entries, sessions
from sessionary.store.tables.blobs import Unpacker

CANDIDATES = 1000
# Steps are met on the way, and counted: so many are asked for, so many wanted ones are enough.
ASKED = 1400
ENOUGH = 600
ROUNDS = 10
MOST_SESSIONS = 1000
MOST_HIDDEN = 200
_FAR = 2**62
_HIDDEN = (SessionFolder.TRASH, SessionFolder.GONE)


# Documents that the index gave, newest first: their scores by their numbers.
Scores = dict[int, float]


class Candidates(NamedTuple):
    """What was found; how many of other areas were met on the way; whether there are older ones."""

    found: Scores
    others: int = 0
    more: bool = False


class SearchMatch(NamedTuple):
    """A document that was found, and the session in which it is shown."""

    no: int
    entry_no: int
    at: int
    length: int
    score: float
    session_no: int

    @property
    def seq(self) -> int:
        """The number of the entry; 0 for a title."""
        return self.entry_no & MAX_SEQ

    @property
    def area(self) -> str:
        """Whether it was said, or is a step on the way."""
        return AREAS[self.no & 1]


@dataclass(frozen=True, slots=True)
class SearchScope:
    """Where to look, besides the words: what the query's filters came to."""

    profile: str
    segments: tuple[Segment, ...] | None = None
    projects: str = ""
    session_nos: tuple[int, ...] = ()
    between: tuple[int, int] | None = None
    without: tuple[str, ...] = ()
    is_shared: bool = True
    is_exact: bool = True
    missing: str | None = None


class IndexSearch:
    """Asks the index in the scope of one search."""

    def __init__(self, tx: Tx, scope: SearchScope, *, scored: bool, below: int | None) -> None:
        self._tx = tx
        self._scope = scope
        self._name = f"find_{'scored' if scored else 'newest'}"
        after, before = scope.between or (-_FAR, _FAR)
        self._filters = {
            "profile": scope.profile,
            "after": after,
            "before": before,
            "projects": scope.projects,
        }
        self._below = below
        self.missing = scope.missing

    def candidates(
        self, query: Query, areas: Sequence[str], *, from_newest: bool = False
    ) -> Candidates:
        """The newest documents of some areas that match; `from_newest`: as on the first page."""
        found: Scores = {}
        others = 0
        if self._scope.missing is not None:
            return Candidates(found)
        wanted = {AREAS.index(area) for area in areas}
        below = None if from_newest else self._below
        rows: list[Row] = []
        for _ in range(ROUNDS):
            rows = self._rows(query, ASKED, below, last_area=max(wanted))
            met = [row for row in rows if not row[2] or self._really(row[0], query)]
            known = len(found)
            found.update((no, score) for no, score, _ in met if no & 1 in wanted)
            others += len(met) - (len(found) - known)
            if len(rows) < ASKED or len(found) >= ENOUGH:
                break
            # Many were looked at and not wanted; older ones may be.
            below = rows[-1][0]
        more = len(rows) == ASKED or len(found) > CANDIDATES
        return Candidates(dict(islice(found.items(), CANDIDATES)), others, more)

    def matches(self, numbers: Sequence[int], scores: Mapping[int, float]) -> list[SearchMatch]:
        """What documents stand for, in their order, without those that are not to be shown."""
        rows = {row[0]: row for row in self._tx.all("get_docs", numbers=pg_array_literal(numbers))}
        found = []
        for no in numbers:
            if no not in rows:
                continue
            _, entry_no, at, length, shelf = rows[no]
            session_no = entry_no >> SEQ_BITS
            if shelf is None:
                raise sessions.missing(session_no)
            if shelf in _HIDDEN:
                session_no = _living_fork(self._tx, session_no, entry_no & MAX_SEQ)
            if session_no and self._is_inside(entry_no):
                found.append(SearchMatch(no, entry_no, at, length, scores[no], session_no))
        return found

    def quoted(self, literal: Query, areas: Sequence[str]) -> Scores:
        """Messages in which the whole query stands to the letter, operators and all."""
        wanted = squeezed(literal.text)
        scores = self.candidates(literal, areas).found
        return {
            match.no: match.score
            for match in self.matches(list(scores), scores)
            if wanted in squeezed(text_of(self._tx, match))
        }

    def _rows(self, query: Query, limit: int, below: int | None, *, last_area: int) -> list[Row]:
        scope = self._scope
        rows: list[Row] = []
        for asked in self._tx.match(
            query,
            self._facets(query.filters),
            without=scope.without,
            between=scope.between,
            below=below,
        ):
            asked |= {"limit": limit - len(rows), "last_area": last_area}
            if asked.pop("is_sure") and scope.is_exact:
                rows += self._tx.all(self._name, **asked)
            else:
                # What the words of the index cannot say is looked up as the matches come.
                rows += self._tx.all(f"{self._name}_filtered", **asked, **self._filters)
            if len(rows) >= limit:
                break
        return rows

    def _facets(self, filters: Filters) -> list[Sequence[str]]:
        scope = self._scope
        groups: list[Sequence[str]] = [
            [search_text.facet(kind, value) for value in values]
            for kind, values in (
                ("role", filters.roles),
                ("source", filters.sources),
                ("from", filters.people),
                ("tool", filters.tools),
            )
        ]
        groups.append([search_text.of_session(no) for no in scope.session_nos])
        # Alone in the store, the profile need not be asked for: everything has that word.
        groups.append([search_text.of_profile(scope.profile)] if scope.is_shared else [])
        return [group for group in groups if group]

    def _is_inside(self, entry_no: int) -> bool:
        if self._scope.segments is None:
            return True
        no, seq = entry_no >> SEQ_BITS, entry_no & MAX_SEQ
        if seq == 0:
            return any(no == each.no for each in self._scope.segments[-1:])
        return any(
            no == each.no and each.first <= seq <= each.last for each in self._scope.segments
        )

    def _really(self, no: int, query: Query) -> bool:
        """A long text's words have no places in the index: look at the text itself."""
        found = self.matches([no], {no: 0.0})
        return bool(found) and matches(query, text_of(self._tx, found[0]))


def everywhere(tx: Tx, profile: str, *, has_words: bool) -> SearchScope:
    """All that can be found in a profile."""
    rows = tx.all("hidden_sessions", profile=profile, limit=MOST_HIDDEN + 1)
    hidden = [row[0] for row in rows if row[0]]
    # A query of filters alone has to ask for something.
    scope = SearchScope(profile, is_shared=not has_words or len(hidden) < len(rows))
    if len(hidden) > MOST_HIDDEN:
        return replace(scope, is_exact=False)
    return replace(scope, without=tuple(search_text.of_session(no) for no in hidden))


def narrowed(tx: Tx, scope: SearchScope, filters: Filters, *, session: str | None) -> SearchScope:
    """What the filters of a query mean in this store; what is not there is named."""
    profile = scope.profile
    if filters.after is not None or filters.before is not None:
        after = -_FAR if filters.after is None else to_micros(filters.after)
        before = _FAR if filters.before is None else to_micros(filters.before)
        scope = replace(scope, between=(after, before))
    refs = (*filters.sessions, *((session,) if session is not None else ()))
    if refs:
        try:
            heads = [read.resolve(tx, ref, profile=profile) for ref in refs]
        except (NotFound, Ambiguous) as error:
            return replace(scope, missing=str(error))
        stretches = tuple(each for head in heads for each in sessions.segments(tx, head.no))
        numbers = dict.fromkeys([*(each.no for each in stretches), *(head.no for head in heads)])
        scope = replace(scope, segments=stretches, session_nos=tuple(numbers)[-MOST_SESSIONS:])
    return _in_projects(tx, scope, filters.projects)


def text_of(tx: Tx, match: SearchMatch) -> str:
    """The text that a match was found in."""
    if match.seq == 0:
        return sessions.get_by_no(tx, match.session_no).title or ""
    no, seq = match.entry_no >> SEQ_BITS, match.seq
    [row] = entries.read_rows(tx, Segment(no, f"number {no}", seq, seq), limit=1)
    data = entries.readable(tx, match.entry_no, row[5], Unpacker(tx))
    return "" if data is None else searchable_text(row[2], data, match.area)


def squeezed(text: str) -> str:
    """A text to compare to the letter: folded, white space collapsed."""
    return " ".join(tokenizer.fold(text).split())


def areas(*, steps: bool) -> tuple[str, ...]:
    """Where to look: at what was said, and at steps when they are wanted."""
    return (SAID, STEPS) if steps else (SAID,)


def _in_projects(tx: Tx, scope: SearchScope, names: Sequence[str]) -> SearchScope:
    if not names:
        return scope
    rows = [tx.one("get_project", profile=scope.profile, name=name) for name in names]
    if None in rows:
        name = names[rows.index(None)]
        return replace(scope, missing=f"There is no project {name!r}.")
    numbers = [row[0] for row in rows if row is not None]
    inside = [
        row[0]
        for number in numbers
        for row in tx.all("projects_sessions", project_no=number, limit=MOST_SESSIONS + 1)
    ]
    if not inside:
        return replace(scope, missing=f"There is no session in {' or '.join(map(repr, names))}.")
    if not scope.session_nos and len(inside) <= MOST_SESSIONS:
        return replace(scope, session_nos=tuple(inside))
    # Many sessions are met soon as the matches come.
    return replace(scope, projects=f",{','.join(map(str, numbers))},", is_exact=False)


def _living_fork(tx: Tx, no: int, seq: int) -> int:
    """A session outside the trash that shows an entry of this one, itself or through others."""
    waiting, seen = [(no, SessionFolder.TRASH)], set[int]()
    while seq and waiting:
        at, shelf = waiting.pop()
        if shelf not in _HIDDEN:
            return at
        if at not in seen:
            seen.add(at)
            rows = tx.all("children", no=at)
            waiting += [
                (child_no, shelf)
                for child_no, _, lineage, base_seq, shelf in reversed(rows)
                if lineage in ("fork", "continuation") and base_seq >= seq
            ]
    return 0


CHUNK = 100
# So few are looked at one by one: their number is exact then.
FEW = 200
RECENCY = 0.5
USUAL_LENGTH = 60


class Ranking:
    """The matches in order; what is not looked at costs nothing.

    Candidates are ordered by how often the words occur and by age, then in chunks by their
    length too. Chunks do not mix, so that pages follow each other whatever their size.
    """

    def __init__(self, finder: IndexSearch, found: Scores, *, by_relevance: bool) -> None:
        self._finder = finder
        self._found = found
        self._merits = _merits(found) if by_relevance else None
        self._matches = self._in_order()
        self._known: list[SearchMatch] = []
        self._shown: list[SearchMatch] = []
        self._sessions: dict[int, int] = {}
        self.total = len(found)
        if len(found) <= FEW:
            self._known = list(self._matches)
            self.total = len(self._known)
            self._matches = iter(self._known)

    def page(self, begin: int, limit: int, *, one_each: bool) -> Sequence[SearchMatch]:
        """A page of the hits: all, or the best of each session."""
        while len(self._shown) < begin + limit + 1:
            match = next(self._matches, None)
            if match is None:
                break
            times = self._sessions[match.session_no] = self._sessions.get(match.session_no, 0) + 1
            if times == 1 or not one_each:
                self._shown.append(match)
        for match in self._matches if self._known else ():
            self._sessions[match.session_no] = self._sessions.get(match.session_no, 0) + 1
        return self._shown[begin : begin + limit]

    def has(self, place: int) -> bool:
        """Whether there is a hit at a place, of which the page before has been asked."""
        return place < len(self._shown)

    def times(self, match: SearchMatch) -> int:
        """How many matches its session has, as far as anyone has looked."""
        return self._sessions[match.session_no]

    def _in_order(self) -> Iterator[SearchMatch]:
        merits = self._merits
        ordered = list(self._found) if merits is None else sorted(merits, key=merits.__getitem__)
        entries: set[int] = set()
        for first in range(0, len(ordered), CHUNK):
            found = self._finder.matches(ordered[first : first + CHUNK], self._found)
            if merits is not None:
                found.sort(key=lambda match: _worth(match, merits[match.no]), reverse=True)
            for match in found:
                # What was said and its steps are one message.
                if match.entry_no not in entries:
                    entries.add(match.entry_no)
                    yield match


def _worth(match: SearchMatch, merit: float) -> float:
    return -merit / (1 + log2(1 + match.length / USUAL_LENGTH) / 2)


def _merits(found: Scores) -> dict[int, float]:
    """Less is better. The databases score on scales of their own; age counts half as much."""
    most = max(found.values(), default=0.0) or 1.0
    older = RECENCY / (len(found) or 1)
    return {no: place * older - 1 - score / most for place, (no, score) in enumerate(found.items())}
