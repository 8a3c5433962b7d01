"""For Open WebUI: a file that its import takes, each turn of the agent one message."""

import html
from collections.abc import Iterator
from itertools import pairwise
from shlex import quote
from typing import Any

from sessionary.model import codec
from sessionary.model.handover.excerpt import (
    HandoverExcerpt,
    HandoverLine,
    data_url,
    mention,
    result_text,
)
from sessionary.model.handover.openai import call_arguments
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
UNTITLED = "Imported chat"


def pieces(excerpt: HandoverExcerpt) -> Iterator[str]:
    """The file."""
    yield codec.encode({"chats": [chat(excerpt)]}) + "\n"


def advice(excerpt: HandoverExcerpt, file: str) -> str:
    """How to continue in that tool."""
    title = excerpt.title or UNTITLED
    return (
        f"It becomes {title!r} there with: "
        "curl -X POST -H 'Authorization: Bearer KEY' -H 'Content-Type: application/json' "
        f"--data @{quote(file)} http://YOUR-OPEN-WEBUI/api/v1/chats/import"
    )


def chat(excerpt: HandoverExcerpt) -> Json:
    """One chat, its messages as a list and as a tree."""
    messages = _messages(excerpt)
    began = int(excerpt.began_at.timestamp())
    updated = messages[-1]["timestamp"] if messages else began
    model = excerpt.model or "unknown"
    return {
        "chat": {
            "title": excerpt.title or UNTITLED,
            "models": [model],
            "params": {},
            "files": [],
            "tags": [],
            "timestamp": began * 1000,
            "messages": messages,
            "history": {
                "messages": {each["id"]: each for each in messages},
                "currentId": messages[-1]["id"] if messages else None,
            },
        },
        "meta": {},
        "pinned": False,
        "created_at": began,
        "updated_at": updated,
    }


def _messages(excerpt: HandoverExcerpt) -> list[Json]:
    made: list[Json] = []
    if excerpt.preface is not None:
        first = HandoverLine(0, excerpt.began_at, Message(Role.USER, (Text(excerpt.preface),)))
        made.append(_message(excerpt, [first], Role.USER, None))
    for group in _turns(excerpt.lines):
        parent = made[-1]["id"] if made else None
        made.append(_message(excerpt, group, group[0].message.role, parent))
    for before, after in pairwise(made):
        before["childrenIds"] = [after["id"]]
    return made


def _turns(lines: tuple[HandoverLine, ...]) -> Iterator[list[HandoverLine]]:
    """Group the lines: all that the agent did in one turn is one message there."""
    group: list[HandoverLine] = []
    for line in lines:
        goes_on = (
            group and line.message.role is not Role.USER and group[0].message.role is not Role.USER
        )
        if group and not goes_on:
            yield group
            group = []
        group.append(line)
    if group:
        yield group


def _message(
    excerpt: HandoverExcerpt, group: list[HandoverLine], role: Role, parent: str | None
) -> Json:
    is_user = role is Role.USER
    model = group[0].message.model or excerpt.model or "unknown"
    made: Json = {
        "id": excerpt.line_uuid(group[0].seq, "user" if is_user else "assistant"),
        "parentId": parent,
        "childrenIds": [],
        "role": "user" if is_user else "assistant",
        "content": _content(group),
        "timestamp": int(group[0].at.timestamp()),
    }
    pictures = [url for line in group for url in _pictures(excerpt, line.message)]
    if pictures:
        made["files"] = [{"type": "image", "url": url} for url in pictures]
    return made | ({"models": [model]} if is_user else {"model": model, "done": True})


def _content(group: list[HandoverLine]) -> str:
    """Text, reasoning and tool calls in order, the latter two in the markup that Open WebUI folds."""
    results = {
        part.call_id: part
        for line in group
        for part in line.message.parts
        if isinstance(part, ToolResult)
    }
    texts: list[str] = []
    for line in group:
        for part in line.message.parts:
            match part:
                case Text():
                    texts.append(part.text)
                case Reasoning() if part.text:
                    texts.append(_details("reasoning", "Thought", html.escape(part.text)))
                case ToolCall():
                    texts.append(_tool(part, results.get(part.id)))
                case Attachment() if not part.media_type.startswith("image/"):
                    texts.append(mention(part).text)
    return "\n\n".join(each for each in texts if each)


def _tool(call: ToolCall, result: ToolResult | None) -> str:
    facts = {
        "id": call.id,
        "name": call.name,
        "arguments": codec.encode(call_arguments(call)),
        "result": "" if result is None else codec.encode(result_text(result)),
    }
    return _details("tool_calls", "Tool Executed", "", **facts)


def _details(kind: str, summary: str, inside: str, **facts: str) -> str:
    attributes = "".join(f' {name}="{html.escape(value)}"' for name, value in facts.items())
    body = f"\n{inside}" if inside else ""
    return f'<details type="{kind}" done="true"{attributes}>\n<summary>{summary}</summary>{body}\n</details>'


def _pictures(excerpt: HandoverExcerpt, message: Message) -> Iterator[str]:
    for part in message.parts:
        if isinstance(part, Attachment) and part.media_type.startswith("image/"):
            url = data_url(excerpt, part)
            if url is not None:
                yield url
