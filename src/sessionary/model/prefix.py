"""Recognises a conversation by its beginning: clients without a memory send all of it again with each request."""

import hashlib
from collections.abc import Iterable

from sessionary.model import codec
from sessionary.model.message import (
    Attachment,
    Message,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)

# Half of a SHA-256: enough to tell conversations apart, and short, because each reply leaves one.
_DIGEST_LENGTH = 32


def message_digest(message: Message) -> str:
    """A hash of the text, and of tool calls and results by their ids, however they were encoded."""
    text = "\n".join(part.text.strip() for part in message.parts if isinstance(part, Text))
    others = [_part_key(part) for part in message.parts]
    fields = [str(message.role), text, sorted(key for key in others if key)]
    return hashlib.sha256(codec.encode(fields).encode()).hexdigest()


def prefix_digests(messages: Iterable[Message], *, after: str = "") -> list[str]:
    """A hash of the conversation up to each message, continuing from the hash of an earlier prefix.

    System messages leave it unchanged: many clients put the time or the open files into them.
    """
    found: list[str] = []
    for message in messages:
        if message.role is not Role.SYSTEM:
            joined = f"{after} {message_digest(message)}".encode()
            after = hashlib.sha256(joined).hexdigest()[:_DIGEST_LENGTH]
        found.append(after)
    return found


def _part_key(part: object) -> str:
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
