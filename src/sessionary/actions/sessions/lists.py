"""Lists of sessions, made of heads only: a list never reads a transcript."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from sessionary.clock import to_micros
from sessionary.errors import BadInput, NotFound
from sessionary.model.session import Cursor, Kind, SessionFolder, SessionHead
from sessionary.store.database import Tx
from sessionary.store.tables import projects, session_lists, sessions
from sessionary.store.tables.session_lists import CountFilters
from sessionary.store.tables.sessions import column

# Both databases lower only A to Z in their index, whatever the language.
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


class SortOrder(StrEnum):
    """How sessions are sorted: by title from A on, by everything else from the highest value down."""

    ACTIVITY = "activity"
    CREATED = "created"
    TITLE = "title"
    COST = "cost"

    @property
    def is_rising(self) -> bool:
        """Whether the smallest comes first."""
        return self is SortOrder.TITLE

    def value_of(self, head: SessionHead) -> int | str:
        """The value that a session is sorted by."""
        match self:
            case SortOrder.ACTIVITY:
                return to_micros(head.last_active_at)
            case SortOrder.CREATED:
                return to_micros(head.began_at)
            case SortOrder.TITLE:
                return (head.title or head.preview or "").translate(_LOWER)
            case SortOrder.COST:
                return head.usage.known_cost_microusd

    def cursor_after(self, head: SessionHead) -> Cursor:
        """The cursor of the page that begins after a session."""
        return Cursor.after(self.value_of(head), head.no)

    def first_cursor(self, cursor: str | None, *, until: datetime | None) -> Cursor:
        """Where a page begins; `until` counts only for the order by activity."""
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
        """Sort heads that come from several queries."""
        heads.sort(key=lambda head: (self.value_of(head), head.no), reverse=not self.is_rising)


MAX_LIMIT = 1000
# Hidden sessions are counted up to MAX_HIDDEN, among the newest _COUNT_SCANNED of a folder:
# the first page of a list must not wait for a count.
MAX_HIDDEN = 1000
_COUNT_SCANNED = 5_000
_MAX_SCANNED = 20_000


class SessionFilters(Struct, frozen=True):
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


class Hidden(Struct, frozen=True):
    """How many sessions fit the filters of a list and are not in it, because of their folder."""

    automation: int = 0
    archived: int = 0
    # Counting stopped early: there may be more.
    is_at_least: bool = False

    @property
    def total(self) -> int:
        """How many there are together."""
        return self.automation + self.archived

    def to_json(self) -> dict[str, Any]:
        """The counts as the HTTP interface and `--json` give them, beside the items."""
        return {
            "hidden": self.total,
            "hidden_by_folder": {"automation": self.automation, "archive": self.archived},
            "hidden_at_least": self.is_at_least,
        }


class SessionPage(Struct, frozen=True):
    """One page of a list, where the next begins, and what the list leaves out."""

    items: tuple[SessionHead, ...]
    next: str | None
    hidden: Hidden = field(default_factory=Hidden)


def list_sessions(
    tx: Tx, filters: SessionFilters, *, profile: str, limit: int = 50, cursor: str | None = None
) -> SessionPage:
    """A page of sessions; the first page also counts what the list leaves out.

    A page costs the same in a store of any size.
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
    at = order.first_cursor(cursor, until=filters.until)
    found: list[SessionHead] = []
    scanned, exhausted = 0, False
    while len(found) <= limit and scanned < _MAX_SCANNED and not exhausted:
        rows = _rows(tx, filters, profile=profile, at=at, limit=limit + 1)
        scanned, exhausted = scanned + len(rows), len(rows) <= limit
        found.extend(row for row in rows if _fits(row, filters))
        at = order.cursor_after(rows[-1]) if rows else at
    shown = found[:limit]
    # A rare word may not fill a page before scanning stops; the next page goes on from there.
    more = order.cursor_after(shown[-1]) if len(found) > limit else None if exhausted else at
    return SessionPage(tuple(shown), None if more is None else str(more))


