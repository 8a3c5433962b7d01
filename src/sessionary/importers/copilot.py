"""GitHub Copilot: the chat of VS Code, and the command line.

The command line writes one event a line; VS Code writes the same as transcripts of its chat. The
chat itself is one JSON document, or a log of changes to one. A line of that log is the whole state
(kind 0), a value set at a path (1), items put at the end of a list that may be cut before (2), or a
value deleted (3).
"""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.formats import coerce, parts
from sessionary.formats.coerce import Json
from sessionary.importers.base import events, files
from sessionary.importers.base.content import (
    MessageContent,
    ModelTurn,
    call_usage,
    parse_time,
    text_content,
    uncached_input,
)

MAX_LOG = 512 * 1024 * 1024
_CHATS = ("chatSessions", "emptyWindowChatSessions", "transferredChatSessions")
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


class Copilot(events.Importer):
    """Reads the conversations of GitHub Copilot."""

    name = "copilot"
    title = "GitHub Copilot"

    def places(self, user: events.UserEnvironment) -> list[Path]:
        """Return the directories of VS Code's user on each system, and of the command line."""
        roots = (".config", "Library/Application Support", "AppData/Roaming")
        editions = ("Code", "Code - Insiders", "VSCodium")
        users = [user.home / root / name / "User" for root in roots for name in editions]
        servers = (".vscode-server", ".vscodium-server")
        users += [user.home / name / "data" / "User" for name in servers]
        return [*users, user.path("COPILOT_HOME", ".copilot") / "session-state"]

    def recognises(self, path: Path) -> bool:
        return files.is_file(path) and (_is_chat(path) or _first_event(path) is not None)

    def find(self, place: Path) -> Iterator[events.Unit]:
        for path in [place] if files.is_file(place) else _found(place):
            folder = path.parent.parent / "workspace.json"
            beside = folder if _is_chat(path) else path.parent / "workspace.yaml"
            yield files.unit(path, beside, hint=folder)

    def read(self, unit: events.Unit, resume: events.Resume | None) -> Iterator[events.Event]:
        return _read_chat(unit) if _is_chat(unit.path) else _read_log(unit, resume)


def _found(place: Path) -> Iterator[Path]:
    for path in files.walk(place, suffixes=(".json", ".jsonl"), depth=3):
        is_log = path.name == "events.jsonl" or path.parent.name == "transcripts"
        if path.parent.name in _CHATS or (is_log and _first_event(path) is not None):
            yield path


def _is_chat(path: Path) -> bool:
    if path.suffix not in (".json", ".jsonl"):
        return False
    if path.parent.name in _CHATS:
        return True
    first = files.head(path, 4096)
    return b'"requests"' in first and (b'"sessionId"' in first or b'"responderUsername"' in first)


def _first_event(path: Path) -> Json | None:
    """Return the event that begins a session; None if the file begins otherwise."""
    found = coerce.parse_json(files.head(path, 64 * 1024).partition(b"\n")[0])
    return found if isinstance(found, dict) and found.get("type") == "session.start" else None


# The command line


def _read_log(unit: events.Unit, resume: events.Resume | None) -> Iterator[events.Event]:
    """Yield the session of a file of events, from where the last import ended."""
    first = _first_event(unit.path)
    if first is None:
        raise BadInput(f"{unit.path} does not begin as a session of Copilot does.")
    data = coerce.record(first.get("data"))
    is_cli = unit.path.name == "events.jsonl"
    id = coerce.name(data.get("sessionId")) or (unit.path.parent.name if is_cli else unit.path.stem)
    began = parse_time(first.get("timestamp")) or files.changed_at(unit.path)
    yield events.begin_session(id, began)
    noted = files.head(unit.path.parent / "workspace.yaml").decode("utf-8", "replace")
    title = _NAME.search(noted) if is_cli else None
    context = coerce.record(data.get("context"))
    yield events.facts(
        title=None if title is None else title[1].strip("\"'"),
        workspace=events.workspace(context.get("cwd"), branch=context.get("branch")),
    )
    note = coerce.record(None if resume is None else resume.note)
    log = _SessionLog(id, began, parse_time(data.get("startTime")) or began, note)
    yield from files.resumable_events(unit.path, resume, log.take, state=log.state)


