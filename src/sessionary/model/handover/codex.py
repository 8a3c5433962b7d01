"""For Codex: a rollout file, to be continued with `codex resume`."""

from collections.abc import Iterator
from datetime import datetime
from shlex import quote
from typing import Any

from sessionary.model import codec
from sessionary.model.handover.excerpt import (
    HandoverExcerpt,
    HandoverLine,
    data_url,
    mention,
    result_text,
    stamp,
)
from sessionary.model.handover.openai import call_arguments
from sessionary.model.message import Attachment, Message, Role, Text, ToolCall, ToolResult

Json = dict[str, Any]
VERSION = "0.1.0"


def pieces(excerpt: HandoverExcerpt) -> Iterator[str]:
    """The file, a line at a time."""
    for line in lines(excerpt):
        yield codec.encode(line) + "\n"


def advice(excerpt: HandoverExcerpt, file: str) -> str:
    """How to continue in that tool."""
    day = excerpt.began_at.strftime("%Y/%m/%d")
    time = excerpt.began_at.strftime("%Y-%m-%dT%H-%M-%S")
    name = f"rollout-{time}-{excerpt.uuid}.jsonl"
    return f"Put {quote(file)} at ~/.codex/sessions/{day}/{name}, then: codex resume {excerpt.uuid}"


def lines(excerpt: HandoverExcerpt) -> Iterator[Json]:
    """The lines as dictionaries."""
    yield _line(excerpt.began_at, "session_meta", _meta(excerpt))
    if excerpt.preface is not None:
        at = excerpt.lines[0].at if excerpt.lines else excerpt.began_at
        yield _line(at, "compacted", {"message": excerpt.preface})
    for line in excerpt.lines:
        yield from _message_lines(excerpt, line)


def _meta(excerpt: HandoverExcerpt) -> Json:
    made: Json = {
        "id": excerpt.uuid,
        "timestamp": stamp(excerpt.began_at),
        "cwd": excerpt.path or "/",
        "originator": "codex_cli_rs",
        "cli_version": VERSION,
        "source": "cli",
    }
    return made | ({"git": {"branch": excerpt.branch}} if excerpt.branch else {})


def _message_lines(excerpt: HandoverExcerpt, line: HandoverLine) -> Iterator[Json]:
    """A message as the model reads it, and as people see it there."""
    message = line.message
    if message.role is Role.TOOL:
        for part in message.parts:
            if isinstance(part, ToolResult):
                output = {"type": "function_call_output", "call_id": part.call_id}
                yield _line(line.at, "response_item", output | {"output": result_text(part)})
        return
    content = _content(excerpt, message)
    if content:
        item = {"type": "message", "role": str(message.role), "content": content}
        yield _line(line.at, "response_item", item)
        shown = "user_message" if message.role is Role.USER else "agent_message"
        yield _line(line.at, "event_msg", {"type": shown, "message": message.text})
    for part in message.parts:
        if isinstance(part, ToolCall):
            call = {"type": "function_call", "name": part.name, "call_id": part.id}
            yield _line(line.at, "response_item", call | {"arguments": call_arguments(part)})


def _content(excerpt: HandoverExcerpt, message: Message) -> list[Json]:
    kind = "output_text" if message.role is Role.ASSISTANT else "input_text"
    made: list[Json] = []
    for part in message.parts:
        if isinstance(part, Text) and part.text:
            made.append({"type": kind, "text": part.text})
        elif isinstance(part, Attachment):
            is_picture = part.media_type.startswith("image/") and message.role is Role.USER
            url = data_url(excerpt, part) if is_picture else None
            if url is None:
                made.append({"type": kind, "text": mention(part).text})
            else:
                made.append({"type": "input_image", "image_url": url})
    return made


def _line(at: datetime, kind: str, payload: Json) -> Json:
    return {"timestamp": stamp(at), "type": kind, "payload": payload}
