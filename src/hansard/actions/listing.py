"""Lists of sessions: heads only, so that a list never reads a transcript."""

from dataclasses import dataclass, replace
from datetime import datetime

from hansard.actions.orders import Order
from hansard.clock import to_micros
from hansard.errors import BadInput, NotFound
from hansard.model.cursor import Cursor
from hansard.model.session import Kind, SessionHead, Shelf
from hansard.store import sessions
from hansard.store.database import Tx

MAX_LIMIT = 1000
COUNTED = 1000
_SCANNED = 20_000
_ORDERED = {
    Order.CREATED: "list_by_creation",
    Order.TITLE: "list_by_title",
    Order.COST: "list_by_cost",
}


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
    order: Order = Order.ACTIVITY


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list, and where the next begins."""

    items: tuple[SessionHead, ...]
    next: str | None
    hidden: int = 0


def listing(
    tx: Tx, filters: Filters, *, profile: str, limit: int = 50, cursor: str | None = None
) -> Page:
    """Newest activity first (or in another order), a page at a time.

    A page costs the same in a store of any size.
    """
    check_limit(limit)
    order = filters.order
    if filters.pinned and order is not Order.ACTIVITY:
        raise BadInput("Pinned sessions are listed by activity; leave the order out.")
    at = order.begin(cursor, until=filters.until)
    found: list[SessionHead] = []
    scanned, exhausted = 0, False
    while len(found) <= limit and scanned < _SCANNED and not exhausted:
        rows = _rows(tx, filters, profile=profile, at=at, limit=limit + 1)
        scanned, exhausted = scanned + len(rows), len(rows) <= limit
        found.extend(row for row in rows if _fits(row, filters))
        at = order.behind(rows[-1]) if rows else at
    page = found[:limit]
    # A rare word may not fill a page within one search; the next page goes on from there.
    more = order.behind(page[-1]) if len(found) > limit else None if exhausted else at
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
    read = _stretch if filters.order is Order.ACTIVITY else _ordered
    platforms = (filters.platforms if read is _stretch else ()) or (filters.platform,)
    stretches = [
        read(
            tx,
            replace(filters, shelf=shelf, platform=platform),
            profile=profile,
            at=at,
            limit=limit,
        )
        for shelf in dict.fromkeys(shelves)
        for platform in dict.fromkeys(platforms)
    ]
    return _merged(filters.order, stretches, limit)


def _merged(order: Order, stretches: list[list[SessionHead]], limit: int) -> list[SessionHead]:
    if len(stretches) == 1:
        return stretches[0]
    rows = [row for stretch in stretches for row in stretch]
    order.sort(rows)
    return rows[:limit]


def _ordered(
    tx: Tx, filters: Filters, *, profile: str, at: Cursor, limit: int
) -> list[SessionHead]:
    """A stretch of a shelf in an order; what narrows it is looked at afterwards, see `_fits`.

    A filter in the query could make it look through the whole shelf for a page.
    """
    if filters.project is not None:
        _project_no(tx, filters.project, profile=profile)
    rows = tx.all(
        _ORDERED[filters.order],
        profile=profile,
        shelf=filters.shelf,
        at=at.at,
        no=at.no,
        limit=limit,
    )
    return [sessions.head(row) for row in rows]


def _stretch(
    tx: Tx, filters: Filters, *, profile: str, at: Cursor, limit: int
) -> list[SessionHead]:
    query = "list_by_activity"
    params: dict[str, int | str | None] = {}
    if filters.pinned:
        query = "list_pinned"
    elif filters.project is not None:
        query = "list_by_project"
        params["project_no"] = _project_no(tx, filters.project, profile=profile)
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


def _project_no(tx: Tx, name: str, *, profile: str) -> int:
    row = tx.one("get_project", profile=profile, name=sessions.column(name))
    if row is None:
        raise NotFound(f"There is no project {name!r}.")
    return int(row[0])


def _fits(head: SessionHead, filters: Filters) -> bool:
    if filters.read_only is not None and head.read_only is not filters.read_only:
        return False
    if filters.label is not None and filters.label not in head.labels:
        return False
    if filters.order is not Order.ACTIVITY and not _fits_otherwise(head, filters):
        return False
    if not filters.text:
        return True
    return filters.text.casefold() in f"{head.title or ''}\n{head.preview or ''}".casefold()


def _fits_otherwise(head: SessionHead, filters: Filters) -> bool:
    """What the queries of the order by activity look at themselves."""
    platforms = filters.platforms or (() if filters.platform is None else (filters.platform,))
    return not (
        (platforms and sessions.column(head.source.platform) not in platforms)
        or (filters.kind is not None and head.kind is not filters.kind)
        or (filters.project is not None and head.project != filters.project)
        or (filters.model is not None and head.model != filters.model)
        or (filters.is_open is not None and head.is_open is not filters.is_open)
        or (filters.since is not None and head.last_active_at < filters.since)
        or (filters.until is not None and head.last_active_at >= filters.until)
    )


def _hidden(tx: Tx, filters: Filters, *, profile: str) -> int:
    """How many automation sessions a list of chats leaves out; 1,000 means «1,000 or more»."""
    if filters.shelf is not Shelf.CHATS or filters.and_automation:
        return 0
    row = tx.one("count_shelf", profile=profile, shelf=Shelf.AUTOMATION, limit=COUNTED)
    return 0 if row is None else int(row[0])
