"""Cline, Roo Code and Kilo Code: a directory for each task; Cline's command line: one for each session."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.formats import anthropic_blocks, coerce
from sessionary.formats.coerce import Json
from sessionary.importers.base import events, files
from sessionary.importers.base.content import (
    MessageContent,
    call_usage,
    first_time,
    parse_time,
    uncached_input,
)

HISTORY, SCREEN = "api_conversation_history.json", "ui_messages.json"
ITEM, FACTS = "history_item.json", "task_metadata.json"
_EXTENSIONS = ("saoudrizwan.claude-dev", "rooveterinaryinc.roo-cline", "kilocode.kilo-code")
_EDITORS = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")
_OPEN, _CLOSE = "<task>", "</task>"
_AROUND = "<environment_details>"
# How newer releases tell the model what a tool did: as the person's words, behind the call.
_RESULT_TEXT = re.compile(r"\[(?P<tool>[a-z_]+)(?: for .*?)?\] Result:\n?(?P<result>.*)", re.DOTALL)
# What the command line calls the messages of a session, and how it wraps what a person types.
MESSAGES = ".messages.json"
_TYPED = re.compile(r"\s*<user_input[^>]*>(.*)</user_input>\s*", re.DOTALL)


class Cline(events.Importer):
    """Reads the tasks of Cline and its sisters."""

    name = "cline"
    title = "Cline"

    def places(self, user: events.UserEnvironment) -> list[Path]:
        """Return the directories of each extension in each editor, and of the command line."""
        roots = (".config", "Library/Application Support", "AppData/Roaming")
        editors = [user.home / root / name / "User" for root in roots for name in _EDITORS]
        editors.append(user.home / ".vscode-server" / "data" / "User")
        found = [editor / "globalStorage" / each for editor in editors for each in _EXTENSIONS]
        return [*found, user.home / ".cline" / "data"]

    def recognises(self, path: Path) -> bool:
        if path.name.endswith(MESSAGES):
            return files.is_file(path) and _is_session(path)
        if path.name not in (HISTORY, SCREEN) or not files.is_file(path):
            return False
        # One of the two begins as a list of messages, or of what the person saw.
        heads = (files.json_head(path.with_name(name)) for name in (HISTORY, SCREEN))
        return any(h.startswith(b"[") and (b'"role"' in h or b'"ts"' in h) for h in heads)

    def find(self, place: Path) -> Iterator[events.Unit]:
        """Yield tasks and sessions; those that others began come last."""
        found: list[events.Unit] = []
        for folder in _tasks(place):
            parent = coerce.name(files.read_record(folder / ITEM).get("parentTaskId"))
            known = [folder / name for name in (HISTORY, SCREEN, ITEM, FACTS)]
            beside = tuple(path for path in known if files.is_file(path))
            size = files.size_of(*beside)
            stamp = files.stamp_of(*known)
            found.append(events.Unit(str(folder), beside[0], stamp, size, beside, hint=parent))
        for path in _sessions(place):
            meta = _meta_file(path)
            parent = coerce.name(files.read_record(meta).get("parent_session_id"))
            stamp, size = files.stamp_of(path, meta), files.size_of(path, meta)
            found.append(events.Unit(str(path), path, stamp, size, (meta,), hint=parent))
        yield from sorted(found, key=lambda unit: (unit.hint is not None, unit.name))

    def read(self, unit: events.Unit, resume: events.Resume | None) -> Iterator[events.Event]:
        if unit.path.name.endswith(MESSAGES):
            return _session(unit.path, unit.hint)
        return _Task(unit.path.parent, unit.hint).read()


def _tasks(place: Path) -> Iterator[Path]:
    if files.is_file(place):
        place = place.parent
    if files.is_file(place / HISTORY) or files.is_file(place / SCREEN):
        yield place
        return
    inner = place / "tasks"
    root = inner if files.is_directory(inner) else place
    found = files.walk(root, suffixes=(HISTORY, SCREEN), depth=1)
    yield from sorted({each.parent for each in found})


def _sessions(place: Path) -> Iterator[Path]:
    """Yield the files of the command line's sessions."""
    root = place / "sessions" if files.is_directory(place / "sessions") else place
    for path in files.named_or_below(root, suffixes=(MESSAGES,), depth=1):
        if path.name.endswith(MESSAGES) and _is_session(path):
            yield path


def _is_session(path: Path) -> bool:
    head = files.head(path)
    return all(name in head for name in (b'"sessionId"', b'"messages"', b'"origin"'))


def _meta_file(path: Path) -> Path:
    """Return the file with a session's metadata, beside its messages."""
    return path.with_name(path.name.removesuffix(MESSAGES) + ".json")


