"""Between the messages of pydantic-ai and ours."""

from collections.abc import Iterator, Sequence
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

with wanted("pydantic-ai", "The storage for pydantic-ai"):
    from pydantic_ai.conversation_store import ConversationEntry
    from pydantic_ai.messages import (
        BinaryContent,
        ModelMessage,
        ModelMessagesTypeAdapter,
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

NATIVE = "pydantic-ai"


def message_of(entry: ConversationEntry, files: Files) -> Message:
    """An entry as a message that people read, with the entry itself beside it."""
    native = {
        "id": entry.id,
        "parent_id": entry.parent_id,
        "message": ModelMessagesTypeAdapter.dump_json([entry.message]).decode(),
    }
    said = entry.message
    if isinstance(said, ModelRequest):
        role, parts = _request(said, files)
        return Message(role, parts, extra={NATIVE: native})
    return Message(
        Role.ASSISTANT,
        tuple(_answered(part) for part in said.parts),
        model=said.model_name,
        finish_reason=said.finish_reason,
        extra={NATIVE: native},
    )


def id_of(said: Message) -> str | None:
    """The name of the entry that a message is; None when it came another way."""
    native = said.extra.get(NATIVE)
    found = native.get("id") if isinstance(native, dict) else None
    return found if isinstance(found, str) else None


def entry_of(said: Message) -> ConversationEntry:
    """The entry that a message is."""
    native: Any = said.extra[NATIVE]
    messages: Sequence[ModelMessage] = ModelMessagesTypeAdapter.validate_json(native["message"])
    return ConversationEntry(id=native["id"], parent_id=native["parent_id"], message=messages[0])


def usage_of(entry: ConversationEntry) -> Usage | None:
    """The model call that an entry is the answer of, in our way of counting."""
    said = entry.message
    if not isinstance(said, ModelResponse):
        return None
    used = said.usage
    cached = used.cache_read_tokens + used.cache_write_tokens
    return Usage(
        model=said.model_name,
        input_tokens=max(0, used.input_tokens - cached),
        output_tokens=used.output_tokens,
        cache_read_tokens=used.cache_read_tokens,
        cache_write_tokens=used.cache_write_tokens,
        cache_write_1h_tokens=min(used.cache_write_1h_tokens, used.cache_write_tokens),
        reasoning_tokens=used.details.get("reasoning_tokens", 0),
        base_url=said.provider_url,
        call_id=f"{NATIVE}/{entry.id}",
        at=said.timestamp,
    )


def _request(said: ModelRequest, files: Files) -> tuple[Role, tuple[Part, ...]]:
    parts: list[Part] = []
    roles = {Role.SYSTEM}
    for part in said.parts:
        match part:
            case UserPromptPart():
                roles.add(Role.USER)
                parts.extend(_asked(part.content, files))
            case ToolReturnPart():
                roles.add(Role.TOOL)
                parts.append(_returned(part))
            case SystemPromptPart():
                parts.append(Unknown({"type": "pydantic-ai:system", "content": part.content}))
            case _:
                content = getattr(part, "content", None)
                shown = {"content": content} if isinstance(content, str) else {}
                parts.append(Unknown({"type": f"pydantic-ai:{part.part_kind}", **shown}))
    role = next(each for each in (Role.USER, Role.TOOL, Role.SYSTEM) if each in roles)
    return role, tuple(parts)


def _returned(part: ToolReturnPart) -> ToolResult:
    is_error = part.outcome in ("failed", "retried")
    return ToolResult(
        part.tool_call_id, part.model_response_str(), part.tool_name, is_error=is_error
    )


def _asked(content: Any, files: Files) -> Iterator[Part]:
    if isinstance(content, str):
        yield Text(content)
        return
    for piece in content:
        if isinstance(piece, str):
            yield Text(piece)
        elif isinstance(piece, BinaryContent):
            yield files.add(piece.data, piece.media_type)
        else:
            yield Unknown(_file(piece))


def _file(piece: Any) -> dict[str, Any]:
    """What is known of a file without its bytes; they are in the entry itself."""
    kind = getattr(piece, "kind", type(piece).__name__)
    facts = {name: getattr(piece, name, None) for name in ("url", "identifier")}
    known = {name: value for name, value in facts.items() if isinstance(value, str)}
    return {"type": f"pydantic-ai:{kind}", **known}


def _answered(part: Any) -> Part:
    match part:
        case TextPart():
            return Text(part.content)
        case ThinkingPart():
            return Reasoning(part.content)
        case ToolCallPart():
            return ToolCall(part.tool_call_id, part.tool_name, part.args)
    return Unknown({"type": f"pydantic-ai:{part.part_kind}"})
