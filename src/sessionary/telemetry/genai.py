"""What one span says of a conversation, by the semantic conventions for generative AI."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from sessionary.model import codec
from sessionary.model.message import Message, Role, ToolResult, Unknown
from sessionary.model.usage import MAX_TOKENS, Usage
from sessionary.telemetry import told
from sessionary.telemetry.span import LogRecord, Span, SpanEvent

PREFIX = "gen_ai."
CONVERSATION = "gen_ai.conversation.id"
PLACEHOLDER = "genai_call"
# Enough to be refused: what is too much for a call is not made smaller, but told.
TOO_MANY = MAX_TOKENS + 1
_AGENTS = frozenset({"invoke_agent", "create_agent", "invoke_workflow"})
_SILENT = frozenset({"embeddings"})
# How the conventions call providers, and how the table of prices does.
_PROVIDERS = {
    "aws.bedrock": "aws",
    "az.ai.inference": "azure",
    "az.ai.openai": "azure",
    "azure.ai.inference": "azure",
    "azure.ai.openai": "azure",
    "gcp.gemini": "google",
    "gcp.gen_ai": "google",
    "gcp.vertex_ai": "google",
    "gemini": "google",
    "google-gla": "google",
    "google-vertex": "google",
    "mistral_ai": "mistral",
    "vertex_ai": "google",
    "x_ai": "x-ai",
    "xai": "x-ai",
}
_EVENT_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}


_EVENTS = frozenset(
    {
        *_EVENT_ROLES,
        "gen_ai.choice",
        "gen_ai.content.prompt",
        "gen_ai.content.completion",
        "gen_ai.client.inference.operation.details",
    }
)


class Work(StrEnum):
    """What sort of work a span was."""

    CALL = "call"
    TOOL = "tool"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class Told:
    """What one span says: what went into it, what came out, what it used."""

    span: Span
    work: Work
    system: str | None = None
    inputs: tuple[Message, ...] = ()
    outputs: tuple[Message, ...] = ()
    usage: Usage | None = None


def concerns(span: Span) -> bool:
    """Whether a span speaks of generative AI at all."""
    return any(name.startswith(PREFIX) for name in span.attributes)


def conversation_of(span: Span) -> str | None:
    """The conversation that a span names."""
    found = span.attributes.get(CONVERSATION)
    return codec.storable_text(str(found)) or None if found is not None else None


def tell(span: Span) -> Told:
    """Read what a span says of a conversation."""
    work = _work(span)
    if work is Work.TOOL:
        return Told(span, work, outputs=tuple(_tool_result(span)))
    heard = [*_from_attributes(span.attributes), *_from_events(span)]
    system = next((text for kind, text in heard if kind == "system"), None)
    inputs = [said for kind, said in heard if kind == "in"]
    outputs = [said for kind, said in heard if kind == "out"]
    spoken = [said.text for said in inputs if said.role is Role.SYSTEM]
    inputs = [said for said in inputs if said.role is not Role.SYSTEM]
    usage = _usage(span) if work is Work.CALL else None
    if span.error is not None and not outputs and work is Work.CALL:
        outputs = [_failure(span)]
    return Told(
        span,
        work,
        system or "\n\n".join(spoken) or None,
        tuple(inputs),
        tuple(outputs),
        usage,
    )


def _work(span: Span) -> Work:
    match span.attributes.get("gen_ai.operation.name"):
        case "execute_tool":
            return Work.TOOL
        case str(name) if name in _AGENTS:
            return Work.AGENT
        case None if "gen_ai.tool.name" in span.attributes:
            return Work.TOOL
        case None if _only_names(span):
            return Work.AGENT
    return Work.CALL


def _only_names(span: Span) -> bool:
    """Whether a span says only which conversation the spans below it belong to."""
    told_of = [name for name in span.attributes if name.startswith(PREFIX)]
    return told_of == [CONVERSATION] and not span.events


def _tool_result(span: Span) -> Iterator[Message]:
    """A tool's answer, where the instrumentation tells it, or its failure."""
    attributes = span.attributes
    content = told.decoded(attributes.get("gen_ai.tool.call.result"))
    if content is None:
        content = attributes.get("tool_response")  # as pydantic-ai called it
    if content is None and span.error is None:
        return
    call_id = str(attributes.get("gen_ai.tool.call.id") or span.span_id)
    name = attributes.get("gen_ai.tool.name")
    yield Message(
        Role.TOOL,
        (
            ToolResult(
                call_id,
                span.error if content is None else content,
                name if isinstance(name, str) else None,
                is_error=span.error is not None,
            ),
        ),
    )


