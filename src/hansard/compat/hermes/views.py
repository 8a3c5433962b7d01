"""Windows on a session: around one of its messages, with its beginning and its end."""

from collections.abc import Sequence

from hansard.compat.hermes import rows
from hansard.compat.hermes.messages import Json
from hansard.model.session import SessionHead
from hansard.store.database import Tx


def around(tx: Tx, head: SessionHead | None, anchor: int, *, window: int) -> Json:
    """The messages around one, and how many of them come before and after it."""
    listed = [] if head is None else rows.message_rows(tx, head)
    return _around(listed, anchor, window=window)[0]


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
    listed = [] if head is None else rows.message_rows(tx, head)
    view, first, last = _around(listed, anchor, window=window)
    if not view["window"]:
        return view | {"bookend_start": [], "bookend_end": []}
    shown = [row for row in view["window"] if row["id"] == anchor or _has_role(row, roles)]
    at = next(place for place, row in enumerate(shown) if row["id"] == anchor)
    before = [row for row in listed[:first] if _has_role(row, roles)]
    after = [row for row in listed[last:] if _has_role(row, roles)]
    return {
        "window": shown,
        "messages_before": at,
        "messages_after": len(shown) - at - 1,
        "bookend_start": before[:bookend],
        "bookend_end": after[-bookend:] if bookend > 0 else [],
    }


def _around(listed: list[Json], anchor: int, *, window: int) -> tuple[Json, int, int]:
    at = next((place for place, row in enumerate(listed) if row["id"] == anchor), None)
    if at is None:
        return {"window": [], "messages_before": 0, "messages_after": 0}, 0, 0
    size = max(0, window)
    first, last = max(0, at - size), min(len(listed), at + size + 1)
    view = {
        "window": listed[first:last],
        "messages_before": at - first,
        "messages_after": last - at - 1,
    }
    return view, first, last


def _has_role(row: Json, roles: Sequence[str] | None) -> bool:
    return not roles or row["role"] in roles
