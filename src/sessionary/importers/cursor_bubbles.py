"""Cursor's bubbles: one message each, or one call of a tool with its result."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sessionary.formats import parts, shape
from sessionary.importers import calls, times
from sessionary.importers.base import Json, Said
from sessionary.importers.content import Content

_TEXTS = ("text", "rawText", "content", "message")
_USER = (1, "user", "human")
_DONE = ("completed", "error", "cancelled")


def said(id: str, bubble: Json, at: datetime) -> Iterator[Said]:
    """What a bubble says; nothing when it says nothing."""
    if bubble.get("type") in _USER:
        content = Content()
        content.say(_text(bubble))
        _add_images(content, bubble)
        if content:
            yield content.said("user", at, id=id)
        return
    content, results = Content(), Content()
    thinking = shape.record(bubble.get("thinking"))
    signature = shape.name(thinking.get("signature"))
    if shape.words(thinking.get("text")):
        content.think(thinking["text"], {"signature": signature} if signature else None)
    content.say(_text(bubble))
    _add_tool(content, results, shape.record(bubble.get("toolFormerData")), id)
    if not content:
        return
    model, tokens = _model(bubble), shape.record(bubble.get("tokenCount"))
    used = calls.one(
        "cursor",
        id,
        model=model,
        at=at,
        input=tokens.get("inputTokens"),
        output=tokens.get("outputTokens"),
    )
    yield content.said("assistant", at, id=id, model=model, usage=used)
    if results:
        yield results.said("tool", at, id=f"{id}:result")


def time_of(bubble: Json) -> datetime | None:
    """When a bubble came."""
    timing = shape.record(bubble.get("timingInfo"))
    return times.first(
        bubble.get("createdAt"), bubble.get("timestamp"), timing.get("clientStartTime")
    )


def folder_of(bubble: Json) -> str | None:
    """The directory that was open."""
    given = shape.name(bubble.get("workspaceProjectDir"))
    uris = shape.items(bubble.get("workspaceUris"))
    uri = shape.words(uris[0]) if uris else ""
    return given or shape.name(uri.removeprefix("file://"))


def _text(bubble: Json) -> str:
    return next((text for name in _TEXTS if (text := shape.words(bubble.get(name)))), "")


def _model(bubble: Json) -> str | None:
    given = shape.record(bubble.get("modelInfo")).get("modelName")
    found = (shape.name(each) for each in (given, bubble.get("model"), bubble.get("modelType")))
    return next((name for name in found if name and name != "default"), None)


def _add_images(content: Content, bubble: Json) -> None:
    shown = shape.items(bubble.get("images"))
    selected = shape.record(bubble.get("context")).get("selectedImages")
    for image in shown or shape.items(selected):
        given = image.get("data", image.get("url")) if isinstance(image, dict) else image
        kind = image.get("mimeType") if isinstance(image, dict) else None
        given = _bytes_of(given)
        if isinstance(given, bytes):
            content.attach(given, kind)
        elif not content.attach_url(given) and not content.attach_base64(given, kind):
            content.keep({"type": "cursor_image", "native": image})


def _bytes_of(given: Any) -> Any:
    """The bytes of a picture that was written as a list of numbers, or by their places."""
    numbers = list(given.values()) if isinstance(given, dict) else given
    if not isinstance(numbers, list) or not numbers:
        return given
    if all(isinstance(each, int) and 0 <= each < 256 for each in numbers):
        return bytes(numbers)
    return given


def _add_tool(content: Content, results: Content, tool: Json, id: str) -> None:
    name = shape.name(tool.get("name"))
    if name is None:
        return
    call_id = shape.name(tool.get("toolCallId")) or id
    given = shape.name(tool.get("params")) or tool.get("rawArgs")
    content.add(parts.tool_call(call_id, name, shape.parsed_or_text(given) or None))
    status = tool.get("status")
    if status in _DONE or tool.get("result") is not None:
        told = tool.get("result")
        is_error = status in ("error", "cancelled")
        answer = parts.tool_result(
            call_id, "" if told is None else told, name=name, is_error=is_error
        )
        results.add(answer)