def _session(path: Path, parent: str | None) -> Iterator[events.Event]:
    """Yield one session of the command line."""
    given = coerce.record(files.read_json(path))
    meta = files.read_record(_meta_file(path))
    messages = given.get("messages")
    if not isinstance(messages, list):
        raise BadInput(f"{path} has no messages that can be read.")
    id = coerce.name(given.get("sessionId")) or path.name.removesuffix(MESSAGES)
    at = parse_time(meta.get("started_at")) or files.changed_at(path)
    yield events.begin_session(id, at, parent=parent)
    title = coerce.record(meta.get("metadata")).get("title") or meta.get("prompt")
    yield events.facts(title=title, workspace=events.workspace(meta.get("cwd")))
    for number, message in enumerate(messages, 1):
        if not isinstance(message, dict):
            yield events.Skipped(where=f"message {number}", why="not an object")
            continue
        at = parse_time(message.get("ts")) or at
        yield from _session_message(id, message, number, at)


def _session_message(
    session: str, message: Json, number: int, at: datetime
) -> Iterator[events.Event]:
    content = MessageContent()
    for block in map(coerce.record, _blocks(message.get("content"))):
        words, results = block.get("text"), coerce.records(block.get("content"))
        is_result = block.get("type") == "tool_result" and all("result" in r for r in results)
        if isinstance(words, str) and block.get("type") == "text":
            typed = _TYPED.fullmatch(words)
            content.add_text(words if typed is None else typed[1])
        elif is_result and results:
            text = "\n".join(coerce.text(each["result"]) or str(each["result"]) for each in results)
            is_error = any(each.get("success") is False for each in results)
            id, tool = block.get("tool_use_id"), block.get("name")
            content.add_result(id, text, name=tool, is_error=is_error)
        else:
            anthropic_blocks.add_block(content, block)
    name = coerce.name(message.get("id")) or f"{number}"
    role = "assistant" if message.get("role") == "assistant" else content.user_role
    if coerce.record(message.get("metadata")).get("displayOnly") is True:
        role = "system"
    model = coerce.name(coerce.record(message.get("modelInfo")).get("id"))
    metrics = coerce.record(message.get("metrics"))
    read, written = metrics.get("cacheReadTokens"), metrics.get("cacheWriteTokens")
    used = call_usage(
        "cline",
        f"{session}:{name}",
        model=model,
        at=at,
        dollars=metrics.get("cost"),
        input=uncached_input(metrics.get("inputTokens"), read, written),
        output=metrics.get("outputTokens"),
        cache_read=read,
        cache_write=written,
    )
    if content:
        is_model = role == "assistant"
        yield content.to_message(role, at, id=name, model=model if is_model else None, usage=used)
    elif used:
        yield events.UsageEvent(usage=used)


def _blocks(given: object) -> list[Any]:
    return given if isinstance(given, list) else [{"type": "text", "text": given}]


