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


def list_heads(
    tx: Tx, wanted: ListOptions, *, profile: str, limit: int, offset: int
) -> list[SessionHead]:
    """Heads, newest first; a chain is represented by its root."""
    if limit <= 0:
        return []
    if not wanted.follows_chains:
        return _read_heads(tx, wanted, profile=profile, limit=limit, skip=max(0, offset))
    found: dict[int, SessionHead] = {}
    for head in _all_heads(tx, wanted, profile=profile):
        if head.lineage is Lineage.SUBAGENT and rows.parent_id(tx, head) is not None:
            continue
        root = lineage.root(tx, head)
        found.setdefault(root.no, root)
        if len(found) >= offset + limit:
            break
    return list(found.values())[offset : offset + limit]


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


def messages_around(tx: Tx, head: SessionHead | None, anchor: int, *, window: int) -> Json:
    """The messages around one, and how many of them come before and after it."""
    seq = None if head is None else _seq_of(tx, head, anchor)
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
    anchor: int,
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
    at = next(place for place, row in enumerate(shown) if row["id"] == anchor)
    opening = (row for row in forwards(tx, head, 1, before=first) if _has_role(row, roles))
    closing = (row for row in backwards(tx, head, None, after=last) if _has_role(row, roles))
    size = max(0, bookend)
    return {
        "window": shown,
        "messages_before": at,
        "messages_after": len(shown) - at - 1,
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


def _seq_of(tx: Tx, head: SessionHead, anchor: int) -> int | None:
    """The seq of a message of this session that was not retracted."""
    owner, seq = anchor >> SEQ_BITS, anchor & MAX_SEQ
    segments = sessions.segments(tx, head.no)
    if not any(each.no == owner and each.first <= seq <= each.last for each in segments):
        return None
    here = next(forwards(tx, head, seq, before=seq + 1), None)
    return seq if here is not None and here["id"] == anchor else None


def _has_role(row: Json, roles: Sequence[str] | None) -> bool:
    return not roles or row["role"] in roles
