"""Cursor: its databases of key and value, the transcripts of its agents, and its command line.

The program changes its formats often and holds its database open: fields that are missing are
ignored, and messages (`bubbles`) are found by the list of their ids, or else by their keys.

The command line has one database for each conversation: `meta` holds one JSON text, written in
hexadecimal digits; `blobs` holds messages as JSON, and lists of messages in the wire format of
Protocol Buffers. The latest list is named in `meta`: its field 1 are the hashes of the messages, in
order, and its field 9 is the directory of the work.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.formats import anthropic_blocks, coerce
from sessionary.formats.coerce import Json
from sessionary.importers.base import databases, events, files
from sessionary.importers.base.content import (
    MessageContent,
    call_usage,
    first_time,
    parse_time,
    text_content,
)
from sessionary.importers.base.databases import DatabaseSession
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

MAX_TEXT = 64 * 1024 * 1024
_TRANSCRIPTS = "agent-transcripts"
_ROLE_MARKS = {"user:": "user", "assistant:": "assistant"}

# The database of one conversation of the command line, and the file beside it.
CLI_DATABASE, CLI_FACTS = "store.db", "meta.json"
_CLI_HINT = "cursor-cli"
_QUERY = re.compile(r"\s*<user_query>\n?(.*?)\n?</user_query>\s*", re.DOTALL)
# What the program tells the model before the person's own words.
_AROUND = ("<user_info>", "<project_layout>", "<git_status>", "<rules>", "<agent_transcripts>")
_MESSAGES, _FOLDER = 1, 9


class CursorImporter(events.Importer):
    """Reads the conversations of Cursor."""

    name = "cursor"
    title = "Cursor"

    def places(self, user: events.UserEnvironment) -> list[Path]:
        """Return the user's directories on each system, and those of the agents."""
        agents = user.home / ".cursor"
        return [*_user_folders(user.home), agents / "projects", agents / "chats"]

    def recognises(self, path: Path) -> bool:
        if is_sqlite(path):
            return _is_key_value(path) or _is_cli_database(path)
        return files.is_file(path) and _is_transcript(path)

    def find(self, place: Path) -> Iterator[events.Unit]:
        """Yield the conversations of databases, then the transcripts that no database has."""
        stores = list(_cli_databases(place))
        for path in stores:
            beside = tuple(each for each in (path.with_name(CLI_FACTS),) if files.is_file(each))
            # The latest changes may still be in the journal.
            stamp = files.stamp_of(path, path.with_name(f"{path.name}-wal"), *beside)
            yield events.Unit(str(path), path, stamp, files.size_of(path), beside, hint=_CLI_HINT)
        if is_sqlite(place) and not stores:
            yield from databases.units(place, _conversations)
        for path in _databases(place):
            yield from databases.units(path, _conversations)
        # Transcripts of conversations in the database of the same home are copies.
        known: set[str] = set()
        for folder in _user_folders(place.parent.parent):
            for path in _databases(folder / "globalStorage"):
                with suppress(BadInput), ExternalDatabase(path) as database:
                    rows = database.rows("cursorDiskKV", ("key",), between=_keys(_COMPOSER))
                    known |= {key.removeprefix(_COMPOSER) for (key,) in rows if coerce.name(key)}
        for path in _transcripts(place):
            if path.stem not in known:
                yield files.unit(path)

    def read(self, unit: events.Unit, resume: events.Resume | None) -> Iterator[events.Event]:
        if not is_sqlite(unit.path):
            yield from _read_transcript(unit, resume)
            return
        with databases.opened(unit) as database:
            if unit.hint == _CLI_HINT:
                yield from _read_cli(database, unit)
            elif "tab" in unit.hint:
                yield from _read_tab(database, unit)
            else:
                yield from _read_composer(database, unit)


def _user_folders(home: Path) -> list[Path]:
    users = (".config", "Library/Application Support", "AppData/Roaming")
    return [home / each / "Cursor" / "User" for each in users]


# The databases of key and value


def _databases(place: Path) -> Iterator[Path]:
    for path in files.walk(place, suffixes=(DATABASE,), depth=2):
        if path.name == DATABASE and _is_key_value(path):
            yield path


def _is_key_value(path: Path) -> bool:
    return databases.passes(
        path,
        lambda database: (
            database.has("cursorDiskKV", "key", "value")
            or any(_value(database, key) for key in (TABS, COMPOSERS))
        ),
    )


def _keys(prefix: str) -> tuple[str, str, str]:
    """Return the range of the keys with a prefix, which an index finds."""
    return "key", prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)


