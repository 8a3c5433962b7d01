"""Qwen Code: a file of JSON lines for each session, and one for each agent that a session ran.

The lines are named and linked as Claude Code's are; their messages are in the form of Google's interface.
(Releases that kept their sessions as Gemini CLI does are read as Gemini CLI's.)
"""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from sessionary.formats import coerce, parts
from sessionary.importers.base import files
from sessionary.importers.base.content import (
    MessageContent,
    call_usage,
    parse_time,
    path_to,
    tree_branches,
    without_nodes,
)
from sessionary.importers.base.events import (
    Compacted,
    Event,
    Facts,
    IgnoredRecord,
    Json,
    MessageEvent,
    Parent,
    Resume,
    SessionBegin,
    Skipped,
    Unit,
    Where,
)
from sessionary.importers.base.files import json_lines
from sessionary.importers.gemini import messages
from sessionary.model.session import Kind, Lineage
from sessionary.model.usage import Usage

TOOL = "qwen-code"
_HEAD = 64 * 1024
# A line with a message of Google's form; Claude Code's have `content`.
_MESSAGE = re.compile(
    rb'"message"\s*:\s*\{\s*(?:"role"\s*:\s*"(?:user|model)"\s*,\s*)?"parts"\s*:\s*\['
)
# User lines that no person wrote.
_TOLD = ("cron", "notification")


class QwenCode:
    """Reads the sessions of Qwen Code."""

    name = TOOL
    title = "Qwen Code"

    def places(self, where: Where) -> list[Path]:
        """`QWEN_RUNTIME_DIR` or `QWEN_HOME`, else `~/.qwen`."""
        home = where.path("QWEN_HOME", ".qwen")
        given = where.environment.get("QWEN_RUNTIME_DIR")
        return [(Path(given).expanduser() if given else home) / "projects"]

    def recognises(self, path: Path) -> bool:
        """A session's file, or a directory with some."""
        if files.is_directory(path):
            return any(_is_session(each) for each in _found(path))
        return path.suffix == ".jsonl" and files.is_file(path) and _is_session(path)

    def find(self, place: Path) -> Iterator[Unit]:
        """One unit a file: sessions first, those that others were copied from before their copies."""
        found = [place] if files.is_file(place) else list(_found(place))
        for path in sorted(found, key=lambda each: (_is_agent(each), files.time_of(each), each)):
            beside = _meta(path)
            stamp = files.stamp_of(path, *beside)
            yield Unit(str(path), path, stamp, files.size_of(path), beside)

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        """The session of a file: the way to its last line is the one that people read."""
        del resume
        session = _QwenSession(files.changed_at(unit.path))
        with files.opened(unit.path) as file:
            for line in json_lines(file):
                if line.data is None:
                    yield Skipped(where=f"byte {line.start}", why=line.why or "")
                else:
                    session.take(line.data, f"byte {line.start}")
        yield from session.events(unit.path)


class _QwenSession:
    """What a file says of a session."""

    def __init__(self, at: datetime) -> None:
        self._at = at
        self._first: Json = {}
        self._last: str | None = None
        self._parents: dict[str, str | None] = {}
        self._said: dict[str, list[MessageEvent | Compacted]] = {}
        self._fields: Json = {}
        self._began: datetime | None = None
        self._left_out: Counter[str] = Counter()

    def take(self, line: Json, place: str) -> None:
        """Take one line."""
        id = coerce.name(line.get("uuid")) or f"{line.get('sessionId')} {place}"
        self._first = self._first or line
        self._at = parse_time(line.get("timestamp")) or self._at
        self._began = self._began or self._at
        # A line without the name of the one before it follows that.
        parent = line.get("parentUuid", self._last)
        self._parents[id] = coerce.name(parent)
        self._last = id
        if "workspace" not in self._fields and coerce.name(line.get("cwd")):
            branch = coerce.name(line.get("gitBranch"))
            given = {"path": line["cwd"]} | ({"branch": branch} if branch else {})
            self._fields["workspace"] = given
        made = self._items(id, line)
        if made:
            self._said[id] = made

    def events(self, path: Path) -> Iterator[Event]:
        """All that was said."""
        if self._said:
            yield _begin(path, self._first, self._began)
            yield Facts(fields=_titled(self._fields, path))
            silent = set(self._parents) - set(self._said)
            parents = without_nodes(self._parents, silent)
            way = path_to(self._parents, self._last or "")
            last = next((each for each in reversed(way) if each in self._said), None)
            yield from tree_branches(parents, self._said, current=last)
        for what, count in self._left_out.items():
            yield IgnoredRecord(what=what, count=count)

    def _items(self, id: str, line: Json) -> list[MessageEvent | Compacted]:
        kind, subtype = line.get("type"), line.get("subtype")
        payload = coerce.record(line.get("systemPayload"))
        given = coerce.record(line.get("message")).get("parts")
        if kind == "user":
            role = "system" if subtype in _TOLD else "user"
            message = {"id": id, "type": role, "content": given}
            return list(messages.said(message, self._at, session_id=""))
        if kind == "assistant":
            return self._answer(id, line, given)
        if kind == "tool_result":
            return self._result(id, line, given)
        if kind == "system" and subtype == "custom_title":
            if coerce.name(payload.get("customTitle")):
                self._fields["title"] = payload["customTitle"]
        elif kind == "system" and subtype == "chat_compression":
            summary = _summary(payload)
            if summary:
                return [Compacted(summary=summary, at=self._at, id=id)]
        elif kind == "system":
            self._left_out[f"system lines: {subtype}"[:80]] += 1
        else:
            content = MessageContent()
            content.add(parts.unknown(line, f"{TOOL}:{kind}"))
            return [content.said("system", self._at, id=id)]
        return []

    def _answer(self, id: str, line: Json, given: object) -> list[MessageEvent | Compacted]:
        content = MessageContent()
        messages.add(content, given)
        model = coerce.name(line.get("model"))
        used = _usage(id, coerce.record(line.get("usageMetadata")), model, self._at)
        return [content.said("assistant", self._at, id=id, model=model, usage=used)]

    def _result(self, id: str, line: Json, given: object) -> list[MessageEvent | Compacted]:
        content = MessageContent()
        messages.add(content, given)
        status = coerce.record(line.get("toolCallResult")).get("status")
        if status in ("error", "cancelled"):
            for part in content.parts:
                if part["type"] == "tool_result":
                    part["is_error"] = True
        return [content.said("tool", self._at, id=id)] if content else []


