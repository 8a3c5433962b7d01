"""What a program does that brings its own ids and facts: open, correct, speak after the end."""

from collections.abc import Callable, Mapping
from typing import Any

from sessionary.actions import log, new_message
from sessionary.actions.log import Appended
from sessionary.actions.new_message import NewMessage
from sessionary.actions.sessions import lock_session, restore
from sessionary.clock import Moment, to_micros
from sessionary.errors import BadInput, Conflict
from sessionary.model import codec
from sessionary.model.session import Lineage, Opening, SessionHead
from sessionary.store.database import Tx
from sessionary.store.tables import blobs, sessions
from sessionary.store.tables.sessions import Inheritance

MAX_ID = 200


def open_under(
    tx: Tx,
    id: str,
    opening: Opening,
    *,
    moment: Moment,
    parent: SessionHead | None = None,
    lineage: Lineage = Lineage.SUBAGENT,
) -> SessionHead:
    """Open a session under the caller's id, with or without a message; one that is there stays."""
    check_id(id)
    # Before the read: PostgreSQL lets two readers see no such session.
    sessions.lock_key(tx, f"id/{id}", profile=opening.profile)
    found = sessions.get(tx, id, profile=opening.profile)
    if found is not None:
        return found
    if tx.one("profile_of", id=id) is not None and not tx.run(
        "rename_tombstone", id=id, new_id=moment.new_id()
    ):
        raise Conflict(f"Session {id} belongs to another profile; nothing was written.")
    inherited = None if parent is None else Inheritance(parent.no, lineage)
    no = sessions.insert(tx, id, opening, at=moment.now, inherited=inherited)
    head = sessions.get_by_no(tx, no)
    log.tell(tx, head)
    return head


def check_id(id: str) -> None:
    """Refuse an id that a column could not keep exactly."""
    if not id or len(id) > MAX_ID or codec.storable_text(id) != id:
        raise BadInput(f"A session's id is 1 to {MAX_ID} characters of plain text.")


def say_after(tx: Tx, id: str, saying: NewMessage, *, profile: str, moment: Moment) -> Appended:
    """Add a message to a session, even to one that is over; its end stays as it was."""
    try:
        return new_message.append_to(tx, id, saying, profile=profile, moment=moment)
    except Conflict:
        head = lock_session(tx, id, profile=profile)
        if head.ended_at is None or head.read_only:
            raise
    if head.trashed_at is not None:  # new words would be purged with the old
        head = restore(tx, id, profile=profile)
    if head.ended_at is None:
        return new_message.append_to(tx, id, saying, profile=profile, moment=moment)
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


def set_system_prompt(tx: Tx, id: str, text: str | None, *, profile: str) -> None:
    """Let another text be the session's system prompt; None takes it away."""
    head = lock_session(tx, id, profile=profile)
    name = None
    if text is not None:
        name = blobs.keep_text(tx, text, entry_no=sessions.first_entry_no(head.no))
    tx.run("set_prompt_hash", no=head.no, prompt_hash=name)
    log.tell(tx, head)


def revise(
    tx: Tx,
    head: SessionHead,
    name: str,
    change: Callable[[dict[str, Any]], Mapping[str, Any]],
) -> dict[str, Any]:
    """Change what one program keeps under its name in a session's `extra`; what it keeps now."""
    sessions.lock_session_no(tx, head.no)
    extra = sessions.details(tx, head.no).extra
    found = extra.get(name)
    before = dict(found) if isinstance(found, dict) else {}
    after = dict(change(dict(before)))
    if after != before:
        tx.run("set_extra", no=head.no, extra=codec.encode(extra | {name: after}))
    return after
