"""Cursor: its databases of key and value, the transcripts of its agents, and its command line.

The program changes its formats often and holds its database open: fields that are missing are
ignored, and messages (`bubbles`) are found by the list of their ids, or else by their keys.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.formats import coerce
from sessionary.importers.base import databases, files
from sessionary.importers.base.content import MessageContent, call_usage, first_time, parse_time
from sessionary.importers.base.databases import DatabaseSession
from sessionary.importers.base.events import (
    Event,
    Facts,
    Json,
    MessageEvent,
    Resume,
    Skipped,
    Unit,
    UserEnvironment,
    begin_session,
    facts,
)
from sessionary.importers.cursor import cli, transcripts
from sessionary.store.sqlite.external_file import ExternalDatabase, is_sqlite

DATABASE = "state.vscdb"
TABS = "workbench.panel.aichat.view.aichat.chatdata"
# Where releases of 2024 kept conversations, whole, in the database of a workspace.
COMPOSERS = "composer.composerData"
_COMPOSER = "composerData:"
_BUBBLE = "bubbleId:"


_TEXTS = ("text", "rawText", "content", "message")
_USER = (1, "user", "human")
_DONE = ("completed", "error", "cancelled")


def to_messages(id: str, bubble: Json, at: datetime) -> Iterator[MessageEvent]:
    """Yield the messages of a bubble."""
    if bubble.get("type") in _USER:
        content = MessageContent()
        content.add_text(_text(bubble))
        _add_images(content, bubble)
        if content:
            yield content.to_message("user", at, id=id)
        return
    content, results = MessageContent(), MessageContent()
    thinking = coerce.record(bubble.get("thinking"))
    signature = coerce.name(thinking.get("signature"))
    if coerce.text(thinking.get("text")):
        content.add_reasoning(thinking["text"], {"signature": signature} if signature else None)
    content.add_text(_text(bubble))
    _add_tool(content, results, coerce.record(bubble.get("toolFormerData")), id)
    if not content:
        return
    model, tokens = _model(bubble), coerce.record(bubble.get("tokenCount"))
    used = call_usage(
        "cursor",
        id,
        model=model,
        at=at,
        input=tokens.get("inputTokens"),
        output=tokens.get("outputTokens"),
    )
    yield content.to_message("assistant", at, id=id, model=model, usage=used)
    if results:
        yield results.to_message("tool", at, id=f"{id}:result")


def _time_of(bubble: Json) -> datetime | None:
    timing = coerce.record(bubble.get("timingInfo"))
    return first_time(
        bubble.get("createdAt"), bubble.get("timestamp"), timing.get("clientStartTime")
    )


def _folder_of(bubble: Json) -> str | None:
    """Return the directory that was open."""
    given = coerce.name(bubble.get("workspaceProjectDir"))
    uris = coerce.items(bubble.get("workspaceUris"))
    uri = coerce.text(uris[0]) if uris else ""
    return given or coerce.name(uri.removeprefix("file://"))


def _text(bubble: Json) -> str:
    return next((text for name in _TEXTS if (text := coerce.text(bubble.get(name)))), "")


def _model(bubble: Json) -> str | None:
    given = coerce.record(bubble.get("modelInfo")).get("modelName")
    found = (coerce.name(each) for each in (given, bubble.get("model"), bubble.get("modelType")))
    return next((name for name in found if name and name != "default"), None)


def _add_images(content: MessageContent, bubble: Json) -> None:
    shown = coerce.items(bubble.get("images"))
    selected = coerce.record(bubble.get("context")).get("selectedImages")
    for image in shown or coerce.items(selected):
        given = image.get("data", image.get("url")) if isinstance(image, dict) else image
        kind = image.get("mimeType") if isinstance(image, dict) else None
        given = _bytes_of(given)
        if isinstance(given, bytes):
            content.attach(given, kind)
        elif not content.attach_url(given) and not content.attach_base64(given, kind):
            content.add_unknown({"type": "cursor_image", "native": image})


def _bytes_of(given: Any) -> Any:
    """Return the bytes of a picture that is written as a list or an object of numbers."""
    numbers = list(given.values()) if isinstance(given, dict) else given
    if not isinstance(numbers, list) or not numbers:
        return given
    if all(isinstance(each, int) and 0 <= each < 256 for each in numbers):
        return bytes(numbers)
    return given


def _add_tool(content: MessageContent, results: MessageContent, tool: Json, id: str) -> None:
    name = coerce.name(tool.get("name"))
    if name is None:
        return
    call_id = coerce.name(tool.get("toolCallId")) or id
    given = coerce.name(tool.get("params")) or tool.get("rawArgs")
    content.add_call(call_id, name, coerce.parse_json_or_keep(given) or None)
    status = tool.get("status")
    if status in _DONE or tool.get("result") is not None:
        is_error = status in ("error", "cancelled")
        results.add_result(call_id, tool.get("result"), name=name, is_error=is_error)


class CursorImporter:
    """Reads the conversations of Cursor."""

    name = "cursor"
    title = "Cursor"

    def places(self, user: UserEnvironment) -> list[Path]:
        """Return the user's directories on each system, and those of the agents."""
        users = (".config", "Library/Application Support", "AppData/Roaming")
        found = [user.home / each / "Cursor" / "User" for each in users]
        agents = user.home / ".cursor"
        return [*found, agents / "projects", agents / "chats"]

    def recognises(self, path: Path) -> bool:
        if is_sqlite(path):
            return _is_ours(path) or cli.is_store(path)
        if files.is_file(path):
            return transcripts.is_transcript(path)
        return any(
            True
            for found in (_databases(path), transcripts.found(path), cli.found(path))
            for _ in found
        )

    def find(self, place: Path) -> Iterator[Unit]:
        """Yield the conversations of databases, then the transcripts that no database has."""
        stores = list(cli.found(place))
        for path in stores:
            yield cli.unit(path)
        if is_sqlite(place) and not stores:
            yield from databases.units(place, _conversations)
        for path in _databases(place):
            yield from databases.units(path, _conversations)
        known = _known_beside(place)
        for path in transcripts.found(place):
            if path.stem not in known:
                yield files.unit(path)

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        if not is_sqlite(unit.path):
            yield from transcripts.read(unit, resume)
            return
        with databases.opened(unit) as database:
            if unit.hint == cli.HINT:
                yield from cli.read(database, unit)
            elif "tab" in unit.hint:
                yield from _read_tab(database, unit)
            else:
                yield from _read_composer(database, unit)


