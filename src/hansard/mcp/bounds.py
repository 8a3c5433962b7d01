"""Answers that fit: texts cut with a mark, lists cut with a cursor."""

from typing import Any

from hansard.model.entry import Entry, Message
from hansard.model.session import SessionHead
from hansard.model.tokens import estimate
from hansard.model.view import time_text

LONGEST_TEXT = 4000
LONGEST_ANSWER = 60_000


def cut(text: str, longest: int = LONGEST_TEXT) -> str:
    """The text, or its beginning with a mark that says how much is missing."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]}… [{len(text) - longest:,} more characters]"


def citation(session_id: str, seq: int) -> str:
    """The name under which a message can be cited and found again."""
    return f"{session_id}#{seq}"


def head_of(head: SessionHead) -> dict[str, Any]:
    """What an agent needs to choose a session."""
    return {
        "session": head.id,
        "title": head.title,
        "preview": head.preview,
        "source": head.source.platform,
        "kind": head.kind,
        "project": head.project,
        "messages": head.message_count,
        "last_active_at": time_text(head.last_active_at),
        "ended": head.end_reason,
    }


def message_of(entry: Entry) -> dict[str, Any]:
    """One line of a transcript; a compaction is the summary that stands there."""
    said = entry.body
    if not isinstance(said, Message):
        return {"cite": citation(entry.session_id, entry.seq), "seq": entry.seq, "kind": "mark"}
    text = said.text or ("" if not said.tool_calls else f"[{said.tool_calls} tool calls]")
    return {
        "cite": citation(entry.session_id, entry.seq),
        "seq": entry.seq,
        "role": str(said.role),
        "at": time_text(entry.at),
        "text": cut(text),
    }


def fitting(
    items: list[dict[str, Any]], longest: int = LONGEST_ANSWER
) -> tuple[list[dict[str, Any]], bool]:
    """As many of the items as an answer holds, and whether some were left out."""
    kept: list[dict[str, Any]] = []
    room = longest
    for item in items:
        room -= 4 * estimate(item)
        if room < 0 and kept:
            return kept, True
        kept.append(item)
    return kept, False
