"""Holds: reasons not to reset a session now, by name."""

from datetime import UTC, datetime

from msgspec import Struct

from sessionary.actions.sessions import log
from sessionary.actions.sessions.log import lock_session
from sessionary.clock import Moment
from sessionary.errors import BadInput, NotFound
from sessionary.model import codec
from sessionary.model.session import SessionHead
from sessionary.store.database import Tx
from sessionary.store.tables import sessions

MAX_REASON = 200
# How a hold without an end is stored.
_NO_END = datetime(9000, 1, 1, tzinfo=UTC)
# Reasons with this prefix are locks that another program keeps as holds; only that program releases them.
_RESERVED_PREFIX = "hermes/"


class Hold(Struct, frozen=True):
    """A reason not to reset a session, and until when; None means until it is released."""

    reason: str
    until: datetime | None = None


def add_hold(
    tx: Tx, id: str, reason: str, *, profile: str, moment: Moment, until: datetime | None = None
) -> Hold:
    """Prevent a session's reset by its policy; adding the same reason again replaces its end.

    People can still end the session (`/new`, a switch, `end`).
    """
    name = _normalize_reason(reason)
    if name.startswith(_RESERVED_PREFIX):
        raise BadInput(
            f"A reason that begins with {_RESERVED_PREFIX!r} belongs to another program."
        )
    if until is not None and until.tzinfo is None:
        raise BadInput(f"The time {until} has no zone; give it one, such as datetime.UTC.")
    if until is not None and until <= moment.now:
        raise BadInput("A hold must end in the future; nothing was changed.")
    head = lock_session(tx, id, profile=profile)
    if not head.is_open:
        raise log.ended_error(head)
    end = _NO_END if until is None else min(until, _NO_END)
    sessions.delete_expired_holds(tx, head.no, now=moment.now)
    sessions.put_hold(tx, head.no, name, expires_at=end)
    log.notify(tx, head)
    return Hold(name, None if end == _NO_END else until)


def release_hold(
    tx: Tx, id: str, reason: str | None = None, *, profile: str, moment: Moment
) -> list[Hold]:
    """Remove one hold, or all; return the removed ones. Raises `NotFound` if no hold has this reason."""
    head = lock_session(tx, id, profile=profile)
    wanted = None if reason is None else _normalize_reason(reason)
    removed = [
        each
        for each in list_holds(tx, head, now=moment.now)
        if each.reason == wanted
        or (wanted is None and not each.reason.startswith(_RESERVED_PREFIX))
    ]
    if wanted is not None and not removed:
        raise NotFound(f"Session {head.id} is not held by {wanted!r}; nothing was changed.")
    for each in removed:
        sessions.delete_hold(tx, head.no, each.reason)
    if removed:
        log.notify(tx, head)
    return removed


def list_holds(tx: Tx, head: SessionHead, *, now: datetime) -> list[Hold]:
    """Return the holds of a session that have not expired."""
    return [
        Hold(name, None if until >= _NO_END else until)
        for name, until in sessions.holds_of_session(tx, head.no)
        if until > now
    ]


def _normalize_reason(text: str) -> str:
    name = codec.storable_text(" ".join(text.split()))
    if not name or len(name) > MAX_REASON:
        raise BadInput(f"A hold has a reason of 1 to {MAX_REASON} characters.")
    return name


def hold(tx: Tx, id: str, name: str, *, profile: str, until: datetime) -> None:
    """Hold a session for a program, under any name."""
    head = lock_session(tx, id, profile=profile)
    sessions.put_hold(tx, head.no, codec.storable_text(name), expires_at=until)


def release(tx: Tx, id: str, name: str, *, profile: str) -> None:
    """Remove a program's hold."""
    head = lock_session(tx, id, profile=profile)
    sessions.delete_hold(tx, head.no, codec.storable_text(name))
