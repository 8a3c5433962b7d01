"""For Codex: a rollout file, to be continued with `codex resume`."""

from collections.abc import Iterator
from datetime import datetime
from shlex import quote
from typing import Any

from sessionary.model import codec
from sessionary.model.handover.openai import call_arguments
from sessionary.model.handover.passage import (
    HandoverExcerpt,
    HandoverLine,
    data_url,
    mention,
    stamp,
    words_of,
)
from sessionary.model.message import Attachment, Message, Role, Text, ToolCall, ToolResult

Json = dict[str, Any]
VERSION = "0.1.0"


def pieces(passage: HandoverExcerpt) -> Iterator[str]:
    """The file, a line at a time."""
    for line in lines(passage):
        yield codec.encode(line) + "\n"


def advice(passage: HandoverExcerpt, file: str) -> str:
    """How to go on there."""
    day = passage.began_at.strftime("%Y/%m/%d")
    time = passage.began_at.strftime("%Y-%m-%dT%H-%M-%S")
    name = f"rollout-{time}-{passage.uuid}.jsonl"
    return f"Put {quote(file)} at ~/.codex/sessions/{day}/{name}, then: codex resume {passage.uuid}"


def lines(passage: HandoverExcerpt) -> Iterator[Json]:
    """The lines as dictionaries."""
    yield _line(passage.began_at, "session_meta", _meta(passage))
    if passage.preface is not None:
        at = passage.lines[0].at if passage.lines else passage.began_at
        yield _line(at, "compacted", {"message": passage.preface})
    for line in passage.lines:
        yield from _said(passage, line)


def _meta(passage: HandoverExcerpt) -> Json:
    made: Json = {
        "id": passage.uuid,
        "timestamp": stamp(passage.began_at),
        "cwd": passage.path or "/",
        "originator": "codex_cli_rs",
        "cli_version": VERSION,
        "source": "cli",
    }
    return made | ({"git": {"branch": passage.branch}} if passage.branch else {})


def _said(passage: HandoverExcerpt, line: HandoverLine) -> Iterator[Json]:
    """A message as the model reads it, and as people see it there."""
    said = line.said
    if said.role is Role.TOOL:
        for part in said.parts:
            if isinstance(part, ToolResult):
                output = {"type": "function_call_output", "call_id": part.call_id}
                yield _line(line.at, "response_item", output | {"output": words_of(part)})
        return
    content = _content(passage, said)
    if content:
        item = {"type": "message", "role": str(said.role), "content": content}
        yield _line(line.at, "response_item", item)
        shown = "user_message" if said.role is Role.USER else "agent_message"
        yield _line(line.at, "event_msg", {"type": shown, "message": said.text})
    for part in said.parts:
        if isinstance(part, ToolCall):
            call = {"type": "function_call", "name": part.name, "call_id": part.id}
            yield _line(line.at, "response_item", call | {"arguments": call_arguments(part)})


def _content(passage: HandoverExcerpt, said: Message) -> list[Json]:
    kind = "output_text" if said.role is Role.ASSISTANT else "input_text"
    made: list[Json] = []
    for part in said.parts:
        if isinstance(part, Text) and part.text:
            made.append({"type": kind, "text": part.text})
        elif isinstance(part, Attachment):
            is_picture = part.media_type.startswith("image/") and said.role is Role.USER
            url = data_url(passage, part) if is_picture else None
            if url is None:
                made.append({"type": kind, "text": mention(part).text})
            else:
                made.append({"type": "input_image", "image_url": url})
    return made


def _line(at: datetime, kind: str, payload: Json) -> Json:
    return {"timestamp": stamp(at), "type": kind, "payload": payload}