class _Task:
    """One task: what the model reads, and what the person sees."""

    def __init__(self, folder: Path, parent: str | None) -> None:
        self._folder = folder
        self._parent = parent
        self._screen = coerce.records(_list_of(folder / SCREEN))
        self._item = files.read_record(folder / ITEM)
        self._facts = files.read_record(folder / FACTS)
        first = self._screen[0].get("ts") if self._screen else None
        otherwise = files.changed_at(
            folder / (HISTORY if files.is_file(folder / HISTORY) else SCREEN)
        )
        self._began = first_time(first, folder.name, self._item.get("ts")) or otherwise

    def read(self) -> Iterator[events.Event]:
        """Yield all events of the task."""
        history = _list_of(self._folder / HISTORY)
        if history is None and not self._screen:
            raise BadInput(f"{self._folder} has no messages that can be read.")
        yield events.begin_session(self._folder.name, self._began, parent=self._parent)
        first = self._screen[0].get("text") if self._screen else None
        title = coerce.text(self._item.get("task")) or coerce.text(first)
        folder = self._item.get("workspace") or self._item.get("cwdOnTaskInitialization")
        yield events.facts(
            title=title.strip().partition("\n")[0],
            workspace=events.workspace(folder),
            model=self._model_at(None),
        )
        if history is None:
            yield events.Skipped(
                where=HISTORY, why="it is not there or not JSON; the screen was read"
            )
            yield from self._seen()
        else:
            yield from self._messages(history)
        yield from self._usage()

    def _messages(self, history: list[Any]) -> Iterator[events.Event]:
        # When each message of the model's was on the screen.
        seen: dict[int, datetime] = {}
        for shown in self._screen:
            index, when = shown.get("conversationHistoryIndex"), parse_time(shown.get("ts"))
            if isinstance(index, int) and when is not None:
                seen.setdefault(index + 1, when)
        at = self._began
        # Calls of the last answer whose results have not come.
        open_calls: list[Json] = []
        for number, message in enumerate(history):
            if not isinstance(message, dict):
                yield events.Skipped(where=f"message {number + 1}", why="not an object")
                continue
            at = parse_time(message.get("ts")) or seen.get(number) or at
            content, results = MessageContent(), MessageContent()
            _add(content, _without_results(message, open_calls, results))
            is_model = message.get("role") == "assistant"
            if is_model:
                open_calls = [part for part in content.parts if part["type"] == "tool_call"]
            if results:
                yield results.to_message("tool", at, id=f"{number}:results")
            if message.get("isSummary") is True:
                yield events.Compacted(summary=content.text, at=at)
            elif content:
                role = "assistant" if is_model else content.user_role
                model = self._model_at(at) if is_model else None
                yield content.to_message(role, at, id=f"{number}", model=model)

    def _model_at(self, at: datetime | None) -> str | None:
        """Return the model that was used at a time; the last one if no time is asked for."""
        found = None
        for used in coerce.records(self._facts.get("model_usage")):
            since = parse_time(used.get("ts"))
            if at is None or found is None or (since is not None and since <= at):
                found = coerce.name(used.get("model_id")) or found
        return found

    def _seen(self) -> Iterator[events.Event]:
        """Yield what the person saw, if nothing else is left."""
        at = self._began
        for number, message in enumerate(self._screen):
            if message.get("partial") is True:
                continue
            at = parse_time(message.get("ts")) or at
            kind = message.get("say") or message.get("ask")
            content = MessageContent()
            if kind == "reasoning":
                content.add_reasoning(message.get("text") or message.get("reasoning"))
            elif kind in ("task", "text", "user_feedback", "completion_result", "followup"):
                content.add_text(message.get("text"))
            for image in coerce.items(message.get("images")):
                content.attach_url(image)
            if content:
                is_person = number == 0 or kind in ("task", "user_feedback")
                role = "user" if is_person else "assistant"
                yield content.to_message(role, at, id=f"screen {number}")

    def _usage(self) -> Iterator[events.UsageEvent]:
        for message in self._screen:
            if message.get("say") != "api_req_started" or message.get("partial") is True:
                continue
            used, at = coerce.parse_record(message.get("text")), parse_time(message.get("ts"))
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
                yield events.UsageEvent(usage=call)


def _list_of(path: Path) -> list[Any] | None:
    found = files.read_json_if_any(path)
    return found if isinstance(found, list) else None


def _without_results(message: Json, calls: list[Json], results: MessageContent) -> object:
    """Return the content of a message without the results of tools, which are added to `results`.

    Results are written as texts of the person, after the call that they belong to: in the block that
    names the tool, or in the one after it.
    """
    given = message.get("content")
    if message.get("role") == "assistant" or not calls or not isinstance(given, list):
        return given
    rest: list[Any] = []
    waiting: Json | None = None
    for block in given:
        words = coerce.record(block).get("text")
        text = _RESULT_TEXT.fullmatch(words) if isinstance(words, str) else None
        tool = None if text is None else text["tool"]
        call = next((each for each in calls if text and each.get("name") == tool), None)
        if text is not None and call is not None:
            calls.remove(call)
            result = text["result"].strip("\n")
            if result:
                results.add_result(call["id"], result, name=call["name"])
            waiting = None if result else call
        elif waiting is not None and isinstance(words, str) and not words.startswith("<"):
            results.add_result(waiting["id"], words, name=waiting["name"])
            waiting = None
        else:
            rest.append(block)
    if waiting is not None:
        results.add_result(waiting["id"], "", name=waiting["name"])
    return rest


def _add(content: MessageContent, given: object) -> None:
    """Add what a message says; what the tool tells the model of its surroundings is kept apart."""
    for block in _blocks(given):
        words = coerce.record(block).get("text")
        if not isinstance(words, str) or coerce.record(block).get("type") != "text":
            anthropic_blocks.add_block(content, block)
        elif words.startswith(_AROUND):
            content.add_unknown({"type": "environment_details", "text": words})
        else:
            bare = words.strip()
            if bare.startswith(_OPEN) and bare.endswith(_CLOSE):
                words = bare.removeprefix(_OPEN).removesuffix(_CLOSE).strip("\n")
            content.add_text(words)


IMPORTER = Cline()
