"""Searches messages, with results in Hermes' form."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from sessionary.actions.search import search
from sessionary.actions.search.search import Hit, SearchOptions
from sessionary.compat.hermes import queries, rows
from sessionary.compat.hermes.rows import Json
from sessionary.compat.hermes.store import HermesStore
from sessionary.model import transcript
from sessionary.model.query import ROLES
from sessionary.model.search_text import SUMMARY, TITLE
from sessionary.model.session import Segment
from sessionary.model.snippet import CLOSE, OPEN
from sessionary.store.database import Tx
from sessionary.store.tables import entries, sessions

SORTS = ("newest", "oldest")
_CONTEXT = 200
_PAGE = 200
_MARKS = str.maketrans({OPEN: ">>>", CLOSE: "<<<"})


@dataclass(frozen=True, slots=True)
class SearchFilter:
    """Which messages to search: None means all sources, an empty list none."""

    sources: Sequence[str] | None = None
    without: Sequence[str] | None = None
    roles: Sequence[str] | None = None

    @property
    def is_empty(self) -> bool:
        return self.sources is not None and not self.sources

    def has(self, row: Json) -> bool:
        return row["source"] not in (self.without or ()) and (
            not self.roles or row["role"] in self.roles
        )

    def options(self, sort: str | None, wanted: int) -> SearchOptions:
        """Return the options of our search for about this many results."""
        known = tuple(role for role in self.roles or () if role in ROLES)
        is_known = len(known) == len(self.roles or ())
        return SearchOptions(
            sort="newest" if sort in SORTS else "relevance",
            limit=_PAGE if sort == "oldest" else max(1, min(_PAGE, wanted)),
            all_hits=True,
            steps=True,
            sources=tuple(self.sources or ()),
            # A role that we keep under another name is looked for among all.
            roles=known if is_known else (),
        )


def search_messages(
    store: HermesStore,
    query: str | None,
    scope: SearchFilter,
    *,
    limit: int,
    offset: int,
    sort: str | None,
) -> list[Json]:
    """The messages that match, each once, without retracted ones."""
    if not query or not query.strip() or scope.is_empty or limit == 0:
        return []
    limit = queries.at_most(limit)
    sort = sort.strip().lower() if isinstance(sort, str) else None
    found: list[Json] = []
    skip = max(0, offset)
    for row in _results(store, query, scope.options(sort, skip + limit), scope):
        found.append(row)
        # The oldest come last: all must be seen before the first can be told.
        if sort != "oldest" and len(found) >= skip + limit:
            break
    if sort == "oldest":
        found.reverse()
    page = found[skip : skip + limit]
    return store.read(_with_contexts, page, profile=store.profile)


def _results(
    store: HermesStore, query: str, options: SearchOptions, scope: SearchFilter
) -> Iterator[Json]:
    while True:
        now = store.moment().now
        pending = store.store.search(_page, query, profile=store.profile, options=options, now=now)
        page, following = pending.result()
        yield from (row for row in page if scope.has(row))
        if following is None:
            return
        options = replace(options, cursor=following)


def _page(
    tx: Tx, query: str, *, profile: str, options: SearchOptions, now: datetime
) -> tuple[list[Json], str | None]:
    found = search.search(tx, query, profile=profile, options=options, now=now)
    if found.relaxed or found.beginnings:
        # Not what was asked for: a caller who cannot be told gets none.
        return [], None
    taken_back: dict[int, list[tuple[int, int]]] = {}
    return [
        _row(tx, hit)
        for hit in found
        if hit.role not in (TITLE, SUMMARY) and _is_visible(tx, hit, taken_back)
    ], found.next


def _is_visible(tx: Tx, hit: Hit, taken_back: dict[int, list[tuple[int, int]]]) -> bool:
    no = hit.session.no
    if no not in taken_back:
        marks = entries.retractions(tx, sessions.segments(tx, no))
        taken_back[no] = transcript.retracted(marks)
    return not transcript.is_retracted(hit.seq, taken_back[no])


def _row(tx: Tx, hit: Hit) -> Json:
    head = hit.session
    owner = queries.owner_of(tx, head, hit.seq)
    [entry] = entries.read(tx, Segment(owner, head.id, hit.seq, hit.seq), limit=1)
    row = rows.message_row(entries.entry_no(owner, hit.seq), head.id, entry)
    return {
        "id": row["id"],
        "session_id": head.id,
        "role": row["role"],
        "snippet": hit.snippet.translate(_MARKS),
        "timestamp": row["timestamp"],
        "tool_name": row["tool_name"],
        "source": head.source.platform,
        "model": head.model,
        "session_started": head.began_at.timestamp(),
    }


def _with_contexts(tx: Tx, page: list[Json], *, profile: str) -> list[Json]:
    return [_with_context(tx, row, profile=profile) for row in page]


def _with_context(tx: Tx, row: Json, *, profile: str) -> Json:
    """A result with the messages right before and after it in the same session."""
    head = rows.find_session(tx, row["session_id"], profile=profile)
    near = [] if head is None else queries.neighbours(tx, head, row["id"])
    context = [
        {"role": each["role"], "content": text_of(each["content"])[:_CONTEXT]} for each in near
    ]
    return row | {"context": context}


def text_of(content: object) -> str:
    """A message's text; of parts, their texts."""
    if isinstance(content, list):
        texts = (each.get("text") for each in content if isinstance(each, dict))
        content = " ".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""
