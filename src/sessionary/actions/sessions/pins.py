"""Pinned messages: the model reads them word for word also after a compaction. Each change is an entry of the log."""

from collections.abc import Mapping, Sequence
from typing import Any

from sessionary.actions.sessions import log, read, revise
from sessionary.clock import Moment
from sessionary.errors import Conflict, NotFound
from sessionary.model import transcript
from sessionary.model.message import Entry, Message, Role, Text
from sessionary.model.session import SessionHead, clip
from sessionary.model.source import Person
from sessionary.store.database import Tx
from sessionary.store.tables import entries, sessions

MOST_PINS = 20


def pin_message(
    tx: Tx, id: str, seq: int, *, profile: str, by: Person | None, moment: Moment
) -> SessionHead:
    """Pin a message of a user or of the assistant; one that is pinned already stays so.

    If a compaction has replaced it, the model reads it again from the next turn on.

    Raises `NotFound` if the session has no such message, and `Conflict` if it has MOST_PINS pins, is read-only, has
    ended, or has a running turn.
    """
    head = log.lock_session(tx, id, profile=profile)
    found = _message_at(tx, head, seq)
    if found is None:
        raise NotFound(f"Session {head.id} has no message {seq} of a user or the assistant.")
    pinned = [entry.seq for entry in list_pinned_messages(tx, head.id, profile=profile)]
    if seq in pinned:
        return head
    if len(pinned) >= MOST_PINS:
        raise Conflict(
            f"{MOST_PINS} messages are pinned in this session; nothing was changed. Unpin one first."
        )
    sentence = (
        f"Message {seq} was pinned: the model reads it word for word also after a compaction."
    )
    record = {"kind": "pin", "seq": seq}
    head = _write(tx, head, sorted([*pinned, seq]), sentence, record, by=by, moment=moment)
    return revise.bring_back(tx, head, seq, at=moment.now)


def unpin_message(
    tx: Tx, id: str, seq: int, *, profile: str, by: Person | None, moment: Moment
) -> SessionHead:
    """Unpin a message; raise `NotFound` if it is not pinned, and `Conflict` as `pin_message` does."""
    head = log.lock_session(tx, id, profile=profile)
    pinned = read.list_pinned(head)
    if seq not in pinned:
        raise NotFound(f"Message {seq} is not pinned in session {head.id}.")
    left = [each for each in pinned if each != seq]
    record = {"kind": "unpin", "seq": seq}
    return _write(
        tx, head, left, f"Message {seq} is no longer pinned.", record, by=by, moment=moment
    )


def list_pinned_messages(tx: Tx, id: str, *, profile: str) -> list[Entry]:
    """The pinned messages in the order of the log; one that was taken back is left out."""
    head = read.get_head(tx, id, profile=profile)
    pinned = read.list_pinned(head)
    found = (_message_at(tx, head, seq) for seq in sorted(pinned))
    return [entry for entry in found if entry is not None]


def settings_for_fork(settings: Any, through: int) -> Any:
    """A session's settings for a fork at an entry: without the pins of later messages."""
    if not isinstance(settings, dict) or read.PINNED not in settings:
        return settings
    kept = [seq for seq in settings[read.PINNED] if isinstance(seq, int) and seq <= through]
    return _with_pins(settings, kept) or None


def _with_pins(settings: Mapping[str, Any], pinned: Sequence[int]) -> dict[str, Any]:
    others = {key: value for key, value in settings.items() if key != read.PINNED}
    return {**others, read.PINNED: list(pinned)} if pinned else others


def _message_at(tx: Tx, head: SessionHead, seq: int) -> Entry | None:
    """An entry of the history, if it is a message of a user or the assistant that has a text and is not retracted."""
    segments = sessions.segments(tx, head.no)
    stretches = transcript.retracted(entries.retractions(tx, segments))
    for entry in entries.walk(tx, clip(segments, seq, seq)):
        body = entry.body
        is_shown = not transcript.is_retracted(seq, stretches)
        if isinstance(body, Message) and body.role in (Role.USER, Role.ASSISTANT) and is_shown:
            return entry if body.text.strip() else None
    return None


def _write(
    tx: Tx,
    head: SessionHead,
    pinned: Sequence[int],
    sentence: str,
    record: Mapping[str, Any],
    *,
    by: Person | None,
    moment: Moment,
) -> SessionHead:
    """Record a change in the log, which refuses it while a turn is running, and store the pins."""
    extra = {transcript.RECORD: dict(record)}
    message = Message(Role.SYSTEM, (Text(sentence),), person=by, extra=extra)
    log.append(tx, head.id, message, profile=head.profile, at=moment.now)
    after = _with_pins(head.settings, pinned)
    sessions.set_settings(tx, head.no, after, model=head.model)
    log.notify(tx, head)
    return sessions.get_by_no(tx, head.no)
