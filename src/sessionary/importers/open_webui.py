"""Open WebUI: its database, and what it exports."""

import html
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.formats import coerce, openai_items
from sessionary.formats.coerce import Json
from sessionary.importers.base import databases, events, files
from sessionary.importers.base.content import (
    ModelTurn,
    call_usage,
    first_time,
    parse_time,
    tree_branches,
)
from sessionary.importers.base.databases import DatabaseSession
from sessionary.store.sqlite.external_file import ExternalDatabase, is_sqlite

_HEAD = 64 * 1024
_MARKERS = (re.compile(rb'"chat"\s*:\s*\{'), re.compile(rb'"history"\s*:\s*\{'))
_COLUMNS = ("id", "title", "created_at", "updated_at", "archived", "pinned", "meta", "folder_id")
_OPEN, _CLOSE = "<details type=", "</details>"
_MAX_TAG = 1024 * 1024
_FIELD = re.compile(r'([a-z_]+)="([^"]*)"')
_SUMMARY = re.compile(r"\s*<summary>[^<]*</summary>")


def to_messages(
    message: Json, id: str, at: datetime, *, chat_id: str
) -> Iterator[events.MessageEvent]:
    """Yield a message, and the results of its tools."""
    role = openai_items.role_of(message.get("role"))
    turn = ModelTurn()
    given = message.get("content")
    if role == "assistant" and isinstance(given, str):
        _add_answer(turn, given)
    elif given:
        openai_items.add(turn.words, given)
    for file in coerce.records(message.get("files")):
        if not turn.words.attach_url(file.get("url"), coerce.name(file.get("name"))):
            native = {key: file[key] for key in ("type", "id", "name", "url") if key in file}
            turn.words.add_unknown({"type": "open_webui_file", "native": native})
    error = message.get("error")
    model = coerce.name(message.get("model")) if role == "assistant" else None
    used = coerce.record(message.get("usage")) or coerce.record(message.get("info"))
    sent = used.get("prompt_tokens") or used.get("prompt_eval_count") or used.get("input_tokens")
    made = used.get("completion_tokens") or used.get("eval_count") or used.get("output_tokens")
    cached = coerce.count(coerce.record(used.get("prompt_tokens_details")).get("cached_tokens"))
    usage = call_usage(
        "open-webui",
        f"{chat_id}:{id}",
        model=model,
        at=at,
        input=max(0, coerce.count(sent) - cached),
        output=made,
        cache_read=cached,
        reasoning=coerce.record(used.get("completion_tokens_details")).get("reasoning_tokens"),
    )
    yield from turn.to_messages(
        role,
        at,
        id=id,
        is_required=bool(error),
        model=model,
        extra={"error": error} if error else None,
        usage=usage,
    )


def _add_answer(turn: ModelTurn, text: str) -> None:
    """Add a text, and the reasoning and tool calls in its `<details>`."""
    here = 0
    while (start := text.find(_OPEN, here)) >= 0:
        tag_end = text.find(">", start, start + _MAX_TAG)
        end = text.find(_CLOSE, start)
        if tag_end < 0 or end < tag_end:
            break
        turn.words.add_text(text[here:start].strip("\n"))
        _add_details(turn, text[start:tag_end], text[tag_end + 1 : end])
        here = end + len(_CLOSE)
    turn.words.add_text(text[here:].strip("\n") if here else text)


def _add_details(turn: ModelTurn, tag: str, inside: str) -> None:
    fields = {name: html.unescape(value) for name, value in _FIELD.findall(tag)}
    if fields.get("type") == "reasoning":
        text = _SUMMARY.sub("", inside, count=1).strip("\n")
        quoted = [line.removeprefix(">").removeprefix(" ") for line in text.split("\n")]
        turn.words.add_reasoning(html.unescape("\n".join(quoted)))
    elif fields.get("type") == "tool_calls" and fields.get("name"):
        content, results = turn.tools
        id = fields.get("id", "")
        given = coerce.parse_json(fields.get("arguments"))
        arguments = coerce.parse_json(given) if isinstance(given, str) else given
        content.add_call(id, fields["name"], arguments or given)
        if fields.get("result"):
            text = coerce.parse_json(fields["result"])
            answer = fields["result"] if text is None else text
            results.add_result(id, answer, name=fields["name"])
    else:
        turn.words.add_text(f"{tag}>{inside}{_CLOSE}")


