"""Content blocks of Anthropic's Messages API, read as parts."""

from typing import Any

from sessionary.formats import coerce, parts
from sessionary.formats.coerce import Json
from sessionary.formats.parts import Content

_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")


def add(content: Content, blocks: object) -> None:
    """Add a text or a list of blocks."""
    if isinstance(blocks, str):
        content.add_text(blocks)
        return
    for block in coerce.items(blocks):
        add_block(content, block)


def add_block(content: Content, block: object) -> None:
    """Add one block; an unknown kind is stored unchanged."""
    if not isinstance(block, dict):
        content.add_text(block) if isinstance(block, str) else content.add_unknown(block)
        return
    kind = block.get("type")
    if kind == "text" and isinstance(words := block.get("text"), str):
        if block.get("citations"):
            content.add({**parts.text(words), "citations": block["citations"]})
        else:
            content.add_text(words)
    elif kind == "thinking" and isinstance(block.get("thinking"), str):
        signature = block.get("signature")
        content.add_reasoning(block["thinking"], {"signature": signature} if signature else None)
    elif kind == "redacted_thinking":
        content.add_reasoning("", {"redacted": block.get("data")})
    elif kind in _CALLS and isinstance(name := block.get("name"), str):
        content.add_call(block.get("id"), name, block.get("input"))
    elif coerce.text(kind).endswith("tool_result") and isinstance(block.get("tool_use_id"), str):
        is_error = block.get("is_error") is True
        add_result(content, block["tool_use_id"], block.get("content"), is_error=is_error)
    elif kind in ("image", "document") and attach(content, block):
        pass
    else:
        content.add_unknown(block)


def add_result(
    content: Content,
    call_id: str,
    given: Any,
    *,
    name: str | None = None,
    is_error: bool = False,
) -> None:
    """Add what a tool answered: its text as one, or its parts; its images follow."""
    if not isinstance(given, list):
        content.parts.append(parts.tool_result(call_id, given, name=name, is_error=is_error))
        return
    inner = Content()
    add(inner, given)
    rest = [part for part in inner.parts if part["type"] != "attachment"]
    result: Any = inner.text if all(part["type"] == "text" for part in rest) else rest
    files = [part for part in inner.parts if part["type"] == "attachment"]
    content.add(parts.tool_result(call_id, result, name=name, is_error=is_error), *files)
    content.blobs.extend(inner.blobs)


def attach(content: Content, block: Json) -> bool:
    """Add the file of a block; return whether it has one that can be read."""
    source = coerce.record(block.get("source"))
    title = coerce.name(block.get("title"))
    if source.get("type") == "base64":
        return content.attach_base64(source.get("data"), source.get("media_type"), title)
    if source.get("type") == "text" and isinstance(source.get("data"), str):
        content.attach(source["data"].encode("utf-8", "replace"), source.get("media_type"), title)
        return True
    return content.attach_url(source.get("url"), title)