def _from_attributes(attributes: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The newer way: whole conversations in attributes; and two older ones."""
    yield "system", told.text_of(attributes.get("gen_ai.system_instructions"))
    asked = attributes.get("gen_ai.input.messages", attributes.get("gen_ai.prompt"))
    answered = attributes.get("gen_ai.output.messages", attributes.get("gen_ai.completion"))
    whole = attributes.get("pydantic_ai.all_messages") if asked is None else None
    for said in told.messages_of(asked if whole is None else whole):
        yield "in", said
    for said in told.messages_of(answered, role="assistant"):
        yield "out", said
    for said in told.numbered(attributes, "gen_ai.prompt.", role="user"):
        yield "in", said
    for said in told.numbered(attributes, "gen_ai.completion.", role="assistant"):
        yield "out", said


def _from_events(span: Span) -> Iterator[tuple[str, Any]]:
    """The older way: an event for each message, on the span or as a list in an attribute."""
    listed = told.decoded(span.attributes.get("events"))
    bodies = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    events = [*span.events, *(SpanEvent(str(each.get("event.name")), each) for each in bodies)]
    for event in events:
        yield from _from_event(event)


def _from_event(event: SpanEvent) -> Iterator[tuple[str, Any]]:
    body = told.decoded(event.attributes.get("gen_ai.event.content"))
    facts = {**event.attributes, **(body if isinstance(body, dict) else {})}
    match event.name:
        case "gen_ai.content.prompt":
            yield from (("in", said) for said in told.messages_of(facts.get("gen_ai.prompt")))
        case "gen_ai.content.completion":
            completion = facts.get("gen_ai.completion")
            yield from (("out", s) for s in told.messages_of(completion, role="assistant"))
        case "gen_ai.choice":
            message = told.decoded(facts.get("message", body if isinstance(body, str) else None))
            chat = dict(message) if isinstance(message, dict) else dict(facts)
            if isinstance(message, str):
                chat["content"] = message
            chat.setdefault("finish_reason", facts.get("finish_reason"))
            yield from (("out", said) for said in told.messages_of([chat], role="assistant"))
        case "gen_ai.client.inference.operation.details":
            yield from _from_attributes(facts)
        case name if name in _EVENT_ROLES:
            role = _EVENT_ROLES[name]
            chat = {"role": role, **facts} if body is None or isinstance(body, dict) else {}
            chat = chat or {"role": role, "content": body}
            yield from (("in", said) for said in told.messages_of([chat], role=role))


def _usage(span: Span) -> Usage | None:
    """What a call used. Cached tokens are part of the conventions' input; of ours they are not."""
    attributes = span.attributes
    sent = _count(attributes, "input_tokens", "prompt_tokens")
    produced = _count(attributes, "output_tokens", "completion_tokens")
    cached = _count(
        attributes,
        "cache_read.input_tokens",
        "cache_read_input_tokens",
        "details.cache_read_tokens",
    )
    stored = _count(
        attributes,
        "cache_creation.input_tokens",
        "cache_creation_input_tokens",
        "details.cache_write_tokens",
    )
    for_an_hour = _count(
        attributes,
        "cache_creation.ephemeral_1h_input_tokens",
        "details.cache_write_1h_tokens",
        "details.ephemeral_1h_input_tokens",
    )
    thought = _count(attributes, "reasoning.output_tokens", "details.reasoning_tokens")
    if sent + produced + cached + stored == 0:
        return None
    model = attributes.get("gen_ai.response.model") or attributes.get("gen_ai.request.model")
    provider = attributes.get("gen_ai.provider.name") or attributes.get("gen_ai.system")
    address = attributes.get("server.address")
    task = attributes.get("gen_ai.operation.name")
    return Usage(
        model=None if model is None else str(model),
        input_tokens=max(0, sent - cached - stored),
        output_tokens=produced,
        cache_read_tokens=cached,
        cache_write_tokens=stored,
        cache_write_1h_tokens=min(for_an_hour, stored),
        reasoning_tokens=min(thought, produced),
        provider=None if provider is None else _PROVIDERS.get(str(provider), str(provider)),
        base_url=None if address is None else f"https://{address}",
        task=task if isinstance(task, str) and task in _SILENT else None,
        call_id=f"otel/{span.trace_id}/{span.span_id}",
        at=span.ended_at,
    )


def _count(attributes: Mapping[str, Any], *names: str) -> int:
    for name in names:
        value = attributes.get(f"gen_ai.usage.{name}")
        if isinstance(value, int | float) and not isinstance(value, bool) and value == value:
            return int(min(max(value, 0), TOO_MANY))
    return 0


def _failure(span: Span) -> Message:
    error = Unknown({"type": "error", "message": span.error or "error", "span": span.name})
    return Message(Role.ASSISTANT, (error,), finish_reason="error")


def placeholder(heard: Told) -> Message:
    """What stands for a call whose words the instrumentation keeps to itself."""
    facts = {
        "type": PLACEHOLDER,
        "name": heard.span.name,
        "model": None if heard.usage is None else heard.usage.model,
    }
    return Message(Role.ASSISTANT, (Unknown(facts),))


def is_placeholder(said: Message) -> bool:
    """Whether a message only stands for a call whose words are not known."""
    return any(isinstance(p, Unknown) and p.data.get("type") == PLACEHOLDER for p in said.parts)


def event_span(records: Sequence[LogRecord]) -> Span:
    """The log records of one span, as a span that has them for its events."""
    first = records[0]
    times = [each.nanos for each in records if each.nanos]
    names = [each.attributes.get(CONVERSATION) for each in records]
    name = next((each for each in names if each is not None), None)
    return Span(
        first.trace_id,
        first.span_id,
        start_nanos=min(times, default=0),
        end_nanos=max(times, default=0),
        attributes={} if name is None else {CONVERSATION: name},
        events=tuple(
            SpanEvent(each.name, {**each.attributes, "gen_ai.event.content": each.body})
            for each in records
        ),
        service=first.service,
    )


def tells_a_message(record: LogRecord) -> bool:
    """Whether a log record is an event that we read messages from."""
    return record.name in _EVENTS


def marked(said: Message, span: Span, side: str) -> Message:
    """The message with where it comes from."""
    origin = {"trace": span.trace_id, "span": span.span_id, "side": side}
    return replace(said, extra={**said.extra, "otel": origin})
