"""A conversation as Markdown that people read. Pure: values in, text out.

Messages are block quotes, tool output is in fences longer than any inside it: neither can be ended
by its content, so no message can pretend to be another one.
"""

import re
from datetime import datetime
from typing import Any

from sessionary.model import codec
from sessionary.model.message import (
    Attachment,
    Compaction,
    Entry,
    Message,
    Part,
    Reasoning,
    Retraction,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from sessionary.model.session import SessionHead
from sessionary.model.terminal import one_line

# A point or a colon before a letter or a slash could make an address, and so a link.
_SPECIAL = re.compile(r"([\\`*_\[\]<>#&|!~{}]|[.:](?=[^\W\d]|/))")
_LINE_END = re.compile(r"\r\n|\r|\n")
_BACKTICKS = re.compile(r"`+")
_NAME = 200


def render_head(head: SessionHead) -> str:
    """The title and the facts of a session."""
    facts = [f"- {name}: {_escaped(value)}" for name, value in facts_of(head)]
    return "\n".join([f"# {_escaped(title_of(head))}", "", *facts, ""])


def render_entry(entry: Entry) -> str:
    """One entry of a transcript, its heading included."""
    blocks: list[str] = []
    match entry.body:
        case Message() as message:
            blocks = [f"## {_escaped(heading_of(message))} · {format_time(entry.at)}"]
            blocks += [block for part in message.parts if (block := _part(part))]
        case Compaction(summary) as mark:
            blocks = [f"## {mark.heading} · {format_time(entry.at)}"]
            blocks += [_quote(summary)] if summary else []
        case Retraction():
            return ""
    return "\n" + "\n\n".join(blocks) + "\n"


def title_of(head: SessionHead) -> str:
    """What to call a session: its title, else its first words, else its id."""
    return head.shown_title


def heading_of(message: Message) -> str:
    """Who wrote: the role, and the person or the model where it is known."""
    who = message.person.label if message.person is not None else message.model
    return f"{message.role}: {one_line(who, _NAME)}" if who else str(message.role)


def facts_of(head: SessionHead) -> list[tuple[str, str]]:
    """What a reader wants to know of a session, by name."""
    usage = head.usage
    cost = usage.cost_microusd
    facts: list[tuple[str, str | None]] = [
        ("Session", head.id),
        ("From", head.source.description),
        ("Model", head.model),
        ("Project", head.project),
        ("Labels", ", ".join(head.labels)),
        ("Began", format_time(head.began_at)),
        ("Last active", format_time(head.last_active_at)),
        (
            "Ended",
            None if head.ended_at is None else f"{format_time(head.ended_at)}, {head.end_reason}",
        ),
        ("Messages", str(head.message_count)),
        (
            "Tokens",
            f"{usage.input_tokens:,} in, {usage.output_tokens:,} out" if usage.calls else "",
        ),
        ("Cost", None if cost is None else f"${cost / 1_000_000:.4f} ({usage.cost_status})"),
        ("Continues", head.parent_id),
    ]
    return [(name, one_line(value, _NAME)) for name, value in facts if value]


def format_time(at: datetime) -> str:
    """A time for people, always in UTC."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def value_text(value: Any) -> str:
    """A tool's arguments or result: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else codec.encode(value)


def attachment_label(part: Attachment) -> str:
    """What to say of a file instead of showing it."""
    size = "" if part.size is None else f", {part.size:,} bytes"
    name = one_line(part.name or "attachment", _NAME)
    return f"{name} ({one_line(part.media_type, _NAME)}{size}, sha256 {part.blob[:12]})"


def _part(part: Part) -> str:
    match part:
        case Text(text):
            return _quote(text) if text.strip() else ""
        case Reasoning(text):
            return _quote(f"Reasoning\n\n{text}", mark="> > ") if text.strip() else ""
        case ToolCall(name=name, arguments=arguments):
            return f"Tool call {_code(name)}\n\n{_fence(value_text(arguments), 'json')}"
        case ToolResult(content=content, name=name, is_error=is_error):
            what = "Tool error" if is_error else "Tool result"
            return f"{what} {_code(name)}".rstrip() + f"\n\n{_fence(value_text(content))}"
        case Attachment():
            return f"Attachment: {_escaped(attachment_label(part))}"
        case Unknown(data):
            return f"Something else\n\n{_fence(codec.encode(dict(data)), 'json')}"


def _quote(text: str, *, mark: str = "> ") -> str:
    lines = _LINE_END.split(codec.storable_text(text))
    return "\n".join(f"{mark}{line}".rstrip() for line in lines)


def _fence(text: str, language: str = "") -> str:
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{codec.storable_text(text)}\n{fence}"


def _code(name: str | None) -> str:
    if not name:
        return ""
    shown = one_line(name, _NAME).replace("`", "'")
    return f"`{shown}`" if shown else ""


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", one_line(text))
