"""For Open WebUI: a file that its import takes, each turn of the agent one message."""

import html
from collections.abc import Iterator
from itertools import pairwise
from shlex import quote
from typing import Any

from sessionary.model import codec
from sessionary.model.handover.openai import call_arguments
from sessionary.model.handover.passage import (
    HandoverExcerpt,
    HandoverLine,
    data_url,
    mention,
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
UNTITLED = "Imported chat"


def pieces(passage: HandoverExcerpt) -> Iterator[str]:
    """The file."""
    yield codec.encode({"chats": [chat(passage)]}) + "\n"


def advice(passage: HandoverExcerpt, file: str) -> str:
    """How to go on there."""
    title = passage.title or UNTITLED
    return (
        f"It becomes {title!r} there with: "
        "curl -X POST -H 'Authorization: Bearer KEY' -H 'Content-Type: application/json' "
        f"--data @{quote(file)} http://YOUR-OPEN-WEBUI/api/v1/chats/import"
    )


def chat(passage: HandoverExcerpt) -> Json:
    """One chat, its messages as a list and as a tree."""
    said = _said(passage)
    began = int(passage.began_at.timestamp())
    updated = said[-1]["timestamp"] if said else began
    model = passage.model or "unknown"
    return {
        "chat": {
            "title": passage.title or UNTITLED,
            "models": [model],
            "params": {},
            "files": [],
            "tags": [],
            "timestamp": began * 1000,
            "messages": said,
            "history": {
                "messages": {each["id"]: each for each in said},
                "currentId": said[-1]["id"] if said else None,
            },
        },
        "meta": {},
        "pinned": False,
        "created_at": began,
        "updated_at": updated,
    }


def _said(passage: HandoverExcerpt) -> list[Json]:
    made: list[Json] = []
    if passage.preface is not None:
        first = HandoverLine(0, passage.began_at, Message(Role.USER, (Text(passage.preface),)))
        made.append(_message(passage, [first], Role.USER, None))
    for group in _turns(passage.lines):
        parent = made[-1]["id"] if made else None
        made.append(_message(passage, group, group[0].said.role, parent))
    for before, after in pairwise(made):
        before["childrenIds"] = [after["id"]]
    return made


def _turns(lines: tuple[HandoverLine, ...]) -> Iterator[list[HandoverLine]]:
    """What the agent did in one go is one message there."""
    group: list[HandoverLine] = []
    for line in lines:
        goes_on = group and line.said.role is not Role.USER and group[0].said.role is not Role.USER
        if group and not goes_on:
            yield group
            group = []
        group.append(line)
    if group:
        yield group


def _message(
    passage: HandoverExcerpt, group: list[HandoverLine], role: Role, parent: str | None
) -> Json:
    is_user = role is Role.USER
    model = group[0].said.model or passage.model or "unknown"
    made: Json = {
        "id": passage.line_uuid(group[0].seq, "user" if is_user else "assistant"),
        "parentId": parent,
        "childrenIds": [],
        "role": "user" if is_user else "assistant",
        "content": _content(group),
        "timestamp": int(group[0].at.timestamp()),
    }
    pictures = [url for line in group for url in _pictures(passage, line.said)]
    if pictures:
        made["files"] = [{"type": "image", "url": url} for url in pictures]
    return made | ({"models": [model]} if is_user else {"model": model, "done": True})


def _content(group: list[HandoverLine]) -> str:
    """Words, thoughts and tools in order; thoughts and tools as Open WebUI folds them."""
    results = {
        part.call_id: part
        for line in group
        for part in line.said.parts
        if isinstance(part, ToolResult)
    }
    told: list[str] = []
    for line in group:
        for part in line.said.parts:
            match part:
                case Text():
                    told.append(part.text)
                case Reasoning() if part.text:
                    told.append(_details("reasoning", "Thought", html.escape(part.text)))
                case ToolCall():
                    told.append(_tool(part, results.get(part.id)))
                case Attachment() if not part.media_type.startswith("image/"):
                    told.append(mention(part).text)
    return "\n\n".join(each for each in told if each)


def _tool(call: ToolCall, result: ToolResult | None) -> str:
    facts = {
        "id": call.id,
        "name": call.name,
        "arguments": codec.encode(call_arguments(call)),
        "result": "" if result is None else codec.encode(words_of(result)),
    }
    return _details("tool_calls", "Tool Executed", "", **facts)


def _details(kind: str, summary: str, inside: str, **facts: str) -> str:
    told = "".join(f' {name}="{html.escape(value)}"' for name, value in facts.items())
    body = f"\n{inside}" if inside else ""
    return (
        f'<details type="{kind}" done="true"{told}>\n<summary>{summary}</summary>{body}\n</details>'
    )


def _pictures(passage: HandoverExcerpt, said: Message) -> Iterator[str]:
    for part in said.parts:
        if isinstance(part, Attachment) and part.media_type.startswith("image/"):
            url = data_url(passage, part)
            if url is not None:
                yield url
