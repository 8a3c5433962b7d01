"""What tools return: the JSON of heads, messages and usage, cut to a bounded number of tokens."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from sessionary.model import codec
from sessionary.model.message import Attachment, Compaction, Entry, Message, ToolCall, ToolResult
from sessionary.model.session import SessionHead
from sessionary.model.tokens import estimate
from sessionary.model.usage import UsageTotal
from sessionary.model.view import time_text, usage_json

if TYPE_CHECKING:
    from sessionary.model.json_types import UsageTotals

T = TypeVar("T")
Json = dict[str, Any]
MAX_TEXT = 4000
# The most that a tool answers, estimated: agents pay for every token.
MAX_TOKENS = 15_000
_MAX_NAME = 200
_MAX_NAMES = 20


def cut(text: str, longest: int = MAX_TEXT) -> str:
    """The text, or its beginning and how much is missing."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]}… [{len(text) - longest:,} more characters]"


def tokens(value: Any) -> int:
    """Estimate the tokens of a value."""
    return estimate(value)


def citation(session_id: str, seq: int) -> str:
    """The citation of a message."""
    return f"{session_id}#{seq}"


def head_json(head: SessionHead) -> Json:
    """What an agent needs to choose a session."""
    return {
        "session": head.id,
        "title": head.title,
        "preview": head.preview,
        "source": cut(head.source.platform, _MAX_NAME),
        "kind": head.kind,
        "project": head.project,
        "messages": head.message_count,
        "last_active_at": time_text(head.last_active_at),
        "ended": head.end_reason and cut(head.end_reason, _MAX_NAME),
    }


def usage_row_json(total: UsageTotal) -> "UsageTotals":
    """A row of a usage report; its name may be any text, so it is cut."""
    made = usage_json(total)
    return {**made, "group": made["group"] and cut(made["group"], _MAX_NAME)}


def message_json(entry: Entry, longest: int = MAX_TEXT) -> Json:
    """One entry of a transcript; a compaction is its summary."""
    body = entry.body
    item: Json = {"cite": citation(entry.session_id, entry.seq), "seq": entry.seq}
    if isinstance(body, Compaction):
        return item | {"kind": "summary", "text": cut(body.summary, longest)}
    if not isinstance(body, Message):
        return item | {"kind": "mark"}
    item |= {"role": str(body.role), "at": time_text(entry.at)}
    calls = [part.name for part in body.parts if isinstance(part, ToolCall)]
    files = [part.name or part.media_type for part in body.parts if isinstance(part, Attachment)]
    item |= {"calls": _names(calls)} if calls else {}
    item |= {"files": _names(files)} if files else {}
    return item | {"text": cut(body.text or _result_text(body), longest)}


def fit(items: Sequence[T], *, from_end: bool = False) -> list[T]:
    """As many items as fit into an answer, from the beginning or from the end; at least one."""
    kept: list[T] = []
    room = MAX_TOKENS
    for item in reversed(items) if from_end else items:
        room -= tokens(item)
        if room < 0 and kept:
            break
        kept.append(item)
    return kept[::-1] if from_end else kept


def fit_around(items: Sequence[Json], seq: int) -> list[Json]:
    """As many items around a seq as fit into an answer."""
    nearest = sorted(items, key=lambda item: abs(int(item["seq"]) - seq))
    kept = fit(nearest)
    return sorted(kept, key=lambda item: int(item["seq"]))


def _names(names: Sequence[str]) -> list[str]:
    shown = [cut(name, _MAX_NAME) for name in names[:_MAX_NAMES]]
    more = len(names) - len(shown)
    return [*shown, f"… and {more:,} more"] if more else shown


def _result_text(message: Message) -> str:
    texts = (
        part.content if isinstance(part.content, str) else codec.encode(part.content)
        for part in message.parts
        if isinstance(part, ToolResult)
    )
    return "\n".join(texts)
