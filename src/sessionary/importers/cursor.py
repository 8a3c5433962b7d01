"""Cursor: its databases of key and value, the transcripts of its agents, and its command line.

The program holds its database open and changes its forms without a word: what is not where it was
is passed over, and bubbles are found by the list that names them, or else by their keys.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.formats import shape
from sessionary.importers import (
    cursor_cli,
    cursor_transcripts,
    databases,
    documents,
    files,
    subagents,
    times,
)
from sessionary.importers.base import Begin, Event, Facts, Json, Resume, Skipped, Unit, Where
from sessionary.importers.cursor_bubbles import folder_of, said, time_of
from sessionary.importers.databases import Kept
from sessionary.store.sqlite.foreign import ForeignDatabase, is_sqlite

DATABASE = "state.vscdb"
TABS = "workbench.panel.aichat.view.aichat.chatdata"
# Where releases of 2024 kept conversations, whole, in the database of a workspace.
COMPOSERS = "composer.composerData"
_COMPOSER = "composerData:"
_BUBBLE = "bubbleId:"


class Cursor:
    """Reads the conversations of Cursor."""

    name = "cursor"
    title = "Cursor"

    def places(self, where: Where) -> list[Path]:
        """The directories of its user on each system, and of its agents."""
        users = (".config", "Library/Application Support", "AppData/Roaming")
        found = [where.home / each / "Cursor" / "User" for each in users]
        agents = where.home / ".cursor"
        return [*found, agents / "projects", agents / "chats"]

    def recognises(self, path: Path) -> bool:
        """Whether it is such a database or transcript, or a directory with some."""
        if is_sqlite(path):
            return _is_ours(path) or cursor_cli.is_store(path)
        if files.is_file(path):
            return cursor_transcripts.is_transcript(path)
        return any(
            True
            for found in (_databases(path), cursor_transcripts.found(path), cursor_cli.found(path))
            for _ in found
        )

    def find(self, place: Path) -> Iterator[Unit]:
        """Conversations of databases, then transcripts that no database has."""
        stores = list(cursor_cli.found(place))
        for path in stores:
            yield cursor_cli.unit(path)
        if is_sqlite(place) and not stores:
            yield from databases.units(place, _conversations)
        for path in _databases(place):
            yield from databases.units(path, _conversations)
        known = _known_beside(place)
        for path in cursor_transcripts.found(place):
            if path.stem not in known:
                yield Unit(str(path), path, files.stamp_of(path), files.size_of(path))

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        """One conversation."""
        if not is_sqlite(unit.path):
            yield from cursor_transcripts.read(unit, resume)
            return
        with databases.opened(unit) as database:
            if unit.hint == cursor_cli.HINT:
                yield from cursor_cli.read(database, unit)
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
        with ForeignDatabase(path) as database:
            return database.has("cursorDiskKV", "key", "value") or any(
                _value(database, key) for key in (TABS, COMPOSERS)
            )
    except BadInput:
        return False


def _known_beside(projects: Path) -> set[str]:
    """The conversations in the database of the same home: their transcripts are copies."""
    home = projects.parent.parent
    known: set[str] = set()
    for place in IMPORTER.places(Where(home))[:-2]:
        for path in _databases(place / "globalStorage"):
            with suppress(BadInput), ForeignDatabase(path) as database:
                rows = database.rows("cursorDiskKV", ("key",), between=_keys(_COMPOSER))
                known |= {key.removeprefix(_COMPOSER) for (key,) in rows if isinstance(key, str)}
    return known


# What a database holds


def _keys(prefix: str) -> tuple[str, str, str]:
    """All keys that begin so: a range, which an index answers."""
    return "key", prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)


def _value(database: ForeignDatabase, key: str, table: str = "ItemTable") -> Any:
    rows = database.rows(table, ("value",), where=("key", key))
    return shape.parsed(next((row[0] for row in rows), None))


def _conversations(database: ForeignDatabase) -> Iterator[Kept]:
    heads = _heads(database)
    found: list[tuple[bool, Kept]] = []
    rows = database.rows("cursorDiskKV", ("key", "value"), between=_keys(_COMPOSER))
    for key, value in rows:
        data = shape.parsed(value)
        if not isinstance(key, str) or not isinstance(data, dict):
            continue
        id = key.removeprefix(_COMPOSER)
        _, first, end = _keys(f"{_BUBBLE}{id}:")
        size = database.measure("cursorDiskKV", "key", (first, end), value="value")
        hint = _hint(id, data, heads.get(id, {}))
        found.append((bool(hint["parent"]), Kept(id, (len(value), *size, *hint.values()), hint)))
    yield from (kept for _, kept in sorted(found, key=lambda each: each[0]))
    known = {kept.id for _, kept in found}
    for composer in _composers(database):
        name = shape.name(composer.get("composerId"))
        if name is None or name in known or not shape.records(composer.get("conversation")):
            continue
        folder = database.path.parent / "workspace.json"
        hint = _hint(name, composer, {}) | {"folder": _folder_of_workspace(folder)}
        stamp = (len(composer["conversation"]), *hint.values())
        yield Kept(name, stamp, hint | {"inline": True}, (folder,))
    for tab in shape.records(shape.record(_value(database, TABS)).get("tabs")):
        if shape.name(tab.get("tabId")):
            stamp = (len(shape.items(tab.get("bubbles"))), tab.get("lastSendTime"))
            yield Kept(tab["tabId"], stamp, {"tab": tab["tabId"]})


def _composers(database: ForeignDatabase) -> list[Json]:
    return shape.records(shape.record(_value(database, COMPOSERS)).get("allComposers"))


def _folder_of_workspace(path: Path) -> str | None:
    """The directory that a workspace's database belongs to."""
    given = shape.record(documents.read_if_any(path, most=1024 * 1024)).get("folder")
    return shape.name(shape.words(given).removeprefix("file://"))


