"""Matches from the index: from a parsed query, through the filters of one search, to their order."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import log2
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from sessionary.actions.sessions import read
from sessionary.clock import to_micros
from sessionary.errors import Ambiguous, NotFound
from sessionary.model import search_text, tokenizer
from sessionary.model.message import MAX_SEQ, SEQ_BITS
from sessionary.model.query import Filters, Query, matches
from sessionary.model.search_text import AREAS, searchable_text
from sessionary.model.session import Segment, SessionFolder
from sessionary.store.database import Tx
from sessionary.store.tables import entries, projects, sessions
from sessionary.store.tables import search as search_table
from sessionary.store.tables.search import DocFilters

CANDIDATES = 500
# The index is asked for this many documents at a time, because some are of other areas; once
# ENOUGH of the asked areas were found, or after ROUNDS, it is not asked again.
ASKED = 700
ENOUGH = 300
ROUNDS = 10
MOST_SESSIONS = 1000
MOST_HIDDEN = 200
# Up to this many candidates are all looked at, which makes their number exact.
EXACT_COUNT = 200
RANKED_TOGETHER = 100
RECENCY = 0.5
USUAL_LENGTH = 60
_FAR = 2**62
_HIDDEN = (SessionFolder.TRASH, SessionFolder.GONE)

# Documents that the index returned, newest first: their scores by their numbers.
Scores = dict[int, float]


class Candidates(NamedTuple):
    """What was found; how many documents of other areas match; whether there are older ones."""

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
        """Whether it is what was said, or a step on the way."""
        return AREAS[self.no & 1]


class SearchScope(Struct, frozen=True):
    """Where to look, besides the words: what the query's filters mean in this store."""

    profile: str
    segments: tuple[Segment, ...] | None = None
    projects: str = ""
    session_nos: tuple[int, ...] = ()
    between: tuple[int, int] | None = None
    without: tuple[str, ...] = ()
    is_shared: bool = True
    is_exact: bool = True
    missing: str | None = None

    @classmethod
    def of_profile(cls, tx: Tx, profile: str, *, has_words: bool) -> "SearchScope":
        """All that can be found in a profile."""
        hidden = search_table.hidden_sessions(tx, profile=profile, limit=MOST_HIDDEN + 1)
        # A query of filters alone has to ask the index for something: the profile.
        scope = cls(profile, is_shared=not has_words or hidden.has_other_profiles)
        if len(hidden.numbers) > MOST_HIDDEN:
            return replace(scope, is_exact=False)
        return replace(scope, without=tuple(map(search_text.session_facet, hidden.numbers)))

    def narrowed(self, tx: Tx, filters: Filters, *, session: str | None) -> "SearchScope":
        """The scope within the filters of a query; what they name and is not there is `missing`."""
        scope = self
        if filters.after is not None or filters.before is not None:
            after = -_FAR if filters.after is None else to_micros(filters.after)
            before = _FAR if filters.before is None else to_micros(filters.before)
            scope = replace(scope, between=(after, before))
        refs = (*filters.sessions, *((session,) if session is not None else ()))
        if refs:
            try:
                heads = [read.find(tx, ref, profile=self.profile) for ref in refs]
            except (NotFound, Ambiguous) as error:
                return replace(scope, missing=str(error))
            segments = tuple(each for head in heads for each in sessions.segments(tx, head.no))
            numbers = dict.fromkeys([*(each.no for each in segments), *(head.no for head in heads)])
            scope = replace(scope, segments=segments, session_nos=tuple(numbers)[-MOST_SESSIONS:])
        return scope._in_projects(tx, filters.projects)

    def _in_projects(self, tx: Tx, names: Sequence[str]) -> "SearchScope":
        if not names:
            return self
        numbers = []
        for name in names:
            project = projects.find(tx, name, profile=self.profile)
            if project is None:
                return replace(self, missing=f"There is no project {name!r}.")
            numbers.append(project.no)
        inside = [
            no
            for number in numbers
            for no in projects.session_numbers(tx, number, limit=MOST_SESSIONS + 1)
        ]
        if not inside:
            return replace(self, missing=f"There is no session in {' or '.join(map(repr, names))}.")
        if not self.session_nos and len(inside) <= MOST_SESSIONS:
            return replace(self, session_nos=tuple(inside))
        # With many sessions, looking at the project of each match finds enough soon.
        return replace(self, projects=f",{','.join(map(str, numbers))},", is_exact=False)

    def includes(self, entry_no: int) -> bool:
        """Whether an entry, or a title, belongs to the sessions that were asked for."""
        if self.segments is None:
            return True
        no, seq = entry_no >> SEQ_BITS, entry_no & MAX_SEQ
        if seq == 0:
            return any(no == each.no for each in self.segments[-1:])
        return any(no == each.no and each.first <= seq <= each.last for each in self.segments)

    def doc_filters(self, filters: Filters) -> DocFilters:
        """What a document must meet, in words of the index."""
        facets: list[Sequence[str]] = [
            [search_text.facet(kind, value) for value in values]
            for kind, values in (
                ("role", filters.roles),
                ("source", filters.sources),
                ("from", filters.people),
                ("tool", filters.tools),
            )
        ]
        facets.append([search_text.session_facet(no) for no in self.session_nos])
        # If no other profile is in the store, every document has the profile's facet.
        facets.append([search_text.profile_facet(self.profile)] if self.is_shared else [])
        return DocFilters(
            profile=self.profile,
            facets=[group for group in facets if group],
            without=self.without,
            between=self.between,
            projects=self.projects,
            is_exact=self.is_exact,
        )