def _value(database: ExternalDatabase, key: str, table: str = "ItemTable") -> Any:
    return coerce.parse_json(databases.value(database, table, "value", where=("key", key)))


def _listed(database: ExternalDatabase, key: str, name: str) -> list[Json]:
    return coerce.records(coerce.record(_value(database, key)).get(name))


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
    for composer in _listed(database, COMPOSERS, "allComposers"):
        name = coerce.name(composer.get("composerId"))
        if name is None or name in known or not coerce.records(composer.get("conversation")):
            continue
        # The directory that the database of a workspace belongs to.
        beside = database.path.parent / "workspace.json"
        folder = coerce.text(files.read_record(beside, most=1024 * 1024).get("folder"))
        hint = _hint(name, composer, {}) | {"folder": coerce.name(folder.removeprefix("file://"))}
        stamp = (len(composer["conversation"]), *hint.values())
        yield DatabaseSession(name, stamp, hint | {"inline": True}, (beside,))
    for tab in _listed(database, TABS, "tabs"):
        if coerce.name(tab.get("tabId")):
            stamp = (len(coerce.items(tab.get("bubbles"))), tab.get("lastSendTime"))
            yield DatabaseSession(tab["tabId"], stamp, {"tab": tab["tabId"]})


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


def _read_composer(database: ExternalDatabase, unit: events.Unit) -> Iterator[events.Event]:
    hint, id = unit.hint, unit.hint["id"]
    began = parse_time(hint["began"])
    yield events.begin_session(id, began, parent=hint["parent"])
    fields = {name: hint[name] for name in ("title", "model", "archived") if hint[name]}
    fields |= {"active_at": active} if (active := parse_time(hint["active"])) else {}
    folder = hint["folder"]
    at = began or files.changed_at(unit.path)
    if "inline" in hint:
        composers = _listed(database, COMPOSERS, "allComposers")
        data = next((each for each in composers if each.get("composerId") == id), {})
    else:
        data = coerce.record(_value(database, f"{_COMPOSER}{id}", "cursorDiskKV"))
    for name, bubble in _bubbles(database, id, data):
        if bubble is None:
            yield events.Skipped(where=f"message {name}", why="it is not in the database")
            continue
        # The directory that was open.
        uris = coerce.items(bubble.get("workspaceUris"))
        uri = coerce.text(uris[0]).removeprefix("file://") if uris else ""
        folder = folder or coerce.first_name(bubble.get("workspaceProjectDir"), uri)
        at = _time_of(bubble) or at
        yield from _to_messages(name, bubble, at)
    yield events.Facts(fields=fields | ({"workspace": {"path": folder}} if folder else {}))


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


def _read_tab(database: ExternalDatabase, unit: events.Unit) -> Iterator[events.Event]:
    """Yield a conversation of the first releases, which stored all of them in one value."""
    tabs = _listed(database, TABS, "tabs")
    tab = next((each for each in tabs if each.get("tabId") == unit.hint["tab"]), {})
    at = parse_time(tab.get("lastSendTime")) or files.changed_at(unit.path)
    yield events.begin_session(unit.hint["tab"], at)
    yield events.facts(title=tab.get("chatTitle"))
    for number, bubble in enumerate(coerce.records(tab.get("bubbles"))):
        at = _time_of(bubble) or at
        yield from _to_messages(coerce.name(bubble.get("id")) or f"bubble {number}", bubble, at)


def _to_messages(id: str, bubble: Json, at: datetime) -> Iterator[events.MessageEvent]:
    """Yield the messages of a bubble."""
    text = next((text for name in _TEXTS if (text := coerce.text(bubble.get(name)))), "")
    if bubble.get("type") in _USER:
        content = text_content(text)
        _add_images(content, bubble)
        if content:
            yield content.to_message("user", at, id=id)
        return
    content, results = MessageContent(), MessageContent()
    thinking = coerce.record(bubble.get("thinking"))
    if coerce.text(thinking.get("text")):
        _add_reasoning(content, thinking)
    content.add_text(text)
    tool = coerce.record(bubble.get("toolFormerData"))
    if name := coerce.name(tool.get("name")):
        call_id, status = coerce.name(tool.get("toolCallId")) or id, tool.get("status")
        given = coerce.name(tool.get("params")) or tool.get("rawArgs")
        content.add_call(call_id, name, coerce.parse_json_or_keep(given) or None)
        if status in _DONE or tool.get("result") is not None:
            is_error = status in ("error", "cancelled")
            results.add_result(call_id, tool.get("result"), name=name, is_error=is_error)
    if not content:
        return
    named = coerce.record(bubble.get("modelInfo")).get("modelName")
    models = map(coerce.name, (named, bubble.get("model"), bubble.get("modelType")))
    model = next((each for each in models if each and each != "default"), None)
    tokens = coerce.record(bubble.get("tokenCount"))
    sent, made = tokens.get("inputTokens"), tokens.get("outputTokens")
    used = call_usage("cursor", id, model=model, at=at, input=sent, output=made)
    yield content.to_message("assistant", at, id=id, model=model, usage=used)
    if results:
        yield results.to_message("tool", at, id=f"{id}:result")


