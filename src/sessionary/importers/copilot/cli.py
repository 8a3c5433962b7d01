"""The events that Copilot CLI writes, one a line; the chat of VS Code writes the same as transcripts."""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from sessionary.errors import BadInput
from sessionary.formats import coerce
from sessionary.importers.base import files
from sessionary.importers.base.content import (
    MessageContent,
    call_usage,
    parse_time,
    text_content,
    uncached_input,
)
from sessionary.importers.base.events import (
    Compacted,
    Event,
    IgnoredRecord,
    Json,
    Resume,
    Unit,
    UsageEvent,
    begin_session,
    facts,
    workspace,
)
from sessionary.model.usage import Usage

_TOKENS = (
    *("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens", "reasoningTokens"),
)
# Two notes of one moment.
_SAME = timedelta(seconds=1)
_NAME = re.compile(r"^(?:name|summary):[ \t]*(.+?)[ \t]*$", re.MULTILINE)
# Events that repeat others, or only show progress.
_SILENT = (
    *("assistant.turn_start", "assistant.turn_end", "assistant.message_delta"),
    *("tool.execution_start", "tool.execution_progress", "tool.execution_partial_result"),
)


def first_event(path: Path) -> Json | None:
    """Return the event that begins a session; None if the file begins otherwise."""
    found = coerce.parse_json(files.head(path, 64 * 1024).partition(b"\n")[0])
    return found if isinstance(found, dict) and found.get("type") == "session.start" else None


def read(unit: Unit, resume: Resume | None) -> Iterator[Event]:
    """Yield the session of a file, from where the last import ended."""
    first = first_event(unit.path)
    if first is None:
        raise BadInput(f"{unit.path} does not begin as a session of Copilot does.")
    data = coerce.record(first.get("data"))
    folder = unit.path.parent.name if unit.path.name == "events.jsonl" else unit.path.stem
    id = coerce.name(data.get("sessionId")) or folder
    began = parse_time(first.get("timestamp")) or files.changed_at(unit.path)
    yield begin_session(id, began)
    noted = files.head(unit.path.parent / "workspace.yaml").decode("utf-8", "replace")
    found = _NAME.search(noted) if unit.path.name == "events.jsonl" else None
    context = coerce.record(data.get("context"))
    yield facts(
        title=None if found is None else found[1].strip("\"'"),
        workspace=workspace(context.get("cwd"), branch=context.get("branch")),
    )
    note = coerce.record(None if resume is None else resume.note)
    events = _CopilotEvents(id, began, parse_time(data.get("startTime")) or began, note)
    yield from files.resumable_events(unit.path, resume, events.take, state=events.state)