class OpenWebUi(events.Importer):
    """Reads the chats of Open WebUI."""

    name = "open-webui"
    title = "Open WebUI"

    def places(self, user: events.UserEnvironment) -> list[Path]:
        return [user.home / ".open-webui", user.home / "open-webui" / "data"]

    def recognises(self, path: Path) -> bool:
        if files.is_file(path) and path.suffix == ".json":
            first = files.json_head(path, _HEAD)
            return first.startswith((b"[", b"{")) and all(each.search(first) for each in _MARKERS)
        return databases.has(path, "chat", "id", "chat", "updated_at")

    def find(self, place: Path) -> Iterator[events.Unit]:
        """Yield the chats of a database; an export is one unit."""
        path = place if files.is_file(place) else place / "webui.db"
        if is_sqlite(path):
            yield from databases.units(path, _chats)
        elif files.is_file(path):
            yield files.unit(path)

    def read(self, unit: events.Unit, resume: events.Resume | None) -> Iterator[events.Event]:
        if not is_sqlite(unit.path):
            for item in _items(unit.path):
                where = f"chat {item.number + 1}"
                if item.why is not None:
                    yield events.Skipped(where=where, why=item.why)
                elif not isinstance(coerce.record(item.data).get("chat"), dict):
                    yield events.Skipped(where=where, why="it is no chat")
                else:
                    yield from _chat({"number": item.number, **item.data}, unit.path, [])
                    yield events.SessionEnd()
            return
        with databases.opened(unit) as database:
            id = unit.hint["id"]
            chat = coerce.parse_json(databases.value(database, "chat", "chat", where=("id", id)))
            if not isinstance(chat, dict):
                raise BadInput(f"Chat {id} is not an object in JSON.")
            rows = _message_rows(database, id)
            yield from _chat({**unit.hint, "chat": chat}, unit.path, rows)


def _chats(database: ExternalDatabase) -> Iterator[DatabaseSession]:
    folders: dict[Any, Any] = dict(database.rows("folder", ("id", "name")))
    apart = databases.marks(database, "chat_message", "chat_id", "created_at", "updated_at")
    for hint in databases.records(database, "chat", _COLUMNS, order=("created_at", "id")):
        stamp = (*hint.values(), apart.get(hint["id"]))
        hint["meta"] = coerce.parse_record(hint["meta"])
        hint["folder"] = folders.get(hint["folder_id"])
        if isinstance(hint["id"], str):
            yield DatabaseSession(hint["id"], stamp, hint)


def _message_rows(database: ExternalDatabase, chat_id: str) -> list[Json]:
    """Return the messages that newer releases store in a table of their own."""
    columns = ("id", "parent_id", "role", "content", "model_id", "usage", "error", "created_at")
    where, order = ("chat_id", chat_id), ("created_at", "id")
    rows = database.rows("chat_message", columns, where=where, order=order)
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
    """Return the value of a JSON column; some hold plain text."""
    found = coerce.parse_json(text)
    return text if found is None and isinstance(text, str) else found


def _items(path: Path) -> Iterator[files.JsonItem]:
    """Yield the chats of an export: a list, or a document with one."""
    if files.json_head(path, 64).startswith(b"["):
        with files.opened(path) as file:
            yield from files.json_items(file)
        return
    document = coerce.record(files.read_json(path))
    chats = document.get("chats")
    for number, chat in enumerate(chats if isinstance(chats, list) else [document]):
        yield files.JsonItem(number, chat)


def _chat(given: Json, path: Path, message_rows: list[Json]) -> Iterator[events.Event]:
    chat: Json = given["chat"]
    number = given.get("number", 0)
    id = coerce.first_name(given.get("id"), chat.get("id")) or f"{path.name}:{number}"
    began = first_time(given.get("created_at"), chat.get("timestamp"))
    yield events.begin_session(id, began)
    tags = coerce.items(coerce.record(given.get("meta")).get("tags"))
    yield events.facts(
        title=given.get("title") or chat.get("title"),
        labels=[tag for tag in tags if coerce.name(tag)],
        archived=given.get("archived") in (1, True),
        pinned=given.get("pinned") in (1, True),
        project=coerce.name(given.get("folder")),
    )
    at = began or files.changed_at(path)
    parents: dict[str, str | None] = {}
    messages: dict[str, list[events.MessageEvent]] = {}
    history = coerce.record(chat.get("history"))
    for message in [*_messages(chat, history), *message_rows]:
        name = coerce.name(message.get("id"))
        if name is None:
            yield events.Skipped(where=f"chat {id}", why="a message has no name")
        elif name not in parents:
            at = parse_time(message.get("timestamp")) or at
            messages[name] = list(to_messages(message, name, at, chat_id=id))
            parents[name] = coerce.name(message.get("parentId"))
    yield from tree_branches(parents, messages, current=coerce.name(history.get("currentId")))


def _messages(chat: Json, history: Json) -> list[Json]:
    """Return the messages in their order: those of a tree, or in old releases of a list."""
    tree = coerce.records(list(coerce.record(history.get("messages")).values()))
    if tree:
        return sorted(tree, key=lambda each: coerce.count(each.get("timestamp")))
    before: str | None = None
    made: list[Json] = []
    for number, each in enumerate(coerce.records(chat.get("messages"))):
        id = coerce.name(each.get("id")) or f"message {number}"
        made.append({**each, "id": id, "parentId": before})
        before = id
    return made


IMPORTER = OpenWebUi()
