"""The log: the one place where an entry gets its number, and the counts derived from the entries."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sessionary.clock import from_micros, to_micros
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
from sessionary.model.session import (
    Segment,
    SessionHead,
)
from sessionary.model.turn import Lease
from sessionary.store.database import RaceLost, Row, Tx
from sessionary.store.tables import entries, sessions

MAX_IDEMPOTENCY_KEY = 512
_PREVIEWED = 400


@dataclass(frozen=True, slots=True)
class Appended:
    """Where an entry stands now. `repeated`: it was there already."""

    session_id: str
    session_no: int
    seq: int
    repeated: bool = False

    @property
    def id(self) -> str:
        """The entry's name."""
        return f"{self.session_id}-{self.seq}"


@dataclass(frozen=True, slots=True)
class SessionChanged:
    """Published after a commit: something about a session is new."""

    profile: str
    session_id: str
    seq: int | None = None


def notify(tx: Tx, head: SessionHead) -> None:
    """Let whoever looks at a session know that something about it is new."""
    entries.insert_feed(tx, head.no, "head")
    tx.after_commit(SessionChanged(head.profile, head.id))


def append(
    tx: Tx,
    session_id: str,
    said: Message,
    *,
    profile: str,
    at: datetime,
    idempotency_key: str | None = None,
    lease: Lease | None = None,
) -> Appended:
    """Add a message to an open session; exactly once for each idempotency key."""
    if idempotency_key is not None:
        earlier = find_repeat(tx, idempotency_key, profile=profile, said=said)
        if earlier is not None:
            return earlier
    row = _advance(tx, session_id, said, profile=profile, at=at, lease=lease)
    if row is None:
        raise _refusal(tx, session_id, profile=profile, lease=lease)
    no, seq, wants_preview = row
    if wants_preview and (preview := preview_of(said)) is not None:
        tx.run("set_preview", no=no, preview=preview)
    if idempotency_key is not None and not tx.run(
        "insert_receipt", profile=profile, idempotency_key=idempotency_key, session_no=no, seq=seq
    ):
        raise RaceLost  # someone else was first with this key; the next run finds theirs
    tx.after_commit(SessionChanged(profile, session_id, seq))
    return Appended(session_id, no, seq)


def _advance(
    tx: Tx, session_id: str, said: Message, *, profile: str, at: datetime, lease: Lease | None
) -> Row | None:
    """Fold a message into its head and write it; what `advance` says of the session."""
    head = {
        "id": codec.storable_text(session_id),
        "profile": profile,
        "turn_id": "" if lease is None else lease.turn_id,
        # Only people and the agent are active; a tool's or the system's line is not.
        "active_at": to_micros(at) if said.role in (Role.USER, Role.ASSISTANT) else 0,
        "is_reply": int(said.role is Role.ASSISTANT),
        "tool_calls": said.tool_calls,
    }
    text = codec.encode(body_to_json(said))
    if not entries.has_large(text):
        row = tx.one("advance_with_entry", role=said.role, at=to_micros(at), body=text, **head)
        if row is not None:
            entries.check_seq(row[1])
        return row
    row = tx.one("advance", **head)
    if row is not None:
        turn_id = None if lease is None else lease.turn_id
        entries.insert(tx, row[0], row[1], at=at, body=said, turn_id=turn_id)
    return row


def append_mark(
    tx: Tx,
    session_no: int,
    mark: Compaction | Retraction,
    *,
    at: datetime,
    turn_id: str | None = None,
) -> int:
    """Add a compaction or a retraction; its number. The caller keeps the head in step."""
    row = tx.one("advance_mark", no=session_no, turn_id=turn_id or "")
    if row is None:
        raise Conflict(
            "A turn is running in this session; nothing was changed. Wait for it or stop it."
        )
    seq: int = row[0]
    entries.insert(tx, session_no, seq, at=at, body=mark, turn_id=turn_id)
    return seq


def find_repeat(
    tx: Tx, idempotency_key: str, *, profile: str, said: Message | None = None
) -> Appended | None:
    """What an earlier append with this idempotency key wrote.

    Raises `Conflict` if it wrote another message than `said`. Of a purged message nothing is left
    to compare with.
    """
    check_idempotency_key(idempotency_key)
    row = tx.one("find_receipt", profile=profile, idempotency_key=idempotency_key)
    if row is None:
        return None
    session_no, seq, session_id = row
    if said is not None:
        place = Segment(session_no, session_id or "", seq, seq)
        try:
            stored = entries.read(tx, place, limit=1)
        except NotFound:
            stored = []  # purged
        if stored and not _says_the_same(stored[0].body, said):
            raise Conflict(
                f"The idempotency key {idempotency_key!r} belongs to another message, entry {seq} of session "
                f"{session_id}; nothing was written. Choose a new key."
            )
    return Appended(session_id or "", session_no, seq, repeated=True)


