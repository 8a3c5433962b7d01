"""Copilot's conversations in VS Code: one JSON document, or a log of changes to one.

A line of the log is the whole state (kind 0), a value set at a path (1), items put at the end of a
list that may be cut before (2), or a value deleted (3).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.formats import coerce, parts
from sessionary.importers.base import files
from sessionary.importers.base.content import MessageContent, ModelTurn, call_usage, parse_time
from sessionary.importers.base.events import (
    Branch,
    Event,
    Json,
    MessageEvent,
    Skipped,
    Unit,
    begin_session,
    facts,
    workspace,
)

MAX_LOG = 512 * 1024 * 1024


def read(unit: Unit) -> Iterator[Event]:
    """Yield the conversation of a file."""
    session = _VscodeSession()
    yield from session.fill(unit.path)
    id = coerce.name(session.data.get("sessionId")) or unit.path.stem
    if not isinstance(session.data.get("requests"), list):
        raise BadInput(f"{unit.path} is no conversation of Copilot.")
    began = parse_time(session.data.get("creationDate"))
    at = began or files.changed_at(unit.path)
    yield begin_session(id, began)
    folder = files.read_record(unit.hint, most=1024 * 1024).get("folder")
    yield facts(
        title=coerce.name(session.data.get("customTitle")),
        workspace=workspace(coerce.text(folder).removeprefix("file://")),
    )
    for requests in session.abandoned:
        yield Branch(items=_all_messages(requests, at), is_current=False)
    yield Branch(items=_all_messages(session.data["requests"], at), is_current=True)


class _VscodeSession:
    """The state after all its changes."""

    def __init__(self) -> None:
        self.data: Json = {}
        # Requests that were cut off, each time with those before them.
        self.abandoned: list[list[Any]] = []

    def fill(self, path: Path) -> Iterator[Skipped]:
        if path.suffix == ".json":
            self.data = coerce.record(files.read_json(path))
            return
        if files.size_of(path) > MAX_LOG:
            raise BadInput(f"{path} is larger than {MAX_LOG:,} bytes; it was left alone.")
        for line in files.read_json_lines(path):
            if line.data is None:
                yield line.skipped
            elif not self._change(line.data):
                yield Skipped(where=line.where, why="a change of nothing")

    def _change(self, change: Json) -> bool:
        """Make one change; return whether it could be made."""
        kind, path, value = change.get("kind"), change.get("k"), change.get("v")
        if kind == 0:
            self.data = coerce.record(value)
            return isinstance(value, dict)
        if not isinstance(path, list) or not path:
            return False
        holder = self._holder(path[:-1])
        if kind == 1:
            return _put(holder, path[-1], value)
        if kind == 2:
            return self._extend(_get(holder, path[-1]), path, change)
        if kind == 3 and isinstance(holder, dict) and isinstance(path[-1], str):
            return holder.pop(path[-1], None) is not None
        return False

    def _holder(self, path: list[Any]) -> Any:
        found: Any = self.data
        for key in path:
            found = _get(found, key)
        return found

    def _extend(self, target: Any, path: list[Any], change: Json) -> bool:
        if not isinstance(target, list):
            return _put(self._holder(path[:-1]), path[-1], coerce.items(change.get("v")))
        cut = change.get("i")
        if isinstance(cut, int) and 0 <= cut < len(target):
            if path == ["requests"]:
                self.abandoned.append(list(target))
            del target[cut:]
        target.extend(coerce.items(change.get("v")))
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


def _all_messages(requests: list[Any], at: Any) -> list[MessageEvent]:
    made: list[MessageEvent] = []
    for number, request in enumerate(coerce.records(requests)):
        at = parse_time(request.get("timestamp")) or at
        made.extend(
            _messages(request, coerce.name(request.get("requestId")) or f"request {number}", at)
        )
    return made


def _messages(request: Json, id: str, at: Any) -> Iterator[MessageEvent]:
    """A question and what came of it."""
    question = MessageContent()
    message = coerce.record(request.get("message"))
    texts = [coerce.text(part.get("text")) for part in coerce.records(message.get("parts"))]
    question.add_text(coerce.text(message.get("text")) or "".join(texts))
    if question:
        yield question.to_message("user", at, id=id)
    result = coerce.record(request.get("result"))
    metadata = coerce.record(result.get("metadata"))
    turn = ModelTurn()
    tools = _Tools(metadata)
    for piece in coerce.items(request.get("response")):
        _add(turn, piece, tools)
    tools.add_rest(turn)
    model = coerce.first_name(metadata.get("resolvedModel"), request.get("modelId"))
    model = None if model is None else model.removeprefix("copilot/")
    error = coerce.name(coerce.record(result.get("errorDetails")).get("message"))
    usage = coerce.record(result.get("usage"))
    used = call_usage(
        "copilot",
        id,
        model=model,
        at=at,
        input=metadata.get("promptTokens") or usage.get("promptTokens"),
        output=metadata.get("outputTokens") or usage.get("completionTokens"),
    )
    extra = None if error is None else {"error": error}
    answer = list(
        turn.to_messages("assistant", at, id=f"{id}:answer", model=model, extra=extra, usage=used)
    )
    if not answer and error is not None:
        answer = [
            MessageContent().to_message(
                "assistant", at, id=f"{id}:answer", model=model, extra=extra
            )
        ]
    yield from answer


class _Tools:
    """The tools that an answer used.

    The calls and their results are in the rounds of the result. The items of
    the response show the same calls to people, in newer releases under names of their own: those
    stand for the calls of the rounds one after the other.
    """

    def __init__(self, metadata: Json) -> None:
        rounds = coerce.records(metadata.get("toolCallRounds"))
        self._calls = [
            call
            for each in rounds
            for call in coerce.records(each.get("toolCalls"))
            if coerce.name(call.get("id"))
        ]
        self._results = coerce.record(metadata.get("toolCallResults"))
        self._done: set[str] = set()

    def add(self, turn: ModelTurn, item: Json) -> None:
        """Add the call that an item shows, or the item itself when no round has it."""
        shown = coerce.text(item.get("toolCallId"))
        waiting = [call for call in self._calls if call["id"] not in self._done]
        call = next((each for each in waiting if each["id"] == shown), None)
        if call is None and shown not in self._done:
            call = next(iter(waiting), None)
        if call is not None:
            self._add_call(turn, call, item)
        elif item.get("presentation") != "hidden" and shown not in self._done:
            self._add_item(turn, shown, item)

    def add_rest(self, turn: ModelTurn) -> None:
        """Add the calls that no item showed."""
        for call in self._calls:
            if call["id"] not in self._done:
                self._add_call(turn, call, {})

    def _add_call(self, turn: ModelTurn, call: Json, item: Json) -> None:
        id, name = call["id"], coerce.name(call.get("name")) or "tool"
        self._done.add(id)
        given = coerce.parse_json_or_keep(call.get("arguments")) or _arguments(item)
        content, answers = turn.tools
        content.add_call(id, name, given)
        texts = _results(coerce.record(self._results.get(id)).get("content")) or _shown_result(item)
        if item.get("isComplete") is not False and (texts or item):
            answers.add_result(id, texts, name=name)

    def _add_item(self, turn: ModelTurn, id: str, item: Json) -> None:
        self._done.add(id)
        name = coerce.name(item.get("toolId")) or "tool"
        content, answers = turn.tools
        content.add_call(id, name, _arguments(item))
        if item.get("isComplete") is not False:
            answers.add_result(id, _shown_result(item), name=name)


def _arguments(item: Json) -> Any:
    """What a tool was given, as far as the item says it: those of MCP have it as it was."""
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
            tools.add(turn, piece)
        case {"kind": "inlineReference", "inlineReference": {**reference}}:
            name = coerce.first_name(piece.get("name"), reference.get("name"))
            path = coerce.text(reference.get("path")).rpartition("/")[2]
            _say(turn.words, f"`{name or path}`" if name or path else "")
        case {"kind": str(kind)} if kind != "markdownContent":
            pass
        case {"value": value} | {"content": value}:
            _say(turn.words, _text(value))
        case str():
            _say(turn.words, piece)


def _say(content: MessageContent, words: str) -> None:
    """Words come in pieces that belong together."""
    if words and content.parts and content.parts[-1]["type"] == "text":
        content.parts[-1] = parts.text(content.parts[-1]["text"] + words)
    else:
        content.add_text(words)


def _text(value: Any) -> str:
    return coerce.text(value.get("value")) if isinstance(value, dict) else coerce.text(value)
