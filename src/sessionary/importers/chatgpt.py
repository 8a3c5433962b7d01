"""ChatGPT's export: a zip, the folder it was unpacked to, its `conversations.json`, or one conversation."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from sessionary.formats import coerce, openai_items
from sessionary.formats.coerce import Json
from sessionary.importers.base import archives, events, files
from sessionary.importers.base.archives import MAX_FILE, ExportFiles
from sessionary.importers.base.content import (
    MessageContent,
    parents_first,
    parse_time,
    tree_branches,
    without_nodes,
)
from sessionary.model.media import media_type_of

# Conversations with more nodes are skipped.
MOST = 200_000
_KEPT = ("gizmo_id", "gizmo_type", "conversation_template_id", "conversation_origin", "voice")
_EPOCH = datetime(2022, 11, 30, tzinfo=UTC)
_FILE_ID = re.compile(r"file[-_][A-Za-z0-9]+")
_TEXTS = ("text", "multimodal_text")
# What of the metadata is worth keeping.
_KEPT_METADATA = ("citations", "content_references", "gizmo_id", "request_id", "aggregate_result")


class Assets:
    """The files of an export, by the ids that messages give them."""

    def __init__(self, export_files: ExportFiles) -> None:
        self._export_files = export_files

    @cached_property
    def _names(self) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for name in self._export_files.names():
            id = _FILE_ID.match(archives.base_name(name))
            if id is not None:
                found.setdefault(id[0], name)
        return found

    def find(self, pointer: object) -> tuple[str, bytes] | None:
        """Return name and bytes of a file; None if the export does not have it."""
        id = _FILE_ID.match(coerce.text(pointer).rpartition("://")[2])
        name = None if id is None else self._names.get(id[0])
        data = None if name is None else self._export_files.data(name, MAX_FILE)
        if name is None or not data:
            return None
        # Without the folders and the id that the export puts before a file's name.
        base = archives.base_name(name)
        return _FILE_ID.sub("", base, count=1).lstrip("-_") or base, data


def to_message(
    message: Json, *, id: str, at: datetime, call: str | None, assets: Assets
) -> events.MessageEvent | None:
    """Return the message; None for one without content."""
    author = coerce.record(message.get("author"))
    role = openai_items.role_of(author.get("role"), "system")
    body = coerce.record(message.get("content"))
    metadata = coerce.record(message.get("metadata"))
    content = MessageContent()
    name = coerce.name(author.get("name"))
    recipient = coerce.name(message.get("recipient"))
    if role == "tool":
        result: Any = _words(body) or body
        if body.get("content_type") in _TEXTS:
            result = MessageContent()
            _add_parts(result, body, assets)
        if result:
            is_error = body.get("content_type") == "system_error"
            content.add_result(call, result, name=name, is_error=is_error)
    elif role == "assistant" and recipient not in (None, "all"):
        content.add_call(id, str(recipient), coerce.parse_json_or_keep(_words(body)))
    else:
        _add(content, body, assets)
    # Documents that a person sent along, unless they are among the parts.
    there = {part.get("name") for part in content.parts}
    for each in coerce.records(metadata.get("attachments")):
        found = assets.find(each.get("id"))
        if found is not None and found[0] not in there:
            kind = coerce.text(each.get("mime_type")) or coerce.text(each.get("mimeType"))
            named = coerce.name(each.get("name")) or found[0]
            content.attach(found[1], media_type_of(found[1], kind), named)
    if not content:
        return None
    extra = {name: metadata[name] for name in _KEPT_METADATA if metadata.get(name)}
    if metadata.get("is_visually_hidden_from_conversation") is True:
        extra["hidden"] = True
    if message.get("status") not in (None, "finished_successfully"):
        extra["status"] = message["status"]
    if body.get("content_type") == "code" and coerce.name(body.get("language")):
        extra["language"] = body["language"]
    return content.to_message(
        role,
        at,
        id=id,
        model=coerce.name(metadata.get("model_slug")) if role == "assistant" else None,
        finish_reason=coerce.name(coerce.record(metadata.get("finish_details")).get("type")),
        extra={"chatgpt": extra} if extra else None,
    )


def _add(content: MessageContent, body: Json, assets: Assets) -> None:
    """Add the content of a person's or the model's message."""
    kind = body.get("content_type")
    if kind in _TEXTS:
        _add_parts(content, body, assets)
    elif kind == "code":
        content.add_text(_words(body))
    elif kind == "thoughts":
        for thought in coerce.records(body.get("thoughts")):
            text = (coerce.text(thought.get("summary")), coerce.text(thought.get("content")))
            content.add_reasoning("\n".join(filter(None, text)))
    elif kind == "reasoning_recap":
        content.add_reasoning(body.get("content"))
    elif body:
        content.add_unknown({"type": str(kind or "content"), **body})


def _add_parts(content: MessageContent, body: Json, assets: Assets) -> None:
    for part in coerce.items(body.get("parts")):
        given = coerce.record(part)
        kind = given.get("content_type")
        if isinstance(part, str):
            content.add_text(part)
        elif kind == "audio_transcription":
            content.add_text(given.get("text"))
        elif found := assets.find(given.get("asset_pointer")):
            name, data = found
            content.attach(data, media_type_of(data, ""), name)
        else:
            content.add_unknown({"type": str(kind or "part"), **given} if given else part)


def _words(body: Json) -> str:
    text = body.get("text")
    if not isinstance(text, str):
        text = body.get("result")
    if isinstance(text, str):
        return text
    return "\n".join(each for each in coerce.items(body.get("parts")) if isinstance(each, str))


class ChatGpt(archives.ExportImporter):
    """Reads the export that ChatGPT sends to its users."""

    name = "chatgpt"
    title = "ChatGPT"
    sign, alone = b'"mapping"', b'"author"'

    def read(self, unit: events.Unit, resume: events.Resume | None) -> Iterator[events.Event]:
        assets: Assets | None = None

        def take(given: Json, where: str, export_files: ExportFiles) -> Iterator[events.Event]:
            nonlocal assets
            assets = assets or Assets(export_files)
            return _conversation(given, where, assets, unit.path)

        return archives.export_events(unit.path, take)


def _conversation(
    conversation: Json, where: str, assets: Assets, path: Path
) -> Iterator[events.Event]:
    id = coerce.first_name(conversation.get("conversation_id"), conversation.get("id"))
    mapping = coerce.record(conversation.get("mapping"))
    if id is None or not mapping:
        why = "it has no messages" if id is not None else "it has no name"
        yield events.Skipped(where=where, why=why)
        return
    if len(mapping) > MOST:
        yield events.Skipped(where=where, why=f"it has more than {MOST:,} messages")
        return
    began = parse_time(conversation.get("create_time"))
    yield events.begin_session(id, began)
    extra = {name: conversation[name] for name in _KEPT if conversation.get(name)}
    is_starred = conversation.get("is_starred") is True
    yield events.facts(
        title=conversation.get("title"),
        model=coerce.name(conversation.get("default_model_slug")),
        archived=conversation.get("is_archived") is True,
        pinned=is_starred or conversation.get("pinned_time") is not None,
        extra={"chatgpt": extra} if extra else None,
    )
    tree = _ConversationTree(conversation, mapping, assets, began or files.changed_at(path))
    yield from tree.branches(where)
    yield events.SessionEnd()


class _ConversationTree:
    """The messages of one conversation as a tree."""

    def __init__(self, conversation: Json, mapping: Json, assets: Assets, began: datetime) -> None:
        self._assets = assets
        self._began = began
        self._current = conversation.get("current_node")
        nodes = {id: coerce.record(node) for id, node in mapping.items()}
        self._nodes = dict(sorted(nodes.items(), key=lambda item: _created_at(item[1])))
        self._parents: dict[str, str | None] = {
            id: parent
            if isinstance(parent := node.get("parent"), str) and parent in nodes
            else None
            for id, node in self._nodes.items()
        }
        self._skipped = 0

    def branches(self, where: str) -> Iterator[events.Event]:
        """Yield the branches, the current one last."""
        messages = self._messages()
        gone = {id for id in self._parents if id not in messages}
        parents = without_nodes(self._parents, gone)
        current = self._current if isinstance(self._current, str) else None
        while current in gone:
            gone.discard(current)
            current = self._parents.get(current)
        found = {id: [messages[id]] for id in parents}
        yield from tree_branches(parents, found, current=current, where=where)
        if self._skipped:
            yield events.Skipped(where=where, why=f"{self._skipped:,} nodes hold no message")

    def _messages(self) -> dict[str, events.MessageEvent]:
        """Return the message of each node; a tool's result belongs to the call above it."""
        found: dict[str, events.MessageEvent] = {}
        calls: dict[str, str | None] = {}
        at = self._began
        for id in parents_first(self._parents):
            call = calls.get(self._parents[id] or "")
            message = self._nodes[id].get("message")
            if message is not None and not isinstance(message, dict):
                self._skipped += 1
            made = None
            if isinstance(message, dict):
                at = parse_time(message.get("create_time")) or at
                made = to_message(message, id=id, at=at, call=call, assets=self._assets)
            if made is not None:
                found[id] = made
            own = [] if made is None else [p["id"] for p in made.parts if p["type"] == "tool_call"]
            calls[id] = own[0] if own else call if made is None or made.role != "user" else None
        return found


def _created_at(node: Json) -> datetime:
    return parse_time(coerce.record(node.get("message")).get("create_time")) or _EPOCH


IMPORTER = ChatGpt()
