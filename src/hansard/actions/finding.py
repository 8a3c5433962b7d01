"""Asking the index: from a parsed query to matches, with the filters of one search."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from hansard.actions import resolve
from hansard.clock import to_micros
from hansard.errors import Ambiguous, NotFound
from hansard.model import search_text, words
from hansard.model.entry import MAX_SEQ, SEQ_BITS, Entry
from hansard.model.matching import matches
from hansard.model.query import Filters, Query
from hansard.model.search_text import AREAS, SAID, STEPS, searchable_text
from hansard.model.session import Segment, Shelf
from hansard.store import entries, sessions
from hansard.store.database import Tx

CANDIDATES = 1000
ROUNDS = 10
MOST_SESSIONS = 200
MOST_MONTHS = 36
_FAR = 2**62
_HIDDEN = (Shelf.TRASH, Shelf.GONE)


class Candidate(NamedTuple):
    """A document that the index gave. `is_sure`: nothing has to be looked at to believe it."""

    no: int
    score: float
    is_sure: bool

    @property
    def area(self) -> str:
        """Whether it was said, or is a step on the way."""
        return AREAS[self.no & 1]


class Match(NamedTuple):
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
class Scope:
    """Where to look, besides the words: what the query's filters came to."""

    profile: str
    segments: tuple[Segment, ...] | None = None
    projects: str = ""
    session_nos: tuple[int, ...] = ()
    after: int = -_FAR
    before: int = _FAR
    months: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    is_exact: bool = True
    missing: str | None = None


class Finder:
    """Asks the index in the scope of one search."""

    def __init__(self, tx: Tx, scope: Scope, *, scored: bool, below: int | None) -> None:
        self._tx = tx
        self._scope = scope
        self._name = f"find_{'scored' if scored else 'newest'}"
        self._filters: dict[str, Any] = {}
        if not scope.is_exact:
            # What the words of the index cannot say is looked up as the matches come.
            self._name += "_filtered"
            self._filters = {
                "profile": scope.profile,
                "after": scope.after,
                "before": scope.before,
                "projects": scope.projects,
            }
        self._below = below
        self.missing = scope.missing

    def candidates(self, query: Query, area: str, limit: int = CANDIDATES) -> list[Candidate]:
        """The newest documents of an area that match, at most so many."""
        if self._scope.missing is not None:
            return []
        found: list[Candidate] = []
        below = self._below
        for _ in range(ROUNDS):
            rows = self._rows(query, area, limit, below)
            found += [
                Candidate(no, score, not is_long)
                for no, score, is_long in rows
                if not is_long or self._really(no, query, area)
            ]
            if len(rows) < limit or len(found) >= limit:
                break
            # Many were looked at and not believed; older ones may be.
            below = rows[-1][0]
        return found[:limit]

    def matches(self, candidates: Sequence[Candidate]) -> list[Match]:
        """What candidates stand for, in their order, without those that are not to be shown."""
        numbers = ",".join(str(each.no) for each in candidates)
        rows = {row[0]: row for row in self._tx.all("get_docs", numbers=f"{{{numbers}}}")}
        found = []
        for each in candidates:
            if each.no not in rows:
                continue
            no, entry_no, at, length, shelf = rows[each.no]
            session_no = entry_no >> SEQ_BITS
            if shelf in _HIDDEN:
                session_no = _living_fork(self._tx, session_no, entry_no & MAX_SEQ)
            if session_no and self._is_inside(entry_no):
                found.append(Match(no, entry_no, at, length, each.score, session_no))
        return found

    def quoted(self, literal: Query, areas: Iterable[str]) -> list[Candidate]:
        """Messages in which the whole query stands to the letter, operators and all."""
        wanted = squeezed(literal.text)
        return [
            Candidate(match.no, match.score, is_sure=True)
            for area in areas
            for match in self.matches(self.candidates(literal, area))
            if wanted in squeezed(text_of(self._tx, match))
        ]

    def _rows(self, query: Query, area: str, limit: int, below: int | None) -> list[Any]:
        facets = self._facets(query.filters, area)
        rows: list[Any] = []
        for asked in self._tx.match(query, facets, without=self._scope.without, below=below):
            rows += self._tx.all(self._name, limit=limit - len(rows), **asked, **self._filters)
            if len(rows) >= limit:
                break
        return rows

    def _facets(self, filters: Filters, area: str) -> list[Sequence[str]]:
        scope = self._scope
        groups: list[Sequence[str]] = [[search_text.of_profile(scope.profile, area)]]
        for kind, values in (
            ("role", filters.roles),
            ("source", filters.sources),
            ("tool", filters.tools),
        ):
            groups.append([search_text.facet(kind, value) for value in values])
        groups.append([search_text.of_session(no) for no in scope.session_nos])
        groups.append(scope.months)
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

    def _really(self, no: int, query: Query, area: str) -> bool:
        """A long text's words have no places in the index: look at the text itself."""
        found = self.matches([Candidate(no, 0.0, is_sure=False)])
        entry = entry_of(self._tx, found[0]) if found else None
        return entry is not None and matches(query, searchable_text(entry.body, area))


