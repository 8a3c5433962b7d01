"""A session's log: appends entries, which get their numbers here; counts messages; the errors for refused changes."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from sessionary.errors import BadInput, Conflict, NotFound, Purged, TurnLost
from sessionary.model import codec, title, transcript
from sessionary.model.message import (
    Body,
    Compaction,
    Entry,
    Message,
    Retraction,
    Role,
    body_to_json,
)
from sessionary.model.session import Segment, SessionHead
from sessionary.model.turn import Lease
from sessionary.store.database import RaceLost, Tx
from sessionary.store.tables import entries, sessions
from sessionary.store.tables.sessions import LogCounts

MAX_IDEMPOTENCY_KEY = 512
# A preview is made from this many characters of a message.
_PREVIEW_INPUT = 400


class Appended(Struct, frozen=True):
    """Where an entry is in the log. `repeated`: an earlier append with the same idempotency key wrote it."""

    session_id: str
    session_no: int
    seq: int
    repeated: bool = False

    @property
    def id(self) -> str:
        """The entry's id."""
        return f"{self.session_id}-{self.seq}"


class SessionChanged(Struct, frozen=True):
    """An event, published after the commit: a session has changed; `seq` is its new entry, if it has one."""

    profile: str
    session_id: str
    seq: int | None = None


def notify(tx: Tx, head: SessionHead) -> None:
    """Record in the feed, and tell the listeners after the commit, that a session has changed."""
    entries.insert_feed(tx, head.no, "head")
    tx.after_commit(SessionChanged(head.profile, head.id))


def append(
    tx: Tx,
    session_id: str,
    message: Message,
    *,
    profile: str,
    at: datetime,
    idempotency_key: str | None = None,
    lease: Lease | None = None,
) -> Appended:
    """Add a message to an open session; only once for each idempotency key.

    While a turn is running, its `lease` is required. Raises `TurnLost` if the lease is lost, `Conflict` if the session
    is read-only, has ended or has a running turn, and `NotFound` if there is none.
    """
    if idempotency_key is not None:
        earlier = find_repeat(tx, idempotency_key, profile=profile, message=message)
        if earlier is not None:
            return earlier
    turn_id, epoch = (None, 0) if lease is None else (lease.turn_id, lease.epoch)
    new = entries.append(
        tx, session_id, message, profile=profile, at=at, turn_id=turn_id, epoch=epoch
    )
    if new is None:
        raise _append_error(tx, session_id, profile=profile, lease=lease)
    no, seq, wants_preview = new
    if wants_preview and (preview := preview_of(message)) is not None:
        sessions.set_preview(tx, no, preview)
    if idempotency_key is not None and not entries.insert_receipt(
        tx, idempotency_key, profile=profile, session_no=no, seq=seq
    ):
        raise RaceLost  # another transaction has used this key; when run again, this one finds its message
    tx.after_commit(SessionChanged(profile, session_id, seq))
    return Appended(session_id, no, seq)


def append_mark(
    tx: Tx,
    session_no: int,
    mark: Compaction | Retraction,
    *,
    at: datetime,
    lease: Lease | None = None,
) -> int:
    """Add a compaction or a retraction; return its seq. The caller updates the session's head."""
    seq = entries.append_mark(tx, session_no, mark, at=at, lease=lease)
    if seq is None and lease is not None:
        raise turn_lost_error(lease)
    if seq is None:
        raise Conflict(
            "A turn is running in this session; nothing was changed. Wait for it or stop it."
        )
    return seq


def find_repeat(
    tx: Tx, idempotency_key: str, *, profile: str, message: Message | None = None
) -> Appended | None:
    """Return what an earlier append with this idempotency key wrote, or None.

    Raises `Conflict` if that was a different message. A purged message is not compared.
    """
    check_idempotency_key(idempotency_key)
    receipt = entries.find_receipt(tx, idempotency_key, profile=profile)
    if receipt is None:
        return None
    session_no, seq, session_id = receipt
    if message is not None:
        segment = Segment(session_no, session_id or "", seq, seq)
        try:
            stored = entries.read(tx, segment, limit=1)
        except NotFound:
            stored = []  # purged
        if stored and not _is_same_message(stored[0].body, message):
            raise Conflict(
                f"The idempotency key {idempotency_key!r} belongs to another message, entry {seq} of session "
                f"{session_id}; nothing was written. Choose a new key."
            )
    return Appended(session_id or "", session_no, seq, repeated=True)


