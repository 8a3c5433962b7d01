"""For Claude Code: a session file of its own format, to be continued with `claude --resume`."""

import base64
import re
from collections.abc import Iterator
from shlex import quote
from typing import Any

from sessionary.model import codec
from sessionary.model.handover.passage import (
    HandoverExcerpt,
    HandoverLine,
    arguments_of,
    mention,
    stamp,
    words_of,
)
from sessionary.model.message import (
    Attachment,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)

Json = dict[str, Any]
VERSION = "2.0.0"
_OTHER = "<synthetic>"
_NOT_IN_FOLDERS = re.compile(r"[^A-Za-z0-9-]")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_LONGEST_NAME = 128


def pieces(passage: HandoverExcerpt) -> Iterator[str]:
    """The file, a line at a time."""
    for line in lines(passage):
        yield codec.encode(line) + "\n"


def advice(passage: HandoverExcerpt, file: str) -> str:
    """How to go on there."""
    path = passage.path or "/the/project"
    folder = _NOT_IN_FOLDERS.sub("-", path)
    return (
        f"Put {quote(file)} at ~/.claude/projects/{folder}/{passage.uuid}.jsonl, "
        f"then: cd {quote(path)} && claude --resume {passage.uuid}"
    )


def lines(passage: HandoverExcerpt) -> Iterator[Json]:
    """The lines as dictionaries: each names the one it follows."""
    parent: str | None = None
    if passage.preface is not None:
        for made in _summary(passage, passage.preface):
            yield made
            parent = made["uuid"]
    for line in passage.lines:
        content = _blocks(passage, line.said)
        if not content:
            continue
        made = _envelope(passage, line, parent) | _message(passage, line, content)
        yield made
        parent = made["uuid"]
    if passage.title is not None:
        yield {
            "type": "custom-title",
            "customTitle": passage.title,
            "sessionId": passage.uuid,
        }


def _envelope(passage: HandoverExcerpt, line: HandoverLine, parent: str | None) -> Json:
    made: Json = {
        "parentUuid": parent,
        "isSidechain": False,
        "userType": "external",
        "cwd": passage.path or "/",
        "sessionId": passage.uuid,
        "version": VERSION,
        "uuid": passage.line_uuid(line.seq, str(line.said.role)),
        "timestamp": stamp(line.at),
    }
    return made | ({"gitBranch": passage.branch} if passage.branch else {})


def _message(passage: HandoverExcerpt, line: HandoverLine, content: list[Json]) -> Json:
    if line.said.role is not Role.ASSISTANT:
        is_text = len(content) == 1 and content[0]["type"] == "text"
        told = content[0]["text"] if is_text else content
        return {"type": "user", "message": {"role": "user", "content": told}}
    asks = any(block["type"] == "tool_use" for block in content)
    message = {
        "id": f"msg_{passage.line_uuid(line.seq, 'message').replace('-', '')}",
        "type": "message",
        "role": "assistant",
        "model": line.said.model or passage.model or _OTHER,
        "content": content,
        "stop_reason": "tool_use" if asks else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }
    return {"type": "assistant", "message": message}


def _summary(passage: HandoverExcerpt, words: str) -> Iterator[Json]:
    """What came before, as Claude Code writes it when it has compacted a conversation."""
    at = passage.lines[0].at if passage.lines else passage.began_at
    line = HandoverLine(0, at, Message(Role.SYSTEM, ()))
    boundary = _envelope(passage, line, None) | {
        "type": "system",
        "subtype": "compact_boundary",
        "content": "Conversation compacted",
        "compactMetadata": {"trigger": "manual", "preTokens": 0},
        "level": "info",
    }
    yield boundary
    told = _envelope(passage, HandoverLine(0, at, Message(Role.USER, ())), boundary["uuid"])
    message = {"role": "user", "content": words}
    yield told | {"type": "user", "message": message, "isCompactSummary": True}


def _blocks(passage: HandoverExcerpt, said: Message) -> list[Json]:
    made: list[Json] = []
    for part in said.parts:
        match part:
            case Text():
                made.append({"type": "text", "text": part.text})
            case Reasoning():
                made += _thought(part)
            case ToolCall():
                made.append(
                    {
                        "type": "tool_use",
                        "id": _plain(part.id),
                        "name": _plain(part.name)[:_LONGEST_NAME],
                        "input": arguments_of(part),
                    }
                )
            case ToolResult():
                made.append(_result(part))
            case Attachment():
                made.append(_file(passage, part))
    return [block for block in made if block.get("text") != ""]


def _thought(part: Reasoning) -> list[Json]:
    """A thought is only taken with the signature that its provider gave it."""
    details = part.details if isinstance(part.details, dict) else {}
    signature = details.get("signature")
    if not isinstance(signature, str):
        return []
    return [{"type": "thinking", "thinking": part.text, "signature": signature}]


def _result(part: ToolResult) -> Json:
    made: Json = {
        "type": "tool_result",
        "tool_use_id": _plain(part.call_id),
        "content": words_of(part),
    }
    return made | ({"is_error": True} if part.is_error else {})


def _file(passage: HandoverExcerpt, part: Attachment) -> Json:
    data = passage.blob_of(part.blob)
    if data is None or part.media_type not in (*_PICTURES, "application/pdf"):
        return {"type": "text", "text": mention(part).text}
    text = base64.b64encode(data).decode()
    source = {"type": "base64", "media_type": part.media_type, "data": text}
    return {"type": "image" if part.media_type in _PICTURES else "document", "source": source}


def _plain(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name) or "_"