# How many sessions a page of those in one directory looks at.
_MAX_LOOKED_AT = 2_000
_LOOK_AT = 200


class SessionPlace(Struct, frozen=True):
    """A session, and the directory in which it was held, if that is known."""

    head: SessionHead
    directory: str | None


def list_by_directory(
    tx: Tx, directory: str | None, *, profile: str, limit: int, cursor: str | None
) -> tuple[list[SessionPlace], str | None]:
    """A page of chats with their directories, newest activity first, and where the next begins.

    With a `directory` only those that were held there; a page of rare ones may have fewer than `limit`, or none.
    """
    check_limit(limit)
    order = SortOrder.ACTIVITY
    wanted = None if directory is None else directory.rstrip("/")
    found: list[SessionPlace] = []
    looked_at = 0
    at: str | None = cursor
    while looked_at < _MAX_LOOKED_AT:
        step = limit if wanted is None else _LOOK_AT
        page = list_page(tx, SessionFilters(), profile=profile, limit=step, cursor=at)
        known = sessions.workspaces(tx, [head.no for head in page.items])
        looked_at += len(page.items)
        for number, head in enumerate(page.items, 1):
            place = SessionPlace(head, directory_of(known.get(head.no)))
            if wanted is not None and (place.directory or "").rstrip("/") != wanted:
                continue
            found.append(place)
            if len(found) == limit:
                is_last = page.next is None and number == len(page.items)
                return found, None if is_last else str(order.cursor_after(head))
        at = page.next
        if at is None:
            break
    return found, at


def directory_of(workspace: object) -> str | None:
    """The directory that a workspace names."""
    found = workspace.get("path") if isinstance(workspace, Mapping) else None
    return found if isinstance(found, str) and found else None


def check_limit(limit: int) -> None:
    """Refuse a page size that is too small or too large."""
    if not 1 <= limit <= MAX_LIMIT:
        raise BadInput(f"A page has 1 to {MAX_LIMIT:,} items, not {limit}.")


def _rows(
    tx: Tx, filters: SessionFilters, *, profile: str, at: Cursor, limit: int
) -> list[SessionHead]:
    """The next rows; several folders or platforms are read one by one and merged."""
    folders = (
        (filters.folder, SessionFolder.AUTOMATION) if filters.and_automation else (filters.folder,)
    )
    project_no = _project_no(tx, filters.project, profile=profile)
    order = filters.order
    lists: list[list[SessionHead]] = []
    for folder in dict.fromkeys(folders):
        if order is not SortOrder.ACTIVITY:
            # Filters are applied afterwards (see `_fits`): in the query, one could make it read
            # the whole folder for a page.
            lists.append(
                session_lists.list_in_order(
                    tx, order.value, profile=profile, folder=folder, after=at, limit=limit
                )
            )
            continue
        lists.extend(
            session_lists.list_by_activity(
                tx,
                profile=profile,
                folder=folder,
                before=at,
                limit=limit,
                since=filters.since,
                kind=filters.kind,
                model=filters.model,
                platform=platform,
                is_open=filters.is_open,
                pinned=filters.pinned,
                project_no=project_no,
            )
            for platform in dict.fromkeys(filters.platforms or (filters.platform,))
        )
    if len(lists) == 1:
        return lists[0]
    rows = [row for each in lists for row in each]
    order.sort(rows)
    return rows[:limit]


def _project_no(tx: Tx, name: str | None, *, profile: str) -> int | None:
    if name is None:
        return None
    found = projects.find(tx, name, profile=profile)
    if found is None:
        raise NotFound(f"There is no project {name!r}.")
    return found.no


def _fits(head: SessionHead, filters: SessionFilters) -> bool:
    if filters.read_only is not None and head.read_only is not filters.read_only:
        return False
    if filters.label is not None and filters.label not in head.labels:
        return False
    if filters.order is not SortOrder.ACTIVITY and not _fits_query(head, filters):
        return False
    return _has_text(filters.text, head.title, head.preview)


