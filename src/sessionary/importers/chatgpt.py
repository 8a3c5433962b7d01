"""ChatGPT's export: a zip, the folder it was unpacked to, its `conversations.json`, or one conversation."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from sessionary.formats import coerce, openai_items, parts
from sessionary.importers.base import archives, files
from sessionary.importers.base.archives import MAX_FILE, ExportFiles
from sessionary.importers.base.content import (
    MessageContent,
    parse_time,
    tree_branches,
    without_nodes,
)
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
from sessionary.model.media import media_type_of

# So many nodes a conversation may have.
MOST = 200_000
_KEPT = ("gizmo_id", "gizmo_type", "conversation_template_id", "conversation_origin", "voice")
_EPOCH = datetime(2022, 11, 30, tzinfo=UTC)


_FILE_ID = re.compile(r"file[-_][A-Za-z0-9]+")
_TEXTS = ("text", "multimodal_text")
# What of the metadata is worth keeping.
_KEPT_METADATA = ("citations", "content_references", "gizmo_id", "request_id", "aggregate_result")


class Assets:
    """The files of an export, by the names that messages give them."""

    def __init__(self, shelf: ExportFiles) -> None:
        self._shelf = shelf

    @cached_property
    def _names(self) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for name in self._shelf.names():
            id = _FILE_ID.match(archives.base_name(name))
            if id is not None:
                found.setdefault(id[0], name)
        return found

    def find(self, pointer: object) -> tuple[str, bytes] | None:
        """The name and the bytes of a file; None when the export does not have it."""
        id = _FILE_ID.match(coerce.text(pointer).rpartition("://")[2])
        name = None if id is None else self._names.get(id[0])
        data = None if name is None else self._shelf.data(name, MAX_FILE)
        return None if name is None or not data else (_plain_name(name), data)


def said(
    message: Json, *, id: str, at: datetime, call: str | None, assets: Assets
) -> MessageEvent | None:
    """The message; None for one that says nothing."""
    author = coerce.record(message.get("author"))
    role = openai_items.role_of(author.get("role"), "system")
    body = coerce.record(message.get("content"))
    metadata = coerce.record(message.get("metadata"))
    content = MessageContent()
    name = coerce.name(author.get("name"))
    recipient = coerce.name(message.get("recipient"))
    if role == "tool":
        _add_result(content, body, call, name, assets)
    elif role == "assistant" and recipient not in (None, "all"):
        words = _words(body)
        content.add(parts.tool_call(id, str(recipient), coerce.parse_json_or_keep(words)))
    else:
        _add(content, body, assets)
    _add_files(content, metadata, assets)
    if not content:
        return None
    kept = _kept(message, body, metadata)
    return content.said(
        role,
        at,
        id=id,
        model=coerce.name(metadata.get("model_slug")) if role == "assistant" else None,
        finish_reason=coerce.name(coerce.record(metadata.get("finish_details")).get("type")),
        extra={"chatgpt": kept} if kept else None,
    )


def _add(content: MessageContent, body: Json, assets: Assets) -> None:
    """Add what a person or the model said."""
    kind = body.get("content_type")
    if kind in _TEXTS:
        for each in coerce.items(body.get("parts")):
            _add_part(content, each, assets)
    elif kind == "code":
        content.say(_words(body))
    elif kind == "thoughts":
        for thought in coerce.records(body.get("thoughts")):
            told = (coerce.text(thought.get("summary")), coerce.text(thought.get("content")))
            content.think("\n".join(filter(None, told)))
    elif kind == "reasoning_recap":
        content.think(body.get("content"))
    elif body:
        content.keep({"type": str(kind or "content"), **body})


def _add_part(content: MessageContent, part: object, assets: Assets) -> None:
    if isinstance(part, str):
        content.say(part)
        return
    given = coerce.record(part)
    kind = given.get("content_type")
    if kind == "audio_transcription":
        content.say(given.get("text"))
    elif not _attach(content, given.get("asset_pointer"), assets):
        content.keep({"type": str(kind or "part"), **given} if given else part)


def _attach(content: MessageContent, pointer: object, assets: Assets, media_type: str = "") -> bool:
    found = assets.find(pointer)
    if found is None:
        return False
    name, data = found
    content.attach(data, media_type_of(data, media_type), name)
    return True


def _add_files(content: MessageContent, metadata: Json, assets: Assets) -> None:
    """Add the documents that a person sent along, unless they stand among the parts."""
    there = {part.get("name") for part in content.parts}
    for each in coerce.records(metadata.get("attachments")):
        found = assets.find(each.get("id"))
        if found is None or found[0] in there:
            continue
        kind = coerce.text(each.get("mime_type")) or coerce.text(each.get("mimeType"))
        name = coerce.name(each.get("name")) or found[0]
        content.attach(found[1], media_type_of(found[1], kind), name)


def _add_result(
    content: MessageContent, body: Json, call: str | None, name: str | None, assets: Assets
) -> None:
    inner = MessageContent()
    if body.get("content_type") in _TEXTS:
        for each in coerce.items(body.get("parts")):
            _add_part(inner, each, assets)
        told: Any = "\n".join(p["text"] for p in inner.parts if p["type"] == "text")
    else:
        told = _words(body) or (body if body else "")
    rest = [part for part in inner.parts if part["type"] != "text"]
    if told == "" and not rest:
        return
    is_error = body.get("content_type") == "system_error"
    content.add(parts.tool_result(call or "", told, name=name, is_error=is_error), *rest)
    content.blobs.extend(inner.blobs)


def _words(body: Json) -> str:
    text = body.get("text")
    if not isinstance(text, str):
        text = body.get("result")
    if isinstance(text, str):
        return text
    return "\n".join(each for each in coerce.items(body.get("parts")) if isinstance(each, str))


def _kept(message: Json, body: Json, metadata: Json) -> Json:
    kept = {name: metadata[name] for name in _KEPT_METADATA if metadata.get(name)}
    if metadata.get("is_visually_hidden_from_conversation") is True:
        kept["hidden"] = True
    if message.get("status") not in (None, "finished_successfully"):
        kept["status"] = message["status"]
    if body.get("content_type") == "code" and coerce.name(body.get("language")):
        kept["language"] = body["language"]
    return kept


def _plain_name(name: str) -> str:
    """A file's name without the folders and the id that the export puts before it."""
    base = archives.base_name(name)
    return _FILE_ID.sub("", base, count=1).lstrip("-_") or base


