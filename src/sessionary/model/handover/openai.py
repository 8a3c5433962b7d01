"""For any client of the Chat Completions interface: a list of messages."""

from collections.abc import Iterator
from shlex import quote
from typing import Any

from sessionary.model import codec
from sessionary.model.handover.excerpt import (
    HandoverExcerpt,
    arguments_of,
    data_url,
    mention,
    result_text,
)
from sessionary.model.message import Attachment, Message, Role, Text, ToolCall, ToolResult

Json = dict[str, Any]


def pieces(excerpt: HandoverExcerpt) -> Iterator[str]:
    """The list, a message at a time."""
    for number, each in enumerate(messages(excerpt)):
        yield ("[\n" if number == 0 else ",\n") + codec.encode(each)
    yield "\n]\n" if excerpt.lines or excerpt.preface else "[]\n"


def advice(excerpt: HandoverExcerpt, file: str) -> str:
    """How to continue in that tool."""
    count = sum(1 for _ in messages(excerpt))
    return f"{quote(file)} is a list of {count:,} messages: send it as `messages`."


def messages(excerpt: HandoverExcerpt) -> Iterator[Json]:
    """The messages as dictionaries, the summary of what came before first."""
    if excerpt.preface is not None:
        yield {"role": "user", "content": excerpt.preface}
    for line in excerpt.lines:
        yield from message_json(excerpt, line.message)


def message_json(excerpt: HandoverExcerpt, message: Message) -> Iterator[Json]:
    """One message as dictionaries, one for each result of a tool."""
    if message.role is Role.TOOL:
        yield from _results(message)
        return
    content = _content(excerpt, message)
    calls = [_call(part) for part in message.parts if isinstance(part, ToolCall)]
    made: Json = {"role": str(message.role), "content": content or (None if calls else "")}
    if calls:
        made["tool_calls"] = calls
    if content or calls:
        yield made


def call_arguments(part: ToolCall) -> str:
    """What a tool was called with, as the text of an object: providers refuse anything else."""
    return codec.encode(arguments_of(part))


def _call(part: ToolCall) -> Json:
    function = {"name": part.name, "arguments": call_arguments(part)}
    return {"id": part.id, "type": "function", "function": function}


def _results(message: Message) -> Iterator[Json]:
    for part in message.parts:
        if isinstance(part, ToolResult):
            yield {"role": "tool", "tool_call_id": part.call_id, "content": result_text(part)}


def _content(excerpt: HandoverExcerpt, message: Message) -> str | list[Json]:
    """A text; a list of parts where a person showed a picture."""
    pictures = [p for p in message.parts if isinstance(p, Attachment)]
    if message.role is not Role.USER or not pictures:
        return "\n".join([message.text, *(mention(each).text for each in pictures)]).strip("\n")
    made: list[Json] = [
        {"type": "text", "text": part.text} for part in message.parts if isinstance(part, Text)
    ]
    for each in pictures:
        url = data_url(excerpt, each) if each.media_type.startswith("image/") else None
        if url is None:
            made.append({"type": "text", "text": mention(each).text})
        else:
            made.append({"type": "image_url", "image_url": {"url": url}})
    return made
