"""The part of a conversation that is handed over: within a budget, tool calls with their results."""

import base64
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

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

# Names that are made for another tool are the same each time.
_NAMES = uuid.UUID("6f1d4d2a-5a0e-4b57-9d0e-3f6c2b9a7c11")
BlobOf = Callable[[str], bytes | None]


@dataclass(frozen=True, slots=True)
class HandoverLine:
    """One message that is handed over: when it was said, and what."""

    seq: int
    at: datetime
    said: Message


@dataclass(frozen=True, slots=True)
class HandoverExcerpt:
    """What is handed over, and of which session."""

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
        """The name of the session in a tool that names them so."""
        return str(uuid.uuid5(_NAMES, self.session_id))

    @property
    def preface(self) -> str | None:
        """What the model must know of what came before: a summary, and that something is missing."""
        told = [self.summary] if self.summary else []
        if self.left_out:
            some = "message" if self.left_out == 1 else "messages"
            told.append(f"[{self.left_out:,} earlier {some} of this conversation are not here.]")
        return "\n\n".join(told) or None

    def line_uuid(self, seq: int, part: str = "") -> str:
        """The name of a message in a tool that names them so."""
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
        elif isinstance(body, Message) and not _is_order(body):
            size = tokens.estimate(body_to_json(body))
            self._kept.append((size, HandoverLine(entry.seq, entry.at, body)))
            self._used += size
        while self._budget is not None and self._used > self._budget and len(self._kept) > 1:
            self._used -= self._kept.popleft()[0]
            self._left_out += 1

    def passage(self, **facts: Any) -> HandoverExcerpt:
        """What fits, beginning with a message of a person, each call with its result."""
        lines = [line for _, line in self._kept]
        first = next((n for n, line in enumerate(lines) if line.said.role is Role.USER), 0)
        if self._left_out:
            self._left_out += first
            lines = lines[first:]
        return HandoverExcerpt(
            lines=tuple(_paired(lines)),
            summary=self._summary,
            left_out=self._left_out,
            **facts,
        )


def _is_order(message: Message) -> bool:
    """Whether a system said it: whoever goes on has orders of its own."""
    return message.role is Role.SYSTEM


def _paired(lines: Sequence[HandoverLine]) -> Iterator[HandoverLine]:
    """Each call once, its result right behind it; results of no call are left out."""
    results: dict[str, deque[tuple[HandoverLine, ToolResult]]] = {}
    for line in lines:
        for part in line.said.parts:
            if isinstance(part, ToolResult):
                results.setdefault(part.call_id, deque()).append((line, part))
    seen: Counter[str] = Counter()
    for line in lines:
        said = [part for part in line.said.parts if not isinstance(part, ToolResult)]
        if line.said.role is Role.TOOL or not said:
            continue
        calls = [part for part in said if isinstance(part, ToolCall)]
        names = [_unique(call.id, seen) for call in calls]
        yield _with(line, _renamed(said, names))
        if calls:
            yield _answers(line, calls, names, results)


def _answers(
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
            made += [p for p in answered.said.parts if isinstance(p, Attachment)]
        else:
            made.append(ToolResult(name, NO_RESULT, call.name, is_error=True))
    return HandoverLine(seq, at, Message(Role.TOOL, tuple(made)))


def _unique(id: str, seen: Counter[str]) -> str:
    """A name that no other call of the passage has: some providers count from 0 in each turn."""
    seen[id] += 1
    return id if id and seen[id] == 1 else f"{id or 'call'}-{seen[id]}"


def _renamed(parts: Iterable[Part], names: Sequence[str]) -> tuple[Part, ...]:
    left = iter(names)
    return tuple(
        replace(part, id=next(left)) if isinstance(part, ToolCall) else part for part in parts
    )


def _with(line: HandoverLine, parts: tuple[Part, ...]) -> HandoverLine:
    return line if parts == line.said.parts else replace(line, said=replace(line.said, parts=parts))


def words_of(result: ToolResult) -> str:
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


def data_url(passage: HandoverExcerpt, part: Attachment) -> str | None:
    """A file as an address that holds it; None when its bytes are not here."""
    data = passage.blob_of(part.blob)
    if data is None:
        return None
    return f"data:{part.media_type};base64,{base64.b64encode(data).decode()}"


def mention(part: Attachment) -> Text:
    """Words in the place of a file that cannot go along."""
    name = part.name or "a file"
    return Text(f"[{name}, {part.media_type}]")