def _time_of(bubble: Json) -> datetime | None:
    timing = coerce.record(bubble.get("timingInfo"))
    return first_time(
        bubble.get("createdAt"), bubble.get("timestamp"), timing.get("clientStartTime")
    )


def _add_reasoning(content: MessageContent, given: Json) -> None:
    signature = coerce.name(given.get("signature"))
    content.add_reasoning(given.get("text"), {"signature": signature} if signature else None)


def _add_images(content: MessageContent, bubble: Json) -> None:
    selected = coerce.record(bubble.get("context")).get("selectedImages")
    for image in coerce.items(bubble.get("images")) or coerce.items(selected):
        given = image.get("data", image.get("url")) if isinstance(image, dict) else image
        kind = image.get("mimeType") if isinstance(image, dict) else None
        # The bytes of a picture may be written as a list or an object of numbers.
        numbers = coerce.items(list(given.values()) if isinstance(given, dict) else given)
        if numbers and all(isinstance(each, int) and 0 <= each < 256 for each in numbers):
            content.attach(bytes(numbers), kind)
        elif not content.attach_url(given) and not content.attach_base64(given, kind):
            content.add_unknown({"type": "cursor_image", "native": image})


# The transcripts of agents: JSON lines, or a text with marked speakers


def _transcripts(place: Path) -> Iterator[Path]:
    """Yield the transcripts below a directory, subagents last; or the one that was named."""
    found = files.named_or_below(place, suffixes=(".txt", ".jsonl"), depth=5)
    yield from sorted(filter(_is_transcript, found), key=lambda each: (len(each.parts), each))


def _is_transcript(path: Path) -> bool:
    """Whether a file is where transcripts are, and begins as they do."""
    if _TRANSCRIPTS not in path.parts or path.suffix not in (".txt", ".jsonl"):
        return False
    first = files.head(path, 4096).lstrip()
    if path.suffix == ".jsonl":
        return b'"role"' in first
    return first.startswith((b"user:", b"assist"))


def _read_transcript(unit: events.Unit, resume: events.Resume | None) -> Iterator[events.Event]:
    """Yield one transcript. It has no times of its own: they are the file's."""
    parent = unit.path.parent.parent.name if unit.path.parent.name == "subagents" else None
    at = files.changed_at(unit.path)
    yield events.begin_session(unit.path.stem, None if resume else at, parent=parent)

    def take(line: Json, where: str) -> Iterator[events.Event]:
        message = line.get("message")
        given = message.get("content") if isinstance(message, dict) else message
        content = MessageContent()
        anthropic_blocks.add(content, line.get("content") if given is None else given)
        role = "user" if line.get("role") == "user" else "assistant"
        if content:
            yield content.to_message(role, parse_time(line.get("timestamp")) or at, id=where)

    if unit.path.suffix == ".jsonl":
        yield from files.resumable_events(unit.path, resume, take)
        return
    if files.size_of(unit.path) > MAX_TEXT:
        raise BadInput(f"{unit.path} is larger than {MAX_TEXT:,} bytes; it was left alone.")
    with files.opened(unit.path) as file:
        text = file.read(MAX_TEXT).decode("utf-8", "replace")
    role, words, number = "", [""], 0
    for line in [*text.splitlines(), "user:"]:
        mark = next((mark for mark in _ROLE_MARKS if line.startswith(mark)), None)
        if mark is None:
            words.append(line)
            continue
        text = "\n".join(words).strip()
        if role and text:
            yield text_content(text).to_message(role, at, id=f"message {number}")
            number += 1
        role, words = _ROLE_MARKS[mark], [line.removeprefix(mark).strip()]


# The command line


def _cli_databases(place: Path) -> Iterator[Path]:
    """Yield the databases below a directory, or the one that was named."""
    for path in files.named_or_below(place, suffixes=(CLI_DATABASE,), depth=4):
        if (path == place or path.name == CLI_DATABASE) and _is_cli_database(path):
            yield path