def _databases(place: Path) -> Iterator[Path]:
    if files.is_file(place):
        return iter(())
    found = files.walk(place, suffixes=(DATABASE,), depth=2)
    return (each for each in found if each.name == DATABASE and _is_ours(each))


def _is_ours(path: Path) -> bool:
    try:
        with ExternalDatabase(path) as database:
            return database.has("cursorDiskKV", "key", "value") or any(
                _value(database, key) for key in (TABS, COMPOSERS)
            )
    except BadInput:
        return False


def _known_beside(projects: Path) -> set[str]:
    """Return the conversations in the database of the same home: their transcripts are copies."""
    home = projects.parent.parent
    known: set[str] = set()
    for place in IMPORTER.places(UserEnvironment(home))[:-2]:
        for path in _databases(place / "globalStorage"):
            with suppress(BadInput), ExternalDatabase(path) as database:
                rows = database.rows("cursorDiskKV", ("key",), between=_keys(_COMPOSER))
                known |= {key.removeprefix(_COMPOSER) for (key,) in rows if isinstance(key, str)}
    return known


def _keys(prefix: str) -> tuple[str, str, str]:
    """Return the range of the keys with a prefix, which an index finds."""
    return "key", prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)


def _value(database: ExternalDatabase, key: str, table: str = "ItemTable") -> Any:
    return coerce.parse_json(databases.value(database, table, "value", where=("key", key)))


def _conversations(database: ExternalDatabase) -> Iterator[DatabaseSession]:
    columns = ("composerId", "isArchived", "value")
    # The index that newer releases have.
    heads: dict[Any, Json] = {
        id: {"isArchived": archived, **coerce.parse_record(value)}
        for id, archived, value in database.rows("composerHeaders", columns)
    }
    known: set[str] = set()
    rows = database.rows("cursorDiskKV", ("key", "value"), between=_keys(_COMPOSER))
    for key, value in rows:
        data = coerce.parse_json(value)
        if not isinstance(key, str) or not isinstance(data, dict):
            continue
        id = key.removeprefix(_COMPOSER)
        _, first, end = _keys(f"{_BUBBLE}{id}:")
        size = database.measure("cursorDiskKV", "key", (first, end), value="value")
        hint = _hint(id, data, heads.get(id, {}))
        known.add(id)
        stamp: tuple[Any, ...] = (len(value), *size, *hint.values())
        yield DatabaseSession(id, stamp, hint, is_child=bool(hint["parent"]))
    for composer in _composers(database):
        name = coerce.name(composer.get("composerId"))
        if name is None or name in known or not coerce.records(composer.get("conversation")):
            continue
        folder = database.path.parent / "workspace.json"
        hint = _hint(name, composer, {}) | {"folder": _folder_of_workspace(folder)}
        stamp = (len(composer["conversation"]), *hint.values())
        yield DatabaseSession(name, stamp, hint | {"inline": True}, (folder,))
    for tab in coerce.records(coerce.record(_value(database, TABS)).get("tabs")):
        if coerce.name(tab.get("tabId")):
            stamp = (len(coerce.items(tab.get("bubbles"))), tab.get("lastSendTime"))
            yield DatabaseSession(tab["tabId"], stamp, {"tab": tab["tabId"]})


