"""Find where a program goes on that has no memory and sends its whole conversation with each request.

A note is made of each conversation when its turn begins, and another one of the answer. So the next request finds its
session even if the process died before the answer was noted: then the answer is compared with the log.
"""

from collections.abc import Sequence

from msgspec import Struct

from sessionary.actions.sessions import edit, log, prefixes, read, revise
from sessionary.actions.sessions.prefixes import KnownPrefix
from sessionary.clock import Moment
from sessionary.errors import NotFound
from sessionary.model import transcript
from sessionary.model.message import Entry, Message, Role
from sessionary.model.prefix import message_digest, prefix_digests
from sessionary.model.session import SessionFolder, SessionHead
from sessionary.model.turn import TurnState
from sessionary.model.turn_answer import answer_of
from sessionary.store.database import Tx
from sessionary.store.tables import sessions, turns

# If more was written since the known beginning, the session has gone on.
_MOST_NEWER = 200


class ResumePoint(Struct, frozen=True):
    """The session that a conversation goes on in, and how many of the messages that were sent its log has already."""

    head: SessionHead
    known: int


def find(
    tx: Tx,
    messages: Sequence[Message],
    *,
    profile: str,
    client: str,
    moment: Moment,
    may_fork: bool = True,
) -> ResumePoint | None:
    """Return where a conversation goes on whose beginning was sent before; None if it was not.

    Where the program has changed something, or the session has gone on without it, that is a fork at the last common
    message; without `may_fork` everything after it is taken back instead, once no turn is running. A turn that failed,
    or was stopped, is taken back in any case: its answer is asked for again. The last message is always new.
    """
    known = prefixes.find(tx, prefix_digests(messages[:-1]), profile=profile, client=client)
    if known is None:
        return None
    return continue_after(tx, known, messages, profile=profile, moment=moment, may_fork=may_fork)


def continue_after(
    tx: Tx,
    known: KnownPrefix,
    messages: Sequence[Message],
    *,
    profile: str,
    moment: Moment,
    may_fork: bool = True,
) -> ResumePoint | None:
    """Return where a conversation goes on of which a session has the beginning; None if that was deleted."""
    head = sessions.by_numbers(tx, (known.session_no,)).get(known.session_no)
    if head is None:
        return None
    try:
        head = log.lock_session(tx, head.id, profile=profile)
    except NotFound:
        return None
    if head.folder is SessionFolder.GONE or head.trashed_at is not None:
        return None
    takes_messages = head.is_open and not head.read_only
    newer = read.read_log(tx, head.id, profile=profile, after=known.seq, limit=_MOST_NEWER)
    if takes_messages and len(newer) < _MOST_NEWER:
        found = _go_on(tx, head, known, messages, newer, moment=moment)
        if found is not None:
            return found
    if not may_fork and (head.running or not takes_messages):
        return ResumePoint(head, known.length)  # as it is: the caller waits, or says why not
    if not known.seq:
        return None  # nothing is left to fork
    if may_fork:
        fork = edit.fork(tx, head.id, profile=profile, moment=moment, at_seq=known.seq)
        return ResumePoint(fork, known.length)
    return ResumePoint(_take_back(tx, head, known.seq, moment=moment), known.length)


def _go_on(
    tx: Tx,
    head: SessionHead,
    known: KnownPrefix,
    messages: Sequence[Message],
    newer: Sequence[Entry],
    *,
    moment: Moment,
) -> ResumePoint | None:
    """Go on in the session itself, if nothing was said there since that the program does not know."""
    marks = transcript.marks_of(newer)
    stretches = transcript.retracted(marks)
    if transcript.is_retracted(known.seq, stretches):
        return None
    said = [
        each
        for each in newer
        if isinstance(each.body, Message)
        and not (each.body.role is Role.SYSTEM and transcript.RECORD in each.body.extra)
        and not transcript.is_retracted(each.seq, stretches)
    ]
    turn_ids = {each.turn_id for each in said}
    if not said:
        is_idle = not head.running or head.waits_for_people
        return ResumePoint(head, known.length) if is_idle else None
    if len(turn_ids) > 1 or None in turn_ids:
        return None
    [turn_id] = turn_ids
    found = turns.get(tx, turn_id or "", profile=head.profile)
    if found is None:
        return None
    turn, is_same = found[0], said[0].turn_id == _turn_of(tx, head, known.seq)
    if turn.state in (TurnState.FAILED, TurnState.INTERRUPTED):
        return ResumePoint(_take_back(tx, head, known.seq, moment=moment), known.length)
    if not is_same or turn.state is TurnState.RUNNING:
        return None
    # The program knows the message that the turn began with: it may know the answer, too.
    if not known.length or messages[known.length - 1].role is Role.ASSISTANT:
        return ResumePoint(head, known.length)  # what it was told while the turn waited for people
    answer = answer_of(each.body for each in said if isinstance(each.body, Message)).message
    if known.length < len(messages) - 1:
        sent = messages[known.length]
        if message_digest(sent) == message_digest(answer):
            return ResumePoint(head, known.length + 1)
    return None


def _turn_of(tx: Tx, head: SessionHead, seq: int) -> str | None:
    [entry] = read.read_log(tx, head.id, profile=head.profile, after=seq - 1, limit=1)
    return entry.turn_id


def _take_back(tx: Tx, head: SessionHead, seq: int, *, moment: Moment) -> SessionHead:
    return revise.retract(
        tx, head.id, profile=head.profile, after=seq, at=moment.now, reason="sent again"
    )
