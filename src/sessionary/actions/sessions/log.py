"""The log: the one place where an entry gets its number, and the counts derived from the entries."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

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
_PREVIEWED = 400


@dataclass(frozen=True, slots=True)
class Appended:
    """Where an entry is in the log. `repeated`: it was there already."""

    session_id: str
    session_no: int
    seq: int
    repeated: bool = False

    @property
    def id(self) -> str:
        """The entry's id."""
        return f"{self.session_id}-{self.seq}"


@dataclass(frozen=True, slots=True)
class SessionChanged:
    """Published after a commit: something about a session is new."""

    profile: str
    session_id: str
    seq: int | None = None


def notify(tx: Tx, head: SessionHead) -> None:
    """Tell the feed, and after the commit the listeners, that a session has changed."""
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
    """Add a message to an open session; exactly once for each idempotency key."""
    if idempotency_key is not None:
        earlier = find_repeat(tx, idempotency_key, profile=profile, message=message)
        if earlier is not None:
            return earlier
    turn_id = None if lease is None else lease.turn_id
    new = entries.append(tx, session_id, message, profile=profile, at=at, turn_id=turn_id)
    if new is None:
        raise _refusal(tx, session_id, profile=profile, lease=lease)
    no, seq, wants_preview = new
    if wants_preview and (preview := preview_of(message)) is not None:
        sessions.set_preview(tx, no, preview)
    if idempotency_key is not None and not entries.insert_receipt(
        tx, idempotency_key, profile=profile, session_no=no, seq=seq
    ):
        raise RaceLost  # someone else was first with this key; the next run finds their message
    tx.after_commit(SessionChanged(profile, session_id, seq))
    return Appended(session_id, no, seq)


def append_mark(
    tx: Tx,
    session_no: int,
    mark: Compaction | Retraction,
    *,
    at: datetime,
    turn_id: str | None = None,
) -> int:
    """Add a compaction or a retraction; return its number. The caller updates the head."""
    seq = entries.append_mark(tx, session_no, mark, at=at, turn_id=turn_id)
    if seq is None:
        raise Conflict(
            "A turn is running in this session; nothing was changed. Wait for it or stop it."
        )
    return seq


def find_repeat(
    tx: Tx, idempotency_key: str, *, profile: str, message: Message | None = None
) -> Appended | None:
    """What an earlier append with this idempotency key wrote.

    Raises `Conflict` if it wrote another message. A purged message cannot be compared.
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
        if stored and not _is_same(stored[0].body, message):
            raise Conflict(
                f"The idempotency key {idempotency_key!r} belongs to another message, entry {seq} of session "
                f"{session_id}; nothing was written. Choose a new key."
            )
    return Appended(session_id or "", session_no, seq, repeated=True)


def _is_same(stored: Body, message: Message) -> bool:
    if not isinstance(stored, Message) or stored.role is not message.role:
        return False
    if stored.parts == message.parts:
        return True
    # JSON changes some values: a tuple becomes a list, and so on.
    return _parts_text(stored) == _parts_text(message)


def _parts_text(message: Message) -> str:
    return codec.encode(codec.decode(codec.encode(body_to_json(message)["parts"])))


def check_idempotency_key(idempotency_key: str) -> None:
    """Refuse a key that a column could not keep exactly."""
    if (
        not idempotency_key
        or len(idempotency_key) > MAX_IDEMPOTENCY_KEY
        or codec.storable_text(idempotency_key) != idempotency_key
    ):
        raise BadInput(
            f"An idempotency key is 1 to {MAX_IDEMPOTENCY_KEY} characters of plain text."
        )


def preview_of(message: Message) -> str | None:
    """The first words of a person's message, for the head; None for other messages."""
    if message.role is not Role.USER:
        return None
    return title.preview(message.text[:_PREVIEWED]) or None


def _refusal(tx: Tx, session_id: str, *, profile: str, lease: Lease | None) -> Exception:
    """Find out why a session took no message."""
    head = sessions.get(tx, session_id, profile=profile)
    if lease is not None:
        return turn_lost(lease)
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
    """Count the messages that people see, from the whole log."""
    marks = entries.marks(tx, segments)
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
    """The number of the compaction that counts now, or 0."""
    mark = transcript.latest_compaction(marks)
    return 0 if mark is None else mark.seq


def missing_error(tx: Tx, session_id: str, *, profile: str) -> NotFound:
    """The error for an id that this profile does not have, or whose session was purged."""
    purged_at = sessions.purged_at(tx, session_id, profile=profile)
    if purged_at is None:
        return NotFound(f"There is no session {session_id}.")
    return Purged(f"Session {session_id} was purged on {purged_at.date()}; it is gone for good.")


def read_only_error(session_id: str) -> Conflict:
    """The error for a change to a session that nobody may write to."""
    return Conflict(
        f"Session {session_id} is read-only; nothing was changed. Continue in a copy: fork it."
    )


def running_error(session_id: str) -> Conflict:
    """The error for a change that has to wait for the running turn."""
    return Conflict(
        f"A turn is running in session {session_id}; nothing was changed. Wait for it, or stop it."
    )


def ended_error(head: SessionHead) -> Conflict:
    """The error for a message to a session that is over."""
    return Conflict(
        f"Session {head.id} has ended ({head.end_reason}); nothing was changed. Reopen it first."
    )


def turn_lost(lease: Lease) -> TurnLost:
    """The error for a turn whose lease is lost."""
    return TurnLost(
        f"Turn {lease.turn_id} no longer speaks for session {lease.session_id}; "
        "nothing was written."
    )


def lock_session(tx: Tx, id: str, *, profile: str) -> SessionHead:
    """Lock a session until the transaction ends, and return its head."""
    no = sessions.lock_session(tx, id, profile=profile)
    if no is None:
        raise missing_error(tx, id, profile=profile)
    return sessions.get_by_no(tx, no)
