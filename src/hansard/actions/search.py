"""Finding what was said: candidates from the index, hits from the log."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches

from hansard.actions import resolve
from hansard.clock import from_micros, to_micros
from hansard.errors import BadInput, NotFound
from hansard.model import query as queries
from hansard.model import snippet as snippets
from hansard.model import words
from hansard.model.cursor import Cursor
from hansard.model.entry import MAX_SEQ, SEQ_BITS, Entry, Message
from hansard.model.matching import matches
from hansard.model.query import Query
from hansard.model.search_text import searchable_text
from hansard.model.session import Segment, SessionHead
from hansard.store import entries, indexing, sessions
from hansard.store.database import Tx

CANDIDATES = 1000
LITERAL_CANDIDATES = 200
TITLE = "title"
_FAR = 2**62
_TEXT = 4000
_NEIGHBOUR = 200
_RECENCY = 0.5


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
    """The answer to a search. `more`: there are more matches than were counted."""

    hits: tuple[Hit, ...]
    total: int
    more: bool
    next: str | None
    words: str
    relaxed: bool = False
    step_hits: int = 0
    behind: int = 0
    suggestion: str | None = None

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)


@dataclass(frozen=True, slots=True)
class _Match:
    position: int
    entry_no: int
    at: int
    score: float

    @property
    def session_no(self) -> int:
        return self.entry_no >> SEQ_BITS

    @property
    def seq(self) -> int:
        return self.entry_no & MAX_SEQ


def search(tx: Tx, text: str, *, profile: str, wish: Wish, now: datetime) -> Found:
    """Find messages by what a person typed; an answer always says what it left out."""
    if not 1 <= wish.limit <= 200:
        raise BadInput(f"A search gives 1 to 200 hits at a time, not {wish.limit}.")
    if wish.sort not in ("relevance", "newest"):
        raise BadInput(f"Hits are sorted by relevance or newest, not by {wish.sort!r}.")
    query = queries.parse(text, now=now)
    asker = _Asker(tx, query, profile=profile, wish=wish)
    behind = indexing.state(tx).behind
    if query.is_empty or asker.finds_nothing:
        return Found((), 0, False, None, query.describe(), behind=behind)
    found, used, relaxed = asker.find()
    ranked = _ranked(found, wish)
    begin = Cursor.parse(wish.cursor).no if wish.cursor else 0
    page = ranked[begin : begin + wish.limit]
    more = str(Cursor(0, begin + wish.limit)) if begin + wish.limit < len(ranked) else None
    counts = _count_by_session(found)
    return Found(
        hits=tuple(_hit(tx, match, used, counts) for match in page),
        total=len(found),
        more=len(found) >= CANDIDATES,
        next=more,
        words=used.describe(),
        relaxed=relaxed,
        step_hits=0 if asker.looks_at_steps else asker.count_steps(used),
        behind=behind,
        suggestion=None if found else _suggest(tx, query),
    )


class _Asker:
    """Asks the index, with the filters of one search."""

    def __init__(self, tx: Tx, query: Query, *, profile: str, wish: Wish) -> None:
        self._tx = tx
        self._query = query if wish.source is None else queries.from_source(query, wish.source)
        self._profile = profile
        self._wish = wish
        self.finds_nothing = False
        self.looks_at_steps = wish.steps or "tool" in query.filters.roles or not query.groups
        first, last = self._range()
        filters = query.filters
        self._filters = {
            "profile": profile,
            "first": first,
            "last": last,
            "project_no": self._project(),
            "after": -_FAR if filters.after is None else to_micros(filters.after),
            "before": _FAR if filters.before is None else to_micros(filters.before),
        }

    def find(self) -> tuple[list[_Match], Query, bool]:
        """The newest matches, the query that found them, and whether it had to be relaxed."""
        found = self._all_areas(self._query)
        literal = self._query.literal() if self._query.has_operators else None
        if literal is not None:
            found = _merged(found, self._quoted(literal))
        if found or len(self._query.groups) < 2:
            return found, self._query, False
        relaxed = self._query.relaxed()
        return self._all_areas(relaxed), relaxed, True

    def count_steps(self, query: Query) -> int:
        """How many matches there are in what tools said and models thought."""
        return len(self._matches(query, "steps", CANDIDATES))

    def _all_areas(self, query: Query) -> list[_Match]:
        found = self._matches(query, "body", CANDIDATES)
        if self.looks_at_steps:
            found = _merged(found, self._matches(query, "steps", CANDIDATES))
        return found

    def _matches(self, query: Query, area: str, limit: int) -> list[_Match]:
        rows = self._tx.all(
            f"find_in_{area}",
            below=_FAR,
            limit=limit,
            **self._tx.match(query, profile=self._profile, area=area),
            **self._filters,
        )
        found = [
            (_Match(position, entry_no, at, score), is_long)
            for position, entry_no, at, score, is_long in rows
        ]
        return [
            match for match, is_long in found if not is_long or self._really(match, query, area)
        ]

    def _really(self, match: _Match, query: Query, area: str) -> bool:
        """A long text's words have no places in the index: look at the text itself."""
        entry = _entry(self._tx, match)
        return entry is not None and matches(query, searchable_text(entry.body, area))

    def _quoted(self, literal: Query) -> list[_Match]:
        """Messages in which the whole query stands to the letter, operators and all."""
        wanted = _squeezed(literal.text)
        return [
            match
            for match in self._matches(literal, "body", LITERAL_CANDIDATES)
            if (entry := _entry(self._tx, match)) is not None
            and wanted in _squeezed(searchable_text(entry.body, "body"))
        ]

    def _range(self) -> tuple[int, int]:
        refs = (
            *self._query.filters.sessions,
            *((self._wish.session,) if self._wish.session else ()),
        )
        if not refs:
            return 0, _FAR
        try:
            head = resolve.resolve(self._tx, refs[-1], profile=self._profile)
        except NotFound:
            self.finds_nothing = True
            return 0, 0
        return entries.entry_no(head.no, 0), entries.entry_no(head.no, MAX_SEQ)

    def _project(self) -> int | None:
        if not self._query.filters.projects:
            return None
        row = self._tx.one(
            "get_project", profile=self._profile, name=self._query.filters.projects[-1]
        )
        if row is None:
            self.finds_nothing = True
            return None
        return int(row[0])


