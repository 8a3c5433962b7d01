"""The events that Copilot CLI writes, one a line; the chat of VS Code writes the same as transcripts."""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from sessionary.errors import BadInput
from sessionary.formats import parts, shape
from sessionary.importers.base import calls, files, times
from sessionary.importers.base.content import MessageContent
from sessionary.importers.base.events import (
    Checkpoint,
    Compacted,
    Event,
    Facts,
    IgnoredRecord,
    Json,
    Resume,
    SessionBegin,
    Skipped,
    Unit,
    UsageEvent,
)
from sessionary.importers.base.json_lines import lines
from sessionary.model.usage import Usage

_TOKENS = (
    *("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens", "reasoningTokens"),
)
# Two notes of one moment.
_SAME = timedelta(seconds=1)
_NAME = re.compile(r"^(?:name|summary):[ \t]*(.+?)[ \t]*$", re.MULTILINE)
# What is said again elsewhere, or says only that something goes on.
_SILENT = (
    *("assistant.turn_start", "assistant.turn_end", "assistant.message_delta"),
    *("tool.execution_start", "tool.execution_progress", "tool.execution_partial_result"),
)


def first_event(path: Path) -> Json | None:
    """The event that begins a session; None when the file begins otherwise."""
    found = shape.parsed(files.head(path, 64 * 1024).partition(b"\n")[0])
    return found if isinstance(found, dict) and found.get("type") == "session.start" else None


def read(unit: Unit, resume: Resume | None) -> Iterator[Event]:
    """The session of a file, from where the last reading ended."""
    first = first_event(unit.path)
    if first is None:
        raise BadInput(f"{unit.path} does not begin as a session of Copilot does.")
    data = shape.record(first.get("data"))
    folder = unit.path.parent.name if unit.path.name == "events.jsonl" else unit.path.stem
    id = shape.name(data.get("sessionId")) or folder
    began = times.of(first.get("timestamp")) or files.changed_at(unit.path)
    yield SessionBegin(native_id=id, began_at=began)
    yield Facts(fields=_fields(data, unit.path))
    start = 0 if resume is None else resume.place
    note = shape.record(None if resume is None else resume.note)
    started = times.of(data.get("startTime")) or began
    events = _Events(id, began, started, note)
    yield Checkpoint(place=start, note=events.note)
    with files.opened(unit.path) as file:
        for line in lines(file, start):
            if line.data is None:
                yield Skipped(where=f"byte {line.start}", why=line.why or "")
            else:
                yield from events.take(line.data, f"byte {line.start}")
            yield Checkpoint(place=line.end, note=events.note)


def _fields(data: Json, path: Path) -> Json:
    context = shape.record(data.get("context"))
    fields: Json = {}
    if shape.name(context.get("cwd")):
        branch = shape.name(context.get("branch"))
        fields["workspace"] = {"path": context["cwd"]} | ({"branch": branch} if branch else {})
    noted = files.head(path.parent / "workspace.yaml").decode("utf-8", "replace")
    found = _NAME.search(noted) if path.name == "events.jsonl" else None
    if found is not None:
        fields["title"] = found[1].strip("\"'")
    return fields


