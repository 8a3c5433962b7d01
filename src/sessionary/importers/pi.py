"""Pi, and Oh-My-Pi: one file of JSON lines a session."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.formats import anthropic_blocks, coerce, parts
from sessionary.formats.coerce import Json
from sessionary.importers.base import events, files
from sessionary.importers.base.content import MessageContent, call_usage, parse_time, text_content
from sessionary.model.session import Kind, Lineage
from sessionary.model.usage import Usage

# How many entries that are no messages are remembered from one import to the next.
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
    """Whether this is the first event of a session."""
    if not isinstance(event, dict) or event.get("type") != "session":
        return False
    return isinstance(event.get("id"), str) and ("timestamp" in event or "version" in event)


class PiEvents:
    """Reads the events of one session, in order."""

    def __init__(
        self, tool: str, header: Json, path: Path, resume: events.Resume | None = None
    ) -> None:
        note = None if resume is None else resume.note
        self._tool = tool
        self._header = header
        self._at = parse_time(header.get("timestamp")) or files.changed_at(path)
        self._last: str | None = events.FOLLOWS if note else None
        self._model = coerce.name(header.get("modelId"))
        self._provider = coerce.name(header.get("provider"))
        # Which message comes before an entry that is none itself.
        known = coerce.record(coerce.record(note).get("behind"))
        self._message_before: dict[str, str | None] = dict(known)

    def read(self, path: Path, resume: events.Resume | None) -> Iterator[events.Event]:
        """Yield the events of a file, from where the last import ended."""

        def state() -> Json:
            return {"behind": dict(list(self._message_before.items())[-REMEMBERED:])}

        return files.resumable_events(path, resume, lambda event, _: self.take(event), state=state)

    def begin(
        self,
        native_id: str,
        *,
        parent: str | None = None,
        lineage: Lineage = Lineage.FORK,
        kind: Kind = Kind.IMPORT,
    ) -> Iterator[events.Event]:
        """Begin the session that the header describes; a copy's header names its original."""
        source = self._header.get("parentSession") or self._header.get("branchedFrom")
        found = _SESSION_FILE.search(source) if isinstance(source, str) else None
        if parent is None and found is not None:
            parent, lineage = found[1], Lineage.FORK
        yield events.begin_session(native_id, self._at, parent=parent, lineage=lineage, kind=kind)
        yield events.facts(workspace=events.workspace(self._header.get("cwd")))

    def take(self, event: Json) -> Iterator[events.Event]:
        """Yield what one event says."""
        self._at = parse_time(event.get("timestamp")) or self._at
        kind = event.get("type")
        if kind == "message" and isinstance(event.get("message"), dict):
            yield self._message(event, event["message"])
        elif kind in ("custom_message", "branch_summary"):
            yield self._notice(event)
        elif kind == "compaction":
            place = self._place(event)
            if place not in (events.FOLLOWS, self._last) and self._last != events.FOLLOWS:
                yield events.Retracted(after=place, at=self._at)
            kept = event.get("firstKeptEntryId")
            keeps = self._message_before.get(kept, kept) if isinstance(kept, str) else None
            self._note_place(event)
            yield events.Compacted(
                summary=coerce.text(event.get("summary")), at=self._at, keeps=keeps
            )
        elif kind != "session":
            yield from self._other(event, kind)

    def _place(self, event: Json) -> str | None:
        """Return the message that an entry follows."""
        if "parentId" not in event:
            return events.FOLLOWS
        parent = event["parentId"]
        if not isinstance(parent, str):
            return None
        return self._message_before.get(parent, parent)

    def _note_place(self, event: Json) -> None:
        """Remember which message comes before an entry that is none."""
        id = event.get("id")
        place = self._place(event)
        if isinstance(id, str) and place != events.FOLLOWS:
            self._message_before[id] = place

    def _to_message(
        self, event: Json, role: str, content: MessageContent, **more: Any
    ) -> events.MessageEvent:
        id = coerce.name(event.get("id"))
        place = self._place(event)
        self._last = id
        return content.to_message(role, self._at, id=id, parent=place, **more)

    def _message(self, event: Json, message: Json) -> events.MessageEvent:
        role = message.get("role")
        if role == "assistant":
            self._note_model(message, "model")
            error = coerce.name(message.get("errorMessage"))
            return self._to_message(
                event,
                "assistant",
                _content_of(message.get("content")),
                model=self._model,
                finish_reason=coerce.name(message.get("stopReason")),
                extra=None if error is None else {"error": error},
                usage=self._usage(event, message),
            )
        if role == "user":
            return self._to_message(event, "user", _content_of(message.get("content")))
        content = MessageContent()
        if role == "toolResult":
            result, is_error = _content_of(message.get("content")), message.get("isError") is True
            call_id, name = message.get("toolCallId"), message.get("toolName")
            content.add_result(call_id, result, name=name, is_error=is_error)
            details = message.get("details")
            extra = None if details is None else {"details": details}
            usage = self._usage(event, message)
            return self._to_message(event, "tool", content, extra=extra, usage=usage)
        if role == "bashExecution":
            # What a person ran in the tool's own shell.
            content.add_text(f"!{coerce.text(message.get('command'))}")
            content.add_text(message.get("output"))
            names = ("exitCode", "cancelled", "truncated", "excludeFromContext", "fullOutputPath")
            known = {name: message[name] for name in names if name in message}
            return self._to_message(event, "user", content, extra={"bash": known})
        return self._notice({**event, **message, "type": role})

    def _note_model(self, given: Json, name: str) -> None:
        self._model = coerce.name(given.get(name)) or self._model
        self._provider = coerce.name(given.get("provider")) or self._provider

    def _usage(self, event: Json, message: Json) -> tuple[Usage, ...]:
        used = coerce.record(message.get("usage"))
        # A copy of the session has the same call: its id must be the same there.
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

    def _notice(self, event: Json) -> events.MessageEvent:
        """Return a text of neither a person nor the model."""
        content = _content_of(event.get("content", event.get("summary")))
        names = ("customType", "fromId", "details")
        extra = {str(event.get("type")): {name: event[name] for name in names if event.get(name)}}
        if not content:
            content.add_unknown({"type": "pi", "native": event})
        return self._to_message(event, "system", content, extra=extra)

    def _other(self, event: Json, kind: object) -> Iterator[events.Event]:
        if kind == "model_change":
            self._note_model(event, "modelId")
        elif kind == "session_info":
            yield events.Facts(fields={"title": event.get("name")})
        elif kind == "usage":
            yield events.UsageEvent(usage=self._usage(event, event))
        elif isinstance(kind, str) and kind in _LEFT_OUT:
            yield events.IgnoredRecord(what=_LEFT_OUT[kind])
        else:
            content = MessageContent([parts.unknown({"type": "pi", "native": event})])
            yield self._to_message(event, "system", content)
            return
        self._note_place(event)


