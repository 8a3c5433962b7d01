"""Cline, Roo Code and Kilo Code: a directory for each task; Cline's command line: one for each session."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.formats import anthropic_blocks, coerce, parts
from sessionary.importers.base import files
from sessionary.importers.base.content import MessageContent, call_usage, first_time, parse_time
from sessionary.importers.base.events import (
    Compacted,
    Event,
    Facts,
    Json,
    MessageEvent,
    Resume,
    Skipped,
    Unit,
    UsageEvent,
    Where,
    begin_session,
)
from sessionary.model.usage import Usage

TALK, SCREEN = "api_conversation_history.json", "ui_messages.json"
ITEM, FACTS = "history_item.json", "task_metadata.json"
_EXTENSIONS = ("saoudrizwan.claude-dev", "rooveterinaryinc.roo-cline", "kilocode.kilo-code")
_EDITORS = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")
_OPEN, _CLOSE = "<task>", "</task>"
_AROUND = "<environment_details>"
# How newer releases tell the model what a tool did: as the person's words, behind the call.
_TOLD = re.compile(r"\[(?P<tool>[a-z_]+)(?: for .*?)?\] Result:\n?(?P<result>.*)", re.DOTALL)
# What the command line calls the messages of a session, and how it wraps what a person types.
MESSAGES = ".messages.json"
_TYPED = re.compile(r"\s*<user_input[^>]*>(.*)</user_input>\s*", re.DOTALL)


class Cline:
    """Reads the tasks of Cline and its sisters."""

    name = "cline"
    title = "Cline"

    def places(self, where: Where) -> list[Path]:
        """The directories of each extension in each editor, and that of the command line."""
        roots = (".config", "Library/Application Support", "AppData/Roaming")
        users = [where.home / root / name / "User" for root in roots for name in _EDITORS]
        users.append(where.home / ".vscode-server" / "data" / "User")
        found = [user / "globalStorage" / each for user in users for each in _EXTENSIONS]
        return [*found, where.home / ".cline" / "data"]

    def recognises(self, path: Path) -> bool:
        """Whether it is one of a task's files, and one of them holds a conversation; or a session's."""
        if path.name.endswith(MESSAGES):
            return files.is_file(path) and _is_session(path)
        if path.name not in (TALK, SCREEN) or not files.is_file(path):
            return False
        return any(_holds_conversation(path.with_name(name)) for name in (TALK, SCREEN))

    def find(self, place: Path) -> Iterator[Unit]:
        """One unit a task; those that others began come after them."""
        found: list[tuple[bool, Unit]] = []
        for folder in _tasks(place):
            item = coerce.record(files.read_json_if_any(folder / ITEM))
            parent = coerce.name(item.get("parentTaskId"))
            known = [folder / name for name in (TALK, SCREEN, ITEM, FACTS)]
            beside = tuple(path for path in known if files.is_file(path))
            size = files.size_of(*beside)
            unit = Unit(str(folder), beside[0], files.stamp_of(*known), size, beside, hint=parent)
            found.append((parent is not None, unit))
        for path in _sessions(place):
            facts = _facts_of(path)
            parent = coerce.name(
                coerce.record(files.read_json_if_any(facts)).get("parent_session_id")
            )
            stamp, size = files.stamp_of(path, facts), files.size_of(path, facts)
            unit = Unit(str(path), path, stamp, size, (facts,), hint=parent)
            found.append((parent is not None, unit))
        yield from (unit for _, unit in sorted(found, key=lambda each: (each[0], each[1].name)))

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        """One task or session."""
        del resume
        if unit.path.name.endswith(MESSAGES):
            yield from _session(unit.path, unit.hint)
            return
        yield from _Task(unit.path.parent, unit.hint).events()


def _tasks(place: Path) -> Iterator[Path]:
    if files.is_file(place):
        place = place.parent
    if _is_task(place):
        yield place
        return
    inner = place / "tasks"
    root = inner if files.is_directory(inner) else place
    found = files.walk(root, suffixes=(TALK, SCREEN), depth=1)
    yield from sorted({each.parent for each in found})


def _holds_conversation(path: Path) -> bool:
    """Whether a file begins as a list of messages, or of what was on the screen."""
    head = files.head(path).lstrip(b"\xef\xbb\xbf \t\r\n")
    return head.startswith(b"[") and (b'"role"' in head or b'"ts"' in head)


def _is_task(place: Path) -> bool:
    return files.is_file(place / TALK) or files.is_file(place / SCREEN)


def _sessions(place: Path) -> Iterator[Path]:
    """The files of the command line's sessions."""
    if files.is_file(place):
        found = iter([place] if place.name.endswith(MESSAGES) else [])
    else:
        inner = place / "sessions"
        root = inner if files.is_directory(inner) else place
        found = files.walk(root, suffixes=(MESSAGES,), depth=1)
    for path in found:
        if _is_session(path):
            yield path