class IndexSearch:
    """Asks the index within the scope of one search."""

    def __init__(self, tx: Tx, scope: SearchScope, *, scored: bool, below: int | None) -> None:
        self._tx = tx
        self._scope = scope
        self._scored = scored
        self._below = below
        self.missing = scope.missing

    def candidates(
        self, query: Query, areas: Sequence[str], *, from_newest: bool = False
    ) -> Candidates:
        """The newest documents of some areas that match; `from_newest`: as on the first page."""
        found: Scores = {}
        others = 0
        if self.missing is not None:
            return Candidates(found)
        filters = self._scope.doc_filters(query.filters)
        wanted = {AREAS.index(area) for area in areas}
        below = None if from_newest else self._below
        docs: list[tuple[int, float]] = []
        for _ in range(ROUNDS):
            docs, unsure = search_table.find_docs(
                self._tx,
                query,
                filters,
                scored=self._scored,
                below=below,
                last_area=max(wanted),
                limit=ASKED,
            )
            matching = docs
            if unsure:
                matching = [
                    doc for doc in docs if doc[0] not in unsure or self._text_matches(doc[0], query)
                ]
            if len(wanted) < len(AREAS):
                [area] = wanted
                of_areas = [doc for doc in matching if doc[0] & 1 == area]
                others += len(matching) - len(of_areas)
                matching = of_areas
            found.update(matching)
            if len(docs) < ASKED or len(found) >= ENOUGH:
                break
            below = docs[-1][0]
        more = len(docs) == ASKED or len(found) > CANDIDATES
        if len(found) > CANDIDATES:
            found = dict(islice(found.items(), CANDIDATES))
        return Candidates(found, others, more)

    def matches(self, numbers: Sequence[int], scores: Mapping[int, float]) -> list[SearchMatch]:
        """What documents stand for, in the given order, without those that must not be shown."""
        docs = search_table.docs(self._tx, numbers)
        is_everywhere = self._scope.segments is None
        found = []
        for no in numbers:
            doc = docs.get(no)
            if doc is None:
                continue
            _, entry_no, at, length, folder = doc
            session_no = entry_no >> SEQ_BITS
            if folder is None:
                raise sessions.missing(session_no)
            if folder in _HIDDEN:
                session_no = _visible_fork(self._tx, session_no, entry_no & MAX_SEQ)
            if session_no and (is_everywhere or self._scope.includes(entry_no)):
                found.append(SearchMatch(no, entry_no, at, length, scores[no], session_no))
        return found

    def exact_matches(self, literal: Query, areas: Sequence[str]) -> Scores:
        """Messages that contain the whole query to the letter, operators and all."""
        wanted = comparable(literal.text)
        scores = self.candidates(literal, areas).found
        return {
            match.no: match.score
            for match in self.matches(list(scores), scores)
            if wanted in comparable(self._text(match))
        }

    def _text_matches(self, no: int, query: Query) -> bool:
        """Look at the text itself: the index keeps no positions for the words of a long text."""
        found = self.matches([no], {no: 0.0})
        return bool(found) and matches(query, self._text(found[0]))

    def _text(self, match: SearchMatch) -> str:
        """The text that a match was found in."""
        if match.seq == 0:
            return sessions.get_by_no(self._tx, match.session_no).title or ""
        role, data = entries.read_data(self._tx, match.entry_no)
        return "" if data is None else searchable_text(role, data, match.area)


