"""Claude.ai's export: a zip, the folder it was unpacked to, its `conversations.json`, or one conversation."""

from collections.abc import Iterator
from datetime import datetime
from itertools import groupby
from pathlib import Path

from sessionary.formats import anthropic_blocks, coerce
from sessionary.formats.coerce import Json
from sessionary.importers.base import archives, events, files
from sessionary.importers.base.content import MessageContent, is_linear, parse_time, tree_branches
from sessionary.store.tables.blobs import hash_of

_ROLES = {"human": "user", "user": "user", "assistant": "assistant"}
# The parent of a first message.
_ROOT = "00000000-0000-4000-8000-000000000000"


class ClaudeAi(archives.ExportImporter):
    """Reads the export that Claude.ai sends to its users."""

    name = "claude-ai"
    title = "Claude.ai"
    sign, alone = b'"chat_messages"', b'"sender"'

    def read(self, unit: events.Unit, resume: events.Resume | None) -> Iterator[events.Event]:
        return archives.export_events(
            unit.path, lambda given, where, _: _conversation(given, where, unit.path)
        )


def _conversation(conversation: Json, where: str, path: Path) -> Iterator[events.Event]:
    id = coerce.name(conversation.get("uuid"))
    if id is None:
        yield events.Skipped(where=where, why="it has no name")
        return
    began = parse_time(conversation.get("created_at"))
    yield events.begin_session(id, began)
    extra = {name: conversation[name] for name in ("summary", "settings") if conversation.get(name)}
    yield events.facts(
        title=conversation.get("name"),
        model=coerce.name(conversation.get("model")),
        project=coerce.name(coerce.record(conversation.get("project")).get("name")),
        pinned=conversation.get("is_starred") is True,
        extra={"claude-ai": extra} if extra else None,
    )
    at = began or files.changed_at(path)
    messages: dict[str, list[events.MessageEvent]] = {}
    parents: dict[str, str | None] = {}
    before: str | None = None
    for number, given in enumerate(coerce.items(conversation.get("chat_messages")), 1):
        message = coerce.record(given)
        at = parse_time(message.get("created_at")) or at
        name = coerce.name(message.get("uuid")) or f"{number}"
        made = _to_messages(message, name, at)
        if not made or name in messages:
            why = "its name came before" if made else "it is no message, or says nothing"
            yield events.Skipped(where=f"{where} message {number}", why=why)
            continue
        messages[name] = made
        # Newer exports name the message it follows; otherwise it is the one before.
        named = message.get("parent_message_uuid")
        if isinstance(named, str):
            before = None if named == _ROOT or named not in messages else named
        parents[name] = before
        before = name
    if is_linear(parents):
        for made in messages.values():
            yield from made
    else:
        current = coerce.name(conversation.get("current_leaf_message_uuid"))
        yield from tree_branches(parents, messages, current=current, where=where)
    yield events.SessionEnd()


def _to_messages(message: Json, id: str, at: datetime) -> list[events.MessageEvent]:
    """Return a message as several, so that the results of tools are messages of their own."""
    role = _ROLES.get(coerce.text(message.get("sender")))
    if role is None:
        return []
    content = MessageContent()
    anthropic_blocks.add(content, message.get("content"))
    if not content.has("text"):
        content.add_text(message.get("text"))
    for each in coerce.records(message.get("attachments")):
        # A document: the export has the text that was extracted from it.
        words = coerce.name(each.get("extracted_content"))
        if words is None:
            content.add_unknown({"type": "file", **each})
        else:
            data = words.encode("utf-8", "surrogatepass")
            content.attach(data, "text/plain", coerce.name(each.get("file_name")))
    made: list[events.MessageEvent] = []
    for is_result, cut in groupby(content.parts, key=lambda part: part["type"] == "tool_result"):
        piece = MessageContent(list(cut))
        named = {part.get("blob") for part in piece.parts}
        piece.blobs = [data for data in content.blobs if hash_of(data) in named]
        name = f"{id}/{len(made)}" if made else id
        made.append(piece.to_message("tool" if is_result else role, at, id=name))
    extra = coerce.records(message.get("files"))
    if made and extra:
        made[0].extra = {"claude-ai": {"files": extra}}
    return made


IMPORTER = ClaudeAi()
