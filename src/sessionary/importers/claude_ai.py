"""Claude.ai's export: a zip, the folder it was unpacked to, its `conversations.json`, or one conversation."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import groupby
from pathlib import Path

from sessionary.formats import anthropic_blocks, coerce
from sessionary.importers.base import archives, files
from sessionary.importers.base.content import MessageContent, is_linear, parse_time, tree_branches
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
from sessionary.store.tables.blobs import hash_of

_ROLES = {"human": "user", "user": "user", "assistant": "assistant"}
# The parent of a first message.
_ROOT = "00000000-0000-4000-8000-000000000000"


class ClaudeAi:
    """Reads the export that Claude.ai sends to its users."""

    name = "claude-ai"
    title = "Claude.ai"

    def places(self, where: Where) -> list[Path]:
        return []

    def recognises(self, path: Path) -> bool:
        return archives.is_export(path, b'"chat_messages"', alone=b'"sender"')

    def find(self, place: Path) -> Iterator[Unit]:
        yield from archives.export_units(place)

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        for where, item, _ in archives.conversations(unit.path):
            if item.why is not None:
                yield Skipped(where=where, why=item.why)
            else:
                yield from _conversation(item.data, where, unit)


def _conversation(data: object, where: str, unit: Unit) -> Iterator[Event]:
    talk = coerce.record(data)
    id = coerce.name(talk.get("uuid"))
    if id is None:
        yield Skipped(where=where, why="it has no name")
        return
    began = parse_time(talk.get("created_at"))
    yield SessionBegin(native_id=id, began_at=began)
    yield Facts(fields=_fields(talk))
    at = began or files.changed_at(unit.path)
    messages: dict[str, list[MessageEvent]] = {}
    parents: dict[str, str | None] = {}
    before: str | None = None
    for number, given in enumerate(coerce.items(talk.get("chat_messages")), 1):
        message = coerce.record(given)
        at = parse_time(message.get("created_at")) or at
        name = coerce.name(message.get("uuid")) or f"{number}"
        made = _said(message, name, at)
        if not made or name in messages:
            why = "its name came before" if made else "it is no message, or says nothing"
            yield Skipped(where=f"{where} message {number}", why=why)
            continue
        messages[name] = made
        parents[name] = _parent(message, before, messages)
        before = name
    yield from _ways(messages, parents, talk, where)
    yield SessionEnd()


def _ways(
    messages: dict[str, list[MessageEvent]], parents: dict[str, str | None], talk: Json, where: str
) -> Iterator[Event]:
    """One message behind the other; as branches where newer exports tell of a tree."""
    if is_linear(parents):
        for said in messages.values():
            yield from said
        return
    current = coerce.name(talk.get("current_leaf_message_uuid"))
    yield from tree_branches(parents, messages, current=current, where=where)


def _fields(talk: Json) -> Json:
    project = coerce.record(talk.get("project"))
    kept = {name: talk[name] for name in ("summary", "settings") if talk.get(name)}
    return {
        "title": talk.get("name"),
        "model": coerce.name(talk.get("model")),
        "project": coerce.name(project.get("name")),
        "pinned": talk.get("is_starred") is True,
        "extra": {"claude-ai": kept} if kept else {},
    }


def _parent(message: Json, before: str | None, messages: Mapping[str, object]) -> str | None:
    """The message it answers to: told by newer exports, else the one before it."""
    told = message.get("parent_message_uuid")
    if not isinstance(told, str):
        return before
    return None if told == _ROOT or told not in messages else told


def _said(message: Json, id: str, at: datetime) -> list[MessageEvent]:
    """What a message says. What tools answered stands inside an answer: here it is apart."""
    role = _ROLES.get(coerce.text(message.get("sender")))
    if role is None:
        return []
    content = MessageContent()
    anthropic_blocks.add(content, message.get("content"))
    if not any(part["type"] == "text" for part in content.parts):
        content.say(message.get("text"))
    for each in coerce.records(message.get("attachments")):
        _add_attachment(content, each)
    made: list[MessageEvent] = []
    for is_result, cut in groupby(content.parts, key=lambda part: part["type"] == "tool_result"):
        piece = MessageContent(list(cut))
        named = {part.get("blob") for part in piece.parts}
        piece.blobs = [data for data in content.blobs if hash_of(data) in named]
        name = f"{id}/{len(made)}" if made else id
        made.append(piece.said("tool" if is_result else role, at, id=name))
    kept = coerce.records(message.get("files"))
    if made and kept:
        made[0].extra = {"claude-ai": {"files": kept}}
    return made


def _add_attachment(content: MessageContent, given: Json) -> None:
    """Add a document: the export has the words that were read from it."""
    words = coerce.name(given.get("extracted_content"))
    if words is None:
        content.keep({"type": "file", **given})
        return
    data = words.encode("utf-8", "surrogatepass")
    content.attach(data, "text/plain", coerce.name(given.get("file_name")))


IMPORTER = ClaudeAi()
