"""Pi, and Oh-My-Pi: one file of JSON lines a session."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.formats import anthropic_blocks, coerce, parts
from sessionary.importers.base import files
from sessionary.importers.base.content import MessageContent, call_usage, parse_time
from sessionary.importers.base.events import (
    FOLLOWS,
    Checkpoint,
    Compacted,
    Event,
    Facts,
    IgnoredRecord,
    Json,
    MessageEvent,
    Parent,
    Resume,
    Retracted,
    SessionBegin,
    Skipped,
    Unit,
    UsageEvent,
    Where,
)
from sessionary.importers.base.files import json_lines
from sessionary.model.session import Lineage
from sessionary.model.usage import Usage

# As many entries that are no messages are remembered from one reading to the next.
REMEMBERED = 100
_SESSION_FILE = re.compile(r"(?:^|[/\\])(?:[^/\\]*_)?([^/\\_]+?)\.jsonl$")
_LEFT_OUT = {
    "custom": "extension state",
    "label": "bookmarks",
    "thinking_level_change": "thinking level",
    "context_edit": "context edits",
    "context_transform": "context edits",
    "ephemeral": "context edits",
}


def is_header(event: object) -> bool:
    """Whether a session begins with this."""
    if not isinstance(event, dict) or event.get("type") != "session":
        return False
    return isinstance(event.get("id"), str) and ("timestamp" in event or "version" in event)


class Events:
    """One session's events, one after the other."""

    def __init__(self, tool: str, header: Json, *, otherwise: datetime, note: Any = None) -> None:
        self._tool = tool
        self._header = header
        self._at = parse_time(header.get("timestamp")) or otherwise
        self._last: str | None = FOLLOWS if note else None
        self._model = coerce.name(header.get("modelId"))
        self._provider = coerce.name(header.get("provider"))
        # Which message an entry stands behind that is none itself.
        known = coerce.record(coerce.record(note).get("behind"))
        self._behind: dict[str, str | None] = dict(known)

    @property
    def note(self) -> Json:
        """What must be known to read on from here."""
        return {"behind": dict(list(self._behind.items())[-REMEMBERED:])}

    def begin(self, native_id: str, **more: Any) -> Iterator[Event]:
        """The session, by its header."""
        source = self._header.get("parentSession") or self._header.get("branchedFrom")
        found = _SESSION_FILE.search(source) if isinstance(source, str) else None
        if found is not None and found[1] != native_id and more.get("parent") is None:
            more["parent"] = Parent(native_id=found[1], lineage=Lineage.FORK)
        yield SessionBegin(native_id=native_id, began_at=self._at, **more)
        cwd = coerce.name(self._header.get("cwd"))
        if cwd is not None:
            yield Facts(fields={"workspace": {"path": cwd}})

    def take(self, event: Json) -> Iterator[Event]:
        """What one event says."""
        self._at = parse_time(event.get("timestamp")) or self._at
        kind = event.get("type")
        if kind == "message" and isinstance(event.get("message"), dict):
            yield self._message(event, event["message"])
        elif kind in ("custom_message", "branch_summary"):
            yield self._aside(event)
        elif kind == "compaction":
            yield from self._compaction(event)
        elif kind == "session":
            return
        else:
            yield from self._other(event, kind)

    # Where an entry stands

    def _place(self, event: Json) -> str | None:
        """The message that an entry answers to."""
        if "parentId" not in event:
            return FOLLOWS
        parent = event["parentId"]
        if not isinstance(parent, str):
            return None
        return self._behind.get(parent, parent)

    def _pass(self, event: Json) -> None:
        """Remember where an entry stands that is no message."""
        id = event.get("id")
        place = self._place(event)
        if isinstance(id, str) and place != FOLLOWS:
            self._behind[id] = place

    def _say(self, event: Json, role: str, content: MessageContent, **more: Any) -> MessageEvent:
        id = coerce.name(event.get("id"))
        place = self._place(event)
        self._last = id
        return content.said(role, self._at, id=id, parent=place, **more)

    # What it says

    def _message(self, event: Json, message: Json) -> MessageEvent:
        role = message.get("role")
        if role == "assistant":
            return self._reply(event, message)
        content = MessageContent()
        extra = {}
        usage: tuple[Usage, ...] = ()
        if role == "toolResult":
            _add_result(content, message)
            usage = self._usage(event, message)
            if message.get("details") is not None:
                extra["details"] = message["details"]
            return self._say(event, "tool", content, extra=extra or None, usage=usage)
        if role == "bashExecution":
            _add_command(content, message)
            told = ("exitCode", "cancelled", "truncated", "excludeFromContext", "fullOutputPath")
            extra = {"bash": {name: message[name] for name in told if name in message}}
        elif role == "user":
            _add(content, message.get("content"))
        else:
            return self._aside({**event, **message, "type": role})
        return self._say(event, "user", content, extra=extra or None)

    def _reply(self, event: Json, message: Json) -> MessageEvent:
        content = MessageContent()
        _add(content, message.get("content"))
        self._model = coerce.name(message.get("model")) or self._model
        self._provider = coerce.name(message.get("provider")) or self._provider
        error = coerce.name(message.get("errorMessage"))
        return self._say(
            event,
            "assistant",
            content,
            model=self._model,
            finish_reason=coerce.name(message.get("stopReason")),
            extra=None if error is None else {"error": error},
            usage=self._usage(event, message),
        )

    def _usage(self, event: Json, message: Json) -> tuple[Usage, ...]:
        used = coerce.record(message.get("usage"))
        # A copy of the session says the same call again: the id must be the same there.
        id = coerce.name(message.get("responseId"))
        return call_usage(
            self._tool,
            id or f"{event.get('id')}:{message.get('timestamp') or event.get('timestamp')}",
            model=coerce.name(message.get("model")) or self._model,
            provider=coerce.name(message.get("provider")) or self._provider,
            at=self._at,
            dollars=coerce.record(used.get("cost")).get("total"),
            input=used.get("input"),
            output=used.get("output"),
            cache_read=used.get("cacheRead"),
            cache_write=used.get("cacheWrite"),
        )

    def _aside(self, event: Json) -> MessageEvent:
        """Words of neither a person nor the model."""
        content = MessageContent()
        _add(content, event.get("content", event.get("summary")))
        told = {
            name: event[name] for name in ("customType", "fromId", "details") if event.get(name)
        }
        extra = {str(event.get("type")): told}
        if not content:
            content.keep({"type": "pi", "native": event})
        return self._say(event, "system", content, extra=extra)

    def _compaction(self, event: Json) -> Iterator[Event]:
        place = self._place(event)
        if place not in (FOLLOWS, self._last) and self._last != FOLLOWS:
            yield Retracted(after=place, at=self._at)
        kept = event.get("firstKeptEntryId")
        keeps = self._behind.get(kept, kept) if isinstance(kept, str) else None
        self._pass(event)
        yield Compacted(summary=coerce.text(event.get("summary")), at=self._at, keeps=keeps)

    def _other(self, event: Json, kind: object) -> Iterator[Event]:
        if kind == "model_change":
            self._model = coerce.name(event.get("modelId")) or self._model
            self._provider = coerce.name(event.get("provider")) or self._provider
        elif kind == "session_info":
            yield Facts(fields={"title": event.get("name")})
        elif kind == "usage":
            yield UsageEvent(usage=self._usage(event, event))
        elif isinstance(kind, str) and kind in _LEFT_OUT:
            yield IgnoredRecord(what=_LEFT_OUT[kind])
        else:
            content = MessageContent(parts=[parts.unknown({"type": "pi", "native": event})])
            yield self._say(event, "system", content)
            return
        self._pass(event)


