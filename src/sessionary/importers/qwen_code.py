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
from sessionary.formats.coerce import Json
from sessionary.importers.base import events, files
from sessionary.importers.base.content import (
    call_usage,
    parse_time,
    path_to,
    tree_branches,
    without_nodes,
)
from sessionary.importers.gemini_cli import content_of, split_context, to_messages
from sessionary.model.session import Lineage
from sessionary.model.usage import Usage

TOOL = "qwen-code"
_HEAD = 64 * 1024
# A line with a message of Google's form; Claude Code's have `content`.
_MESSAGE = re.compile(
    rb'"message"\s*:\s*\{\s*(?:"role"\s*:\s*"(?:user|model)"\s*,\s*)?"parts"\s*:\s*\['
)
# User lines that no person wrote.
_PROGRAM_SUBTYPES = ("cron", "notification")


class QwenCode(events.Importer):
    """Reads the sessions of Qwen Code."""

    name = TOOL
    title = "Qwen Code"

    def places(self, user: events.UserEnvironment) -> list[Path]:
        home = user.path("QWEN_HOME", ".qwen")
        given = user.environment.get("QWEN_RUNTIME_DIR")
        return [(Path(given).expanduser() if given else home) / "projects"]

    def recognises(self, path: Path) -> bool:
        return path.suffix == ".jsonl" and files.is_file(path) and _is_session(path)

    def find(self, place: Path) -> Iterator[events.Unit]:
        """Yield sessions before agents, and originals before their copies."""
        found = [place] if files.is_file(place) else list(_found(place))
        for path in sorted(found, key=lambda each: (_is_agent(each), files.changed_at(each), each)):
            yield files.unit(path, *_meta(path))

    def read(self, unit: events.Unit, resume: events.Resume | None) -> Iterator[events.Event]:
        """Yield the session of a file; the branch of its last line is current."""
        session = _QwenSession(files.changed_at(unit.path))
        for line in files.read_json_lines(unit.path):
            if line.data is None:
                yield line.skipped
            else:
                session.take(line.data, line.where)
        yield from session.finish(unit.path)


class _QwenSession:
    """A session of a file."""

    def __init__(self, at: datetime) -> None:
        self._at = at
        self._first: Json = {}
        self._last: str | None = None
        self._parents: dict[str, str | None] = {}
        self._messages: dict[str, list[events.MessageEvent | events.Compacted]] = {}
        self._title: str | None = None
        self._workspace: Json | None = None
        self._began: datetime | None = None
        self._ignored: Counter[str] = Counter()

    def take(self, line: Json, place: str) -> None:
        """Take one line."""
        id = coerce.name(line.get("uuid")) or f"{line.get('sessionId')} {place}"
        self._first = self._first or line
        self._at = parse_time(line.get("timestamp")) or self._at
        self._began = self._began or self._at
        # A line that names no parent follows the one before it.
        parent = line.get("parentUuid", self._last)
        self._parents[id] = coerce.name(parent)
        self._last = id
        if self._workspace is None:
            self._workspace = events.workspace(line.get("cwd"), branch=line.get("gitBranch"))
        made = self._items(id, line)
        if made:
            self._messages[id] = made

    def finish(self, path: Path) -> Iterator[events.Event]:
        """Yield all events of the session."""
        if self._messages:
            named = coerce.name(self._first.get("sessionId"))
            if _is_agent(path):
                session = named or path.parent.name
                yield events.begin_session(f"{session}/{path.stem}", self._began, parent=session)
            else:
                id = named or path.stem
                origin = coerce.name(coerce.record(self._first.get("forkedFrom")).get("sessionId"))
                # A copy begins when its first own message comes.
                began = self._began if origin in (None, id) else None
                yield events.begin_session(id, began, parent=origin, lineage=Lineage.FORK)
            # The title of an agent is what it was asked to do.
            meta = files.read_record(_meta(path)[0]) if _meta(path) else {}
            title = coerce.first_name(meta.get("description"), meta.get("agentType"), self._title)
            yield events.facts(title=title, workspace=self._workspace)
            silent = set(self._parents) - set(self._messages)
            parents = without_nodes(self._parents, silent)
            ids = path_to(self._parents, self._last or "")
            last = next((each for each in reversed(ids) if each in self._messages), None)
            yield from tree_branches(parents, self._messages, current=last)
        for what, count in self._ignored.items():
            yield events.IgnoredRecord(what=what, count=count)

    def _items(self, id: str, line: Json) -> list[events.MessageEvent | events.Compacted]:
        kind, subtype = line.get("type"), line.get("subtype")
        payload = coerce.record(line.get("systemPayload"))
        given = coerce.record(line.get("message")).get("parts")
        if kind == "user":
            role = "system" if subtype in _PROGRAM_SUBTYPES else "user"
            message = {"id": id, "type": role, "content": given}
            return list(to_messages(message, self._at, session_id=""))
        if kind == "assistant":
            model = coerce.name(line.get("model"))
            used = _usage(id, coerce.record(line.get("usageMetadata")), model, self._at)
            content = content_of(given)
            return [content.to_message("assistant", self._at, id=id, model=model, usage=used)]
        if kind == "tool_result":
            content = content_of(given)
            status = coerce.record(line.get("toolCallResult")).get("status")
            if status in ("error", "cancelled"):
                for part in content.parts:
                    if part["type"] == "tool_result":
                        part["is_error"] = True
            return [content.to_message("tool", self._at, id=id)] if content else []
        if kind == "system" and subtype == "custom_title":
            self._title = coerce.first_name(payload.get("customTitle"), self._title)
        elif kind == "system" and subtype == "chat_compression":
            # The first user message of the compressed history: what the model reads from here on.
            for each in coerce.records(payload.get("compressedHistory")):
                summary = content_of(split_context(each.get("parts"))[1]).text
                if summary and each.get("role") == "user":
                    return [events.Compacted(summary=summary, at=self._at, id=id)]
        elif kind == "system":
            self._ignored[f"system lines: {subtype}"[:80]] += 1
        else:
            unknown = [parts.unknown(line, f"{TOOL}:{kind}")]
            return [events.MessageEvent(role="system", parts=unknown, at=self._at, id=id)]
        return []


def _usage(id: str, given: Json, model: str | None, at: datetime) -> tuple[Usage, ...]:
    """Return the usage; cached tokens are part of the input, reasoning may be part of the output."""
    names = ("prompt", "cachedContent", "candidates", "thoughts")
    sent, cached, output, reasoning = (
        coerce.count(given.get(f"{name}TokenCount")) for name in names
    )
    total = coerce.count(given.get("totalTokenCount"))
    is_sum = output <= total - sent <= output + reasoning
    return call_usage(
        TOOL,
        id,
        model=model,
        at=at,
        input=max(0, sent - cached),
        cache_read=cached,
        output=total - sent if is_sum else output + reasoning,
        reasoning=reasoning,
    )


def _found(place: Path) -> Iterator[Path]:
    """Yield the files of sessions and agents below the tool's directory, that of projects, or of one."""
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