class _SessionLog:
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

    def take(self, event: Json, place: str) -> Iterator[events.Event]:
        """Yield what one event says."""
        self._at = parse_time(event.get("timestamp")) or self._at
        data = coerce.record(event.get("data"))
        id = coerce.name(event.get("id")) or place
        match event.get("type"):
            case "user.message":
                content = text_content(data.get("content"))
                for file in coerce.records(data.get("attachments")):
                    if not content.attach_base64(file.get("data"), file.get("mimeType")):
                        content.add_unknown({"type": "copilot_attachment", "native": file})
                if content:
                    yield content.to_message("user", self._at, id=id)
            case "assistant.message":
                yield from self._answer(id, data)
            case "assistant.reasoning":
                self._reasoning += coerce.text(data.get("content"))
            case "tool.execution_complete":
                result, error = data.get("result"), data.get("error")
                result = coerce.record(result).get("content", result)
                if result is None and error is not None:
                    result = coerce.record(error).get("message", error)
                content = MessageContent()
                is_error, name = data.get("success") is False, data.get("toolName")
                content.add_result(data.get("toolCallId"), result, name=name, is_error=is_error)
                yield content.to_message("tool", self._at, id=id)
            case "session.resume":
                self._counted_in_run = {}
                self._model = coerce.name(data.get("selectedModel")) or self._model
            case "session.usage_record":
                # One call of the model, which newer releases note.
                used = coerce.record(data.get("usage"))
                call = coerce.name(coerce.record(used.get("accounting")).get("usageId")) or id
                model = coerce.name(used.get("model")) or self._model or "unknown"
                yield self._usage(call, model, _numbers(used))
            case "session.start" | "session.model_change":
                given = data.get("newModel") or data.get("selectedModel")
                self._model = coerce.name(given) or self._model
            case "session.compaction_complete" if coerce.name(data.get("summaryContent")):
                yield events.Compacted(summary=data["summaryContent"], at=self._at)
            case "session.error" | "session.warning":
                if content := text_content(data.get("message")):
                    yield content.to_message("system", self._at, id=id)
            case "session.shutdown":
                yield from self._usage_totals(id, data)
            case str(kind) if kind not in _SILENT:
                yield events.IgnoredRecord(what=f"events {kind}"[:80])

    def _answer(self, id: str, data: Json) -> Iterator[events.Event]:
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

    def _usage_totals(self, id: str, data: Json) -> Iterator[events.Event]:
        """Yield what the sums of a run, or, in newer releases, of the session add to the calls."""
        started = parse_time(data.get("sessionStartTime"))
        is_of_session = started is not None and abs(started - self._started) < _SAME
        known = self._counted if is_of_session else self._counted_in_run
        for model, metrics in coerce.record(data.get("modelMetrics")).items():
            total = _numbers(coerce.record(coerce.record(metrics).get("usage")))
            before = known.get(model, Counter())
            rest = Counter({name: max(0, n - before[name]) for name, n in total.items()})
            if any(rest.values()):
                yield self._usage(f"{id}:{model}", model, rest)
        self._counted_in_run = {}

    def _usage(self, call: str, model: str, used: Counter[str]) -> events.UsageEvent:
        for counted in (self._counted, self._counted_in_run):
            counted.setdefault(model, Counter()).update(used)
        sent, read, written = used["inputTokens"], used["cacheReadTokens"], used["cacheWriteTokens"]
        usage = call_usage(
            "copilot",
            f"{self._session_id}:{call}",
            model=model,
            at=self._at,
            input=uncached_input(sent, read, written),
            output=used["outputTokens"],
            cache_read=read,
            cache_write=written,
            reasoning=used["reasoningTokens"],
        )
        return events.UsageEvent(usage=usage)


def _numbers(used: Json) -> Counter[str]:
    return Counter({name: coerce.count(used.get(name)) for name in _TOKENS})


def _counts(noted: object) -> dict[str, Counter[str]]:
    return {model: _numbers(coerce.record(each)) for model, each in coerce.record(noted).items()}


# The chat of VS Code


