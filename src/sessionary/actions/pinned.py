"""A list that begins with what is pinned."""

from dataclasses import replace

from sessionary.actions import listing as lists
from sessionary.actions.listing import SessionFilters, SessionPage
from sessionary.clock import to_micros
from sessionary.model.session import Cursor, SessionHead
from sessionary.store.database import Tx

_IN_PINNED = "pinned."


def listing(
    tx: Tx, filters: SessionFilters, *, profile: str, limit: int = 50, cursor: str | None = None
) -> SessionPage:
    """Pinned sessions first, then the others; within each the newest activity first.

    The first page says what the list leaves out.
    """
    found = _page(tx, filters, profile=profile, limit=limit, cursor=cursor)
    if cursor is not None:
        return found
    return replace(found, hidden=lists.hidden(tx, filters, profile=profile))


def _page(
    tx: Tx, filters: SessionFilters, *, profile: str, limit: int, cursor: str | None
) -> SessionPage:
    if cursor is not None and not cursor.startswith(_IN_PINNED):
        return _others(tx, filters, profile=profile, limit=limit, cursor=cursor)
    place = None if cursor is None else cursor.removeprefix(_IN_PINNED)
    top = lists.page(tx, replace(filters, pinned=True), profile=profile, limit=limit, cursor=place)
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
        batch = lists.page(tx, filters, profile=profile, limit=limit, cursor=cursor)
        found += [head for head in batch.items if not head.pinned]
        cursor = batch.next
        if cursor is None or len(found) >= limit:
            break
    shown = tuple(found[:limit])
    if len(found) > limit:
        cursor = str(Cursor.after(to_micros(shown[-1].last_active_at), shown[-1].no))
    return replace(batch, items=shown, next=cursor)
