"""Finds the messages of a span that the log does not have yet: every call repeats the conversation so far."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sessionary.model.message import Message, Role
from sessionary.model.prefix import message_digest
from sessionary.telemetry.genai import Operation, SpanContent, is_placeholder

# Whether a message went into a span or came out of it.
OUT = "out"
IN = "in"


@dataclass(frozen=True, slots=True)
class KnownMessage:
    """A message of the log with what it is compared by, the span that brought it, and its entry."""

    message: Message
    digest: str
    is_reply: bool
    span: str | None
    side: str | None
    is_placeholder: bool
    seq: int = 0
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class SpanMessage:
    """A message to be appended, and its side of the span."""

    message: Message
    side: str


def known_message(message: Message, *, seq: int = 0, at: datetime | None = None) -> KnownMessage:
    """Prepare a message for comparison."""
    found = message.extra.get("otel")
    origin = found if isinstance(found, dict) else {}
    return KnownMessage(
        message,
        message_digest(message),
        is_reply=message.role is Role.ASSISTANT and message.finish_reason != "error",
        span=origin.get("span"),
        side=origin.get("side"),
        is_placeholder=is_placeholder(message),
        seq=seq,
        at=at,
    )


def new_messages(content: SpanContent, known: Sequence[KnownMessage]) -> list[SpanMessage]:
    """The messages of a span that are not in the log. An agent's span repeats those of its calls."""
    if content.operation is Operation.TOOL:
        digests = {each.digest for each in known}
        return [
            SpanMessage(each, OUT)
            for each in content.outputs
            if message_digest(each) not in digests
        ]
    if content.operation is Operation.AGENT:
        unmatched, _ = _match((*content.inputs, *content.outputs), known)
        return [SpanMessage(each, IN) for each in unmatched]
    inputs, matched = _match(content.inputs, known)
    after = known[matched:]
    outputs = [each for each in content.outputs if not _has_output(after, each, content)]
    if outputs and not inputs and any(each.is_reply for each in after):
        # The same prompt was answered before: it was asked again, so it is appended again.
        inputs = _last_prompt(content.inputs)
    return [
        *(SpanMessage(each, IN) for each in inputs),
        *(SpanMessage(each, OUT) for each in outputs),
    ]


def _match(messages: Sequence[Message], known: Sequence[KnownMessage]) -> tuple[list[Message], int]:
    """Match messages with the log in order: those without a match, and how far the log was matched."""
    places: dict[str, list[int]] = {}
    for place, each in enumerate(known):
        places.setdefault(each.digest, []).append(place)
    unmatched: list[Message] = []
    matched = 0
    for message in messages:
        later = (place for place in places.get(message_digest(message), ()) if place >= matched)
        found = next(later, None)
        if found is None:
            unmatched.append(message)
        else:
            matched = found + 1
    return unmatched, matched


def _has_output(known: Sequence[KnownMessage], output: Message, content: SpanContent) -> bool:
    """Whether an output is there: from this span, or as the input of a later one that came first."""
    own = message_digest(output)
    return any(
        each.digest == own and (each.span == content.span.span_id or each.side != OUT)
        for each in known
    )


def _last_prompt(messages: Sequence[Message]) -> list[Message]:
    """The messages after the last reply, without tool results."""
    last = max((n for n, each in enumerate(messages) if each.role is Role.ASSISTANT), default=-1)
    return [each for each in messages[last + 1 :] if each.role is not Role.TOOL]
