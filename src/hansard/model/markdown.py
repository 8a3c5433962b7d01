"""A transcript as Markdown: to read, to mail, to put beside code."""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC

from hansard.model.entry import Compaction, Entry, Message
from hansard.model.part import Attachment, Part, Reasoning, Text, ToolCall, ToolResult, Unknown
from hansard.model.session import SessionHead
from hansard.model.terminal import one_line, safe_terminal

_FENCE = "```"


def markdown(head: SessionHead, entries: Iterable[Entry]) -> Iterator[str]:
    """The lines of one session; what would steer a terminal is shown as a sign."""
    yield f"# {_safe(one_line(head.title or head.preview or 'Untitled'))}"
    yield ""
    facts = [head.id, one_line(head.source.description), head.began_at.strftime("%Y-%m-%d")]
    if head.model:
        facts.append(one_line(head.model))
    yield _safe(" · ".join(facts))
    for entry in entries:
        yield ""
        yield from _entry(entry)
    yield ""


def _entry(entry: Entry) -> Iterator[str]:
    at = entry.at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    match entry.body:
        case Message() as said:
            person = f" ({_safe(one_line(said.person.label, 60))})" if said.person else ""
            yield f"## {said.role}{person} · {at} · #{entry.seq}"
            for part in said.parts:
                yield ""
                yield from _part(part)
        case Compaction(summary, through):
            yield f"---\n\n*Summary of 1 to {through}, for the model:*"
            yield ""
            yield from _quoted(summary)
        case _:
            yield "---"


def _part(part: Part) -> Iterator[str]:
    match part:
        case Text(text):
            yield _safe(text)
        case Reasoning(text):
            yield from _quoted(text)
        case ToolCall(name=name, arguments=arguments):
            yield f"**{_safe(one_line(name, 80))}**"
            yield from _fenced(arguments)
        case ToolResult(content=content, is_error=is_error):
            yield "*failed*" if is_error else "*result*"
            yield from _fenced(content)
        case Attachment(blob=blob, media_type=media_type, name=name):
            yield _safe(f"*attachment {one_line(name or blob, 80)}, {one_line(media_type, 80)}*")
        case Unknown(data):
            yield from _fenced(data)


def _quoted(text: str) -> Iterator[str]:
    for line in _safe(text).split("\n"):
        yield f"> {line}".rstrip()


def _fenced(value: object) -> Iterator[str]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    fence = _FENCE
    while fence in text:
        fence += "`"
    yield fence
    yield _safe(text)
    yield fence


def _safe(text: str) -> str:
    """The text without what steers a terminal; its tabs stay, code needs them."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(safe_terminal, line.split("\t"))) for line in lines)
