"""Lists of sessions: heads only, so that a list never reads a transcript."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from sessionary.clock import to_micros
from sessionary.errors import BadInput, NotFound
from sessionary.model import codec
from sessionary.model.session import Cursor, Kind, SessionFolder, SessionHead
from sessionary.store.database import Tx
from sessionary.store.tables import sessions

# As both databases lower letters in an index: nothing but A to Z, whatever the language.
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


class SortOrder(StrEnum):
    """In which order sessions are listed: names from A on, everything else from the most down."""

    ACTIVITY = "activity"
    CREATED = "created"
    TITLE = "title"
    COST = "cost"

    @property
    def is_rising(self) -> bool:
        """Whether the smallest comes first."""
        return self is SortOrder.TITLE

    def value_of(self, head: SessionHead) -> int | str:
        """What a session is ordered by."""
        match self:
            case SortOrder.ACTIVITY:
                return to_micros(head.last_active_at)
            case SortOrder.CREATED:
                return to_micros(head.began_at)
            case SortOrder.TITLE:
                return (head.title or head.preview or "").translate(_LOWER)
            case SortOrder.COST:
                return head.usage.known_cost_microusd

    def behind(self, head: SessionHead) -> Cursor:
        """The place behind a session."""
        return Cursor.after(self.value_of(head), head.no)

    def begin(self, cursor: str | None, *, until: datetime | None) -> Cursor:
        """Where a page begins; a time to end at is known only to the order of activity."""
        if not cursor:
            if self.is_rising:
                return Cursor("", 0)
            before = until if self is SortOrder.ACTIVITY else None
            return Cursor.first(None if before is None else to_micros(before))
        at = Cursor.parse(cursor)
        if isinstance(at.at, str) is not self.is_rising:
            raise BadInput("That cursor is of a list in another order; begin again without it.")
        return at

    def sort(self, heads: list[SessionHead]) -> None:
        """Put heads of several stretches into one order."""
        heads.sort(key=lambda head: (self.value_of(head), head.no), reverse=not self.is_rising)


MAX_LIMIT = 1000
# Hidden sessions are counted no further than COUNTED, among the newest COUNT_SCANNED of a shelf:
# the first page of a list must not wait for a count.
MAX_HIDDEN = 1000
_COUNT_SCANNED = 5_000
_SCANNED = 20_000
_ORDERED = {
    SortOrder.CREATED: "list_by_creation",
    SortOrder.TITLE: "list_by_title",
    SortOrder.COST: "list_by_cost",
}


@dataclass(frozen=True, slots=True)
class SessionFilters:
    """What narrows a list of sessions."""

    folder: SessionFolder = SessionFolder.CHATS
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
    order: SortOrder = SortOrder.ACTIVITY


@dataclass(frozen=True, slots=True)
class Hidden:
    """How many sessions fit the filters of a list and are not in it, because of their shelf."""

    automation: int = 0
    archived: int = 0
    # Whether counting stopped early: then there are as many, or more.
    is_at_least: bool = False

    @property
    def total(self) -> int:
        """How many there are together."""
        return self.automation + self.archived

    def to_json(self) -> dict[str, Any]:
        """The counts as the HTTP interface and `--json` give them, beside the items."""
        return {
            "hidden": self.total,
            "hidden_by_shelf": {"automation": self.automation, "archive": self.archived},
            "hidden_at_least": self.is_at_least,
        }


@dataclass(frozen=True, slots=True)
class SessionPage:
    """One page of a list, where the next begins, and what the list leaves out."""

    items: tuple[SessionHead, ...]
    next: str | None
    hidden: Hidden = field(default_factory=Hidden)


def list_sessions(
    tx: Tx, filters: SessionFilters, *, profile: str, limit: int = 50, cursor: str | None = None
) -> SessionPage:
    """Newest activity first (or in another order), a page at a time.

    A page costs the same in a store of any size. The first one says what the list leaves out.
    """
    found = list_page(tx, filters, profile=profile, limit=limit, cursor=cursor)
    if cursor is not None:
        return found
    return replace(found, hidden=count_hidden(tx, filters, profile=profile))


def list_page(
    tx: Tx, filters: SessionFilters, *, profile: str, limit: int, cursor: str | None
) -> SessionPage:
    """A page of a list, without the count of what the list leaves out."""
    check_limit(limit)
    order = filters.order
    if filters.pinned and order is not SortOrder.ACTIVITY:
        raise BadInput("Pinned sessions are listed by activity; leave the order out.")
    at = order.begin(cursor, until=filters.until)
    found: list[SessionHead] = []
    scanned, exhausted = 0, False
    while len(found) <= limit and scanned < _SCANNED and not exhausted:
        rows = _rows(tx, filters, profile=profile, at=at, limit=limit + 1)
        scanned, exhausted = scanned + len(rows), len(rows) <= limit
        found.extend(row for row in rows if _fits(row, filters))
        at = order.behind(rows[-1]) if rows else at
    shown = found[:limit]
    # A rare word may not fill a page within one search; the next page goes on from there.
    more = order.behind(shown[-1]) if len(found) > limit else None if exhausted else at
    return SessionPage(tuple(shown), None if more is None else str(more))


def check_limit(limit: int) -> None:
    """Refuse a page of no size, or of too much."""
    if not 1 <= limit <= MAX_LIMIT:
        raise BadInput(f"A page has 1 to {MAX_LIMIT:,} items, not {limit}.")


def _rows(
    tx: Tx, filters: SessionFilters, *, profile: str, at: Cursor, limit: int
) -> list[SessionHead]:
    """The next rows; several shelves or platforms are read one by one and merged."""
    shelves = (
        (filters.folder, SessionFolder.AUTOMATION) if filters.and_automation else (filters.folder,)
    )
    read = _stretch if filters.order is SortOrder.ACTIVITY else _ordered
    platforms = (filters.platforms if read is _stretch else ()) or (filters.platform,)
    stretches = [
        read(
            tx,
            replace(filters, folder=shelf, platform=platform),
            profile=profile,
            at=at,
            limit=limit,
        )
        for shelf in dict.fromkeys(shelves)
        for platform in dict.fromkeys(platforms)
    ]
    return _merged(filters.order, stretches, limit)


def _merged(order: SortOrder, stretches: list[list[SessionHead]], limit: int) -> list[SessionHead]:
    if len(stretches) == 1:
        return stretches[0]
    rows = [row for stretch in stretches for row in stretch]
    order.sort(rows)
    return rows[:limit]


def _ordered(
    tx: Tx, filters: SessionFilters, *, profile: str, at: Cursor, limit: int
) -> list[SessionHead]:
    """A stretch of a shelf in an order; what narrows it is looked at afterwards, see `_fits`.

    A filter in the query could make it look through the whole shelf for a page.
    """
    if filters.project is not None:
        _project_no(tx, filters.project, profile=profile)
    rows = tx.all(
        _ORDERED[filters.order],
        profile=profile,
        shelf=filters.folder,
        at=at.at,
        no=at.no,
        limit=limit,
    )
    return [sessions.head(row) for row in rows]


def _stretch(
    tx: Tx, filters: SessionFilters, *, profile: str, at: Cursor, limit: int
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
        shelf=filters.folder,
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


def _fits(head: SessionHead, filters: SessionFilters) -> bool:
    if filters.read_only is not None and head.read_only is not filters.read_only:
        return False
    if filters.label is not None and filters.label not in head.labels:
        return False
    if filters.order is not SortOrder.ACTIVITY and not _fits_otherwise(head, filters):
        return False
    return _matches(filters.text, head.title, head.preview)


def _fits_otherwise(head: SessionHead, filters: SessionFilters) -> bool:
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


def count_hidden(tx: Tx, filters: SessionFilters, *, profile: str) -> Hidden:
    """Count what a list of chats leaves out: automation and archived sessions that fit its filters."""
    if filters.folder is not SessionFolder.CHATS:
        return Hidden()
    archived, is_more = _count(tx, replace(filters, folder=SessionFolder.ARCHIVE), profile=profile)
    if filters.and_automation:
        return Hidden(archived=archived, is_at_least=is_more)
    automation, are_more = _count(
        tx, replace(filters, folder=SessionFolder.AUTOMATION), profile=profile
    )
    return Hidden(automation, archived, is_at_least=is_more or are_more)


def _count(tx: Tx, filters: SessionFilters, *, profile: str) -> tuple[int, bool]:
    """Count the sessions of a shelf that fit; True when there may be more than were looked at."""
    platforms = filters.platforms or (() if filters.platform is None else (filters.platform,))
    params: dict[str, int | str | None] = {
        "profile": profile,
        "shelf": filters.folder,
        "since": -(2**62) if filters.since is None else to_micros(filters.since),
        "before": 2**62 if filters.until is None else to_micros(filters.until),
        "scanned": _COUNT_SCANNED,
        "kind": filters.kind,
        "model": sessions.column(filters.model),
        "only_open": None if filters.is_open is None else int(filters.is_open),
        "only_pinned": 1 if filters.pinned else None,
        "only_read_only": None if filters.read_only is None else int(filters.read_only),
        "project_no": None
        if filters.project is None
        else _project_no(tx, filters.project, profile=profile),
    }
    count = 0
    for platform in dict.fromkeys(platforms or (None,)):
        params["only_platform"] = sessions.column(platform)
        if filters.text or filters.label is not None:
            rows = tx.all("texts_on_shelf", **params)
            count += sum(
                _has_words(filters, title=title, preview=preview, labels=labels)
                for title, preview, labels in rows
            )
        else:
            row = tx.one("count_on_shelf", **params, limit=MAX_HIDDEN)
            count += 0 if row is None else int(row[0])
    if count >= MAX_HIDDEN:
        return MAX_HIDDEN, True
    looked_at = tx.one("count_shelf", profile=profile, shelf=filters.folder, limit=_COUNT_SCANNED)
    return count, looked_at is not None and looked_at[0] >= _COUNT_SCANNED


def _has_words(
    filters: SessionFilters, *, title: str | None, preview: str | None, labels: str
) -> bool:
    if filters.label is not None and filters.label not in codec.decode(labels):
        return False
    return _matches(filters.text, title, preview)


def _matches(text: str | None, title: str | None, preview: str | None) -> bool:
    return not text or text.casefold() in f"{title or ''}\n{preview or ''}".casefold()


_IN_PINNED = "pinned."


def list_pinned_first(
    tx: Tx, filters: SessionFilters, *, profile: str, limit: int = 50, cursor: str | None = None
) -> SessionPage:
    """Pinned sessions first, then the others; within each the newest activity first.

    The first page says what the list leaves out.
    """
    found = _pinned_page(tx, filters, profile=profile, limit=limit, cursor=cursor)
    if cursor is not None:
        return found
    return replace(found, hidden=count_hidden(tx, filters, profile=profile))


def _pinned_page(
    tx: Tx, filters: SessionFilters, *, profile: str, limit: int, cursor: str | None
) -> SessionPage:
    if cursor is not None and not cursor.startswith(_IN_PINNED):
        return _others(tx, filters, profile=profile, limit=limit, cursor=cursor)
    place = None if cursor is None else cursor.removeprefix(_IN_PINNED)
    top = list_page(tx, replace(filters, pinned=True), profile=profile, limit=limit, cursor=place)
    if top.next is not None:
        return replace(top, next=_IN_PINNED + top.next)
    room = limit - len(top.items)
    rest = _others(tx, filters, profile=profile, limit=max(room, 1), cursor=None)
    if room:
        return replace(rest, items=top.items + rest.items)
    # The page is full of pinned ones; the others begin on the next.
    return replace(rest, items=top.items, next=str(Cursor.first()) if rest.items else None)


def _others(
    tx: Tx, filters: SessionFilters, *, profile: str, limit: int, cursor: str | None
) -> SessionPage:
    found: list[SessionHead] = []
    while True:
        batch = list_page(tx, filters, profile=profile, limit=limit, cursor=cursor)
        found += [head for head in batch.items if not head.pinned]
        cursor = batch.next
        if cursor is None or len(found) >= limit:
            break
    shown = tuple(found[:limit])
    if len(found) > limit:
        cursor = str(Cursor.after(to_micros(shown[-1].last_active_at), shown[-1].no))
    return replace(batch, items=shown, next=cursor)


# Who sees so many means «so many or more».
MAX_COUNT = 10_000
_PLATFORMS = 200
_MODELS = 500
_FOLDERS = (
    SessionFolder.CHATS,
    SessionFolder.AUTOMATION,
    SessionFolder.ARCHIVE,
    SessionFolder.TRASH,
)


@dataclass(frozen=True, slots=True)
class SessionCounts:
    """Sessions by source on the shelves that were asked for, and by shelf."""

    sources: Mapping[str, int]
    shelves: Mapping[SessionFolder, int]


def count_sessions(tx: Tx, shelves: tuple[SessionFolder, ...], *, profile: str) -> SessionCounts:
    """Count by source on these shelves, and by shelf; each up to a limit."""
    sources: dict[str, int] = {}
    for shelf in shelves:
        for platform, count in _by_platform(tx, shelf, profile=profile):
            sources[platform] = min(MAX_COUNT, sources.get(platform, 0) + count)
    return SessionCounts(sources, {shelf: _on(tx, shelf, profile=profile) for shelf in _FOLDERS})


def list_models(tx: Tx, *, profile: str) -> list[str]:
    """The models that the profile's sessions have, purged ones aside, in the order of their names."""
    rows = tx.all("models_of_profile", profile=profile, limit=_MODELS)
    return sorted(model for (model,) in rows if model)


def _by_platform(tx: Tx, shelf: SessionFolder, *, profile: str) -> list[tuple[str, int]]:
    rows = tx.all("platforms_on_shelf", profile=profile, shelf=shelf, limit=_PLATFORMS)
    return [(row[0], _of(tx, row[0], shelf, profile=profile)) for row in rows]


def _of(tx: Tx, platform: str, shelf: SessionFolder, *, profile: str) -> int:
    row = tx.one("count_platform", profile=profile, shelf=shelf, platform=platform, limit=MAX_COUNT)
    return 0 if row is None else int(row[0])


def _on(tx: Tx, shelf: SessionFolder, *, profile: str) -> int:
    row = tx.one("count_shelf", profile=profile, shelf=shelf, limit=MAX_COUNT)
    return 0 if row is None else int(row[0])
