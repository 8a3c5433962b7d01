"""What tools return: the JSON of heads, messages, questions and usage, cut to a bounded number of tokens."""

from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypeVar

from typing_extensions import TypedDict

from sessionary.model import codec
from sessionary.model.json_types import UsageTotals
from sessionary.model.message import (
    Attachment,
    Compaction,
    Entry,
    Message,
    Role,
    ToolCall,
    ToolResult,
)
from sessionary.model.question import Question, QuestionKind, arguments_text
from sessionary.model.session import Kind, SessionHead
from sessionary.model.tokens import estimate
from sessionary.model.usage import UsageTotal
from sessionary.model.view import time_text, usage_json

T = TypeVar("T")
MAX_TEXT = 4000
# The most that a tool answers, estimated: agents pay for every token.
MAX_TOKENS = 15_000
_MAX_NAME = 200
_MAX_NAMES = 20


class SessionBrief(TypedDict):
    """A session in a list."""

    session_id: str
    title: str | None
    preview: str | None
    source: str
    kind: Kind
    project: str | None
    message_count: int
    last_active_at: str
    end_reason: str | None


class SessionBriefPage(TypedDict):
    """A page of sessions. Pass `next` as `cursor` to get more."""

    items: list[SessionBrief]
    next: str | None


class MessageLine(TypedDict):
    """An entry of a transcript, cited as `session_id#seq`."""

    cite: str
    seq: int
    kind: Literal["message", "compaction", "retraction"]
    at: str
    role: NotRequired[Role]
    text: NotRequired[str]
    calls: NotRequired[list[str]]
    files: NotRequired[list[str]]


class MessageWindow(TypedDict):
    """A part of a transcript, and whether there is more of it."""

    items: list[MessageLine]
    more_before: bool
    more_after: bool


class SessionFacts(SessionBrief):
    """A session with its first and last messages."""

    began_at: str
    parent_id: str | None
    usage: UsageTotals
    first: list[MessageLine]
    last: list[MessageLine]


class HitLine(TypedDict):
    """A message that was found, cited as `session_id#seq`."""

    cite: str
    title: str | None
    role: str
    at: str
    snippet: str
    in_session: int


class HitLinePage(TypedDict):
    """The best hit of each task. Pass `next` as `cursor` to get more.

    `more`: there are more matches than `total`. `relaxed`: these contain only some of the words. `beginnings`: these
    contain longer words that begin with those of the query. `suggestion`: what may have been meant. `missing`: what the
    query names and does not exist.
    """

    items: list[HitLine]
    next: str | None
    total: int
    more: bool
    relaxed: bool
    beginnings: bool
    suggestion: str | None
    missing: str | None


class QuestionLine(TypedDict):
    """A question that a turn asks people, and until when it waits for the answer."""

    question_id: str
    session_id: str
    kind: QuestionKind
    text: str
    tool: str | None
    arguments: str
    options: list[str]
    agent: str | None
    where: str
    asked_at: str
    expires_at: str


class QuestionLinePage(TypedDict):
    """Questions that wait for a person's answer. Pass `next` as `cursor` to get more."""

    items: list[QuestionLine]
    next: str | None


class UsagePage(TypedDict):
    """Tokens and cost by group. Pass `next` as `cursor` to get more. `used_up_budgets` allow no turn to begin."""

    items: list[UsageTotals]
    next: str | None
    used_up_budgets: list[str]


class ResumePack(TypedDict):
    """What is needed to continue a session; `left_out` messages of it are not here."""

    session_id: str
    title: str | None
    model: str | None
    source: str
    began_at: str
    last_active_at: str
    parent_id: str | None
    left_out: int
    tokens_estimate: int
    messages: list[MessageLine]
    first_prompt: NotRequired[str]
    summary: NotRequired[str]


class AppendedLine(TypedDict):
    """The message that was added; `repeated` if it was there already."""

    cite: str
    session_id: str
    seq: int
    repeated: bool


class RenamedSession(TypedDict):
    """The session and its title."""

    session_id: str
    title: str | None


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


def head_json(head: SessionHead) -> SessionBrief:
    """What an agent needs to choose a session."""
    return {
        "session_id": head.id,
        "title": head.title,
        "preview": head.preview,
        "source": cut(head.source.platform, _MAX_NAME),
        "kind": head.kind,
        "project": head.project,
        "message_count": head.message_count,
        "last_active_at": time_text(head.last_active_at),
        "end_reason": head.end_reason and cut(head.end_reason, _MAX_NAME),
    }


def question_json(question: Question) -> QuestionLine:
    """A question, without what would help to answer it from a chat."""
    asked, body = question.asked, question.body
    return {
        "question_id": question.id,
        "session_id": question.session_id,
        "kind": asked.kind,
        "text": cut(asked.text),
        "tool": asked.tool and cut(asked.tool, _MAX_NAME),
        "arguments": cut(arguments_text(asked.arguments)),
        "options": [cut(each, _MAX_NAME) for each in asked.options],
        "agent": body.agent and cut(body.agent, _MAX_NAME),
        "where": cut(body.where, _MAX_NAME),
        "asked_at": time_text(question.asked_at),
        "expires_at": time_text(question.expires_at),
    }


def usage_row_json(total: UsageTotal) -> UsageTotals:
    """A row of a usage report; its name may be any text, so it is cut."""
    made = usage_json(total)
    return {**made, "group": made["group"] and cut(made["group"], _MAX_NAME)}


def message_json(entry: Entry, longest: int = MAX_TEXT) -> MessageLine:
    """One entry of a transcript; a compaction is its summary."""
    body = entry.body
    line: MessageLine = {
        "cite": citation(entry.session_id, entry.seq),
        "seq": entry.seq,
        "kind": "message",
        "at": time_text(entry.at),
    }
    if isinstance(body, Compaction):
        return {**line, "kind": "compaction", "text": cut(body.summary, longest)}
    if not isinstance(body, Message):
        return {**line, "kind": "retraction"}
    line["role"] = body.role
    calls = [part.name for part in body.parts if isinstance(part, ToolCall)]
    files = [part.name or part.media_type for part in body.parts if isinstance(part, Attachment)]
    if calls:
        line["calls"] = _names(calls)
    if files:
        line["files"] = _names(files)
    line["text"] = cut(body.text or _result_text(body), longest)
    return line


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


def fit_around(items: Sequence[MessageLine], seq: int) -> list[MessageLine]:
    """As many items around a seq as fit into an answer."""
    nearest = sorted(items, key=lambda item: abs(item["seq"] - seq))
    return sorted(fit(nearest), key=lambda item: item["seq"])


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