def _ranked(found: Sequence[_Match], wish: Wish) -> list[_Match]:
    """In the order of the wish; unless all hits are wanted, the best of each session."""
    newest = sorted(found, key=lambda match: -match.position)
    if wish.sort == "relevance":
        age = {match.position: _RECENCY * place / len(newest) for place, match in enumerate(newest)}
        newest.sort(key=lambda match: age[match.position] - match.score)
    if wish.all_hits or wish.session is not None:
        return newest
    best: dict[int, _Match] = {}
    for match in newest:
        best.setdefault(match.session_no, match)
    return list(best.values())


def _hit(tx: Tx, match: _Match, query: Query, counts: dict[int, int]) -> Hit:
    head = sessions.get_by_no(tx, match.session_no)
    at = from_micros(match.at)
    times = counts[match.session_no]
    if match.seq == 0:
        title = head.title or ""
        return Hit(
            head, 0, TITLE, snippets.snippet(title, query), title, at, match.score, in_session=times
        )
    around = entries.read(
        tx, Segment(head.no, head.id, max(1, match.seq - 3), match.seq + 3), limit=7
    )
    said = {entry.seq: entry.body for entry in around if isinstance(entry.body, Message)}
    body = said[match.seq]
    text = searchable_text(body, "body") or searchable_text(body, "steps")
    before = [seq for seq in said if seq < match.seq and said[seq].text]
    after = [seq for seq in said if seq > match.seq and said[seq].text]
    return Hit(
        session=head,
        seq=match.seq,
        role=body.role,
        snippet=snippets.snippet(text, query),
        text=text[:_TEXT],
        at=at,
        score=round(match.score, 6),
        before=said[max(before)].text[:_NEIGHBOUR] if before else None,
        after=said[min(after)].text[:_NEIGHBOUR] if after else None,
        in_session=times,
    )


def _entry(tx: Tx, match: _Match) -> Entry | None:
    found = entries.read(tx, Segment(match.session_no, "", match.seq, match.seq), limit=1)
    return found[0] if found else None


def _merged(one: Sequence[_Match], other: Sequence[_Match]) -> list[_Match]:
    by_position = {match.position: match for match in (*other, *one)}
    return sorted(by_position.values(), key=lambda match: -match.position)[:CANDIDATES]


def _count_by_session(found: Sequence[_Match]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for match in found:
        counts[match.session_no] = counts.get(match.session_no, 0) + 1
    return counts


def _squeezed(text: str) -> str:
    return " ".join(words.fold(text).split())


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
    if len(word) < 4:
        return None
    rows = tx.all("near_words", first=word[:2], beyond=word[:2] + "\U0010ffff", limit=3000)
    close = get_close_matches(word, [row[0] for row in rows if row[0] != word], n=1, cutoff=0.7)
    return close[0] if close else None