def scope_of(
    tx: Tx, filters: Filters, *, profile: str, session: str | None, now: datetime
) -> Scope:
    """What the filters of a query mean in this store; what is not there is named."""
    scope = _without_trash(tx, Scope(profile))
    if filters.after is not None or filters.before is not None:
        scope = replace(
            scope,
            after=-_FAR if filters.after is None else to_micros(filters.after),
            before=_FAR if filters.before is None else to_micros(filters.before),
            is_exact=False,
        )
        scope = _in_months(scope, filters, now)
    refs = (*filters.sessions, *((session,) if session is not None else ()))
    if refs:
        try:
            heads = [resolve.resolve(tx, ref, profile=profile) for ref in refs]
        except (NotFound, Ambiguous) as error:
            return replace(scope, missing=str(error))
        stretches = tuple(each for head in heads for each in sessions.segments(tx, head.no))
        numbers = dict.fromkeys([*(each.no for each in stretches), *(head.no for head in heads)])
        scope = replace(scope, segments=stretches, session_nos=tuple(numbers)[-MOST_SESSIONS:])
    return _in_projects(tx, scope, filters.projects)


def entry_of(tx: Tx, match: Match) -> Entry | None:
    """The entry that a match stands for."""
    own = match.entry_no >> SEQ_BITS
    found = entries.read(tx, Segment(own, "", match.seq, match.seq), limit=1)
    return found[0] if found else None


def around(tx: Tx, match: Match, *, distance: int) -> dict[int, Entry]:
    """The entry of a match and what was said near it in the same session, by number.

    What tools said is passed over without being read: it may be long.
    """
    rows = tx.all(
        "read_entries",
        first=max(match.entry_no - distance, match.entry_no - match.seq),
        last=match.entry_no + distance,
        limit=2 * distance + 1,
    )
    return {
        row[0] & MAX_SEQ: entries.entry_of(tx, row, "")
        for row in rows
        if row[0] == match.entry_no or row[2] in ("user", "assistant")
    }


def text_of(tx: Tx, match: Match) -> str:
    """The text that a match was found in."""
    if match.seq == 0:
        return sessions.get_by_no(tx, match.session_no).title or ""
    entry = entry_of(tx, match)
    return "" if entry is None else searchable_text(entry.body, match.area)


def squeezed(text: str) -> str:
    """A text to compare to the letter: folded, white space collapsed."""
    return " ".join(words.fold(text).split())


def areas(*, steps: bool) -> tuple[str, ...]:
    """Where to look: at what was said, and at steps when they are wanted."""
    return (SAID, STEPS) if steps else (SAID,)


def _without_trash(tx: Tx, scope: Scope) -> Scope:
    rows = tx.all("hidden_sessions", profile=scope.profile, limit=MOST_SESSIONS + 1)
    if len(rows) > MOST_SESSIONS:
        return replace(scope, is_exact=False)
    return replace(scope, without=tuple(search_text.of_session(row[0]) for row in rows))


def _in_projects(tx: Tx, scope: Scope, names: Sequence[str]) -> Scope:
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


def _in_months(scope: Scope, filters: Filters, now: datetime) -> Scope:
    """The months that a time filter spans, so that the index passes over all others."""
    if filters.before is None:
        return scope  # the newest come first anyway
    last = _month(filters.before - timedelta(microseconds=1))
    first = None if filters.after is None else _month(filters.after)
    if first is not None and 0 <= last - first < MOST_MONTHS:
        return replace(scope, months=_month_facets(range(first, last + 1)))
    later = range(last + 1, _month(now) + 2)
    return replace(scope, without=scope.without + _month_facets(later[-MOST_MONTHS * 4 :]))


def _month(at: datetime) -> int:
    return at.year * 12 + at.month


def _month_facets(months: Iterable[int]) -> tuple[str, ...]:
    return tuple(search_text.of_month(0, month) for month in months)


def _living_fork(tx: Tx, no: int, seq: int) -> int:
    """A session outside the trash that shows an entry of this one, itself or through others."""
    for child_no, _, lineage, base_seq, shelf in tx.all("children", no=no):
        if lineage not in ("fork", "continuation") or base_seq < seq or seq == 0:
            continue
        found = child_no if shelf not in _HIDDEN else _living_fork(tx, child_no, seq)
        if found:
            return int(found)
    return 0
