"""Reads spans by the semantic conventions for generative AI."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from msgspec.structs import replace

from sessionary.model import codec
from sessionary.model.message import Message, Role, ToolResult, Unknown
from sessionary.model.usage import MAX_TOKENS, Usage
from sessionary.telemetry import messages
from sessionary.telemetry.span import LogRecord, Span, SpanEvent

PREFIX = "gen_ai."
CONVERSATION = "gen_ai.conversation.id"
PLACEHOLDER = "genai_call"
# A count above the limit becomes this one, so that the call is refused instead of stored smaller.
OVER_LIMIT = MAX_TOKENS + 1
_AGENTS = frozenset({"invoke_agent", "create_agent", "invoke_workflow"})
_SILENT = frozenset({"embeddings"})
# The conventions' names of providers, and those of the price table.
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


class Operation(StrEnum):
    """What a span did: called a model, ran a tool, or ran an agent."""

    CALL = "call"
    TOOL = "tool"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class SpanContent:
    """The messages that went into a span and came out of it, and the tokens it used."""

    span: Span
    operation: Operation
    system: str | None = None
    inputs: tuple[Message, ...] = ()
    outputs: tuple[Message, ...] = ()
    usage: Usage | None = None


def is_genai(span: Span) -> bool:
    """Whether a span has attributes of the conventions for generative AI."""
    return any(name.startswith(PREFIX) for name in span.attributes)


def conversation_id(span: Span) -> str | None:
    """The conversation that a span names."""
    found = span.attributes.get(CONVERSATION)
    return codec.storable_text(str(found)) or None if found is not None else None


def read_span(span: Span) -> SpanContent:
    """Read a span's messages and usage."""
    operation = _operation(span)
    if operation is Operation.TOOL:
        return SpanContent(span, operation, outputs=tuple(_tool_result(span)))
    found = [*_from_attributes(span.attributes), *_from_events(span)]
    system = next((text for kind, text in found if kind == "system"), None)
    inputs = [message for kind, message in found if kind == "in"]
    outputs = [message for kind, message in found if kind == "out"]
    prompts = [message.text for message in inputs if message.role is Role.SYSTEM]
    if span.error is not None and not outputs and operation is Operation.CALL:
        error = Unknown({"type": "error", "message": span.error or "error", "span": span.name})
        outputs = [Message(Role.ASSISTANT, (error,), finish_reason="error")]
    return SpanContent(
        span,
        operation,
        system or "\n\n".join(prompts) or None,
        tuple(message for message in inputs if message.role is not Role.SYSTEM),
        tuple(outputs),
        _usage(span) if operation is Operation.CALL else None,
    )


def _operation(span: Span) -> Operation:
    match span.attributes.get("gen_ai.operation.name"):
        case "execute_tool":
            return Operation.TOOL
        case str(name) if name in _AGENTS:
            return Operation.AGENT
        case None if "gen_ai.tool.name" in span.attributes:
            return Operation.TOOL
        case None if _only_names_conversation(span):
            return Operation.AGENT
    return Operation.CALL


def _only_names_conversation(span: Span) -> bool:
    """Whether a span only names the conversation of the spans below it."""
    names = [name for name in span.attributes if name.startswith(PREFIX)]
    return names == [CONVERSATION] and not span.events


def _tool_result(span: Span) -> Iterator[Message]:
    """A tool's result, if the instrumentation sends it, or its error."""
    attributes = span.attributes
    content = messages.decode_json(attributes.get("gen_ai.tool.call.result"))
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
    """Messages in attributes: as lists (the current conventions), or numbered (older ones)."""
    yield "system", messages.decode_text(attributes.get("gen_ai.system_instructions"))
    asked = attributes.get("gen_ai.input.messages", attributes.get("gen_ai.prompt"))
    answered = attributes.get("gen_ai.output.messages", attributes.get("gen_ai.completion"))
    whole = attributes.get("pydantic_ai.all_messages") if asked is None else None
    for message in messages.decode_messages(asked if whole is None else whole):
        yield "in", message
    for message in messages.decode_messages(answered, role="assistant"):
        yield "out", message
    for message in messages.decode_numbered(attributes, "gen_ai.prompt.", role="user"):
        yield "in", message
    for message in messages.decode_numbered(attributes, "gen_ai.completion.", role="assistant"):
        yield "out", message


def _from_events(span: Span) -> Iterator[tuple[str, Any]]:
    """Messages in events (older conventions), on the span or as a list in an attribute."""
    listed = messages.decode_json(span.attributes.get("events"))
    bodies = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    events = [*span.events, *(SpanEvent(str(each.get("event.name")), each) for each in bodies)]
    for event in events:
        yield from _from_event(event)


def _from_event(event: SpanEvent) -> Iterator[tuple[str, Any]]:
    body = messages.decode_json(event.attributes.get("gen_ai.event.content"))
    facts = {**event.attributes, **(body if isinstance(body, dict) else {})}
    match event.name:
        case "gen_ai.content.prompt":
            yield from (
                ("in", message) for message in messages.decode_messages(facts.get("gen_ai.prompt"))
            )
        case "gen_ai.content.completion":
            completion = facts.get("gen_ai.completion")
            yield from (("out", s) for s in messages.decode_messages(completion, role="assistant"))
        case "gen_ai.choice":
            message = messages.decode_json(
                facts.get("message", body if isinstance(body, str) else None)
            )
            chat = dict(message) if isinstance(message, dict) else dict(facts)
            if isinstance(message, str):
                chat["content"] = message
            chat.setdefault("finish_reason", facts.get("finish_reason"))
            yield from (
                ("out", message) for message in messages.decode_messages([chat], role="assistant")
            )
        case "gen_ai.client.inference.operation.details":
            yield from _from_attributes(facts)
        case name if name in _EVENT_ROLES:
            role = _EVENT_ROLES[name]
            chat = {"role": role, **facts} if body is None or isinstance(body, dict) else {}
            chat = chat or {"role": role, "content": body}
            yield from (("in", message) for message in messages.decode_messages([chat], role=role))


def _usage(span: Span) -> Usage | None:
    """A call's tokens. The conventions count cached tokens as input; we count them apart."""
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
            return int(min(max(value, 0), OVER_LIMIT))
    return 0


def placeholder(content: SpanContent) -> Message:
    """A message that stands for a call whose messages the instrumentation does not send."""
    facts = {
        "type": PLACEHOLDER,
        "name": content.span.name,
        "model": None if content.usage is None else content.usage.model,
    }
    return Message(Role.ASSISTANT, (Unknown(facts),))


def is_placeholder(message: Message) -> bool:
    """Whether a message only stands for a call whose messages are not known."""
    return any(isinstance(p, Unknown) and p.data.get("type") == PLACEHOLDER for p in message.parts)


def event_span(records: Sequence[LogRecord]) -> Span:
    """Make a span whose events are the log records that belong to it."""
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


def is_message_event(record: LogRecord) -> bool:
    """Whether a log record is an event that we read messages from."""
    return record.name in _EVENTS


def mark_origin(message: Message, span: Span, side: str) -> Message:
    """The message, with the span it comes from in its `extra`."""
    origin = {"trace": span.trace_id, "span": span.span_id, "side": side}
    return replace(message, extra={**message.extra, "otel": origin})