def _content_of(given: object) -> MessageContent:
    """Return the content of a text or of a list of blocks."""
    content = text_content(given)
    for block in coerce.items(given):
        match block:
            case {"type": "text", "text": str(words)}:
                content.add_text(words)
            case {"type": "thinking", "thinking": str(words)}:
                signature = block.get("thinkingSignature")
                content.add_reasoning(words, {"signature": signature} if signature else None)
            case {"type": "toolCall", "name": str(name)}:
                content.add_call(block.get("id"), name, block.get("arguments"))
            case {"type": "image", "data": data}:
                if not content.attach_base64(data, block.get("mimeType"), block.get("fileName")):
                    content.add_unknown(block)
            case _:
                anthropic_blocks.add_block(content, block)
    return content


class Pi(events.Importer):
    """Reads the sessions of Pi."""

    name = "pi"
    title = "Pi"

    def places(self, user: events.UserEnvironment) -> list[Path]:
        agent = user.path("PI_CODING_AGENT_DIR", ".pi/agent")
        return [
            user.path("PI_CODING_AGENT_SESSION_DIR", str(agent / "sessions")),
            user.home / ".omp/agent/sessions",
        ]

    def recognises(self, path: Path) -> bool:
        return path.suffix == ".jsonl" and header_of(path) is not None

    def find(self, place: Path) -> Iterator[events.Unit]:
        """Yield the oldest files first: a copy comes after its original."""
        found = files.named_or_below(place, suffixes=(".jsonl",))
        for path in sorted(found, key=lambda each: (each.name, each)):
            yield files.unit(path)

    def read(self, unit: events.Unit, resume: events.Resume | None) -> Iterator[events.Event]:
        header = header_of(unit.path)
        if header is None:
            raise BadInput(f"{unit.path} does not begin as a session of Pi does.")
        session = PiEvents(self.name, header, unit.path, resume)
        yield from session.begin(header["id"])
        yield from session.read(unit.path, resume)


def header_of(path: Path) -> Json | None:
    """Return the first line of a session's file; None if it is something else."""
    found = coerce.parse_json(files.json_head(path, 64 * 1024).partition(b"\n")[0])
    return found if is_header(found) else None


IMPORTER = Pi()
