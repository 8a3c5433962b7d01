"""Between the lines of a Claude Code transcript and our messages."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sessionary.formats import anthropic_blocks
from sessionary.formats.parts import Content
from sessionary.integrations.files import Files
from sessionary.integrations.readable import parts_of
from sessionary.model.message import Message, Part, Role, Text, ToolResult, Unknown
from sessionary.model.usage import Usage

Line = Mapping[str, Any]

NATIVE = "claude-agent-sdk"


@dataclass(slots=True)
class Bundle:
    """One message and the lines it stands for: its own, and such that say nothing by themselves."""

    lines: list[Line] = field(default_factory=list)
    said: Message | None = None
    at: datetime | None = None


def bundles(lines: Sequence[Line], files: Files) -> list[Bundle]:
    """The lines of a batch around its messages, in order."""
    made: list[Bundle] = []
    waiting: list[Line] = []
    for line in lines:
        said = _said(line, files)
        waiting.append(line)
        if said is not None:
            made.append(Bundle(waiting, said, _at(line)))
            waiting = []
    if waiting and made:
        made[-1].lines.extend(waiting)
    elif waiting:
        made.append(Bundle(waiting, _silent(waiting), _at(waiting[-1])))
    return made


def message_of(bundle: Bundle) -> Message:
    """What a bundle says, with its lines beside it, to the letter."""
    assert bundle.said is not None
    said = bundle.said
    return Message(
        said.role,
        said.parts,
        model=said.model,
        finish_reason=said.finish_reason,
        extra={NATIVE: [json.dumps(line) for line in bundle.lines]},
    )


def lines_of(said: Message) -> list[Any]:
    """The lines that a message stands for; none when it came another way."""
    found = said.extra.get(NATIVE)
    return [json.loads(text) for text in found] if isinstance(found, list) else []


def usage_of(line: Line) -> Usage | None:
    """The model call that a line tells of; the lines of one answer all tell of the same call."""
    answer = line.get("message")
    used = answer.get("usage") if isinstance(answer, Mapping) else None
    if line.get("type") != "assistant" or not isinstance(used, Mapping):
        return None
    assert isinstance(answer, Mapping)
    call, model = answer.get("id") or line.get("requestId"), answer.get("model")
    if not isinstance(call, str) or not isinstance(model, str) or model == "<synthetic>":
        return None
    written, kept = _count(used, "cache_creation_input_tokens"), used.get("cache_creation")
    for_an_hour = _count(kept, "ephemeral_1h_input_tokens") if isinstance(kept, Mapping) else 0
    return Usage(
        model=model,
        input_tokens=_count(used, "input_tokens"),
        output_tokens=_count(used, "output_tokens"),
        cache_read_tokens=_count(used, "cache_read_input_tokens"),
        cache_write_tokens=written,
        cache_write_1h_tokens=min(for_an_hour, written),
        call_id=f"{NATIVE}/{call}",
        at=_at(line),
    )


def workspace_of(lines: Sequence[Line]) -> dict[str, Any] | None:
    """Where the agent works, where its lines say so."""
    for line in lines:
        if isinstance(line.get("cwd"), str):
            branch = line.get("gitBranch")
            return {"path": line["cwd"]} | ({"branch": branch} if branch else {})
    return None


def _said(line: Line, files: Files) -> Message | None:
    content = line.get("message")
    given = content.get("content") if isinstance(content, Mapping) else None
    match line.get("type"):
        case "user" if given is not None:
            parts = _parts(given, files)
            role = Role.SYSTEM if line.get("isMeta") is True else Role.USER
            if any(isinstance(part, ToolResult) for part in parts):
                role = Role.TOOL
            return Message(role, parts)
        case "assistant" if isinstance(content, Mapping) and given is not None:
            return Message(
                Role.ASSISTANT,
                _parts(given, files),
                model=_text(content.get("model")),
                finish_reason=_text(content.get("stop_reason")),
            )
        case "system" if isinstance(line.get("content"), str):
            return Message(Role.SYSTEM, (Text(line["content"]),))
    return None


def _parts(given: Any, files: Files) -> tuple[Part, ...]:
    content = Content()
    anthropic_blocks.add(content, given)
    return parts_of(content, files, form="claude")


def _silent(lines: Sequence[Line]) -> Message:
    """A message for lines that say nothing by themselves and stand alone in their batch."""
    kinds = [str(line.get("type")) for line in lines]
    return Message(Role.SYSTEM, (Unknown({"type": "claude:lines", "lines": kinds}),))


def _at(line: Line) -> datetime | None:
    text = line.get("timestamp")
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


def _count(used: Mapping[str, Any], name: str) -> int:
    value = used.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
