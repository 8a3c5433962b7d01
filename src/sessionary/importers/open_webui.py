"""Open WebUI: its database, and what it exports."""

import html
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.formats import coerce, openai_items, parts
from sessionary.importers.base import databases, files
from sessionary.importers.base.content import (
    MessageContent,
    ModelTurn,
    call_usage,
    first_time,
    parse_time,
    tree_branches,
)
from sessionary.importers.base.databases import DatabaseSession
from sessionary.importers.base.events import (
    Event,
    Facts,
    Json,
    MessageEvent,
    Resume,
    SessionBegin,
    SessionEnd,
    Skipped,
    Unit,
    Where,
)
from sessionary.model.usage import Usage
from sessionary.store.sqlite.external_file import ExternalDatabase, is_sqlite

_HEAD = 64 * 1024
_SIGNS = (re.compile(rb'"chat"\s*:\s*\{'), re.compile(rb'"history"\s*:\s*\{'))
_COLUMNS = ("id", "title", "created_at", "updated_at", "archived", "pinned", "meta", "folder_id")


_OPEN, _CLOSE = "<details type=", "</details>"
_MAX_TAG = 1024 * 1024
_FIELD = re.compile(r'([a-z_]+)="([^"]*)"')
_SUMMARY = re.compile(r"\s*<summary>[^<]*</summary>")


def said(message: Json, id: str, at: datetime, *, chat_id: str) -> Iterator[MessageEvent]:
    """A message, and what its tools answered."""
    role = openai_items.role_of(message.get("role"))
    turn = ModelTurn()
    given = message.get("content")
    if role == "assistant" and isinstance(given, str):
        _add_answer(turn, given)
    elif given:
        openai_items.add(turn.words, given)
    for file in coerce.records(message.get("files")):
        _add_file(turn.words, file)
    error = message.get("error")
    model = coerce.name(message.get("model")) if role == "assistant" else None
    usage = _usage(message, at, call_id=f"{chat_id}:{id}", model=model)
    extra = {"error": error} if error else None
    made = list(turn.said(role, at, id=id, model=model, extra=extra, usage=usage))
    if not made and error:
        made = [MessageContent().said(role, at, id=id, model=model, extra=extra, usage=usage)]
    yield from made


def _add_answer(turn: ModelTurn, text: str) -> None:
    """The text with its details apart; one that does not end is text."""
    here = 0
    while (start := text.find(_OPEN, here)) >= 0:
        tag_end = text.find(">", start, start + _MAX_TAG)
        end = text.find(_CLOSE, start)
        if tag_end < 0 or end < tag_end:
            break
        turn.words.say(text[here:start].strip("\n"))
        _add_details(turn, text[start:tag_end], text[tag_end + 1 : end])
        here = end + len(_CLOSE)
    turn.words.say(text[here:].strip("\n") if here else text)


def _add_details(turn: ModelTurn, tag: str, inside: str) -> None:
    fields = {name: html.unescape(value) for name, value in _FIELD.findall(tag)}
    if fields.get("type") == "reasoning":
        told = _SUMMARY.sub("", inside, count=1).strip("\n")
        quoted = [line.removeprefix(">").removeprefix(" ") for line in told.split("\n")]
        turn.words.think(html.unescape("\n".join(quoted)))
    elif fields.get("type") == "tool_calls" and fields.get("name"):
        content, results = turn.tools
        id = fields.get("id", "")
        given = coerce.parse_json(fields.get("arguments"))
        arguments = coerce.parse_json(given) if isinstance(given, str) else given
        content.add(parts.tool_call(id, fields["name"], arguments or given))
        if fields.get("result"):
            told = coerce.parse_json(fields["result"])
            answer = fields["result"] if told is None else told
            results.add(parts.tool_result(id, answer, name=fields["name"]))
    else:
        turn.words.say(f"{tag}>{inside}{_CLOSE}")


def _add_file(content: MessageContent, file: Json) -> None:
    name = coerce.name(file.get("name"))
    if not content.attach_url(file.get("url"), name):
        kept = {key: file[key] for key in ("type", "id", "name", "url") if key in file}
        content.keep({"type": "open_webui_file", "native": kept})


def _usage(message: Json, at: datetime, *, call_id: str, model: str | None) -> tuple[Usage, ...]:
    used = coerce.record(message.get("usage")) or coerce.record(message.get("info"))
    sent = used.get("prompt_tokens") or used.get("prompt_eval_count") or used.get("input_tokens")
    made = used.get("completion_tokens") or used.get("eval_count") or used.get("output_tokens")
    cached = coerce.count(coerce.record(used.get("prompt_tokens_details")).get("cached_tokens"))
    thought = coerce.record(used.get("completion_tokens_details")).get("reasoning_tokens")
    return call_usage(
        "open-webui",
        call_id,
        model=model,
        at=at,
        input=max(0, coerce.count(sent) - cached),
        output=made,
        cache_read=cached,
        reasoning=thought,
    )