def _fits_query(head: SessionHead, filters: SessionFilters) -> bool:
    """Apply the filters that the queries of the order by activity apply themselves."""
    platforms = filters.platforms or (() if filters.platform is None else (filters.platform,))
    return not (
        (platforms and column(head.source.platform) not in platforms)
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
    """Count the sessions of a folder that fit; True when there may be more than were looked at."""
    platforms = filters.platforms or (() if filters.platform is None else (filters.platform,))
    wanted = CountFilters(
        kind=filters.kind,
        model=filters.model,
        is_open=filters.is_open,
        pinned=filters.pinned,
        read_only=filters.read_only,
        project_no=_project_no(tx, filters.project, profile=profile),
        since=filters.since,
        until=filters.until,
    )
    count = 0
    for platform in dict.fromkeys(platforms or (None,)):
        if filters.text or filters.label is not None:
            rows = session_lists.texts_matching(
                tx,
                wanted,
                profile=profile,
                folder=filters.folder,
                platform=platform,
                scanned=_COUNT_SCANNED,
            )
            count += sum(
                (filters.label is None or filters.label in row.labels)
                and _has_text(filters.text, row.title, row.preview)
                for row in rows
            )
        else:
            count += session_lists.count_matching(
                tx,
                wanted,
                profile=profile,
                folder=filters.folder,
                platform=platform,
                scanned=_COUNT_SCANNED,
                limit=MAX_HIDDEN,
            )
    if count >= MAX_HIDDEN:
        return MAX_HIDDEN, True
    looked_at = session_lists.count_folder(
        tx, filters.folder, profile=profile, limit=_COUNT_SCANNED
    )
    return count, looked_at >= _COUNT_SCANNED


def _has_text(text: str | None, title: str | None, preview: str | None) -> bool:
    return not text or text.casefold() in f"{title or ''}\n{preview or ''}".casefold()


_IN_PINNED = "pinned."


def list_pinned_first(
    tx: Tx, filters: SessionFilters, *, profile: str, limit: int = 50, cursor: str | None = None
) -> SessionPage:
    """Pinned sessions first, then the others, each by activity.

    The first page also counts what the list leaves out.
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
    inner = None if cursor is None else cursor.removeprefix(_IN_PINNED)
    top = list_page(tx, replace(filters, pinned=True), profile=profile, limit=limit, cursor=inner)
    if top.next is not None:
        return replace(top, next=_IN_PINNED + top.next)
    room = limit - len(top.items)
    rest = _others(tx, filters, profile=profile, limit=max(room, 1), cursor=None)
    if room:
        return replace(rest, items=top.items + rest.items)
    # The page is full of pinned sessions; the others begin on the next page.
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


# A count that reaches this means «as many or more».
MAX_COUNT = 10_000
_MAX_PLATFORMS = 200
_MAX_MODELS = 500
_FOLDERS = (
    SessionFolder.CHATS,
    SessionFolder.AUTOMATION,
    SessionFolder.ARCHIVE,
    SessionFolder.TRASH,
)


class SessionCounts(Struct, frozen=True):
    """Sessions by source in the folders that were asked for, and by folder."""

    sources: Mapping[str, int]
    folders: Mapping[SessionFolder, int]


def count_sessions(tx: Tx, folders: tuple[SessionFolder, ...], *, profile: str) -> SessionCounts:
    """Count the sessions of these folders by source, and of every folder; each count up to a limit."""
    sources: dict[str, int] = {}
    for folder in folders:
        for platform, count in session_lists.count_by_platform(
            tx, folder, profile=profile, platforms=_MAX_PLATFORMS, limit=MAX_COUNT
        ):
            sources[platform] = min(MAX_COUNT, sources.get(platform, 0) + count)
    by_folder = {
        folder: session_lists.count_folder(tx, folder, profile=profile, limit=MAX_COUNT)
        for folder in _FOLDERS
    }
    return SessionCounts(sources, by_folder)


def list_models(tx: Tx, *, profile: str) -> list[str]:
    """The models that the profile's sessions have, by name."""
    return sorted(filter(None, session_lists.list_models(tx, profile=profile, limit=_MAX_MODELS)))