def _is_session(path: Path) -> bool:
    head = files.head(path)
    return all(name in head for name in (b'"sessionId"', b'"messages"', b'"origin"'))


def _facts_of(path: Path) -> Path:
    """The file beside a session's messages that says what is known of it."""
    return path.with_name(path.name.removesuffix(MESSAGES) + ".json")


def _session(path: Path, parent: str | None) -> Iterator[Event]:
    """One session of the command line."""
    given = coerce.record(files.read_json(path))
    facts = coerce.record(files.read_json_if_any(_facts_of(path)))
    messages = given.get("messages")
    if not isinstance(messages, list):
        raise BadInput(f"{path} has no messages that can be read.")
    id = coerce.name(given.get("sessionId")) or path.name.removesuffix(MESSAGES)
    at = parse_time(facts.get("started_at")) or files.changed_at(path)
    yield begin_session(id, at, parent=parent)
    fields: Json = {
        "title": coerce.record(facts.get("metadata")).get("title") or facts.get("prompt")
    }
    if coerce.name(facts.get("cwd")):
        fields["workspace"] = {"path": facts["cwd"]}
    yield Facts(fields=fields)
    for number, message in enumerate(messages, 1):
        if not isinstance(message, dict):
            yield Skipped(where=f"message {number}", why="not an object")
            continue
        at = parse_time(message.get("ts")) or at
        yield from _session_message(id, message, number, at)


def _session_message(session: str, message: Json, number: int, at: datetime) -> Iterator[Event]:
    content = MessageContent()
    blocks = message.get("content")
    for block in blocks if isinstance(blocks, list) else [{"type": "text", "text": blocks}]:
        _add_session_block(content, coerce.record(block))
    name = coerce.name(message.get("id")) or f"{number}"
    kinds = {part["type"] for part in content.parts}
    role = "assistant" if message.get("role") == "assistant" else "user"
    if coerce.record(message.get("metadata")).get("displayOnly") is True:
        role = "system"
    elif role == "user" and "tool_result" in kinds and "text" not in kinds:
        role = "tool"
    model = coerce.name(coerce.record(message.get("modelInfo")).get("id"))
    used = _session_usage(f"{session}:{name}", coerce.record(message.get("metrics")), model, at)
    if content:
        is_model = role == "assistant"
        yield content.said(role, at, id=name, model=model if is_model else None, usage=used)
    elif used:
        yield UsageEvent(usage=used)


def _add_session_block(content: MessageContent, block: Json) -> None:
    words, results = block.get("text"), coerce.records(block.get("content"))
    if isinstance(words, str) and block.get("type") == "text":
        typed = _TYPED.fullmatch(words)
        content.say(words if typed is None else typed[1])
    elif (
        block.get("type") == "tool_result" and results and all("result" in each for each in results)
    ):
        told = "\n".join(coerce.text(each["result"]) or str(each["result"]) for each in results)
        is_error = any(each.get("success") is False for each in results)
        id, name = coerce.text(block.get("tool_use_id")), coerce.name(block.get("name"))
        content.add(parts.tool_result(id, told, name=name, is_error=is_error))
    else:
        anthropic_blocks.add_block(content, block)


