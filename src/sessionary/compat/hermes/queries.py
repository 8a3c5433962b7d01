"""What SessionDB reads: lists of sessions, compressed chains as one row, and windows of messages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from sessionary.actions.sessions import read
from sessionary.compat.hermes import rows
from sessionary.compat.hermes import sessions as lineage
from sessionary.compat.hermes.rows import Json
from sessionary.model.message import MAX_SEQ, SEQ_BITS, Entry, Message
from sessionary.model.session import Lineage, SessionHead
from sessionary.store.database import Tx
from sessionary.store.tables import sessions
from sessionary.store.tables.entries import entry_no

PAGE = 100
# What a chain's row takes over from its newest continuation; beginning and source are the root's.
_OF_ROOT = ("started_at", "source", "user_id", "parent_session_id")
EMPTY_WINDOW: Json = {"window": [], "messages_before": 0, "messages_after": 0}
_PAGE = 50
_ALL = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """Which rows of a list later versions of the interface ask for; None and 0 leave none out."""

    sources: Sequence[str] | None = None
    cwd_prefix: str | None = None
    min_message_count: int | None = 0
    include_archived: bool | None = None
    archived_only: bool | None = False
    id_query: str | None = None
    search_query: str | None = None
    session_key: str | None = None

    def has(self, tx: Tx, row: Json, *, profile: str) -> bool:
        if self.sources is not None and row["source"] not in self.sources:
            return False
        if row["message_count"] < (self.min_message_count or 0):
            return False
        names = (row["id"], row.get("_lineage_root_id") or "")
        if self.id_query and not any(self.id_query.lower() in each.lower() for each in names):
            return False
        shown = f"{row['title'] or ''}\n{row['preview']}"
        if self.search_query and self.search_query.lower() not in shown.lower():
            return False
        head = rows.find_session(tx, row["id"], profile=profile)
        return head is not None and self._has_facts(tx, head)

    def _has_facts(self, tx: Tx, head: SessionHead) -> bool:
        further = rows.kept_fields(tx, head).get(rows.FURTHER, {})
        if self.session_key and further.get("session_key") != self.session_key:
            return False
        if self.cwd_prefix and not str(further.get("cwd", "")).startswith(self.cwd_prefix):
            return False
        if self.archived_only:
            return head.archived
        return self.include_archived is not False or not head.archived


@dataclass(frozen=True, slots=True)
class ListOptions:
    """Which sessions a list shows, and in which order."""

    source: str | None = None
    without: Sequence[str] | None = None
    children: bool = False
    tips: bool = True
    by_activity: bool = False

    @property
    def follows_chains(self) -> bool:
        """Whether a chain is sorted by its newest continuation."""
        return self.by_activity and self.tips and not self.children


def at_most(limit: int) -> int:
    """How many a caller wants: a negative number means all, as in SQL."""
    return _ALL if limit < 0 else limit


def list_heads(
    tx: Tx, wanted: ListOptions, *, profile: str, limit: int, offset: int
) -> list[SessionHead]:
    """Heads, newest first; a chain is represented by its root."""
    limit, offset = at_most(limit), max(0, offset)
    if limit == 0:
        return []
    if not wanted.follows_chains:
        return _read_heads(tx, wanted, profile=profile, limit=limit, skip=offset)
    found: dict[int, SessionHead] = {}
    for head in _all_heads(tx, wanted, profile=profile):
        if head.lineage is Lineage.SUBAGENT and rows.parent_id(tx, head) is not None:
            continue
        root = lineage.root(tx, head)
        found.setdefault(root.no, root)
        if len(found) >= offset + limit:
            break
    return list(found.values())[offset : offset + limit]


def rich_rows(
    tx: Tx, wanted: ListOptions, only: RowFilter, *, profile: str, limit: int, offset: int
) -> list[Json]:
    """A page of rows with preview and last activity."""
    if only == RowFilter():
        page = list_heads(tx, wanted, profile=profile, limit=limit, offset=offset)
        return [rich_row(tx, head, tips=wanted.tips) for head in page]
    found = (
        row for row in _every_row(tx, wanted, profile=profile) if only.has(tx, row, profile=profile)
    )
    return list(islice(found, max(0, offset), max(0, offset) + at_most(limit)))


def _every_row(tx: Tx, wanted: ListOptions, *, profile: str) -> Iterator[Json]:
    skip = 0
    while heads := list_heads(tx, wanted, profile=profile, limit=PAGE, offset=skip):
        yield from (rich_row(tx, head, tips=wanted.tips) for head in heads)
        skip += len(heads)


def count_rows(tx: Tx, wanted: ListOptions, only: RowFilter, *, profile: str) -> int:
    """How many rows such a list has."""
    return sum(
        only.has(tx, row, profile=profile) for row in _every_row(tx, wanted, profile=profile)
    )


def rich_row(tx: Tx, head: SessionHead, *, tips: bool) -> Json:
    """A session's row with preview and last activity; a chain is shown as its newest continuation."""
    end = lineage.tip(tx, head) if tips and head.end_reason == lineage.COMPRESSION else head
    row = rows.session_row(tx, end)
    if end is not head:
        own = rows.session_row(tx, head)
        row |= {name: own[name] for name in _OF_ROOT} | {"_lineage_root_id": head.id}
    return row | {
        "preview": rows.preview(tx, end) or rows.preview(tx, head),
        "last_active": end.last_active_at.timestamp(),
    }


