"""Append a message outside a turn: to a source's conversation, to a named session, or to a new one."""

from dataclasses import dataclass, field, replace
from datetime import datetime

from sessionary.actions import files, turns, usage
from sessionary.actions.sessions import edit, log, read, routing
from sessionary.actions.sessions.log import Appended
from sessionary.clock import Moment, to_micros
from sessionary.errors import Conflict
from sessionary.model import transcript
from sessionary.model.key import SessionKey
from sessionary.model.message import Message
from sessionary.model.reset import ResetPolicy
from sessionary.model.session import Opening
from sessionary.model.source import Source
from sessionary.model.turn import Lease
from sessionary.model.usage import Usage
from sessionary.store.database import Tx


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message with what belongs to it: when, under which idempotency key, at what cost, its files."""

    message: Message
    at: datetime | None = None
    idempotency_key: str | None = None
    usage: Usage | None = None
    files: tuple[bytes, ...] = field(default=(), repr=False)


def append_to_source(
    tx: Tx,
    key: SessionKey,
    source: Source,
    saying: NewMessage,
    *,
    policy: ResetPolicy,
    moment: Moment,
) -> Appended:
    """Add a message to the conversation a source belongs to; it is found or opened by rules K and R."""
    earlier = _find_repeat(tx, saying, profile=key.profile)
    if earlier is not None:
        return earlier
    route = routing.route(tx, key, source, policy=policy, moment=moment)
    if key.is_shared:
        saying = replace(saying, message=transcript.mark_shared(saying.message))
    return append_to_session(tx, route.session_id, saying, profile=key.profile, moment=moment)


def append_to_new_session(
    tx: Tx, opening: Opening, saying: NewMessage, *, moment: Moment
) -> Appended:
    """Open a session with its first message."""
    earlier = _find_repeat(tx, saying, profile=opening.profile)
    if earlier is not None:
        return earlier
    id = edit.open_session(tx, opening, moment=moment)
    return append_to_session(tx, id, saying, profile=opening.profile, moment=moment)


def append_to_session(
    tx: Tx,
    session_id: str,
    saying: NewMessage,
    *,
    profile: str,
    moment: Moment,
    lease: Lease | None = None,
) -> Appended:
    """Add a message to a session, and its usage to the ledger; while a turn runs, by its lease."""
    at = saying.at or moment.now
    for data in saying.files:
        files.link_blob(tx, data)
    try:
        done = log.append(
            tx,
            session_id,
            saying.message,
            profile=profile,
            at=at,
            idempotency_key=saying.idempotency_key,
            lease=lease,
        )
    except Conflict:
        if lease is not None:
            raise
        # A turn whose process died must not lock its session for ever.
        head = read.get_head(tx, session_id, profile=profile)
        if not head.running or not turns.interrupt_if_dead(tx, head.no, moment=moment):
            raise
        done = log.append(
            tx,
            session_id,
            saying.message,
            profile=profile,
            at=at,
            idempotency_key=saying.idempotency_key,
        )
    if saying.usage is not None and not done.repeated:
        usage.record(tx, done.session_no, saying.usage, profile=profile, moment=moment)
    return done


def _find_repeat(tx: Tx, saying: NewMessage, *, profile: str) -> Appended | None:
    if saying.idempotency_key is None:
        return None
    return log.find_repeat(tx, saying.idempotency_key, profile=profile, said=saying.message)


def append_after_end(
    tx: Tx, id: str, saying: NewMessage, *, profile: str, moment: Moment
) -> Appended:
    """Add a message to a session, even to one that is over; its end stays as it was."""
    try:
        return append_to_session(tx, id, saying, profile=profile, moment=moment)
    except Conflict:
        head = log.lock_session(tx, id, profile=profile)
        if head.ended_at is None or head.read_only:
            raise
    if head.trashed_at is not None:  # new words would be purged with the old
        head = edit.restore(tx, id, profile=profile)
    if head.ended_at is None:
        return append_to_session(tx, id, saying, profile=profile, moment=moment)
    # Nobody sees this: it is undone before the transaction ends.
    tx.run("set_end", no=head.no, ended_at=None, reason=None, key=None)
    done = log.append(
        tx,
        id,
        saying.message,
        profile=profile,
        at=saying.at or moment.now,
        idempotency_key=saying.idempotency_key,
    )
    ended_at = to_micros(head.ended_at)
    tx.run("set_end", no=head.no, ended_at=ended_at, reason=head.end_reason, key=head.key)
    return done
