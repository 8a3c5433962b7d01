"""One message of ChatGPT's export in our words."""

import re
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Any

from sessionary.formats import openai_items, parts, shape
from sessionary.importers import zips
from sessionary.importers.base import Json, Said
from sessionary.importers.content import Content
from sessionary.importers.exports import MAX_FILE, Shelf
from sessionary.model.media import media_type_of

_FILE_ID = re.compile(r"file[-_][A-Za-z0-9]+")
_TEXTS = ("text", "multimodal_text")
# What of the metadata is worth keeping.
_KEPT = ("citations", "content_references", "gizmo_id", "request_id", "aggregate_result")


class Assets:
    """The files of an export, by the names that messages give them."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    @cached_property
    def _names(self) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for name in self._shelf.names():
            id = _FILE_ID.match(zips.base_name(name))
            if id is not None:
                found.setdefault(id[0], name)
        return found

    def find(self, pointer: object) -> tuple[str, bytes] | None:
        """The name and the bytes of a file; None when the export does not have it."""
        id = _FILE_ID.match(shape.words(pointer).rpartition("://")[2])
        name = None if id is None else self._names.get(id[0])
        data = None if name is None else self._shelf.data(name, MAX_FILE)
        return None if name is None or not data else (_plain_name(name), data)


def said(message: Json, *, id: str, at: datetime, call: str | None, assets: Assets) -> Said | None:
    """The message; None for one that says nothing."""
    author = shape.record(message.get("author"))
    role = openai_items.role_of(author.get("role"), "system")
    body = shape.record(message.get("content"))
    metadata = shape.record(message.get("metadata"))
    content = Content()
    name = shape.name(author.get("name"))
    recipient = shape.name(message.get("recipient"))
    if role == "tool":
        _add_result(content, body, call, name, assets)
    elif role == "assistant" and recipient not in (None, "all"):
        words = _words(body)
        content.add(parts.tool_call(id, str(recipient), shape.parsed_or_text(words)))
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
        model=shape.name(metadata.get("model_slug")) if role == "assistant" else None,
        finish_reason=shape.name(shape.record(metadata.get("finish_details")).get("type")),
        extra={"chatgpt": kept} if kept else None,
    )


def _add(content: Content, body: Json, assets: Assets) -> None:
    """Add what a person or the model said."""
    kind = body.get("content_type")
    if kind in _TEXTS:
        for each in shape.items(body.get("parts")):
            _add_part(content, each, assets)
    elif kind == "code":
        content.say(_words(body))
    elif kind == "thoughts":
        for thought in shape.records(body.get("thoughts")):
            told = (shape.words(thought.get("summary")), shape.words(thought.get("content")))
            content.think("\n".join(filter(None, told)))
    elif kind == "reasoning_recap":
        content.think(body.get("content"))
    elif body:
        content.keep({"type": str(kind or "content"), **body})


def _add_part(content: Content, part: object, assets: Assets) -> None:
    if isinstance(part, str):
        content.say(part)
        return
    given = shape.record(part)
    kind = given.get("content_type")
    if kind == "audio_transcription":
        content.say(given.get("text"))
    elif not _attach(content, given.get("asset_pointer"), assets):
        content.keep({"type": str(kind or "part"), **given} if given else part)


def _attach(content: Content, pointer: object, assets: Assets, media_type: str = "") -> bool:
    found = assets.find(pointer)
    if found is None:
        return False
    name, data = found
    content.attach(data, media_type_of(data, media_type), name)
    return True


def _add_files(content: Content, metadata: Json, assets: Assets) -> None:
    """Add the documents that a person sent along, unless they stand among the parts."""
    there = {part.get("name") for part in content.parts}
    for each in shape.records(metadata.get("attachments")):
        found = assets.find(each.get("id"))
        if found is None or found[0] in there:
            continue
        kind = shape.words(each.get("mime_type")) or shape.words(each.get("mimeType"))
        name = shape.name(each.get("name")) or found[0]
        content.attach(found[1], media_type_of(found[1], kind), name)


def _add_result(
    content: Content, body: Json, call: str | None, name: str | None, assets: Assets
) -> None:
    inner = Content()
    if body.get("content_type") in _TEXTS:
        for each in shape.items(body.get("parts")):
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
    return "\n".join(each for each in shape.items(body.get("parts")) if isinstance(each, str))


def _kept(message: Json, body: Json, metadata: Json) -> Json:
    kept = {name: metadata[name] for name in _KEPT if metadata.get(name)}
    if metadata.get("is_visually_hidden_from_conversation") is True:
        kept["hidden"] = True
    if message.get("status") not in (None, "finished_successfully"):
        kept["status"] = message["status"]
    if body.get("content_type") == "code" and shape.name(body.get("language")):
        kept["language"] = body["language"]
    return kept


def _plain_name(name: str) -> str:
    """A file's name without the folders and the id that the export puts before it."""
    base = zips.base_name(name)
    return _FILE_ID.sub("", base, count=1).lstrip("-_") or base