class ChatGpt:
    """Reads the export that ChatGPT sends to its users."""

    name = "chatgpt"
    title = "ChatGPT"

    def places(self, where: Where) -> list[Path]:
        return []

    def recognises(self, path: Path) -> bool:
        return archives.is_export(path, b'"mapping"', alone=b'"author"')

    def find(self, place: Path) -> Iterator[Unit]:
        yield from archives.export_units(place)

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        assets: Assets | None = None
        for where, item, shelf in archives.conversations(unit.path):
            assets = assets or Assets(shelf)
            if item.why is not None:
                yield Skipped(where=where, why=item.why)
            else:
                yield from _conversation(item.data, where, assets, unit)


def _conversation(data: object, where: str, assets: Assets, unit: Unit) -> Iterator[Event]:
    talk = coerce.record(data)
    id = coerce.name(talk.get("conversation_id")) or coerce.name(talk.get("id"))
    mapping = coerce.record(talk.get("mapping"))
    if id is None or not mapping:
        why = "it has no messages" if id is not None else "it has no name"
        yield Skipped(where=where, why=why)
        return
    if len(mapping) > MOST:
        yield Skipped(where=where, why=f"it has more than {MOST:,} messages")
        return
    began = parse_time(talk.get("create_time"))
    yield SessionBegin(native_id=id, began_at=began)
    yield Facts(fields=_fields(talk))
    yield from _Tree(talk, mapping, assets, began or files.changed_at(unit.path)).events(where)
    yield SessionEnd()


def _fields(talk: Json) -> Json:
    kept = {name: talk[name] for name in _KEPT if talk.get(name)}
    return {
        "title": talk.get("title"),
        "model": coerce.name(talk.get("default_model_slug")),
        "archived": talk.get("is_archived") is True,
        "pinned": talk.get("is_starred") is True or talk.get("pinned_time") is not None,
        "extra": {"chatgpt": kept} if kept else {},
    }


class _Tree:
    """The messages of one conversation, each way through them a branch."""

    def __init__(self, talk: Json, mapping: Json, assets: Assets, began: datetime) -> None:
        self._assets = assets
        self._began = began
        self._current = talk.get("current_node")
        self._nodes = {id: coerce.record(node) for id, node in _by_time(mapping)}
        self._parents: dict[str, str | None] = {
            id: _parent(node, self._nodes) for id, node in self._nodes.items()
        }
        self._skipped = 0

    def events(self, where: str) -> Iterator[Event]:
        """What is to be said: the current way last."""
        messages = self._messages()
        gone = {id for id in self._parents if id not in messages}
        kept = without_nodes(self._parents, gone)
        current = self._current if isinstance(self._current, str) else None
        while current in gone:
            gone.discard(current)
            current = self._parents.get(current)
        said = {id: [messages[id]] for id in kept}
        yield from tree_branches(kept, said, current=current, where=where)
        if self._skipped:
            yield Skipped(where=where, why=f"{self._skipped:,} nodes hold no message")

    def _messages(self) -> dict[str, MessageEvent]:
        """What each node says; a tool's answer belongs to the call above it."""
        found: dict[str, MessageEvent] = {}
        calls: dict[str, str | None] = {}
        at = self._began
        for id in _parents_first(self._parents):
            parent = self._parents[id]
            call = calls.get(parent or "")
            message = self._nodes[id].get("message")
            if message is not None and not isinstance(message, dict):
                self._skipped += 1
            made = None
            if isinstance(message, dict):
                at = parse_time(message.get("create_time")) or at
                made = said(message, id=id, at=at, call=call, assets=self._assets)
            if made is not None:
                found[id] = made
            calls[id] = _call_of(made) or (call if made is None or made.role != "user" else None)
        return found


def _call_of(said: MessageEvent | None) -> str | None:
    if said is None:
        return None
    return next((part["id"] for part in said.parts if part["type"] == "tool_call"), None)


def _by_time(mapping: Json) -> list[tuple[str, object]]:
    def moment(item: tuple[str, object]) -> datetime:
        message = coerce.record(coerce.record(item[1]).get("message"))
        return parse_time(message.get("create_time")) or _EPOCH

    return sorted(mapping.items(), key=moment)


def _parent(node: Json, nodes: Json) -> str | None:
    parent = node.get("parent")
    return parent if isinstance(parent, str) and parent in nodes else None


def _parents_first(parents: dict[str, str | None]) -> Iterator[str]:
    done: set[str] = set()
    for each in parents:
        line: list[str] = []
        here: str | None = each
        while here is not None and here not in done:
            done.add(here)
            line.append(here)
            here = parents[here]
        yield from reversed(line)


IMPORTER = ChatGpt()
