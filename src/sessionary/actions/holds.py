"""Holds: reasons why a session must not be reset now."""

from dataclasses import dataclass
from datetime import UTC, datetime

from sessionary.actions import log, refusals
from sessionary.actions.sessions import lock_session
from sessionary.clock import Moment
from sessionary.errors import BadInput, NotFound
from sessionary.model import codec
from sessionary.model.session import SessionHead
from sessionary.store.database import Tx
from sessionary.store.tables import sessions

MAX_REASON = 200
# How a hold without an end is stored.
_FOR_EVER = datetime(9000, 1, 1, tzinfo=UTC)
# Locks that other programs keep as holds; only they release them.
_OF_PROGRAMS = "hermes/"


@dataclass(frozen=True, slots=True)
class Hold:
    """A reason not to reset a session, and until when it counts; None: until it is released."""

    reason: str
    until: datetime | None = None


def hold(
    tx: Tx, id: str, reason: str, *, profile: str, moment: Moment, until: datetime | None = None
) -> Hold:
    """Keep a session from being reset by its policy; the same reason again sets another end.

    A person's wish (`/new`, a switch, `end`) still ends it.
    """
    name = _reason(reason)
    if name.startswith(_OF_PROGRAMS):
        raise BadInput(f"A reason that begins with {_OF_PROGRAMS!r} belongs to another program.")
    if until is not None and until.tzinfo is None:
        raise BadInput(f"The time {until} has no zone; give it one, such as datetime.UTC.")
    if until is not None and until <= moment.now:
        raise BadInput("A hold must end in the future; nothing was changed.")
    head = lock_session(tx, id, profile=profile)
    if not head.is_open:
        raise refusals.ended(head)
    end = _FOR_EVER if until is None else min(until, _FOR_EVER)
    sessions.delete_expired_holds(tx, head.no, now=moment.now)
    sessions.put_hold(tx, head.no, name, expires_at=end)
    log.tell(tx, head)
    return Hold(name, None if end == _FOR_EVER else until)


def release(
    tx: Tx, id: str, reason: str | None = None, *, profile: str, moment: Moment
) -> list[Hold]:
    """Take a hold away, or all of them; those that were there. A reason that holds nothing is not found."""
    head = lock_session(tx, id, profile=profile)
    wanted = None if reason is None else _reason(reason)
    gone = [
        each
        for each in of_session(tx, head, now=moment.now)
        if each.reason == wanted or (wanted is None and not each.reason.startswith(_OF_PROGRAMS))
    ]
    if wanted is not None and not gone:
        raise NotFound(f"Session {head.id} is not held by {wanted!r}; nothing was changed.")
    for each in gone:
        sessions.delete_hold(tx, head.no, each.reason)
    if gone:
        log.tell(tx, head)
    return gone


def of_session(tx: Tx, head: SessionHead, *, now: datetime) -> list[Hold]:
    """The holds of a session that count now."""
    return [
        Hold(name, None if until >= _FOR_EVER else until)
        for name, until in sessions.holds_of_session(tx, head.no)
        if until > now
    ]


def _reason(text: str) -> str:
    name = codec.storable_text(" ".join(text.split()))
    if not name or len(name) > MAX_REASON:
        raise BadInput(f"A hold has a reason of 1 to {MAX_REASON} characters.")
    return name