def _is_cli_database(path: Path) -> bool:
    """Whether a file is the database of one conversation."""
    return databases.passes(
        path,
        lambda database: (
            database.has("blobs", "id", "data")
            and database.has("meta", "key", "value")
            and "latestRootBlobId" in _meta(database)
        ),
    )


def _read_cli(database: ExternalDatabase, unit: events.Unit) -> Iterator[events.Event]:
    """Yield the messages of the latest list, in order."""
    meta = _meta(database)
    known = files.read_record(unit.path.with_name(CLI_FACTS), most=1024 * 1024)
    began = first_time(meta.get("createdAt"), known.get("createdAtMs"))
    at = began or files.changed_at(unit.path)
    root = _blob(database, meta.get("latestRootBlobId"))
    if root is None:
        raise BadInput(f"{unit.path} names no list of messages that is there; it was left alone.")
    fields = list(_fields(root))
    yield events.begin_session(coerce.name(meta.get("agentId")) or unit.path.parent.name, began)
    model = coerce.name(meta.get("lastUsedModel"))
    folder = next((data.decode("utf-8", "replace") for no, data in fields if no == _FOLDER), "")
    yield events.facts(
        title=coerce.first_name(known.get("title"), meta.get("name")),
        model=model,
        workspace=events.workspace(coerce.text(known.get("cwd")) or folder.removeprefix("file://")),
        active_at=parse_time(known.get("updatedAtMs")),
    )
    names = (data.hex() for field, data in fields if field == _MESSAGES)
    for number, name in enumerate(names, 1):
        message = coerce.parse_json(_blob(database, name))
        if not isinstance(message, dict):
            yield events.Skipped(
                where=f"message {number}", why="it is not in the database, or not JSON"
            )
            continue
        given, role = message.get("content"), coerce.text(message.get("role"))
        content = MessageContent()
        for block in given if isinstance(given, list) else [{"type": "text", "text": given}]:
            _add_cli_block(content, coerce.record(block))
        is_around = all(
            part["type"] == "text" and part["text"].lstrip().startswith(_AROUND)
            for part in content.parts
        )
        role = "system" if role == "user" and is_around else role
        if content and role in ("user", "assistant", "system", "tool"):
            used = model if role == "assistant" else None
            yield content.to_message(role, at, id=f"{number}:{name[:16]}", model=used)


def _meta(database: ExternalDatabase) -> Json:
    for _, value in database.rows("meta", ("key", "value")):
        text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
        if not isinstance(text, str):
            continue
        try:
            data = coerce.parse_json(bytes.fromhex(text))
        except ValueError:
            data = coerce.parse_json(text)
        if isinstance(data, dict):
            return data
    return {}


def _blob(database: ExternalDatabase, id: object) -> bytes | None:
    data = databases.value(database, "blobs", "data", where=("id", id))
    return data.encode() if isinstance(data, str) else data if isinstance(data, bytes) else None


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the length-delimited fields of a Protocol Buffers message, up to a damaged one."""
    at = 0
    while at < len(data):
        tag, at = _number(data, at)
        match tag & 7:
            case 0:
                _, at = _number(data, at)
            case 1:
                at += 8
            case 5:
                at += 4
            case 2:
                length, at = _number(data, at)
                if at + length > len(data):
                    return
                yield tag >> 3, data[at : at + length]
                at += length
            case _:
                return


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, and the offset after it."""
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
    return 0, len(data)


def _add_cli_block(content: MessageContent, block: Json) -> None:
    call = coerce.text(block.get("toolCallId"))
    name = coerce.name(block.get("toolName"))
    match block.get("type"):
        case "text":
            typed = _QUERY.fullmatch(coerce.text(block.get("text")))
            content.add_text(block.get("text") if typed is None else typed[1])
        case "reasoning":
            _add_reasoning(content, block)
        case "redacted-reasoning":
            content.add_reasoning("", {"redacted": block.get("data")})
        case "tool-call":
            content.add_call(call, name or "tool", block.get("args", block.get("input")))
        case "tool-result":
            result = block.get("result", block.get("output"))
            is_error = block.get("isError") is True
            content.add_result(call, result, name=name, is_error=is_error)
        case "image":
            data, kind = block.get("image", block.get("data")), block.get("mimeType")
            if not content.attach_url(data) and not content.attach_base64(data, kind):
                content.add_unknown({"type": "cursor_image", "native": block})
        case _:
            content.add_unknown({"type": "cursor_part", "native": block})


IMPORTER = CursorImporter()