class _CopilotEvents:
    """Reads the events of one session, in order."""

    def __init__(self, session_id: str, at: datetime, started: datetime, note: Json) -> None:
        self._session_id = session_id
        self._at = at
        self._started = started
        self._model = coerce.name(note.get("model"))
        self._reasoning = ""
        # What was counted for each model: in the session, and since the program was started last.
        self._counted = _counts(note.get("counted"))
        self._counted_in_run = _counts(note.get("run"))

    def state(self) -> Json:
        """Return what the next import needs to resume here."""
        return {
            "model": self._model,
            "counted": {model: dict(each) for model, each in self._counted.items()},
            "run": {model: dict(each) for model, each in self._counted_in_run.items()},
        }

    def take(self, event: Json, place: str) -> Iterator[Event]:
        """What one event says."""
        self._at = parse_time(event.get("timestamp")) or self._at
        data = coerce.record(event.get("data"))
        id = coerce.name(event.get("id")) or place
        match event.get("type"):
            case "user.message":
                yield from self._question(id, data)
            case "assistant.message":
                yield from self._answer(id, data)
            case "assistant.reasoning":
                self._reasoning += coerce.text(data.get("content"))
            case "tool.execution_complete":
                yield from self._result(id, data)
            case "session.resume":
                self._counted_in_run = {}
                self._model = coerce.name(data.get("selectedModel")) or self._model
            case "session.usage_record":
                yield from self._call(id, coerce.record(data.get("usage")))
            case "session.start" | "session.model_change":
                given = data.get("newModel") or data.get("selectedModel")
                self._model = coerce.name(given) or self._model
            case "session.compaction_complete" if coerce.name(data.get("summaryContent")):
                yield Compacted(summary=data["summaryContent"], at=self._at)
            case "session.error" | "session.warning":
                yield from self._notice(id, data)
            case "session.shutdown":
                yield from self._usage_totals(id, data)
            case str(kind) if kind not in _SILENT:
                yield IgnoredRecord(what=f"events {kind}"[:80])

    def _question(self, id: str, data: Json) -> Iterator[Event]:
        content = MessageContent()
        content.add_text(data.get("content"))
        for file in coerce.records(data.get("attachments")):
            if not content.attach_base64(file.get("data"), file.get("mimeType")):
                content.add_unknown({"type": "copilot_attachment", "native": file})
        if content:
            yield content.to_message("user", self._at, id=id)

    def _answer(self, id: str, data: Json) -> Iterator[Event]:
        content = MessageContent()
        content.add_reasoning(coerce.text(data.get("reasoningText")) or self._reasoning)
        self._reasoning = ""
        content.add_text(data.get("content"))
        for call in coerce.records(data.get("toolRequests")):
            name = coerce.name(call.get("name")) or "tool"
            arguments = coerce.parse_json_or_keep(call.get("arguments"))
            content.add_call(call.get("toolCallId"), name, arguments)
        self._model = coerce.name(data.get("model")) or self._model
        parent = coerce.name(data.get("parentToolCallId"))
        if content:
            yield content.to_message(
                "assistant",
                self._at,
                id=id,
                model=self._model,
                token_count=coerce.count(data.get("outputTokens")) or None,
                extra=None if parent is None else {"subagent_of": parent},
            )

    def _result(self, id: str, data: Json) -> Iterator[Event]:
        result = data.get("result")
        result_text = coerce.record(result).get("content", result)
        error = data.get("error")
        if result_text is None and error is not None:
            result_text = coerce.record(error).get("message", error)
        content = MessageContent()
        is_error, name = data.get("success") is False, data.get("toolName")
        content.add_result(data.get("toolCallId"), result_text, name=name, is_error=is_error)
        yield content.to_message("tool", self._at, id=id)

    def _notice(self, id: str, data: Json) -> Iterator[Event]:
        if content := text_content(data.get("message")):
            yield content.to_message("system", self._at, id=id)

    def _call(self, id: str, used: Json) -> Iterator[Event]:
        """One call of the model, which newer releases note."""
        model = coerce.name(used.get("model")) or self._model or "unknown"
        counted = _numbers(used)
        self._count(model, counted)
        call = coerce.name(coerce.record(used.get("accounting")).get("usageId")) or id
        yield UsageEvent(usage=self._usage(f"{self._session_id}:{call}", model, counted))

    def _usage_totals(self, id: str, data: Json) -> Iterator[Event]:
        """The sums of a run, or, in newer releases, of the session: what was not counted yet."""
        started = parse_time(data.get("sessionStartTime"))
        is_of_session = started is not None and abs(started - self._started) < _SAME
        known = self._counted if is_of_session else self._counted_in_run
        for model, metrics in coerce.record(data.get("modelMetrics")).items():
            total = _numbers(coerce.record(coerce.record(metrics).get("usage")))
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
        sent, read, written = used["inputTokens"], used["cacheReadTokens"], used["cacheWriteTokens"]
        return call_usage(
            "copilot",
            id,
            model=model,
            at=self._at,
            input=uncached_input(sent, read, written),
            output=used["outputTokens"],
            cache_read=read,
            cache_write=written,
            reasoning=used["reasoningTokens"],
        )


def _numbers(used: Json) -> Counter[str]:
    return Counter({name: coerce.count(used.get(name)) for name in _TOKENS})


def _counts(noted: object) -> dict[str, Counter[str]]:
    return {model: _numbers(coerce.record(each)) for model, each in coerce.record(noted).items()}
