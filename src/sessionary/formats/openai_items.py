"""Messages and items of OpenAI's Chat Completions and Responses APIs, read as parts."""

from sessionary.formats import coerce, parts
from sessionary.formats.coerce import Json
from sessionary.formats.parts import Content

_ROLES = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
# Which field holds the arguments, depending on the kind of call.
_ARGUMENTS = ("arguments", "input", "action", "code", "queries", "operation")
_TEXTS = ("text", "input_text", "output_text", "summary_text", "reasoning_text")


def role_of(value: object, otherwise: str = "user") -> str:
    """Return our name of a role."""
    return _ROLES.get(value, otherwise) if isinstance(value, str) else otherwise


def add(content: Content, given: object) -> None:
    """Add the content of a message: a text or a list of parts."""
    if isinstance(given, str):
        content.add_text(given)
        return
    for each in coerce.items(given):
        _add_part(content, each)


def add_tool_calls(content: Content, calls: object) -> None:
    """Add the calls of a chat message."""
    for call in coerce.records(calls):
        function = coerce.record(call.get("function"))
        called = coerce.name(function.get("name")) or coerce.name(call.get("name"))
        if called is None:
            content.add_unknown(call)
            continue
        arguments = function.get("arguments", call.get("arguments"))
        content.add_call(call.get("id"), called, coerce.parse_json_or_keep(arguments))


def add_item(content: Content, item: Json) -> str:
    """Add one item of a Responses list; return its role."""
    kind = item.get("type")
    if kind == "message" or (kind is None and "role" in item):
        add(content, item.get("content"))
        add_tool_calls(content, item.get("tool_calls"))
        return role_of(item.get("role"))
    if not isinstance(kind, str):
        content.add_unknown(item)
        return "assistant"
    if kind == "reasoning":
        _add_reasoning(content, item)
    elif kind.endswith("_output"):
        _add_output(content, item)
        return "tool"
    elif kind == "image_generation_call" and content.attach_base64(item.get("result"), "image/png"):
        pass
    elif kind.endswith("_call") and (_call_id(item) or coerce.name(item.get("name"))):
        # A function is called by its name, a tool of the provider's by its kind.
        called = coerce.name(item.get("name")) or kind.removesuffix("_call")
        given = next((item[field] for field in _ARGUMENTS if field in item), None)
        content.add_call(_call_id(item), called, coerce.parse_json_or_keep(given))
    else:
        content.add_unknown(item)
    return "assistant"


def _call_id(item: Json) -> str:
    return coerce.text(item.get("call_id")) or coerce.text(item.get("id"))


def _add_part(content: Content, part: object) -> None:
    if not isinstance(part, dict):
        content.add_text(part) if isinstance(part, str) else content.add_unknown(part)
        return
    kind = part.get("type")
    if kind in _TEXTS and isinstance(part.get("text"), str):
        content.add_text(part["text"])
    elif kind == "refusal" and isinstance(part.get("refusal"), str):
        content.add_text(part["refusal"])
    elif not attach(content, part):
        content.add_unknown(part)


def attach(content: Content, part: Json) -> bool:
    """Add the file of a part; return whether it has one that can be read."""
    file = coerce.record(part.get("file")) or part
    name = coerce.name(file.get("filename"))
    if content.attach_url(file.get("file_data"), name):
        return True
    audio = part.get("input_audio")
    if isinstance(audio, dict):
        return content.attach_base64(audio.get("data"), f"audio/{audio.get('format')}")
    image = part.get("image_url")
    return content.attach_url(image.get("url") if isinstance(image, dict) else image)


def _add_reasoning(content: Content, item: Json) -> None:
    given = [*coerce.records(item.get("summary")), *coerce.records(item.get("content"))]
    texts = filter(None, (coerce.text(each.get("text")) for each in given))
    details = {name: item[name] for name in ("id", "encrypted_content") if item.get(name)}
    content.add_reasoning("\n\n".join(texts), details)


def _add_output(content: Content, item: Json) -> None:
    result = item.get("output")
    inner = Content()
    if isinstance(result, list):
        add(inner, result)
        if all(part["type"] in ("text", "attachment") for part in inner.parts):
            result = inner.text
    files = [part for part in inner.parts if part["type"] == "attachment"]
    is_error = item.get("status") == "failed" or item.get("is_error") is True
    content.add(parts.tool_result(_call_id(item), result, is_error=is_error), *files)
    content.blobs.extend(inner.blobs)
