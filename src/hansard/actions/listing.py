"""Lists of sessions: heads only, so that a list never reads a transcript."""

from dataclasses import dataclass, replace
from datetime import datetime

from hansard.clock import to_micros
from hansard.errors import BadInput, NotFound
from hansard.model.cursor import Cursor
from hansard.model.session import Kind, SessionHead, Shelf
from hansard.store import sessions
from hansard.store.database import Tx

MAX_LIMIT = 1000
COUNTED = 1000
_SCANNED = 20_000


@dataclass(frozen=True, slots=True)
class Filters:
    """What narrows a list of sessions."""

    shelf: Shelf = Shelf.CHATS
    platform: str | None = None
    kind: Kind | None = None
    project: str | None = None
    model: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    is_open: bool | None = None
    pinned: bool = False
    text: str | None = None
    platforms: tuple[str, ...] = ()
    and_automation: bool = False
    read_only: bool | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list, and where the next begins."""

    items: tuple[SessionHead, ...]
    next: str | None
    hidden: int = 0


def listing(
    tx: Tx, filters: Filters, *, profile: str, limit: int = 50, cursor: str | None = None
) -> Page:
    """Newest activity first, a page at a time; a page costs the same in a store of any size."""
    check_limit(limit)
    at = (
        Cursor.parse(cursor)
        if cursor
        else Cursor.first(None if filters.until is None else to_micros(filters.until))
    )
    found: list[SessionHead] = []
    scanned, exhausted = 0, False
    while len(found) <= limit and scanned < _SCANNED and not exhausted:
        rows = _rows(tx, filters, profile=profile, at=at, limit=limit + 1)
        scanned, exhausted = scanned + len(rows), len(rows) <= limit
        found.extend(row for row in rows if _fits(row, filters))
        at = _behind(rows[-1]) if rows else at
    page = found[:limit]
    # A rare word may not fill a page within one search; the next page goes on from there.
    more = _behind(page[-1]) if len(found) > limit else None if exhausted else at
    return Page(
        tuple(page), None if more is None else str(more), _hidden(tx, filters, profile=profile)
    )


def check_limit(limit: int) -> None:
    """Refuse a page of no size, or of too much."""
    if not 1 <= limit <= MAX_LIMIT:
        raise BadInput(f"A page has 1 to {MAX_LIMIT:,} items, not {limit}.")


def _rows(tx: Tx, filters: Filters, *, profile: str, at: Cursor, limit: int) -> list[SessionHead]:
    """The next rows; several shelves or platforms are read one by one and merged."""
    shelves = (filters.shelf, Shelf.AUTOMATION) if filters.and_automation else (filters.shelf,)
    platforms = filters.platforms or (filters.platform,)
    rows = [
        row
        for shelf in dict.fromkeys(shelves)
        for platform in dict.fromkeys(platforms)
        for row in _stretch(
            tx,
            replace(filters, shelf=shelf, platform=platform),
            profile=profile,
            at=at,
            limit=limit,
        )
    ]
    rows.sort(key=lambda row: (row.last_active_at, row.no), reverse=True)
    return rows[:limit]


def _stretch(
    tx: Tx, filters: Filters, *, profile: str, at: Cursor, limit: int
) -> list[SessionHead]:
    query = "list_by_activity"
    params = {}
    if filters.pinned:
        query = "list_pinned"
    elif filters.project is not None:
        query = "list_by_project"
        row = tx.one("get_project", profile=profile, name=sessions.column(filters.project))
        if row is None:
            raise NotFound(f"There is no project {filters.project!r}.")
        params["project_no"] = row[0]
    elif filters.platform is not None:
        query = "list_by_platform"
        params["platform"] = sessions.column(filters.platform)
    rows = tx.all(
        query,
        profile=profile,
        shelf=filters.shelf,
        before_at=at.at,
        before_no=at.no,
        since=-(2**62) if filters.since is None else to_micros(filters.since),
        kind=filters.kind,
        model=sessions.column(filters.model),
        only_platform=sessions.column(filters.platform),
        only_open=None if filters.is_open is None else int(filters.is_open),
        limit=limit,
        **params,
    )
    return [sessions.head(row) for row in rows]


def _behind(head: SessionHead) -> Cursor:
    return Cursor.after(to_micros(head.last_active_at), head.no)


def _fits(head: SessionHead, filters: Filters) -> bool:
    if filters.read_only is not None and head.read_only is not filters.read_only:
        return False
    if filters.label is not None and filters.label not in head.labels:
        return False
    if not filters.text:
        return True
    return filters.text.casefold() in f"{head.title or ''}\n{head.preview or ''}".casefold()


def _hidden(tx: Tx, filters: Filters, *, profile: str) -> int:
    """How many automation sessions a list of chats leaves out; 1,000 means «1,000 or more»."""
    if filters.shelf is not Shelf.CHATS or filters.and_automation:
        return 0
    row = tx.one("count_shelf", profile=profile, shelf=Shelf.AUTOMATION, limit=COUNTED)
    return 0 if row is None else int(row[0])
