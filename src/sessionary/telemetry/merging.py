"""Which messages of a span are new: every call repeats the conversation so far."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from sessionary.model import codec
from sessionary.model.message import Attachment, Message, Role, Text, ToolCall, ToolResult, Unknown
from sessionary.telemetry.genai import Told, Work, is_placeholder

OUT = "out"
IN = "in"


@dataclass(frozen=True, slots=True)
class Line:
    """A message of the log as far as it is compared: what it says, and which span said it."""

    digest: str
    is_reply: bool
    span: str | None = None
    side: str | None = None
    is_placeholder: bool = False


@dataclass(frozen=True, slots=True)
class New:
    """A message to be added, and whether it went into the span or came out of it."""

    message: Message
    side: str


def line_of(said: Message) -> Line:
    """A message as it is compared."""
    origin = said.extra.get("otel")
    facts = origin if isinstance(origin, dict) else {}
    is_reply = said.role is Role.ASSISTANT and said.finish_reason != "error"
    return Line(
        _digest(said),
        is_reply,
        facts.get("span"),
        facts.get("side"),
        is_placeholder=is_placeholder(said),
    )


def new_of(heard: Told, known: Sequence[Line]) -> list[New]:
    """What of a span is not in the log. An agent's span repeats what its calls have said."""
    if heard.work is Work.TOOL:
        seen = {line.digest for line in known}
        return [New(said, OUT) for said in heard.outputs if _digest(said) not in seen]
    if heard.work is Work.AGENT:
        whole = (*heard.inputs, *heard.outputs)
        return [New(said, IN) for said in _unmatched(whole, known)[0]]
    missing, reached = _unmatched(heard.inputs, known)
    outputs = [said for said in heard.outputs if not _is_known(said, heard, known, reached)]
    if outputs and not missing and _goes_on(known, reached):
        # The same words were answered before: who asks again is heard again.
        missing = _last_prompt(heard.inputs)
    return [*(New(said, IN) for said in missing), *(New(said, OUT) for said in outputs)]


def _unmatched(told: Sequence[Message], known: Sequence[Line]) -> tuple[list[Message], int]:
    """The messages that do not stand in the log in this order, and how far the log was followed."""
    places: dict[str, list[int]] = {}
    for place, line in enumerate(known):
        places.setdefault(line.digest, []).append(place)
    missing: list[Message] = []
    reached = 0
    for said in told:
        later = (place for place in places.get(_digest(said), ()) if place >= reached)
        found = next(later, None)
        if found is None:
            missing.append(said)
        else:
            reached = found + 1
    return missing, reached


def _is_known(said: Message, heard: Told, known: Sequence[Line], reached: int) -> bool:
    """Whether an answer is there: said by this span, or told by a later one that came first."""
    digest = _digest(said)
    return any(
        line.digest == digest and (line.span == heard.span.span_id or line.side != OUT)
        for line in known[reached:]
    )


def _goes_on(known: Sequence[Line], reached: int) -> bool:
    return any(line.is_reply for line in known[reached:])


def _last_prompt(told: Sequence[Message]) -> list[Message]:
    """What was said after the last answer."""
    last = max((n for n, said in enumerate(told) if said.role is Role.ASSISTANT), default=-1)
    return [said for said in told[last + 1 :] if said.role is not Role.TOOL]


def _digest(said: Message) -> str:
    """What a message says, however it is told: words, calls and results by their ids."""
    words = "\n".join(part.text.strip() for part in said.parts if isinstance(part, Text))
    others = [_mark(part) for part in said.parts]
    facts = [str(said.role), words, sorted(mark for mark in others if mark)]
    return hashlib.sha256(codec.encode(facts).encode()).hexdigest()


def _mark(part: object) -> str:
    match part:
        case ToolCall(id=id, name=name, arguments=arguments):
            return f"call {id}" if id else f"call {name} {codec.encode(arguments)}"
        case ToolResult(call_id=call_id, content=content):
            return f"result {call_id}" if call_id else f"result {codec.encode(content)}"
        case Attachment(blob=blob):
            return f"file {blob}"
        case Unknown(data=data):
            return f"other {codec.encode(dict(data))}"
    return ""