def _says_the_same(stored: Body, said: Message) -> bool:
    if not isinstance(stored, Message) or stored.role is not said.role:
        return False
    if stored.parts == said.parts:
        return True
    # What the log writes down differs in form from what it was given: lists for tuples, and so on.
    return _parts_text(stored) == _parts_text(said)


def _parts_text(said: Message) -> str:
    return codec.encode(codec.decode(codec.encode(body_to_json(said)["parts"])))


def check_idempotency_key(idempotency_key: str) -> None:
    """Refuse a key that the record could not keep exactly."""
    if (
        not idempotency_key
        or len(idempotency_key) > MAX_IDEMPOTENCY_KEY
        or codec.storable_text(idempotency_key) != idempotency_key
    ):
        raise BadInput(
            f"An idempotency key is 1 to {MAX_IDEMPOTENCY_KEY} characters of plain text."
        )


def preview_of(said: Message) -> str | None:
    """The first words of a person's message, for the head."""
    if said.role is not Role.USER:
        return None
    return title.preview(said.text[:_PREVIEWED]) or None


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


@dataclass(frozen=True, slots=True)
class LogCounts:
    """What a head says about its log."""

    message_count: int = 0
    tool_call_count: int = 0
    last_reply_seq: int = 0
    preview: str | None = None
    compacted_seq: int = 0


def count_log(tx: Tx, segments: Sequence[Segment]) -> LogCounts:
    """Count the messages that people see, from the whole log."""
    marks = entries.marks(tx, segments)
    stretches = transcript.retracted(marks)
    messages = tool_calls = last_reply = 0
    preview: str | None = None
    for entry in entries.walk(tx, segments):
        body = entry.body
        if not isinstance(body, Message) or transcript.is_retracted(entry.seq, stretches):
            continue
        messages += 1
        tool_calls += body.tool_calls
        if body.role is Role.ASSISTANT:
            last_reply = entry.seq
        preview = preview or preview_of(body)
    return LogCounts(messages, tool_calls, last_reply, preview, compacted_seq(marks))


def compacted_seq(marks: Sequence[Entry]) -> int:
    """The number of the compaction that holds now, or 0."""
    mark = transcript.latest_compaction(marks)
    return 0 if mark is None else mark.seq


def put(tx: Tx, session_no: int, made: LogCounts) -> None:
    """Write the fold into the head."""
    tx.run(
        "set_counts",
        no=session_no,
        message_count=made.message_count,
        tool_call_count=made.tool_call_count,
        last_reply_seq=made.last_reply_seq,
        preview=made.preview,
        compacted_seq=made.compacted_seq,
    )


def missing_error(tx: Tx, session_id: str, *, profile: str) -> NotFound:
    """Nothing by that id in this profile; a purged session is said to be gone for good."""
    row = tx.one("purged_at", id=codec.storable_text(session_id), profile=profile)
    if row is None:
        return NotFound(f"There is no session {session_id}.")
    day = from_micros(row[0]).date()
    return Purged(f"Session {session_id} was purged on {day}; it is gone for good.")


def read_only_error(session_id: str) -> Conflict:
    """What another tool recorded is not changed here."""
    return Conflict(
        f"Session {session_id} is read-only; nothing was changed. Continue in a copy: fork it."
    )


def running_error(session_id: str) -> Conflict:
    """Someone speaks."""
    return Conflict(
        f"A turn is running in session {session_id}; nothing was changed. Wait for it, or stop it."
    )


def ended_error(head: SessionHead) -> Conflict:
    """It is over."""
    return Conflict(
        f"Session {head.id} has ended ({head.end_reason}); nothing was changed. Reopen it first."
    )


def turn_lost(lease: Lease) -> TurnLost:
    """Someone else may speak now, or nobody."""
    return TurnLost(
        f"Turn {lease.turn_id} no longer speaks for session {lease.session_id}; "
        "nothing was written."
    )


def lock_session(tx: Tx, id: str, *, profile: str) -> SessionHead:
    """The head of a session that nobody else changes until this transaction ends."""
    no = sessions.lock_session(tx, id, profile=profile)
    if no is None:
        raise missing_error(tx, id, profile=profile)
    return sessions.get_by_no(tx, no)