class _Events:
    """One session's events, one after the other."""

    def __init__(self, session_id: str, at: datetime, started: datetime, note: Json) -> None:
        self._session_id = session_id
        self._at = at
        self._started = started
        self._model = shape.name(note.get("model"))
        self._thought = ""
        # What was counted for each model: in the session, and since the program was started last.
        self._counted = _counts(note.get("counted"))
        self._counted_in_run = _counts(note.get("run"))

    @property
    def note(self) -> Json:
        """What must be known to read on from here."""
        return {
            "model": self._model,
            "counted": {model: dict(each) for model, each in self._counted.items()},
            "run": {model: dict(each) for model, each in self._counted_in_run.items()},
        }

    def take(self, event: Json, place: str) -> Iterator[Event]:
        """What one event says."""
        self._at = times.of(event.get("timestamp")) or self._at
        data = shape.record(event.get("data"))
        id = shape.name(event.get("id")) or place
        match event.get("type"):
            case "user.message":
                yield from self._question(id, data)
            case "assistant.message":
                yield from self._answer(id, data)
            case "assistant.reasoning":
                self._thought += shape.words(data.get("content"))
            case "tool.execution_complete":
                yield from self._result(id, data)
            case "session.resume":
                self._counted_in_run = {}
                self._model = shape.name(data.get("selectedModel")) or self._model
            case "session.usage_record":
                yield from self._call(id, shape.record(data.get("usage")))
            case "session.start" | "session.model_change":
                given = data.get("newModel") or data.get("selectedModel")
                self._model = shape.name(given) or self._model
            case "session.compaction_complete" if shape.name(data.get("summaryContent")):
                yield Compacted(summary=data["summaryContent"], at=self._at)
            case "session.error" | "session.warning":
                yield from self._aside(id, data)
            case "session.shutdown":
                yield from self._spent(id, data)
            case str(kind) if kind not in _SILENT:
                yield IgnoredRecord(what=f"events {kind}"[:80])

    def _question(self, id: str, data: Json) -> Iterator[Event]:
        content = MessageContent()
        content.say(data.get("content"))
        for file in shape.records(data.get("attachments")):
            if not content.attach_base64(file.get("data"), file.get("mimeType")):
                content.keep({"type": "copilot_attachment", "native": file})
        if content:
            yield content.said("user", self._at, id=id)

    def _answer(self, id: str, data: Json) -> Iterator[Event]:
        content = MessageContent()
        content.think(shape.words(data.get("reasoningText")) or self._thought)
        self._thought = ""
        content.say(data.get("content"))
        for call in shape.records(data.get("toolRequests")):
            name = shape.name(call.get("name")) or "tool"
            given = shape.parsed_or_text(call.get("arguments"))
            content.add(parts.tool_call(shape.words(call.get("toolCallId")), name, given))
        self._model = shape.name(data.get("model")) or self._model
        parent = shape.name(data.get("parentToolCallId"))
        if content:
            yield content.said(
                "assistant",
                self._at,
                id=id,
                model=self._model,
                token_count=shape.count(data.get("outputTokens")) or None,
                extra=None if parent is None else {"subagent_of": parent},
            )

    def _result(self, id: str, data: Json) -> Iterator[Event]:
        result = data.get("result")
        told = shape.record(result).get("content", result)
        error = data.get("error")
        if told is None and error is not None:
            told = shape.record(error).get("message", error)
        made = parts.tool_result(
            shape.words(data.get("toolCallId")),
            "" if told is None else told,
            name=shape.name(data.get("toolName")),
            is_error=data.get("success") is False,
        )
        yield MessageContent(parts=[made]).said("tool", self._at, id=id)

    def _aside(self, id: str, data: Json) -> Iterator[Event]:
        content = MessageContent()
        content.say(data.get("message"))
        if content:
            yield content.said("system", self._at, id=id)

    def _call(self, id: str, used: Json) -> Iterator[Event]:
        """One call of the model, which newer releases note."""
        model = shape.name(used.get("model")) or self._model or "unknown"
        counted = _numbers(used)
        self._count(model, counted)
        call = shape.name(shape.record(used.get("accounting")).get("usageId")) or id
        yield UsageEvent(usage=self._usage(f"{self._session_id}:{call}", model, counted))

    def _spent(self, id: str, data: Json) -> Iterator[Event]:
        """The sums of a run, or, in newer releases, of the session: what was not counted yet."""
        started = times.of(data.get("sessionStartTime"))
        is_of_session = started is not None and abs(started - self._started) < _SAME
        known = self._counted if is_of_session else self._counted_in_run
        for model, metrics in shape.record(data.get("modelMetrics")).items():
            total = _numbers(shape.record(shape.record(metrics).get("usage")))
            before = known.get(model, Counter())
            rest = Counter({name: max(0, n - before[name]) for name, n in total.items()})
            if any(rest.values()):
                self._count(model, rest)
                yield UsageEvent(usage=self._usage(f"{self._session_id}:{id}:{model}", model, rest))
        self._counted_in_run = {}

    def _count(self, model: str, used: Counter[str]) -> None:
        for counted in (self._counted, self._counted_in_run):
            counted.setdefault(model, Counter()).update(used)

    def _usage(self, id: str, model: str, used: Counter[str]) -> tuple[Usage, ...]:
        sent, read, written = (
            used[name] for name in ("inputTokens", "cacheReadTokens", "cacheWriteTokens")
        )
        # Some providers count what was cached as input, some beside it.
        is_inside = sent >= read + written
        return calls.one(
            "copilot",
            id,
            model=model,
            at=self._at,
            input=sent - read - written if is_inside else sent,
            output=used["outputTokens"],
            cache_read=read,
            cache_write=written,
            reasoning=used["reasoningTokens"],
        )


def _numbers(used: Json) -> Counter[str]:
    return Counter({name: shape.count(used.get(name)) for name in _TOKENS})


def _counts(noted: object) -> dict[str, Counter[str]]:
    return {model: _numbers(shape.record(each)) for model, each in shape.record(noted).items()}