def _composers(database: ExternalDatabase) -> list[Json]:
    return coerce.records(coerce.record(_value(database, COMPOSERS)).get("allComposers"))


def _folder_of_workspace(path: Path) -> str | None:
    """Return the directory that a workspace's database belongs to."""
    given = files.read_record(path, most=1024 * 1024).get("folder")
    return coerce.name(coerce.text(given).removeprefix("file://"))


def _hint(id: str, data: Json, head: Json) -> Json:
    folder = coerce.record(coerce.record(head.get("workspaceIdentifier")).get("uri")).get("fsPath")
    parent = coerce.record(data.get("subagentInfo")).get("parentComposerId")
    model = coerce.name(coerce.record(data.get("modelConfig")).get("modelName"))
    return {
        "id": id,
        "title": coerce.first_name(head.get("name"), data.get("name")),
        "folder": coerce.name(folder),
        "parent": coerce.name(parent),
        "model": None if model == "default" else model,
        "archived": head.get("isArchived") in (1, True),
        "began": data.get("createdAt"),
        "active": data.get("lastUpdatedAt"),
    }


def _read_composer(database: ExternalDatabase, unit: Unit) -> Iterator[Event]:
    hint, id = unit.hint, unit.hint["id"]
    began = parse_time(hint["began"])
    yield begin_session(id, began, parent=hint["parent"])
    fields = {name: hint[name] for name in ("title", "model", "archived") if hint[name]}
    if hint["folder"]:
        fields["workspace"] = {"path": hint["folder"]}
    fields |= {"active_at": active} if (active := parse_time(hint["active"])) else {}
    at = began or files.changed_at(unit.path)
    if "inline" in hint:
        data = next((each for each in _composers(database) if each.get("composerId") == id), {})
    else:
        data = coerce.record(_value(database, f"{_COMPOSER}{id}", "cursorDiskKV"))
    for name, bubble in _bubbles(database, id, data):
        if bubble is None:
            yield Skipped(where=f"message {name}", why="it is not in the database")
            continue
        if "workspace" not in fields and (folder := _folder_of(bubble)):
            fields["workspace"] = {"path": folder}
        at = _time_of(bubble) or at
        yield from to_messages(name, bubble, at)
    yield Facts(fields=fields)


def _bubbles(database: ExternalDatabase, id: str, data: Json) -> Iterator[tuple[str, Json | None]]:
    """Yield the messages in their order: by the list of their ids, inline, or by their keys."""
    heads = coerce.records(data.get("fullConversationHeadersOnly"))
    inline = coerce.record(data.get("conversationMap"))
    for head in heads:
        name = coerce.text(head.get("bubbleId"))
        stored = _value(database, f"{_BUBBLE}{id}:{name}", "cursorDiskKV")
        found = stored if isinstance(stored, dict) else inline.get(name)
        yield name, found if isinstance(found, dict) else None
    if heads:
        return
    older = coerce.records(data.get("conversation")) or coerce.records(list(inline.values()))
    for number, bubble in enumerate(older):
        yield coerce.name(bubble.get("bubbleId")) or f"{id}:{number}", bubble
    if older:
        return
    prefix = f"{_BUBBLE}{id}:"
    rows = database.rows("cursorDiskKV", ("key", "value"), between=_keys(prefix), order=("rowid",))
    for key, value in rows:
        bubble = coerce.parse_json(value)
        yield str(key).removeprefix(prefix), bubble if isinstance(bubble, dict) else None


def _read_tab(database: ExternalDatabase, unit: Unit) -> Iterator[Event]:
    """Yield a conversation of the first releases, which stored all of them in one value."""
    tabs = coerce.records(coerce.record(_value(database, TABS)).get("tabs"))
    tab = next((each for each in tabs if each.get("tabId") == unit.hint["tab"]), {})
    at = parse_time(tab.get("lastSendTime")) or files.changed_at(unit.path)
    yield begin_session(unit.hint["tab"], at)
    yield facts(title=tab.get("chatTitle"))
    for number, bubble in enumerate(coerce.records(tab.get("bubbles"))):
        at = _time_of(bubble) or at
        yield from to_messages(coerce.name(bubble.get("id")) or f"bubble {number}", bubble, at)


IMPORTER = CursorImporter()