def _read_chat(unit: events.Unit) -> Iterator[events.Event]:
    """Yield the conversation of a file."""
    chat = _Chat()
    yield from chat.fill(unit.path)
    id = coerce.name(chat.data.get("sessionId")) or unit.path.stem
    if not isinstance(chat.data.get("requests"), list):
        raise BadInput(f"{unit.path} is no conversation of Copilot.")
    began = parse_time(chat.data.get("creationDate"))
    at = began or files.changed_at(unit.path)
    yield events.begin_session(id, began)
    folder = files.read_record(unit.hint, most=1024 * 1024).get("folder")
    yield events.facts(
        title=coerce.name(chat.data.get("customTitle")),
        workspace=events.workspace(coerce.text(folder).removeprefix("file://")),
    )
    for requests in chat.abandoned:
        yield events.Branch(items=_all_messages(requests, at), is_current=False)
    yield events.Branch(items=_all_messages(chat.data["requests"], at), is_current=True)


class _Chat:
    """The document after all changes to it."""

    def __init__(self) -> None:
        self.data: Json = {}
        # Requests that were cut off, each time with those before them.
        self.abandoned: list[list[Any]] = []

    def fill(self, path: Path) -> Iterator[events.Skipped]:
        if path.suffix == ".json":
            self.data = coerce.record(files.read_json(path))
            return
        if files.size_of(path) > MAX_LOG:
            raise BadInput(f"{path} is larger than {MAX_LOG:,} bytes; it was left alone.")
        for line in files.read_json_lines(path):
            if line.data is None:
                yield line.skipped
            elif not self._change(line.data):
                yield events.Skipped(where=line.where, why="a change of nothing")

    def _change(self, change: Json) -> bool:
        """Make one change; return whether it could be made."""
        kind, path, value = change.get("kind"), change.get("k"), change.get("v")
        if kind == 0:
            self.data = coerce.record(value)
            return isinstance(value, dict)
        if not isinstance(path, list) or not path:
            return False
        holder: Any = self.data
        for key in path[:-1]:
            holder = _get(holder, key)
        if kind == 1:
            return _put(holder, path[-1], value)
        if kind == 3 and isinstance(holder, dict) and isinstance(path[-1], str):
            return holder.pop(path[-1], None) is not None
        if kind != 2:
            return False
        target = _get(holder, path[-1])
        if not isinstance(target, list):
            return _put(holder, path[-1], coerce.items(value))
        cut = change.get("i")
        if isinstance(cut, int) and 0 <= cut < len(target):
            if path == ["requests"]:
                self.abandoned.append(list(target))
            del target[cut:]
        target.extend(coerce.items(value))
        return True


def _get(holder: Any, key: Any) -> Any:
    if isinstance(holder, dict) and isinstance(key, str):
        return holder.get(key)
    if isinstance(holder, list) and isinstance(key, int) and 0 <= key < len(holder):
        return holder[key]
    return None


def _put(holder: Any, key: Any, value: Any) -> bool:
    if isinstance(holder, dict) and isinstance(key, str):
        holder[key] = value
        return True
    if isinstance(holder, list) and isinstance(key, int) and 0 <= key <= len(holder):
        holder[key : key + 1] = [value]
        return True
    return False


def _all_messages(requests: list[Any], at: datetime) -> list[events.MessageEvent]:
    made: list[events.MessageEvent] = []
    for number, request in enumerate(coerce.records(requests)):
        at = parse_time(request.get("timestamp")) or at
        id = coerce.name(request.get("requestId")) or f"request {number}"
        made.extend(_messages(request, id, at))
    return made


def _messages(request: Json, id: str, at: datetime) -> Iterator[events.MessageEvent]:
    """Yield a question and what came of it."""
    message = coerce.record(request.get("message"))
    texts = [coerce.text(part.get("text")) for part in coerce.records(message.get("parts"))]
    if question := text_content(coerce.text(message.get("text")) or "".join(texts)):
        yield question.to_message("user", at, id=id)
    result = coerce.record(request.get("result"))
    metadata = coerce.record(result.get("metadata"))
    turn = ModelTurn()
    tools = _Tools(turn, metadata)
    for piece in coerce.items(request.get("response")):
        _add(turn, piece, tools)
    tools.add_rest()
    model = coerce.first_name(metadata.get("resolvedModel"), request.get("modelId"))
    model = None if model is None else model.removeprefix("copilot/")
    error = coerce.name(coerce.record(result.get("errorDetails")).get("message"))
    extra = None if error is None else {"error": error}
    usage = coerce.record(result.get("usage"))
    used = call_usage(
        "copilot",
        id,
        model=model,
        at=at,
        input=metadata.get("promptTokens") or usage.get("promptTokens"),
        output=metadata.get("outputTokens") or usage.get("completionTokens"),
    )
    id = f"{id}:answer"
    answer = list(turn.to_messages("assistant", at, id=id, model=model, extra=extra, usage=used))
    if not answer and error is not None:
        answer = [MessageContent().to_message("assistant", at, id=id, model=model, extra=extra)]
    yield from answer