class OpenWebUi:
    """Reads the chats of Open WebUI."""

    name = "open-webui"
    title = "Open WebUI"

    def places(self, where: Where) -> list[Path]:
        """Where it stands when nothing was configured."""
        return [where.home / ".open-webui", where.home / "open-webui" / "data"]

    def recognises(self, path: Path) -> bool:
        """Whether it is its database, an export, or a directory with the database."""
        if is_sqlite(path):
            return databases.has(path, "chat", "id", "chat", "updated_at")
        if files.is_file(path):
            return path.suffix == ".json" and _is_export(path)
        return databases.has(path / "webui.db", "chat", "id", "chat", "updated_at")

    def find(self, place: Path) -> Iterator[Unit]:
        """Each chat of a database; an export is one unit."""
        path = place if files.is_file(place) else place / "webui.db"
        if is_sqlite(path):
            yield from databases.units(path, _chats)
        elif files.is_file(path):
            yield Unit(str(path), path, files.stamp_of(path), files.size_of(path))

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        """One chat of a database, or all of an export."""
        del resume
        if not is_sqlite(unit.path):
            yield from _read_export(unit)
            return
        with databases.opened(unit) as database:
            rows = database.rows("chat", ("chat",), where=("id", unit.hint["id"]))
            chat = coerce.parse_json(next((row[0] for row in rows), None))
            if not isinstance(chat, dict):
                raise BadInput(f"Chat {unit.hint['id']} is not an object in JSON.")
            apart = _messages_apart(database, unit.hint["id"])
            yield from _chat({**unit.hint, "chat": chat}, unit.path, apart)


def _is_export(path: Path) -> bool:
    first = files.head(path, _HEAD).lstrip(b"\xef\xbb\xbf \t\r\n")
    return first.startswith((b"[", b"{")) and all(each.search(first) for each in _SIGNS)


def _chats(database: ExternalDatabase) -> Iterator[DatabaseSession]:
    folders: dict[Any, Any] = dict(database.rows("folder", ("id", "name")))
    apart = databases.marks(database, "chat_message", "chat_id", "created_at", "updated_at")
    for row in database.rows("chat", _COLUMNS, order=("created_at", "id")):
        hint: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
        hint["meta"] = coerce.record(coerce.parse_json(hint["meta"]))
        hint["folder"] = folders.get(hint["folder_id"])
        if isinstance(hint["id"], str):
            yield DatabaseSession(hint["id"], (*row, apart.get(hint["id"])), hint)


def _messages_apart(database: ExternalDatabase, chat_id: str) -> list[Json]:
    """Messages in a table of their own, as newer releases keep them."""
    columns = ("id", "parent_id", "role", "content", "model_id", "usage", "error", "created_at")
    rows = database.rows(
        "chat_message", columns, where=("chat_id", chat_id), order=("created_at", "id")
    )
    return [
        {
            "id": coerce.text(id).removeprefix(f"{chat_id}-"),
            "parentId": parent,
            "role": role,
            "content": _value(content),
            "model": model,
            "usage": coerce.parse_json(usage),
            "error": _value(error),
            "timestamp": created,
        }
        for id, parent, role, content, model, usage, error, created in rows
    ]


def _value(text: Any) -> Any:
    """What a column of JSON holds; some hold plain text."""
    found = coerce.parse_json(text)
    return text if found is None and isinstance(text, str) else found


def _read_export(unit: Unit) -> Iterator[Event]:
    for item in _items(unit.path):
        where = f"chat {item.number + 1}"
        if item.why is not None:
            yield Skipped(where=where, why=item.why)
        elif not isinstance(item.data, dict) or not isinstance(item.data.get("chat"), dict):
            yield Skipped(where=where, why="it is no chat")
        else:
            yield from _chat({"number": item.number, **item.data}, unit.path, [])
            yield SessionEnd()


def _items(path: Path) -> Iterator[files.JsonItem]:
    """The chats of an export: a list, or a document with one."""
    if files.head(path, 64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        with files.opened(path) as file:
            yield from files.json_items(file)
        return
    document = coerce.record(files.read_json(path))
    chats = document.get("chats")
    for number, chat in enumerate(chats if isinstance(chats, list) else [document]):
        yield files.JsonItem(number, chat)


def _chat(given: Json, path: Path, apart: list[Json]) -> Iterator[Event]:
    chat: Json = given["chat"]
    number = given.get("number", 0)
    id = coerce.name(given.get("id")) or coerce.name(chat.get("id")) or f"{path.name}:{number}"
    began = first_time(given.get("created_at"), chat.get("timestamp"))
    yield SessionBegin(native_id=id, began_at=began)
    yield Facts(fields=_fields(given))
    at = began or files.changed_at(path)
    parents: dict[str, str | None] = {}
    messages: dict[str, list[MessageEvent]] = {}
    history = coerce.record(chat.get("history"))
    for message in [*_messages(chat, history), *apart]:
        name = coerce.name(message.get("id"))
        if name is None:
            yield Skipped(where=f"chat {id}", why="a message has no name")
        elif name not in parents:
            at = parse_time(message.get("timestamp")) or at
            messages[name] = list(said(message, name, at, chat_id=id))
            parents[name] = coerce.name(message.get("parentId"))
    yield from tree_branches(parents, messages, current=coerce.name(history.get("currentId")))


def _messages(chat: Json, history: Json) -> list[Json]:
    """The messages in the order they were said: a tree, or, at first, a list."""
    tree = [
        each for each in coerce.record(history.get("messages")).values() if isinstance(each, dict)
    ]
    if tree:
        return sorted(tree, key=lambda each: coerce.count(each.get("timestamp")))
    line = coerce.records(chat.get("messages"))
    before: str | None = None
    made: list[Json] = []
    for number, each in enumerate(line):
        id = coerce.name(each.get("id")) or f"message {number}"
        made.append({**each, "id": id, "parentId": before})
        before = id
    return made


def _fields(given: Json) -> Json:
    fields: Json = {"title": given.get("title") or given["chat"].get("title")}
    tags = coerce.items(coerce.record(given.get("meta")).get("tags"))
    fields["labels"] = [tag for tag in tags if coerce.name(tag)]
    for name in ("archived", "pinned"):
        fields[name] = given.get(name) in (1, True)
    if coerce.name(given.get("folder")):
        fields["project"] = given["folder"]
    return fields


IMPORTER = OpenWebUi()
