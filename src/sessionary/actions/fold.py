"""The head as a fold of the log: what `rebuild` makes and `verify` compares."""

from collections.abc import Sequence
from dataclasses import dataclass

from sessionary.actions.log import preview_of
from sessionary.model import transcript
from sessionary.model.message import Entry, Message, Role
from sessionary.model.session import Segment
from sessionary.store.database import Tx
from sessionary.store.tables import entries


@dataclass(frozen=True, slots=True)
class LogCounts:
    """What a head says about its log."""

    message_count: int = 0
    tool_call_count: int = 0
    last_reply_seq: int = 0
    preview: str | None = None
    compacted_seq: int = 0


def counts(tx: Tx, segments: Sequence[Segment]) -> LogCounts:
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