def _all_heads(tx: Tx, wanted: ListOptions, *, profile: str) -> Iterator[SessionHead]:
    skip = 0
    while heads := _read_heads(tx, wanted, profile=profile, limit=PAGE, skip=skip):
        yield from heads
        skip += len(heads)


def _read_heads(
    tx: Tx, wanted: ListOptions, *, profile: str, limit: int, skip: int
) -> list[SessionHead]:
    return sessions.list_heads(
        tx,
        profile=profile,
        platform=wanted.source,
        without=wanted.without or (),
        roots_only=not (wanted.children or wanted.follows_chains),
        by_activity=wanted.by_activity,
        limit=limit,
        skip=skip,
    )


def messages_around(tx: Tx, head: SessionHead | None, anchor: int | None, *, window: int) -> Json:
    """The messages around one, and how many of them come before and after it."""
    seq = None if head is None or anchor is None else _seq_of(tx, head, anchor)
    if head is None or seq is None:
        return dict(EMPTY_WINDOW)
    size = max(0, window)
    before = list(islice(backwards(tx, head, seq), size))[::-1]
    here, *after = islice(forwards(tx, head, seq), size + 1)
    return {
        "window": [*before, here, *after],
        "messages_before": len(before),
        "messages_after": len(after),
    }


def anchored_view(
    tx: Tx,
    head: SessionHead | None,
    anchor: int | None,
    *,
    window: int,
    bookend: int,
    roles: Sequence[str] | None,
) -> Json:
    """The same with some roles only, and with the first and last messages outside the window."""
    view = messages_around(tx, head, anchor, window=window)
    if head is None or not view["window"]:
        return view | {"bookend_start": [], "bookend_end": []}
    first, last = view["window"][0]["id"] & MAX_SEQ, view["window"][-1]["id"] & MAX_SEQ
    shown = [row for row in view["window"] if row["id"] == anchor or _has_role(row, roles)]
    opening = (row for row in forwards(tx, head, 1, before=first) if _is_bookend(row, roles))
    closing = (row for row in backwards(tx, head, None, after=last) if _is_bookend(row, roles))
    size = max(0, bookend)
    return view | {
        "window": shown,
        "bookend_start": list(islice(opening, size)),
        "bookend_end": list(islice(closing, size))[::-1],
    }


def neighbours(tx: Tx, head: SessionHead, anchor: int) -> list[Json]:
    """A message with the ones right before and after it."""
    view = messages_around(tx, head, anchor, window=1)
    found: list[Json] = view["window"]
    return found


def forwards(tx: Tx, head: SessionHead, first: int, *, before: int | None = None) -> Iterator[Json]:
    """The messages from a number on, read lazily."""
    after = first - 1
    while True:
        window = read.read_window(tx, head.id, profile=head.profile, after=after, limit=_PAGE)
        for entry in window.entries:
            if before is not None and entry.seq >= before:
                return
            yield from _message_rows(tx, head, entry)
        if not window.more_after or not window.entries:
            return
        after = window.entries[-1].seq


def backwards(tx: Tx, head: SessionHead, before: int | None, *, after: int = 0) -> Iterator[Json]:
    """The messages before a number, nearest first, read lazily."""
    while True:
        window = read.read_window(tx, head.id, profile=head.profile, before=before, limit=_PAGE)
        for entry in reversed(window.entries):
            if entry.seq <= after:
                return
            yield from _message_rows(tx, head, entry)
        if not window.more_before or not window.entries:
            return
        before = window.entries[0].seq


def _message_rows(tx: Tx, head: SessionHead, entry: Entry) -> Iterator[Json]:
    if isinstance(entry.body, Message):
        own = head.no if entry.session_id == head.id else owner_of(tx, head, entry.seq)
        yield rows.message_row(entry_no(own, entry.seq), head.id, entry)


def owner_of(tx: Tx, head: SessionHead, seq: int) -> int:
    """The number of the session whose log has the entry: a fork reads its parent's."""
    segments = sessions.segments(tx, head.no)
    return next(each.no for each in segments if each.first <= seq <= each.last)


def seq_of(number: int) -> int:
    """The seq of a message, by its number."""
    return number & MAX_SEQ


def _seq_of(tx: Tx, head: SessionHead, anchor: int) -> int | None:
    """The seq of a message of this session that was not retracted."""
    owner, seq = anchor >> SEQ_BITS, anchor & MAX_SEQ
    segments = sessions.segments(tx, head.no)
    if not any(each.no == owner and each.first <= seq <= each.last for each in segments):
        return None
    here = next(forwards(tx, head, seq, before=seq + 1), None)
    return seq if here is not None and here["id"] == anchor else None


def _has_role(row: Json, roles: Sequence[str] | None) -> bool:
    return roles is None or row["role"] in roles


def _is_bookend(row: Json, roles: Sequence[str] | None) -> bool:
    """Whether a message says something, and not only calls tools."""
    return _has_role(row, roles) and row["content"] not in (None, "", [])