def _begin(path: Path, first: Json, began: datetime | None) -> SessionBegin:
    named = coerce.name(first.get("sessionId"))
    if _is_agent(path):
        session = named or path.parent.name
        return SessionBegin(
            native_id=f"{session}/{path.stem}",
            began_at=began,
            kind=Kind.SUBAGENT,
            parent=Parent(native_id=session, lineage=Lineage.SUBAGENT),
        )
    id = named or path.stem
    origin = coerce.name(coerce.record(first.get("forkedFrom")).get("sessionId"))
    if origin is None or origin == id:
        return SessionBegin(native_id=id, began_at=began)
    return SessionBegin(native_id=id, parent=Parent(native_id=origin, lineage=Lineage.FORK))


def _titled(fields: Json, path: Path) -> Json:
    """What an agent was asked to do is its title."""
    for beside in _meta(path):
        told = coerce.record(coerce.parse_json(files.head(beside, _HEAD)))
        title = coerce.name(told.get("description")) or coerce.name(told.get("agentType"))
        return fields | ({"title": title} if title else {})
    return fields


def _summary(payload: Json) -> str:
    """What the model read from here on instead of what was said before: the first thing it is told."""
    for each in coerce.records(payload.get("compressedHistory")):
        content = MessageContent()
        messages.add(content, messages.split_context(each.get("parts"))[1])
        words = "\n".join(part["text"] for part in content.parts if part["type"] == "text")
        if words and each.get("role") == "user":
            return words
    return ""


def _usage(id: str, given: Json, model: str | None, at: datetime) -> tuple[Usage, ...]:
    """Cached tokens are a part of the input; thoughts are, or are not, a part of the output."""
    sent, cached = (
        coerce.count(given.get("promptTokenCount")),
        coerce.count(given.get("cachedContentTokenCount")),
    )
    spoken, thought = (
        coerce.count(given.get("candidatesTokenCount")),
        coerce.count(given.get("thoughtsTokenCount")),
    )
    total = coerce.count(given.get("totalTokenCount"))
    is_sum = spoken <= total - sent <= spoken + thought
    return call_usage(
        TOOL,
        id,
        model=model,
        at=at,
        input=max(0, sent - cached),
        cache_read=cached,
        output=total - sent if is_sum else spoken + thought,
        reasoning=thought,
    )


def _found(place: Path) -> Iterator[Path]:
    """The files of sessions and agents below a directory of projects, a project, or the tool's own."""
    for path in files.walk(place, suffixes=(".jsonl",), depth=5):
        within = path.parts[len(place.parts) - 1 :]
        if "chats" in within or "subagents" in within:
            yield path


def _is_session(path: Path) -> bool:
    head = files.head(path, _HEAD)
    return b'"sessionId"' in head and _MESSAGE.search(head) is not None


def _is_agent(path: Path) -> bool:
    return "subagents" in path.parts and path.name.startswith("agent-")


def _meta(path: Path) -> tuple[Path, ...]:
    beside = path.with_suffix(".meta.json")
    return (beside,) if _is_agent(path) and files.is_file(beside) else ()


IMPORTER = QwenCode()