def _is_same_message(stored: Body, message: Message) -> bool:
    if not isinstance(stored, Message) or stored.role is not message.role:
        return False
    if stored.parts == message.parts:
        return True
    # Compare them as they are stored: JSON turns a tuple into a list, and so on.
    return _parts_as_stored(stored) == _parts_as_stored(message)


def _parts_as_stored(message: Message) -> str:
    return codec.encode(codec.decode(codec.encode(body_to_json(message)["parts"])))


def check_idempotency_key(idempotency_key: str) -> None:
    """Raise `BadInput` for a key that the database could not store unchanged."""
    if (
        not idempotency_key
        or len(idempotency_key) > MAX_IDEMPOTENCY_KEY
        or codec.storable_text(idempotency_key) != idempotency_key
    ):
        raise BadInput(
            f"An idempotency key is 1 to {MAX_IDEMPOTENCY_KEY} characters of plain text."
        )


def preview_of(message: Message) -> str | None:
    """Return the first words of a person's message; None for other messages."""
    if message.role is not Role.USER:
        return None
    return title.preview(message.text[:_PREVIEW_INPUT]) or None


def _append_error(tx: Tx, session_id: str, *, profile: str, lease: Lease | None) -> Exception:
    """Return the error that says why a session accepted no message."""
    head = sessions.get(tx, session_id, profile=profile)
    if lease is not None:
        return turn_lost_error(lease)
    if head is None:
        return NotFound(f"There is no session {session_id}.")
    if head.read_only:
        return read_only_error(session_id)
    if head.running:
        return running_error(session_id)
    if not head.is_open:
        return ended_error(head)
    return RaceLost()


def count_log(tx: Tx, segments: Sequence[Segment]) -> LogCounts:
    """Count the messages that are not retracted, by reading the whole log."""
    marks = entries.marks_in_effect(tx, segments)
    retracted = transcript.retracted(marks)
    messages = tool_calls = last_reply = 0
    preview: str | None = None
    for entry in entries.walk(tx, segments):
        body = entry.body
        if not isinstance(body, Message) or transcript.is_retracted(entry.seq, retracted):
            continue
        messages += 1
        tool_calls += body.tool_calls
        if body.role is Role.ASSISTANT:
            last_reply = entry.seq
        preview = preview or preview_of(body)
    return LogCounts(messages, tool_calls, last_reply, preview, compacted_seq(marks))


def compacted_seq(marks: Sequence[Entry]) -> int:
    """Return the seq of the compaction that is in effect, or 0."""
    mark = transcript.latest_compaction(marks)
    return 0 if mark is None else mark.seq


def missing_error(tx: Tx, session_id: str, *, profile: str) -> NotFound:
    """Return the error for a session that this profile does not have, or that was purged."""
    purged_at = sessions.purged_at(tx, session_id, profile=profile)
    if purged_at is None:
        return NotFound(f"There is no session {session_id}.")
    return Purged(f"Session {session_id} was purged on {purged_at.date()}; it is gone for good.")


def read_only_error(session_id: str) -> Conflict:
    """Return the error for a change to a read-only session."""
    return Conflict(
        f"Session {session_id} is read-only; nothing was changed. Continue in a copy: fork it."
    )


def running_error(session_id: str) -> Conflict:
    """Return the error for a change that must wait until the running turn ends."""
    return Conflict(
        f"A turn is running in session {session_id}, or waits for an answer or for a server to go on; "
        f"nothing was changed. Wait for it, or stop it: sessionary sessions stop {session_id}."
    )


def ended_error(head: SessionHead) -> Conflict:
    """Return the error for a message to a session that has ended."""
    return Conflict(
        f"Session {head.id} has ended ({head.end_reason}); nothing was changed. Reopen it first."
    )


def turn_lost_error(lease: Lease) -> TurnLost:
    """Return the error for a turn that has lost its lease."""
    return TurnLost(
        f"Turn {lease.turn_id} has lost its lease on session {lease.session_id}; "
        "nothing was written."
    )


def lock_session(tx: Tx, id: str, *, profile: str) -> SessionHead:
    """Lock a session until the transaction ends, and return its head."""
    no = sessions.lock_session(tx, id, profile=profile)
    if no is None:
        raise missing_error(tx, id, profile=profile)
    return sessions.get_by_no(tx, no)
