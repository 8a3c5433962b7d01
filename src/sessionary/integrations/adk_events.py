"""Between the events of Google's Agent Development Kit and our messages."""

from datetime import UTC, datetime
from typing import Any

from sessionary.integrations.extra import wanted
from sessionary.integrations.files import Files
from sessionary.model.message import (
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from sessionary.model.usage import Usage

with wanted("google-adk", "The storage for Google's Agent Development Kit"):
    from google.adk.events.event import Event
    from google.adk.sessions.state import State

NATIVE = "google-adk"


def stored_text(event: Event) -> str:
    """The event as it is kept: what is only meant for the running invocation is left out."""
    kept = event
    if event.actions and any(
        name.startswith(State.TEMP_PREFIX) for name in event.actions.state_delta
    ):
        delta = lasting(event.actions.state_delta)
        actions = event.actions.model_copy(update={"state_delta": delta})
        kept = event.model_copy(update={"actions": actions})
    text: str = kept.model_dump_json(exclude_none=True)
    return text


def lasting(delta: dict[str, Any]) -> dict[str, Any]:
    """The changes of state that outlive an invocation."""
    return {name: value for name, value in delta.items() if not name.startswith(State.TEMP_PREFIX)}


def message_of(event: Event, text: str, files: Files) -> Message:
    """An event as a message that people read, with the event itself beside it."""
    parts = tuple(_part(part, files) for part in (event.content and event.content.parts) or ())
    if event.error_message or event.error_code:
        parts += (Text(str(event.error_message or event.error_code)),)
    if not parts:
        delta = event.actions.state_delta if event.actions else {}
        parts = (Unknown({"type": "google-adk:actions", "state": sorted(lasting(delta))}),)
    return Message(
        _role(event, parts),
        parts,
        model=event.model_version,
        finish_reason=None if event.finish_reason is None else event.finish_reason.value,
        extra={NATIVE: text},
    )


def event_of(said: Message) -> Event | None:
    """The event that a message is; None when it came another way."""
    text = said.extra.get(NATIVE)
    return Event.model_validate_json(text) if isinstance(text, str) else None


def at(event: Event) -> datetime:
    """When an event happened."""
    return datetime.fromtimestamp(event.timestamp, UTC)


def usage_of(event: Event) -> Usage | None:
    """The model call that an event is the answer of, in our way of counting."""
    used = event.usage_metadata
    if used is None:
        return None
    cached, thoughts = used.cached_content_token_count or 0, used.thoughts_token_count or 0
    prompt = (used.prompt_token_count or 0) + (used.tool_use_prompt_token_count or 0)
    return Usage(
        model=event.model_version,
        input_tokens=max(0, prompt - cached),
        output_tokens=(used.candidates_token_count or 0) + thoughts,
        cache_read_tokens=cached,
        reasoning_tokens=thoughts,
        call_id=f"{NATIVE}/{event.id}",
        at=at(event),
    )


def _role(event: Event, parts: tuple[Part, ...]) -> Role:
    if any(isinstance(part, ToolResult) for part in parts):
        return Role.TOOL
    if event.content is None:
        return Role.SYSTEM
    return Role.USER if event.author == "user" else Role.ASSISTANT


def _part(part: Any, files: Files) -> Part:
    if part.function_call is not None:
        call = part.function_call
        return ToolCall(call.id or call.name or "", call.name or "", call.args)
    if part.function_response is not None:
        answer = part.function_response
        return ToolResult(answer.id or answer.name or "", answer.response, answer.name)
    if part.text is not None:
        return Reasoning(part.text) if part.thought else Text(part.text)
    if part.inline_data is not None and part.inline_data.data:
        held = part.inline_data
        return files.add(held.data, held.mime_type, held.display_name)
    kinds = [name for name, value in part if value is not None]
    return Unknown({"type": f"google-adk:{kinds[0] if kinds else 'part'}"})
