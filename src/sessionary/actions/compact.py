"""Compaction: for the model only, everything up to an entry is replaced by a summary."""

from datetime import datetime

from sessionary.actions import log, read, refusals
from sessionary.actions.log import SessionChanged
from sessionary.actions.sessions import lock_session
from sessionary.errors import BadInput
from sessionary.model import transcript
from sessionary.model.message import Compaction
from sessionary.model.session import SessionHead
from sessionary.model.turn import Lease
from sessionary.store.database import Tx
from sessionary.store.tables import entries, sessions


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
    """Let a summary stand for the beginning of a session; people still read everything."""
    head = lock_session(tx, id, profile=profile)
    if head.read_only:
        raise refusals.read_only(head.id)
    if lease is not None and head.running_turn != lease.turn_id:
        raise refusals.lost(lease)
    if not summary.strip():
        raise BadInput("A compaction needs a summary; nothing was changed.")
    if not 1 <= through <= head.last_seq:
        raise BadInput(
            f"Session {head.id} has entries 1 to {head.last_seq}; it cannot be compacted through {through}."
        )
    turn_id = None if lease is None else lease.turn_id
    # What stands before the compaction is not read again: it must say whether speakers are named.
    named = transcript.named_from(read.since_compaction(tx, head))
    mark = Compaction(summary, through, names_speakers=named is not None and named <= through)
    log.append_mark(tx, head.no, mark, at=at, turn_id=turn_id)
    marks = entries.marks(tx, sessions.segments(tx, head.no))
    tx.run("set_compacted", no=head.no, compacted_seq=marks[-1].seq)
    tx.after_commit(SessionChanged(profile, head.id))
    return sessions.get_by_no(tx, head.no)
