"""Cursor's command line: one database for each conversation.

`meta` holds one JSON text, written in hexadecimal digits; `blobs` holds messages as JSON, and lists of
messages in the wire format of Protocol Buffers. The latest list is named in `meta`: its field 1 are the
hashes of the messages, in order, and its field 9 is the directory of the work.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.formats import coerce
from sessionary.importers.base import databases, files
from sessionary.importers.base.content import MessageContent, first_time, parse_time
from sessionary.importers.base.events import (
    Event,
    Facts,
    Json,
    MessageEvent,
    SessionBegin,
    Skipped,
    Unit,
)
from sessionary.store.sqlite.external_file import ExternalDatabase, is_sqlite

HINT = "cursor-cli"
STORE = "store.db"
FACTS = "meta.json"
_QUERY = re.compile(r"\s*<user_query>\n?(.*?)\n?</user_query>\s*", re.DOTALL)
# What the program tells the model before the person's own words.
_AROUND = ("<user_info>", "<project_layout>", "<git_status>", "<rules>", "<agent_transcripts>")
_HASH_BYTES = 32
_MESSAGES, _FOLDER = 1, 9


def found(place: Path) -> Iterator[Path]:
    """Yield the stores below a directory, or the one that was named."""
    if files.is_file(place):
        if is_store(place):
            yield place
        return
    below = files.walk(place, suffixes=(STORE,), depth=4)
    yield from (each for each in below if each.name == STORE and is_store(each))


def is_store(path: Path) -> bool:
    """Whether a file is the database of a conversation."""
    if not is_sqlite(path):
        return False
    try:
        with ExternalDatabase(path) as database:
            has_tables = database.has("blobs", "id", "data") and database.has(
                "meta", "key", "value"
            )
            return has_tables and "latestRootBlobId" in _meta(database)
    except BadInput:
        return False


def unit(path: Path) -> Unit:
    """Return the unit of a store."""
    beside = tuple(each for each in (path.with_name(FACTS),) if files.is_file(each))
    # The latest changes may still be in the journal.
    journal = path.with_name(f"{path.name}-wal")
    stamp = files.stamp_of(path, journal, *beside)
    return Unit(str(path), path, stamp, files.size_of(path), beside, hint=HINT)


def read(database: ExternalDatabase, unit: Unit) -> Iterator[Event]:
    """Yield the messages of the latest list, in order."""
    meta = _meta(database)
    facts = files.read_record(unit.path.with_name(FACTS), most=1024 * 1024)
    id = coerce.name(meta.get("agentId")) or unit.path.parent.name
    began = first_time(meta.get("createdAt"), facts.get("createdAtMs"))
    at = began or files.changed_at(unit.path)
    root = _blob(database, meta.get("latestRootBlobId"))
    if root is None:
        raise BadInput(f"{unit.path} names no list of messages that is there; it was left alone.")
    fields = list(_fields(root))
    yield SessionBegin(native_id=id, began_at=began)
    yield Facts(fields=_session_fields(meta, facts, fields))
    model = coerce.name(meta.get("lastUsedModel"))
    for number, name in enumerate((data.hex() for field, data in fields if field == _MESSAGES), 1):
        message = coerce.parse_json(_blob(database, name))
        if not isinstance(message, dict):
            yield Skipped(where=f"message {number}", why="it is not in the database, or not JSON")
            continue
        yield from _to_messages(message, f"{number}:{name[:16]}", at, model)


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


def _session_fields(meta: Json, facts: Json, root: list[tuple[int, bytes]]) -> Json:
    folder = next((data.decode("utf-8", "replace") for no, data in root if no == _FOLDER), "")
    folder = coerce.text(facts.get("cwd")) or folder.removeprefix("file://")
    title = coerce.first_name(facts.get("title"), meta.get("name"))
    fields: Json = {"title": title, "model": coerce.name(meta.get("lastUsedModel"))}
    if folder:
        fields["workspace"] = {"path": folder}
    active = parse_time(facts.get("updatedAtMs"))
    return fields | ({"active_at": active} if active else {})


def _to_messages(message: Json, id: str, at: Any, model: str | None) -> Iterator[MessageEvent]:
    given = message.get("content")
    blocks = given if isinstance(given, list) else [{"type": "text", "text": given}]
    content, role = MessageContent(), coerce.text(message.get("role"))
    for block in map(coerce.record, blocks):
        _add(content, block)
    if role == "user" and all(
        part["type"] == "text" and part["text"].lstrip().startswith(_AROUND)
        for part in content.parts
    ):
        role = "system"
    if not content or role not in ("user", "assistant", "system", "tool"):
        return
    yield content.to_message(role, at, id=id, model=model if role == "assistant" else None)


def _add(content: MessageContent, block: Json) -> None:
    call = coerce.text(block.get("toolCallId"))
    match block.get("type"):
        case "text":
            typed = _QUERY.fullmatch(coerce.text(block.get("text")))
            content.add_text(block.get("text") if typed is None else typed[1])
        case "reasoning":
            signature = coerce.name(block.get("signature"))
            content.add_reasoning(
                block.get("text"), {"signature": signature} if signature else None
            )
        case "redacted-reasoning":
            content.add_reasoning("", {"redacted": block.get("data")})
        case "tool-call":
            name = coerce.name(block.get("toolName")) or "tool"
            content.add_call(call, name, block.get("args", block.get("input")))
        case "tool-result":
            result = block.get("result", block.get("output"))
            is_error = block.get("isError") is True
            name_of = coerce.name(block.get("toolName"))
            content.add_result(call, result, name=name_of, is_error=is_error)
        case "image":
            data, kind = block.get("image", block.get("data")), block.get("mimeType")
            if not content.attach_url(data) and not content.attach_base64(data, kind):
                content.add_unknown({"type": "cursor_image", "native": block})
        case _:
            content.add_unknown({"type": "cursor_part", "native": block})
