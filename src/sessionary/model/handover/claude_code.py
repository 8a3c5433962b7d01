"""For Claude Code: a session file of its own format, to be continued with `claude --resume`."""

import base64
import re
from collections.abc import Iterator
from shlex import quote
from typing import Any

from sessionary.model import codec
from sessionary.model.handover.excerpt import (
    HandoverExcerpt,
    HandoverLine,
    arguments_of,
    mention,
    result_text,
    stamp,
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


def pieces(excerpt: HandoverExcerpt) -> Iterator[str]:
    """The file, a line at a time."""
    for line in lines(excerpt):
        yield codec.encode(line) + "\n"


def advice(excerpt: HandoverExcerpt, file: str) -> str:
    """How to continue in that tool."""
    path = excerpt.path or "/the/project"
    folder = _NOT_IN_FOLDERS.sub("-", path)
    return (
        f"Put {quote(file)} at ~/.claude/projects/{folder}/{excerpt.uuid}.jsonl, "
        f"then: cd {quote(path)} && claude --resume {excerpt.uuid}"
    )


def lines(excerpt: HandoverExcerpt) -> Iterator[Json]:
    """The lines as dictionaries: each names the one it follows."""
    parent: str | None = None
    if excerpt.preface is not None:
        for made in _summary(excerpt, excerpt.preface):
            yield made
            parent = made["uuid"]
    for line in excerpt.lines:
        content = _blocks(excerpt, line.message)
        if not content:
            continue
        made = _envelope(excerpt, line, parent) | _message(excerpt, line, content)
        yield made
        parent = made["uuid"]
    if excerpt.title is not None:
        yield {
            "type": "custom-title",
            "customTitle": excerpt.title,
            "sessionId": excerpt.uuid,
        }


def _envelope(excerpt: HandoverExcerpt, line: HandoverLine, parent: str | None) -> Json:
    made: Json = {
        "parentUuid": parent,
        "isSidechain": False,
        "userType": "external",
        "cwd": excerpt.path or "/",
        "sessionId": excerpt.uuid,
        "version": VERSION,
        "uuid": excerpt.line_uuid(line.seq, str(line.message.role)),
        "timestamp": stamp(line.at),
    }
    return made | ({"gitBranch": excerpt.branch} if excerpt.branch else {})


def _message(excerpt: HandoverExcerpt, line: HandoverLine, content: list[Json]) -> Json:
    if line.message.role is not Role.ASSISTANT:
        is_text = len(content) == 1 and content[0]["type"] == "text"
        plain = content[0]["text"] if is_text else content
        return {"type": "user", "message": {"role": "user", "content": plain}}
    asks = any(block["type"] == "tool_use" for block in content)
    message = {
        "id": f"msg_{excerpt.line_uuid(line.seq, 'message').replace('-', '')}",
        "type": "message",
        "role": "assistant",
        "model": line.message.model or excerpt.model or _OTHER,
        "content": content,
        "stop_reason": "tool_use" if asks else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }
    return {"type": "assistant", "message": message}


def _summary(excerpt: HandoverExcerpt, text: str) -> Iterator[Json]:
    """What came before, as Claude Code writes it when it has compacted a conversation."""
    at = excerpt.lines[0].at if excerpt.lines else excerpt.began_at
    line = HandoverLine(0, at, Message(Role.SYSTEM, ()))
    boundary = _envelope(excerpt, line, None) | {
        "type": "system",
        "subtype": "compact_boundary",
        "content": "Conversation compacted",
        "compactMetadata": {"trigger": "manual", "preTokens": 0},
        "level": "info",
    }
    yield boundary
    summary = _envelope(excerpt, HandoverLine(0, at, Message(Role.USER, ())), boundary["uuid"])
    message = {"role": "user", "content": text}
    yield summary | {"type": "user", "message": message, "isCompactSummary": True}


def _blocks(excerpt: HandoverExcerpt, message: Message) -> list[Json]:
    made: list[Json] = []
    for part in message.parts:
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
                made.append(_file(excerpt, part))
    return [block for block in made if block.get("text") != ""]


def _thought(part: Reasoning) -> list[Json]:
    """Claude Code accepts reasoning only with the signature that its provider gave it."""
    details = part.details if isinstance(part.details, dict) else {}
    signature = details.get("signature")
    if not isinstance(signature, str):
        return []
    return [{"type": "thinking", "thinking": part.text, "signature": signature}]


def _result(part: ToolResult) -> Json:
    made: Json = {
        "type": "tool_result",
        "tool_use_id": _plain(part.call_id),
        "content": result_text(part),
    }
    return made | ({"is_error": True} if part.is_error else {})


def _file(excerpt: HandoverExcerpt, part: Attachment) -> Json:
    data = excerpt.blob_of(part.blob)
    if data is None or part.media_type not in (*_PICTURES, "application/pdf"):
        return {"type": "text", "text": mention(part).text}
    text = base64.b64encode(data).decode()
    source = {"type": "base64", "media_type": part.media_type, "data": text}
    return {"type": "image" if part.media_type in _PICTURES else "document", "source": source}


def _plain(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name) or "_"
