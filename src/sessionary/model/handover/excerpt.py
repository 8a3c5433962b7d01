"""The part of a conversation that is handed over to another tool: within a budget, tool calls with results."""

import base64
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sessionary.model import codec, tokens
from sessionary.model.message import (
    Attachment,
    Compaction,
    Entry,
    Message,
    Part,
    Role,
    Text,
    ToolCall,
    ToolResult,
    body_to_json,
)
from sessionary.model.transcript import NO_RESULT

# A namespace, so that each export of a session gets the same names.
_NAMES = uuid.UUID("6f1d4d2a-5a0e-4b57-9d0e-3f6c2b9a7c11")
BlobOf = Callable[[str], bytes | None]


class HandoverLine(Struct, frozen=True):
    """One message that is handed over, and when it was said."""

    seq: int
    at: datetime
    message: Message


# A dataclass: a Struct cannot leave a field out of its comparison.
@dataclass(frozen=True, slots=True)
class HandoverExcerpt:
    """The part of a session that is handed over."""

    session_id: str
    began_at: datetime
    lines: tuple[HandoverLine, ...]
    title: str | None = None
    model: str | None = None
    path: str | None = None
    branch: str | None = None
    summary: str | None = None
    left_out: int = 0
    blob_of: BlobOf = field(default=lambda _: None, repr=False, compare=False)

    @property
    def uuid(self) -> str:
        """The session's name in a tool that names sessions by UUID."""
        return str(uuid.uuid5(_NAMES, self.session_id))

    @property
    def preface(self) -> str | None:
        """What the model must know of earlier messages: their summary, and how many are missing."""
        texts = [self.summary] if self.summary else []
        if self.left_out:
            some = "message" if self.left_out == 1 else "messages"
            texts.append(f"[{self.left_out:,} earlier {some} of this conversation are not here.]")
        return "\n\n".join(texts) or None

    def line_uuid(self, seq: int, part: str = "") -> str:
        """A message's name in a tool that names messages by UUID."""
        return str(uuid.uuid5(_NAMES, f"{self.session_id}/{seq}/{part}"))


class ExcerptWindow:
    """The newest messages of a transcript that fit into a budget of tokens."""

    def __init__(self, budget: int | None) -> None:
        self._budget = budget
        self._kept: deque[tuple[int, HandoverLine]] = deque()
        self._used = 0
        self._summary: str | None = None
        self._left_out = 0

    def add(self, entry: Entry) -> None:
        """Take the next entry of a transcript; forget what no longer fits."""
        body = entry.body
        if isinstance(body, Compaction):
            while self._kept and self._kept[0][1].seq <= body.through:
                self._used -= self._kept.popleft()[0]
            self._used += tokens.estimate(body.summary) - tokens.estimate(self._summary or "")
            self._summary, self._left_out = body.summary, 0
        elif isinstance(body, Message) and body.role is not Role.SYSTEM:
            # A tool that continues has a system prompt of its own.
            size = tokens.estimate(body_to_json(body))
            self._kept.append((size, HandoverLine(entry.seq, entry.at, body)))
            self._used += size
        while self._budget is not None and self._used > self._budget and len(self._kept) > 1:
            self._used -= self._kept.popleft()[0]
            self._left_out += 1

    def excerpt(self, **facts: Any) -> HandoverExcerpt:
        """What fits: it begins with a message of a person, and each call has its result."""
        lines = [line for _, line in self._kept]
        first = next((n for n, line in enumerate(lines) if line.message.role is Role.USER), 0)
        if self._left_out:
            self._left_out += first
            lines = lines[first:]
        return HandoverExcerpt(
            lines=tuple(_paired(lines)),
            summary=self._summary,
            left_out=self._left_out,
            **facts,
        )


def _paired(lines: Sequence[HandoverLine]) -> Iterator[HandoverLine]:
    """Put the result of each call right behind it; results without a call are left out."""
    results: dict[str, deque[tuple[HandoverLine, ToolResult]]] = {}
    for line in lines:
        for part in line.message.parts:
            if isinstance(part, ToolResult):
                results.setdefault(part.call_id, deque()).append((line, part))
    seen: Counter[str] = Counter()
    for line in lines:
        parts = [part for part in line.message.parts if not isinstance(part, ToolResult)]
        if line.message.role is Role.TOOL or not parts:
            continue
        calls = [part for part in parts if isinstance(part, ToolCall)]
        names = [_unique(call.id, seen) for call in calls]
        left = iter(names)
        renamed = tuple(
            replace(part, id=next(left)) if isinstance(part, ToolCall) else part for part in parts
        )
        yield replace(line, message=replace(line.message, parts=renamed))
        if calls:
            yield _results_line(line, calls, names, results)


def _results_line(
    line: HandoverLine,
    calls: Sequence[ToolCall],
    names: Sequence[str],
    results: dict[str, deque[tuple[HandoverLine, ToolResult]]],
) -> HandoverLine:
    made: list[Part] = []
    at, seq = line.at, line.seq
    for call, name in zip(calls, names, strict=True):
        found = results.get(call.id)
        if found:
            answered, result = found.popleft()
            at, seq = answered.at, answered.seq
            made.append(replace(result, call_id=name, name=result.name or call.name))
            made += [p for p in answered.message.parts if isinstance(p, Attachment)]
        else:
            made.append(ToolResult(name, NO_RESULT, call.name, is_error=True))
    return HandoverLine(seq, at, Message(Role.TOOL, tuple(made)))


def _unique(id: str, seen: Counter[str]) -> str:
    """An id that no other call of the excerpt has: some providers count from 0 in each turn."""
    seen[id] += 1
    return id if id and seen[id] == 1 else f"{id or 'call'}-{seen[id]}"


def result_text(result: ToolResult) -> str:
    """What a tool answered, as a text."""
    return result.content if isinstance(result.content, str) else codec.encode(result.content)


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """What a tool was called with, as an object: models' interfaces take nothing else."""
    given = call.arguments
    if isinstance(given, str):
        try:
            given = codec.decode(given)
        except (ValueError, RecursionError):
            given = call.arguments
    if isinstance(given, dict):
        return given
    return {} if given is None else {"input": given}


def stamp(at: datetime) -> str:
    """A time as these tools write it: in UTC, to the millisecond."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def data_url(excerpt: HandoverExcerpt, part: Attachment) -> str | None:
    """A file as a data URL; None when its bytes are missing."""
    data = excerpt.blob_of(part.blob)
    if data is None:
        return None
    return f"data:{part.media_type};base64,{base64.b64encode(data).decode()}"


def mention(part: Attachment) -> Text:
    """A text in place of a file that the other tool does not accept."""
    name = part.name or "a file"
    return Text(f"[{name}, {part.media_type}]")
