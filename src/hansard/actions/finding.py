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
from hansard.model.search_text import SAID, STEPS, searchable_text
from hansard.model.session import Segment, Shelf
from hansard.store import entries, sessions
from hansard.store.database import Tx

CANDIDATES = 1000
ROUNDS = 10
MOST_SESSIONS = 200
MOST_MONTHS = 36
_FAR = 2**62
_HIDDEN = (Shelf.TRASH, Shelf.GONE)


class Match(NamedTuple):
    """A document that was found, and the session in which it is shown."""

    no: int
    entry_no: int
    at: int
    score: float
    session_no: int

    @property
    def seq(self) -> int:
        """The number of the entry; 0 for a title."""
        return self.entry_no & MAX_SEQ

    @property
    def area(self) -> str:
        """Whether it was said, or is a step on the way."""
        return search_text.AREAS[self.no & 1]


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
    later_months: tuple[str, ...] = ()
    missing: str | None = None


class Finder:
    """Asks the index in the scope of one search."""

    def __init__(self, tx: Tx, scope: Scope, *, scored: bool, below: int | None) -> None:
        self._tx = tx
        self._scope = scope
        self._name = "find_scored" if scored else "find_newest"
        self._below = below
        self.missing = scope.missing

    def matches(self, query: Query, area: str, limit: int = CANDIDATES) -> list[Match]:
        """The newest matches in an area, at most so many."""
        if self._scope.missing is not None:
            return []
        found: list[Match] = []
        below = self._below
        for _ in range(ROUNDS):
            rows = self._rows(query, area, limit, below)
            found += self._shown(rows, query, area)
            if len(rows) < limit or len(found) >= limit:
                break
            # Many were looked at and not shown; older ones may be.
            below = rows[-1][0]
        return found[:limit]

    def quoted(self, literal: Query, areas: Iterable[str]) -> list[Match]:
        """Messages in which the whole query stands to the letter, operators and all."""
        wanted = squeezed(literal.text)
        return [
            match
            for area in areas
            for match in self.matches(literal, area)
            if wanted in squeezed(text_of(self._tx, match))
        ]

    def _rows(self, query: Query, area: str, limit: int, below: int | None) -> list[Any]:
        scope = self._scope
        filters = {
            "profile": scope.profile,
            "after": scope.after,
            "before": scope.before,
            "projects": scope.projects,
        }
        rows: list[Any] = []
        for asked in self._tx.match(
            query, self._facets(query.filters, area), without=scope.later_months, below=below
        ):
            rows += self._tx.all(self._name, limit=limit - len(rows), **asked, **filters)
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

    def _shown(self, rows: Sequence[Any], query: Query, area: str) -> list[Match]:
        found = []
        if self._scope.segments is None and not any(row[5] or row[3] in _HIDDEN for row in rows):
            return [Match(row[0], row[1], row[2], row[4], row[1] >> SEQ_BITS) for row in rows]
        for no, entry_no, at, shelf, score, is_long in rows:
            session_no = entry_no >> SEQ_BITS
            if shelf in _HIDDEN:
                session_no = _living_fork(self._tx, session_no, entry_no & MAX_SEQ) or 0
            match = Match(no, entry_no, at, score, session_no)
            if (
                session_no
                and self._is_inside(entry_no)
                and (not is_long or self._really(match, query, area))
            ):
                found.append(match)
        return found

    def _is_inside(self, entry_no: int) -> bool:
        if self._scope.segments is None:
            return True
        no, seq = entry_no >> SEQ_BITS, entry_no & MAX_SEQ
        if seq == 0:
            return any(no == each.no for each in self._scope.segments[-1:])
        return any(
            no == each.no and each.first <= seq <= each.last for each in self._scope.segments
        )

    def _really(self, match: Match, query: Query, area: str) -> bool:
        """A long text's words have no places in the index: look at the text itself."""
        entry = entry_of(self._tx, match)
        return entry is not None and matches(query, searchable_text(entry.body, area))


def scope_of(
    tx: Tx, filters: Filters, *, profile: str, session: str | None, now: datetime
) -> Scope:
    """What the filters of a query mean in this store; what is not there is named."""
    scope = Scope(
        profile,
        after=-_FAR if filters.after is None else to_micros(filters.after),
        before=_FAR if filters.before is None else to_micros(filters.before),
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


def _in_projects(tx: Tx, scope: Scope, names: Sequence[str]) -> Scope:
    if not names:
        return scope
    rows = [tx.one("get_project", profile=scope.profile, name=name) for name in names]
    if None in rows:
        name = names[rows.index(None)]
        return replace(scope, missing=f"There is no project {name!r}.")
    numbers = [row[0] for row in rows if row is not None]
    scope = replace(scope, projects=f",{','.join(map(str, numbers))},")
    inside = [
        row[0]
        for number in numbers
        for row in tx.all("projects_sessions", project_no=number, limit=MOST_SESSIONS + 1)
    ]
    if scope.session_nos or len(inside) > MOST_SESSIONS:
        return scope  # many sessions are met soon; few are asked for by name
    if not inside:
        return replace(scope, missing=f"There is no session in {' or '.join(map(repr, names))}.")
    return replace(scope, session_nos=tuple(inside))


def _in_months(scope: Scope, filters: Filters, now: datetime) -> Scope:
    """The months that a time filter spans, so that the index passes over all others."""
    if filters.before is None:
        return scope  # the newest come first anyway
    last = _month(filters.before - timedelta(microseconds=1))
    first = None if filters.after is None else _month(filters.after)
    if first is not None and 0 <= last - first < MOST_MONTHS:
        return replace(scope, months=_month_facets(range(first, last + 1)))
    later = range(last + 1, _month(now) + 2)
    return replace(scope, later_months=_month_facets(later[-MOST_MONTHS * 4 :]))


def _month(at: datetime) -> int:
    return at.year * 12 + at.month


def _month_facets(months: Iterable[int]) -> tuple[str, ...]:
    return tuple(search_text.of_month(0, month) for month in months)


def _living_fork(tx: Tx, no: int, seq: int) -> int | None:
    """A session outside the trash that shows an entry of this one, itself or through others."""
    for child_no, _, lineage, base_seq, shelf in tx.all("children", no=no):
        if lineage not in ("fork", "continuation") or base_seq < seq or seq == 0:
            continue
        found = child_no if shelf not in _HIDDEN else _living_fork(tx, child_no, seq)
        if found is not None:
            return int(found)
    return None