def _session_usage(id: str, given: Json, model: str | None, at: datetime) -> tuple[Usage, ...]:
    """What was read from a cache or written to it is a part of the input."""
    sent, read, written = (
        coerce.count(given.get(name))
        for name in ("inputTokens", "cacheReadTokens", "cacheWriteTokens")
    )
    return call_usage(
        "cline",
        id,
        model=model,
        at=at,
        dollars=given.get("cost"),
        input=sent - read - written if sent >= read + written else sent,
        output=given.get("outputTokens"),
        cache_read=read,
        cache_write=written,
    )


class _Task:
    """One task: what the model read, and what the person saw."""

    def __init__(self, folder: Path, parent: str | None) -> None:
        self._folder = folder
        self._parent = parent
        self._screen = coerce.records(_list_of(folder / SCREEN))
        self._item = coerce.record(files.read_json_if_any(folder / ITEM))
        self._facts = coerce.record(files.read_json_if_any(folder / FACTS))
        first = self._screen[0].get("ts") if self._screen else None
        otherwise = files.changed_at(folder / (TALK if files.is_file(folder / TALK) else SCREEN))
        self._began = first_time(first, folder.name, self._item.get("ts")) or otherwise

    def events(self) -> Iterator[Event]:
        """All that is known of it."""
        talk = _list_of(self._folder / TALK)
        if talk is None and not self._screen:
            raise BadInput(f"{self._folder} has no messages that can be read.")
        yield begin_session(self._folder.name, self._began, parent=self._parent)
        yield Facts(fields=self._fields())
        if talk is None:
            yield Skipped(where=TALK, why="it is not there or not JSON; the screen was read")
            yield from self._seen()
        else:
            yield from self._said(talk)
        yield from self._spent()

    def _fields(self) -> Json:
        first = self._screen[0].get("text") if self._screen else None
        title = coerce.text(self._item.get("task")) or coerce.text(first)
        fields: Json = {"title": title.strip().partition("\n")[0]}
        folder = self._item.get("workspace") or self._item.get("cwdOnTaskInitialization")
        if coerce.name(folder):
            fields["workspace"] = {"path": folder}
        model = self._model_at(None)
        return fields | ({"model": model} if model else {})

    def _said(self, talk: list[Any]) -> Iterator[Event]:
        seen = self._times()
        at = self._began
        # Calls of the last answer whose results have not come.
        open_calls: list[Json] = []
        for number, message in enumerate(talk):
            if not isinstance(message, dict):
                yield Skipped(where=f"message {number + 1}", why="not an object")
                continue
            at = parse_time(message.get("ts")) or seen.get(number) or at
            content, results = MessageContent(), MessageContent()
            _add(content, _without_results(message, open_calls, results))
            if message.get("role") == "assistant":
                open_calls = [part for part in content.parts if part["type"] == "tool_call"]
            if results:
                yield results.said("tool", at, id=f"{number}:results")
            if message.get("isSummary") is True:
                words = [part["text"] for part in content.parts if part["type"] == "text"]
                yield Compacted(summary="\n".join(words), at=at)
            elif content:
                yield self._message(message, content, number, at)

    def _message(
        self, message: Json, content: MessageContent, number: int, at: datetime
    ) -> MessageEvent:
        role = "assistant" if message.get("role") == "assistant" else "user"
        kinds = {part["type"] for part in content.parts}
        if role == "user" and "tool_result" in kinds and "text" not in kinds:
            role = "tool"
        model = self._model_at(at) if role == "assistant" else None
        return content.said(role, at, id=f"{number}", model=model)

    def _times(self) -> dict[int, datetime]:
        """When each message of the model's was on the screen."""
        seen: dict[int, datetime] = {}
        for message in self._screen:
            number, at = message.get("conversationHistoryIndex"), parse_time(message.get("ts"))
            if isinstance(number, int) and at is not None:
                seen.setdefault(number + 1, at)
        return seen

    def _model_at(self, at: datetime | None) -> str | None:
        """The model that was used at a time; the last one when no time is asked for."""
        found = None
        for used in coerce.records(self._facts.get("model_usage")):
            since = parse_time(used.get("ts"))
            if at is None or found is None or (since is not None and since <= at):
                found = coerce.name(used.get("model_id")) or found
        return found

    def _seen(self) -> Iterator[Event]:
        """What the person saw, when nothing else is left."""
        at = self._began
        for number, message in enumerate(self._screen):
            if message.get("partial") is True:
                continue
            at = parse_time(message.get("ts")) or at
            kind = message.get("say") or message.get("ask")
            content = MessageContent()
            if kind == "reasoning":
                content.think(message.get("text") or message.get("reasoning"))
            elif kind in ("task", "text", "user_feedback", "completion_result", "followup"):
                content.say(message.get("text"))
            for image in coerce.items(message.get("images")):
                content.attach_url(image)
            if content:
                is_person = number == 0 or kind in ("task", "user_feedback")
                role = "user" if is_person else "assistant"
                yield content.said(role, at, id=f"screen {number}")

    def _spent(self) -> Iterator[UsageEvent]:
        for message in self._screen:
            if message.get("say") != "api_req_started" or message.get("partial") is True:
                continue
            used, at = (
                coerce.record(coerce.parse_json(message.get("text"))),
                parse_time(message.get("ts")),
            )
            call = call_usage(
                "cline",
                f"{self._folder.name}:{message.get('ts')}",
                model=self._model_at(at),
                at=at,
                dollars=used.get("cost"),
                input=used.get("tokensIn"),
                output=used.get("tokensOut"),
                cache_read=used.get("cacheReads"),
                cache_write=used.get("cacheWrites"),
            )
            if call:
                yield UsageEvent(usage=call)


