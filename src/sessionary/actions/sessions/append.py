"""Append a message outside a turn: to a source's conversation, to a named session, or to a new one."""

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from sessionary.actions import turns, usage
from sessionary.actions.sessions import edit, log, read, routing
from sessionary.actions.sessions.log import Appended
from sessionary.clock import Moment
from sessionary.errors import Conflict
from sessionary.model import transcript
from sessionary.model.message import Message
from sessionary.model.reset import ResetPolicy
from sessionary.model.session import Opening
from sessionary.model.source import SessionKey, Source
from sessionary.model.turn import Lease
from sessionary.model.usage import Usage
from sessionary.store.database import Tx
from sessionary.store.tables import blobs, sessions


class NewMessage(Struct, frozen=True):
    """A message, and what is stored with it: its time, idempotency key, usage and files."""

    message: Message
    at: datetime | None = None
    idempotency_key: str | None = None
    usage: Usage | None = None
    files: tuple[bytes, ...] = ()


def append_to_source(
    tx: Tx,
    key: SessionKey,
    source: Source,
    new: NewMessage,
    *,
    policy: ResetPolicy,
    moment: Moment,
) -> Appended:
    """Add a message to the conversation that a source belongs to, in its session or in a new one."""
    earlier = _find_repeat(tx, new, profile=key.profile)
    if earlier is not None:
        return earlier
    route = routing.route(tx, key, source, policy=policy, moment=moment)
    if key.is_shared:
        new = replace(new, message=transcript.mark_shared(new.message))
    return append_to_session(tx, route.session_id, new, profile=key.profile, moment=moment)


def append_to_new_session(tx: Tx, opening: Opening, new: NewMessage, *, moment: Moment) -> Appended:
    """Open a session with its first message."""
    earlier = _find_repeat(tx, new, profile=opening.profile)
    if earlier is not None:
        return earlier
    id = edit.open_session(tx, opening, moment=moment)
    return append_to_session(tx, id, new, profile=opening.profile, moment=moment)


def append_to_session(
    tx: Tx,
    session_id: str,
    new: NewMessage,
    *,
    profile: str,
    moment: Moment,
    lease: Lease | None = None,
) -> Appended:
    """Add a message and its usage to a session; while a turn runs, only its lease may."""
    for data in new.files:
        blobs.add(tx, data)
    try:
        done = _append(tx, session_id, new, profile=profile, moment=moment, lease=lease)
    except Conflict:
        if lease is not None:
            raise
        # A turn whose process died must not block its session for ever.
        head = read.get_head(tx, session_id, profile=profile)
        if not head.running or not turns.interrupt_if_dead(tx, head.no, moment=moment):
            raise
        done = _append(tx, session_id, new, profile=profile, moment=moment)
    if new.usage is not None and not done.repeated:
        usage.record(tx, done.session_no, new.usage, profile=profile, moment=moment)
    return done


def _append(
    tx: Tx,
    session_id: str,
    new: NewMessage,
    *,
    profile: str,
    moment: Moment,
    lease: Lease | None = None,
) -> Appended:
    return log.append(
        tx,
        session_id,
        new.message,
        profile=profile,
        at=new.at or moment.now,
        idempotency_key=new.idempotency_key,
        lease=lease,
    )


def _find_repeat(tx: Tx, new: NewMessage, *, profile: str) -> Appended | None:
    if new.idempotency_key is None:
        return None
    return log.find_repeat(tx, new.idempotency_key, profile=profile, message=new.message)


def append_after_end(tx: Tx, id: str, new: NewMessage, *, profile: str, moment: Moment) -> Appended:
    """Add a message to a session, even to one that is over; its end stays as it was."""
    try:
        return append_to_session(tx, id, new, profile=profile, moment=moment)
    except Conflict:
        head = log.lock_session(tx, id, profile=profile)
        if head.ended_at is None or head.read_only:
            raise
    if head.trashed_at is not None:  # else the new message would be purged with the old ones
        head = edit.restore(tx, id, profile=profile)
    if head.ended_at is None:
        return append_to_session(tx, id, new, profile=profile, moment=moment)
    # Opened for this append only: it has ended again before the transaction ends.
    sessions.set_end(tx, head.no, ended_at=None, reason=None, key=None)
    done = _append(tx, id, new, profile=profile, moment=moment)
    sessions.set_end(tx, head.no, ended_at=head.ended_at, reason=head.end_reason, key=head.key)
    return done