def _add(content: MessageContent, given: object) -> None:
    """Add what a message says: a text, or blocks."""
    if isinstance(given, str):
        content.say(given)
        return
    for block in coerce.items(given):
        _add_block(content, block)


def _add_block(content: MessageContent, given: object) -> None:
    block = coerce.record(given)
    match block:
        case {"type": "text", "text": str(words)}:
            content.say(words)
        case {"type": "thinking", "thinking": str(words)}:
            signature = block.get("thinkingSignature")
            content.think(words, {"signature": signature} if signature else None)
        case {"type": "toolCall", "name": str(name)}:
            id = coerce.text(block.get("id"))
            content.add(parts.tool_call(id, name, block.get("arguments")))
        case {"type": "image", "data": data}:
            if not content.attach_base64(data, block.get("mimeType"), block.get("fileName")):
                content.keep(block)
        case _:
            anthropic_blocks.add_block(content, given)


def _add_result(content: MessageContent, message: Json) -> None:
    inner = MessageContent()
    _add(inner, message.get("content"))
    words = "\n".join(part["text"] for part in inner.parts if part["type"] == "text")
    rest = [part for part in inner.parts if part["type"] != "text"]
    result = parts.tool_result(
        coerce.text(message.get("toolCallId")),
        words,
        name=coerce.name(message.get("toolName")),
        is_error=message.get("isError") is True,
    )
    content.add(result, *rest)
    content.blobs.extend(inner.blobs)


def _add_command(content: MessageContent, message: Json) -> None:
    """What a person ran in the tool's own shell."""
    output = coerce.text(message.get("output"))
    content.say(f"!{coerce.text(message.get('command'))}")
    content.say(output)


class Pi:
    """Reads the sessions of Pi."""

    name = "pi"
    title = "Pi"

    def places(self, where: Where) -> list[Path]:
        """The directories of its sessions."""
        agent = where.path("PI_CODING_AGENT_DIR", ".pi/agent")
        return [
            where.path("PI_CODING_AGENT_SESSION_DIR", str(agent / "sessions")),
            where.home / ".omp/agent/sessions",
        ]

    def recognises(self, path: Path) -> bool:
        """Whether the first line is a session's."""
        return path.suffix == ".jsonl" and header_of(path) is not None

    def find(self, place: Path) -> Iterator[Unit]:
        """One unit a file, the oldest first: a copy comes after its original."""
        found = [place] if files.is_file(place) else files.walk(place, suffixes=(".jsonl",))
        for path in sorted(found, key=lambda each: (each.name, each)):
            yield Unit(str(path), path, files.stamp_of(path), files.size_of(path))

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        """The session of a file."""
        header = header_of(unit.path)
        if header is None:
            raise BadInput(f"{unit.path} does not begin as a session of Pi does.")
        note = None if resume is None else resume.note
        events = Events(self.name, header, otherwise=files.changed_at(unit.path), note=note)
        yield from events.begin(header["id"])
        yield from read_lines(events, unit.path, resume)


def header_of(path: Path) -> Json | None:
    """The first line of a session's file; None when it is something else."""
    first = files.head(path, 64 * 1024).partition(b"\n")[0]
    found = coerce.parse_json(first.removeprefix(b"\xef\xbb\xbf"))
    return found if is_header(found) else None


def read_lines(events: Events, path: Path, resume: Resume | None) -> Iterator[Event]:
    """The events of a file, from where the last reading ended."""
    start = 0 if resume is None else resume.place
    yield Checkpoint(place=start, note=events.note)
    with files.opened(path) as file:
        for line in json_lines(file, start):
            if line.data is None:
                yield Skipped(where=f"byte {line.start}", why=line.why or "")
            else:
                yield from events.take(line.data)
            yield Checkpoint(place=line.end, note=events.note)


IMPORTER = Pi()
