"""Compaction hides entries from the model, retraction from people too. Nothing is deleted."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec.structs import replace

from sessionary.actions import usage
from sessionary.actions.sessions import log, read
from sessionary.actions.sessions.log import SessionChanged, lock_session, preview_of
from sessionary.clock import Moment
from sessionary.errors import BadInput, Conflict
from sessionary.model import transcript
from sessionary.model.message import Compaction, Entry, Message, Retraction, Role
from sessionary.model.session import Segment, SessionHead, clip
from sessionary.model.turn import Lease
from sessionary.model.usage import Usage
from sessionary.store.database import Tx
from sessionary.store.tables import entries, sessions
from sessionary.store.tables.sessions import LogCounts


def compact(
    tx: Tx,
    id: str,
    summary: str,
    *,
    profile: str,
    through: int,
    at: datetime,
    lease: Lease | None = None,
) -> SessionHead:
    """Replace the beginning of a session by a summary for the model, but for its pinned messages.

    People still read everything.
    """
    head = lock_session(tx, id, profile=profile)
    if head.read_only:
        raise log.read_only_error(head.id)
    if lease is not None and head.running_turn != lease.turn_id:
        raise log.turn_lost_error(lease)
    if not summary.strip():
        raise BadInput("A compaction needs a summary; nothing was changed.")
    if not 1 <= through <= head.last_seq:
        raise BadInput(
            f"Session {head.id} has entries 1 to {head.last_seq}; it cannot be compacted through {through}."
        )
    # The entries before the compaction are not read again, so it must record whether speakers are named.
    named = transcript.named_from(read.read_since_compaction(tx, head))
    mark = Compaction(
        summary,
        through,
        names_speakers=named is not None and named <= through,
        kept=tuple(seq for seq in read.list_pinned(head) if seq <= through),
    )
    return _append_compaction(tx, head, mark, at=at, lease=lease)


def store_compaction(
    tx: Tx,
    id: str,
    mark: Compaction,
    used: Usage | None,
    *,
    profile: str,
    moment: Moment,
    lease: Lease | None = None,
    last_seq: int,
    context_tokens: int = 0,
) -> SessionHead:
    """Store a compaction that the engine has planned, and what its summary used.

    `last_seq` was the last entry of the log when it was planned, and `context_tokens` is the estimated size of the
    context after it. During a turn only the holder of its lease may do so.
    """
    head = lock_session(tx, id, profile=profile)
    if entries.marks(tx, clip(sessions.segments(tx, head.no), last_seq + 1)):
        raise Conflict(
            "Something was taken back or compacted in the meantime; nothing was changed."
        )
    if used is not None:
        turn_id = None if lease is None else lease.turn_id
        usage.record(tx, head.no, used, profile=profile, moment=moment, turn_id=turn_id)
    return _append_compaction(
        tx, head, mark, at=moment.now, lease=lease, context_tokens=context_tokens
    )


def bring_back(tx: Tx, head: SessionHead, seq: int, *, at: datetime) -> SessionHead:
    """Let the model read a message word for word again that a compaction has replaced; others stay as they are."""
    current = read.get_compaction(tx, head)
    if current is None or seq > current.through or seq in current.kept:
        return head
    mark = replace(current, kept=tuple(sorted((*current.kept, seq))))
    return _append_compaction(tx, head, mark, at=at, lease=None)


def _append_compaction(
    tx: Tx,
    head: SessionHead,
    mark: Compaction,
    *,
    at: datetime,
    lease: Lease | None,
    context_tokens: int = 0,
) -> SessionHead:
    seq = log.append_mark(tx, head.no, mark, at=at, lease=lease)
    sessions.set_compacted(tx, head.no, seq, context_tokens=context_tokens)
    tx.after_commit(SessionChanged(head.profile, head.id))
    return sessions.get_by_no(tx, head.no)


_PAGE = 200


def retract(
    tx: Tx,
    id: str,
    *,
    profile: str,
    after: int,
    at: datetime,
    reason: str = "undo",
    lease: Lease | None = None,
) -> SessionHead:
    """Hide everything after an entry; a fork at a hidden entry brings it back.

    While a turn runs, only the holder of its lease may do so.
    """
    head = lock_session(tx, id, profile=profile)
    if lease is not None and head.running_turn != lease.turn_id:
        raise log.turn_lost_error(lease)
    if head.read_only:
        raise log.read_only_error(head.id)
    if not 0 <= after < head.last_seq:
        raise BadInput(
            f"Session {head.id} has entries 1 to {head.last_seq}; nothing comes after {after}."
        )
    segments = sessions.segments(tx, head.no)
    if after == 0:
        # Nothing is left: there is nothing to count.
        log.append_mark(tx, head.no, Retraction(after, reason), at=at, lease=lease)
        sessions.set_counts(tx, head.no, LogCounts())
    else:
        retracted = transcript.retracted(entries.retractions(tx, segments))
        removed = _shown(tx, clip(segments, after + 1), retracted)
        log.append_mark(tx, head.no, Retraction(after, reason), at=at, lease=lease)
        # Counted without reading the whole log.
        kept = clip(segments, 1, after)
        marks = entries.marks_in_effect(tx, sessions.segments(tx, head.no))
        counts = LogCounts(
            message_count=head.message_count - len(removed),
            tool_call_count=head.tool_call_count - sum(each.tool_calls for each in removed),
            last_reply_seq=_last_reply(tx, kept, retracted),
            preview=_first_preview(tx, kept, retracted),
            compacted_seq=log.compacted_seq(marks),
        )
        sessions.set_counts(tx, head.no, counts)
    tx.after_commit(SessionChanged(profile, head.id))
    return sessions.get_by_no(tx, head.no)


def undo(tx: Tx, id: str, *, profile: str, rounds: int, at: datetime) -> SessionHead:
    """Retract the last user messages and everything that followed them."""
    if rounds < 1:
        raise BadInput(f"Undo takes back 1 or more messages, not {rounds}.")
    head = lock_session(tx, id, profile=profile)
    seq = _nth_last_prompt(tx, sessions.segments(tx, head.no), rounds)
    if seq is None:
        raise Conflict(
            f"Session {head.id} has fewer than {rounds} messages to take back; nothing was changed."
        )
    return retract(tx, head.id, profile=profile, after=seq - 1, at=at)


def _shown(
    tx: Tx, segments: Sequence[Segment], retracted: Sequence[tuple[int, int]]
) -> list[Message]:
    return [
        entry.body
        for entry in entries.walk(tx, segments)
        if isinstance(entry.body, Message) and not transcript.is_retracted(entry.seq, retracted)
    ]


def _last_reply(tx: Tx, segments: Sequence[Segment], retracted: Sequence[tuple[int, int]]) -> int:
    for entry in _backwards(tx, segments):
        if _is_shown(entry, Role.ASSISTANT, retracted):
            return entry.seq
    return 0


def _first_preview(
    tx: Tx, segments: Sequence[Segment], retracted: Sequence[tuple[int, int]]
) -> str | None:
    for entry in entries.walk(tx, segments):
        if isinstance(entry.body, Message) and _is_shown(entry, Role.USER, retracted):
            preview = preview_of(entry.body)
            if preview:
                return preview
    return None


def _nth_last_prompt(tx: Tx, segments: Sequence[Segment], wanted: int) -> int | None:
    retracted = transcript.retracted(entries.retractions(tx, segments))
    for entry in _backwards(tx, segments):
        if _is_shown(entry, Role.USER, retracted):
            wanted -= 1
            if wanted == 0:
                return entry.seq
    return None


def _is_shown(entry: Entry, role: Role, retracted: Sequence[tuple[int, int]]) -> bool:
    body = entry.body
    return (
        isinstance(body, Message)
        and body.role is role
        and not transcript.is_retracted(entry.seq, retracted)
    )


def _backwards(tx: Tx, segments: Sequence[Segment]) -> Iterator[Entry]:
    for segment in reversed(segments):
        upper = segment.last
        while upper >= segment.first:
            part = Segment(segment.no, segment.session_id, segment.first, upper)
            page = entries.read(tx, part, limit=_PAGE, backwards=True)
            yield from reversed(page)
            if not page:
                break
            upper = page[0].seq - 1
