"""Content in the form of Anthropic's Messages interface, as parts."""

from typing import Any

from sessionary.formats import coerce, parts
from sessionary.formats.parts import Content, Json

_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")


def add(content: Content, blocks: object) -> None:
    """Add a text, or a list of blocks."""
    if isinstance(blocks, str):
        content.say(blocks)
        return
    for block in coerce.items(blocks):
        add_block(content, block)


def add_block(content: Content, block: object) -> None:
    """Add one block; a kind we do not know is kept as it came."""
    if not isinstance(block, dict):
        content.say(block) if isinstance(block, str) else content.keep(block)
        return
    kind = block.get("type")
    if kind == "text" and isinstance(words := block.get("text"), str):
        if "citations" in block:
            _add_text(content, block)
        elif words:
            content.parts.append({"type": "text", "text": words})
    elif kind == "thinking" and isinstance(block.get("thinking"), str):
        signature = block.get("signature")
        content.think(block["thinking"], {"signature": signature} if signature else None)
    elif kind == "redacted_thinking":
        content.think("", {"redacted": block.get("data")})
    elif kind in _CALLS and isinstance(name := block.get("name"), str):
        id = coerce.text(block.get("id"))
        content.parts.append(parts.tool_call(id, name, block.get("input")))
    elif _is_result(kind) and isinstance(block.get("tool_use_id"), str):
        _add_result(content, block)
    elif kind in ("image", "document") and attach(content, block):
        pass
    else:
        content.keep(block)


def _add_text(content: Content, block: Json) -> None:
    if block.get("citations"):
        content.add({**parts.text(block["text"]), "citations": block["citations"]})
    else:
        content.say(block["text"])


def _is_result(kind: object) -> bool:
    return isinstance(kind, str) and kind.endswith("tool_result")


def _add_result(content: Content, block: Json) -> None:
    add_result(
        content,
        block["tool_use_id"],
        block.get("content"),
        is_error=block.get("is_error") is True,
    )


def add_result(
    content: Content,
    call_id: str,
    given: Any,
    *,
    name: str | None = None,
    is_error: bool = False,
) -> None:
    """Add what a tool answered: its words as one text, its images behind it."""
    if isinstance(given, str):
        content.parts.append(parts.tool_result(call_id, given, name=name, is_error=is_error))
        return
    inner = Content()
    add(inner, given)
    told, files = _told(inner, given)
    content.add(parts.tool_result(call_id, told, name=name, is_error=is_error), *files)
    content.blobs.extend(inner.blobs)


def _told(inner: Content, given: Any) -> tuple[Any, list[Json]]:
    """What stands in the result, and the files beside it."""
    if given is None or isinstance(given, str):
        return given or "", []
    if not isinstance(given, list):
        return given, []
    files = [part for part in inner.parts if part["type"] == "attachment"]
    rest = [part for part in inner.parts if part["type"] != "attachment"]
    if all(part["type"] == "text" for part in rest):
        return "\n".join(part["text"] for part in rest), files
    return rest, files


def attach(content: Content, block: Json) -> bool:
    """Add the file that a block carries; say whether it carries one."""
    source = coerce.record(block.get("source"))
    title = coerce.name(block.get("title"))
    if source.get("type") == "base64":
        return content.attach_base64(source.get("data"), source.get("media_type"), title)
    if source.get("type") == "text" and isinstance(source.get("data"), str):
        content.attach(source["data"].encode("utf-8", "replace"), source.get("media_type"), title)
        return True
    return content.attach_url(source.get("url"), title)