def _heads(database: ForeignDatabase) -> dict[Any, Json]:
    """The index that newer releases keep."""
    columns = ("composerId", "isArchived", "value")
    rows = database.rows("composerHeaders", columns)
    return {
        id: {"isArchived": archived, **shape.record(shape.parsed(value))}
        for id, archived, value in rows
    }


def _hint(id: str, data: Json, head: Json) -> Json:
    folder = shape.record(shape.record(head.get("workspaceIdentifier")).get("uri")).get("fsPath")
    parent = shape.record(data.get("subagentInfo")).get("parentComposerId")
    model = shape.name(shape.record(data.get("modelConfig")).get("modelName"))
    return {
        "id": id,
        "title": shape.name(head.get("name")) or shape.name(data.get("name")),
        "folder": shape.name(folder),
        "parent": shape.name(parent),
        "model": None if model == "default" else model,
        "archived": head.get("isArchived") in (1, True),
        "began": data.get("createdAt"),
        "active": data.get("lastUpdatedAt"),
    }


def _read_composer(database: ForeignDatabase, unit: Unit) -> Iterator[Event]:
    hint, id = unit.hint, unit.hint["id"]
    began = times.of(hint["began"])
    yield subagents.begin(id, began, parent=hint["parent"])
    fields = {name: hint[name] for name in ("title", "model", "archived") if hint[name]}
    if hint["folder"]:
        fields["workspace"] = {"path": hint["folder"]}
    fields |= {"active_at": active} if (active := times.of(hint["active"])) else {}
    at = began or files.changed_at(unit.path)
    if "inline" in hint:
        data = next((each for each in _composers(database) if each.get("composerId") == id), {})
    else:
        data = shape.record(_value(database, f"{_COMPOSER}{id}", "cursorDiskKV"))
    for name, bubble in _bubbles(database, id, data):
        if bubble is None:
            yield Skipped(where=f"message {name}", why="it is not in the database")
            continue
        if "workspace" not in fields and (folder := folder_of(bubble)):
            fields["workspace"] = {"path": folder}
        at = time_of(bubble) or at
        yield from said(name, bubble, at)
    yield Facts(fields=fields)


def _bubbles(database: ForeignDatabase, id: str, data: Json) -> Iterator[tuple[str, Json | None]]:
    """The messages in their order: by the list that names them, inline, or by their keys."""
    heads = shape.records(data.get("fullConversationHeadersOnly"))
    inline = shape.record(data.get("conversationMap"))
    for head in heads:
        name = shape.words(head.get("bubbleId"))
        kept = _value(database, f"{_BUBBLE}{id}:{name}", "cursorDiskKV")
        found = kept if isinstance(kept, dict) else inline.get(name)
        yield name, found if isinstance(found, dict) else None
    if heads:
        return
    older = shape.records(data.get("conversation")) or shape.records(list(inline.values()))
    for number, bubble in enumerate(older):
        yield shape.name(bubble.get("bubbleId")) or f"{id}:{number}", bubble
    if older:
        return
    prefix = f"{_BUBBLE}{id}:"
    rows = database.rows("cursorDiskKV", ("key", "value"), between=_keys(prefix), order=("rowid",))
    for key, value in rows:
        bubble = shape.parsed(value)
        yield str(key).removeprefix(prefix), bubble if isinstance(bubble, dict) else None


def _read_tab(database: ForeignDatabase, unit: Unit) -> Iterator[Event]:
    """A conversation of the first releases: all of them in one value."""
    tabs = shape.records(shape.record(_value(database, TABS)).get("tabs"))
    tab = next((each for each in tabs if each.get("tabId") == unit.hint["tab"]), {})
    at = times.of(tab.get("lastSendTime")) or files.changed_at(unit.path)
    yield Begin(native_id=unit.hint["tab"], began_at=at)
    yield Facts(fields={"title": tab.get("chatTitle")})
    for number, bubble in enumerate(shape.records(tab.get("bubbles"))):
        at = time_of(bubble) or at
        yield from said(shape.name(bubble.get("id")) or f"bubble {number}", bubble, at)


IMPORTER = Cursor()