def _list_of(path: Path) -> list[Any] | None:
    found = files.read_json_if_any(path)
    return found if isinstance(found, list) else None


def _without_results(message: Json, calls: list[Json], results: MessageContent) -> object:
    """The content of a message without what it tells of tools: that is added to the results.

    What a tool did is told as words of the person, behind the call that asked for it. The words may
    stand in the block that names the tool, or in the one after it.
    """
    given = message.get("content")
    if message.get("role") == "assistant" or not calls or not isinstance(given, list):
        return given
    rest: list[Any] = []
    waiting: Json | None = None
    for block in given:
        words = coerce.record(block).get("text")
        told = _TOLD.fullmatch(words) if isinstance(words, str) else None
        call = None if told is None else _call_named(calls, told["tool"])
        if told is not None and call is not None:
            calls.remove(call)
            result = told["result"].strip("\n")
            if result:
                results.add(parts.tool_result(call["id"], result, name=call["name"]))
            waiting = None if result else call
        elif waiting is not None and isinstance(words, str) and not words.startswith("<"):
            results.add(parts.tool_result(waiting["id"], words, name=waiting["name"]))
            waiting = None
        else:
            rest.append(block)
    if waiting is not None:
        results.add(parts.tool_result(waiting["id"], "", name=waiting["name"]))
    return rest


def _call_named(calls: list[Json], name: str) -> Json | None:
    return next((call for call in calls if call.get("name") == name), None)


def _add(content: MessageContent, given: object) -> None:
    """What a message says; what the tool tells the model of its surroundings stands apart."""
    for block in given if isinstance(given, list) else [{"type": "text", "text": given}]:
        words = coerce.record(block).get("text")
        if not isinstance(words, str) or coerce.record(block).get("type") != "text":
            anthropic_blocks.add_block(content, block)
        elif words.startswith(_AROUND):
            content.keep({"type": "environment_details", "text": words})
        else:
            bare = words.strip()
            if bare.startswith(_OPEN) and bare.endswith(_CLOSE):
                words = bare.removeprefix(_OPEN).removesuffix(_CLOSE).strip("\n")
            content.say(words)


IMPORTER = Cline()