def comparable(text: str) -> str:
    """A text for comparing to the letter: case folded, white space collapsed."""
    return " ".join(tokenizer.fold(text).split())


def _visible_fork(tx: Tx, no: int, seq: int) -> int:
    """The number of a session outside the trash that shows an entry of this one; 0 for none."""
    waiting, seen = [(no, str(SessionFolder.TRASH))], set[int]()
    while seq and waiting:
        at, folder = waiting.pop()
        if folder not in _HIDDEN:
            return at
        if at not in seen:
            seen.add(at)
            waiting += [
                (child.no, child.folder)
                for child in reversed(sessions.children(tx, at))
                if child.inherits and child.base_seq >= seq
            ]
    return 0


class Ranking:
    """The matches in order. Only those up to the page that is asked for are looked at.

    Candidates are ordered by score and age, then within groups of RANKED_TOGETHER also by their
    length. Groups do not mix, so that pages follow each other whatever their size.
    """

    def __init__(self, index: IndexSearch, found: Scores, *, by_relevance: bool) -> None:
        self._index = index
        self._found = found
        self._ranks = _ranks(found) if by_relevance else None
        self._numbers = list(found)
        self._matches = self._in_order()
        self._known: list[SearchMatch] = []
        self._shown: list[SearchMatch] = []
        self._sessions: dict[int, int] = {}
        self.total = len(found)
        if len(found) <= EXACT_COUNT:
            self._known = list(self._matches)
            self.total = len(self._known)
            self._matches = iter(self._known)

    def page(self, begin: int, limit: int, *, one_each: bool) -> Sequence[SearchMatch]:
        """A page of the matches: all, or the best of each session."""
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
        """Whether there is a match right behind the page that was asked for."""
        return place < len(self._shown)

    def times(self, match: SearchMatch) -> int:
        """How many of the matches that were looked at are in the same session."""
        return self._sessions[match.session_no]

    def _in_order(self) -> Iterator[SearchMatch]:
        ranks, numbers = self._ranks, self._numbers
        places: Sequence[int] = range(len(numbers))
        if ranks is not None:
            places = sorted(places, key=ranks.__getitem__)
        entries: set[int] = set()
        for first in range(0, len(places), RANKED_TOGETHER):
            group = places[first : first + RANKED_TOGETHER]
            found = self._index.matches([numbers[place] for place in group], self._found)
            if ranks is not None:
                rank_of = {numbers[place]: ranks[place] for place in group}
                found.sort(key=lambda match: _rank_by_length(match, rank_of[match.no]))
            for match in found:
                # What was said and its steps are one message.
                if match.entry_no not in entries:
                    entries.add(match.entry_no)
                    yield match


def _ranks(found: Scores) -> list[float]:
    """Lower is better. Scores are scaled, as each database has its own range; age counts half as much."""
    highest = max(found.values(), default=0.0) or 1.0
    older = RECENCY / (len(found) or 1)
    return [place * older - 1 - score / highest for place, score in enumerate(found.values())]


def _rank_by_length(match: SearchMatch, rank: float) -> float:
    return rank / (1 + log2(1 + match.length / USUAL_LENGTH) / 2)
