"""Windows on a session: around one of its messages, with its beginning and its end."""

from collections.abc import Iterator, Sequence
from itertools import islice

from sessionary.actions.sessions import read
from sessionary.compat.hermes import messages
from sessionary.compat.hermes.messages import Json
from sessionary.model.message import MAX_SEQ, SEQ_BITS, Entry, Message
from sessionary.model.session import SessionHead
from sessionary.store.database import Tx
from sessionary.store.tables import sessions
from sessionary.store.tables.entries import entry_no

NOTHING: Json = {"window": [], "messages_before": 0, "messages_after": 0}
_PAGE = 50


def around(tx: Tx, head: SessionHead | None, anchor: int, *, window: int) -> Json:
    """The messages around one, and how many of them come before and after it."""
    seq = None if head is None else _seq_of(tx, head, anchor)
    if head is None or seq is None:
        return dict(NOTHING)
    size = max(0, window)
    before = list(islice(backwards(tx, head, seq), size))[::-1]
    here, *after = islice(forwards(tx, head, seq), size + 1)
    return {
        "window": [*before, here, *after],
        "messages_before": len(before),
        "messages_after": len(after),
    }


def anchored(
    tx: Tx,
    head: SessionHead | None,
    anchor: int,
    *,
    window: int,
    bookend: int,
    roles: Sequence[str] | None,
) -> Json:
    """The same with some roles only, and with the first and last messages outside the window."""
    view = around(tx, head, anchor, window=window)
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


def near(tx: Tx, head: SessionHead, anchor: int) -> list[Json]:
    """A message with the ones right before and after it."""
    view = around(tx, head, anchor, window=1)
    found: list[Json] = view["window"]
    return found


def forwards(tx: Tx, head: SessionHead, first: int, *, before: int | None = None) -> Iterator[Json]:
    """The messages from a number on, read as far as someone looks."""
    after = first - 1
    while True:
        window = read.window(tx, head.id, profile=head.profile, after=after, limit=_PAGE)
        for entry in window.entries:
            if before is not None and entry.seq >= before:
                return
            yield from _row(tx, head, entry)
        if not window.more_after or not window.entries:
            return
        after = window.entries[-1].seq


def backwards(tx: Tx, head: SessionHead, before: int | None, *, after: int = 0) -> Iterator[Json]:
    """The messages before a number, the nearest first, read as far as someone looks."""
    while True:
        window = read.window(tx, head.id, profile=head.profile, before=before, limit=_PAGE)
        for entry in reversed(window.entries):
            if entry.seq <= after:
                return
            yield from _row(tx, head, entry)
        if not window.more_before or not window.entries:
            return
        before = window.entries[0].seq


def _row(tx: Tx, head: SessionHead, entry: Entry) -> Iterator[Json]:
    if isinstance(entry.body, Message):
        own = head.no if entry.session_id == head.id else owner_of(tx, head, entry.seq)
        yield messages.to_row(entry_no(own, entry.seq), head.id, entry)


def owner_of(tx: Tx, head: SessionHead, seq: int) -> int:
    """The number of the session whose log has the entry: a fork reads its parent's."""
    segments = sessions.segments(tx, head.no)
    return next(each.no for each in segments if each.first <= seq <= each.last)


def _seq_of(tx: Tx, head: SessionHead, anchor: int) -> int | None:
    """The place of a message that is this session's and was not taken back."""
    owner, seq = anchor >> SEQ_BITS, anchor & MAX_SEQ
    segments = sessions.segments(tx, head.no)
    if not any(each.no == owner and each.first <= seq <= each.last for each in segments):
        return None
    here = next(forwards(tx, head, seq, before=seq + 1), None)
    return seq if here is not None and here["id"] == anchor else None


def _has_role(row: Json, roles: Sequence[str] | None) -> bool:
    return not roles or row["role"] in roles