class _Tools:
    """Adds the tools that an answer used to a model's turn.

    The calls and their results are in the rounds of the result. The items of the response show the
    same calls to people, in newer releases under names of their own: those stand for the calls of
    the rounds one after the other.
    """

    def __init__(self, turn: ModelTurn, metadata: Json) -> None:
        self._turn = turn
        # The calls that were not added yet, by their ids.
        self._waiting: dict[str, Json] = {}
        for each in coerce.records(metadata.get("toolCallRounds")):
            for call in coerce.records(each.get("toolCalls")):
                if coerce.name(call.get("id")):
                    self._waiting.setdefault(call["id"], call)
        self._results = coerce.record(metadata.get("toolCallResults"))
        self._done: set[str] = set()

    def add(self, item: Json) -> None:
        """Add the call that an item shows, or the item itself when no round has it."""
        shown = coerce.text(item.get("toolCallId"))
        call = self._waiting.get(shown)
        if call is None and shown not in self._done:
            call = next(iter(self._waiting.values()), None)
        if call is not None:
            self._add_call(call, item)
        elif item.get("presentation") != "hidden" and shown not in self._done:
            name = coerce.name(item.get("toolId")) or "tool"
            self._put(shown, name, _arguments(item), _shown_result(item), item)

    def add_rest(self) -> None:
        """Add the calls that no item showed."""
        for call in list(self._waiting.values()):
            self._add_call(call, {})

    def _add_call(self, call: Json, item: Json) -> None:
        id, name = call["id"], coerce.name(call.get("name")) or "tool"
        del self._waiting[id]
        given = coerce.parse_json_or_keep(call.get("arguments")) or _arguments(item)
        texts = _results(coerce.record(self._results.get(id)).get("content")) or _shown_result(item)
        self._put(id, name, given, texts, item)

    def _put(self, id: str, name: str, given: Any, texts: str, item: Json) -> None:
        self._done.add(id)
        content, answers = self._turn.tools
        content.add_call(id, name, given)
        if item.get("isComplete") is not False and (texts or item):
            answers.add_result(id, texts, name=name)


def _arguments(item: Json) -> Any:
    """Return what a tool was given, as far as the item says it: those of MCP have it as it was."""
    data = item.get("toolSpecificData")
    return data["rawInput"] if isinstance(data, dict) and "rawInput" in data else data


def _results(given: object) -> str:
    return "\n".join(_text(each.get("value")) for each in coerce.records(given))


def _shown_result(item: Json) -> str:
    """Return what an item shows of a result: its output, or else the message for people."""
    output = coerce.record(item.get("resultDetails")).get("output")
    texts = coerce.text(output) or _results(output)
    return texts or _text(item.get("pastTenseMessage")) or _text(item.get("invocationMessage"))


def _add(turn: ModelTurn, piece: Any, tools: _Tools) -> None:
    """Add one piece of an answer; marks of the editor are passed over."""
    match piece:
        case {"kind": "thinking", "value": value}:
            texts = value if isinstance(value, list) else [value]
            turn.words.add_reasoning("".join(map(coerce.text, texts)))
        case {"kind": "toolInvocationSerialized"}:
            tools.add(piece)
        case {"kind": "inlineReference", "inlineReference": {**reference}}:
            name = coerce.first_name(piece.get("name"), reference.get("name"))
            path = coerce.text(reference.get("path")).rpartition("/")[2]
            _add_words(turn.words, f"`{name or path}`" if name or path else "")
        case {"kind": str(kind)} if kind != "markdownContent":
            pass
        case {"value": value} | {"content": value}:
            _add_words(turn.words, _text(value))
        case str():
            _add_words(turn.words, piece)


def _add_words(content: MessageContent, words: str) -> None:
    """Add to the text before it: words come in pieces."""
    if words and content.parts and content.parts[-1]["type"] == "text":
        content.parts[-1] = parts.text(content.parts[-1]["text"] + words)
    else:
        content.add_text(words)


def _text(value: Any) -> str:
    return coerce.text(value.get("value")) if isinstance(value, dict) else coerce.text(value)


IMPORTER = Copilot()
