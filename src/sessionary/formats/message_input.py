"""Messages as programs write them: our own parts, or those of the OpenAI and Anthropic interfaces.

Reading stored or imported data never comes here: there, a part of an unknown type is kept as it
came. A program that writes a message expects the model to read it, so what `context()` could not
show is refused.
"""

import mimetypes
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.formats import anthropic_blocks, coerce, openai_items, parts
from sessionary.formats.coerce import Json
from sessionary.formats.parts import Content
from sessionary.model import media
from sessionary.model import message as parts_of
from sessionary.model.message import (
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
    message,
)

_OWN = ("text", "reasoning", "tool_call", "tool_result", "attachment")
_OPENAI_TEXTS = ("input_text", "output_text")
_OPENAI_FILES = ("image_url", "input_image", "input_audio", "file", "input_file")
_OPENAI_ITEMS = (
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
)
_ANTHROPIC_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
_ANTHROPIC_RESULTS = (
    "mcp_tool_result",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
)
_ANTHROPIC_FILES = ("image", "document")
KNOWN_TYPES = (
    *_OWN,
    *_OPENAI_TEXTS,
    "refusal",
    *_OPENAI_FILES,
    *_OPENAI_ITEMS,
    "thinking",
    "redacted_thinking",
    *_ANTHROPIC_CALLS,
    *_ANTHROPIC_RESULTS,
    *_ANTHROPIC_FILES,
)
_NOUNS = {"image_url": "image", "input_image": "image", "image": "image"}
_LONGEST_TYPE = 60
# Which parts the context shows in a message of each role. A tool's result may stand in a message
# of the user or the assistant, because Anthropic's interface has it there.
_NOT_SHOWN: Mapping[Role, tuple[type, ...]] = {
    Role.USER: (ToolCall, Reasoning),
    Role.SYSTEM: (ToolCall, Reasoning, ToolResult),
    Role.ASSISTANT: (),
    Role.TOOL: (ToolCall, Reasoning, Text),
}


@dataclass(frozen=True, slots=True)
class File:
    """A file for a message: its bytes, or the path to read them from.

    Without a media type it is found by looking at the bytes and the name.
    """

    data: bytes | str | os.PathLike[str]
    media_type: str | None = None
    name: str | None = None

    def read(self) -> tuple[bytes, str, str | None]:
        """Return the bytes, the media type and the name."""
        data, name = self.data, self.name
        if not isinstance(data, bytes):
            path = Path(data)
            try:
                data, name = path.read_bytes(), name or path.name
            except OSError as error:
                raise BadInput(
                    f"The file {path} cannot be read ({error.strerror or error}); "
                    "nothing was written."
                ) from error
        if not data:
            raise BadInput("The file is empty; nothing was written.")
        guessed = mimetypes.guess_type(name or "")[0] or ""
        return data, self.media_type or media.media_type_of(data, guessed), name


@dataclass(frozen=True, slots=True)
class MessageInput:
    """A message that may be written, and the bytes of its attachments."""

    message: Message
    files: tuple[bytes, ...] = ()


def read_message(role: str, content: Any, **fields: Any) -> MessageInput:
    """Build a message from what a program wrote.

    `content` is a text, or a list of parts: ours, those of the OpenAI Chat Completions and
    Responses interfaces, those of Anthropic's Messages interface, `File`s, or part objects.
    Raises `BadInput` for a part of unknown type; an `Unknown` object is written as it is.
    """
    files: list[bytes] = []
    if isinstance(content, list | tuple):
        read: list[Json | Part] = []
        for each in content:
            read.extend(_read_part(each, files))
        content = read
    made = message(role, content, **fields)
    hidden = _NOT_SHOWN[made.role]
    for part in made.parts:
        if isinstance(part, hidden):
            raise BadInput(_misplaced(made.role, part))
    return MessageInput(made, tuple(files))


def _misplaced(role: Role, part: Part) -> str:
    kind = parts_of.to_json(part)["type"]
    if role is Role.TOOL:
        return (
            f"A message of role tool holds tool_result parts with the call_id they answer, not {kind}: "
            "the model would not read it. Nothing was written."
        )
    return f"A part of type {kind} has no place in a message of role {role}; nothing was written."


def _read_part(given: Any, files: list[bytes]) -> list[Json | Part]:
    if isinstance(given, Unknown):
        return [given]
    if isinstance(given, Part):
        _check_own(parts_of.to_json(given))
        return [given]
    if isinstance(given, File):
        data, media_type, name = given.read()
        files.append(data)
        return [parts.attachment(data, media_type, name)]
    if not isinstance(given, Mapping):
        raise BadInput(
            f"A part of a message must be a JSON object, not {type(given).__name__}; "
            "nothing was written."
        )
    content = Content()
    _convert(content, dict(given))
    files.extend(content.blobs)
    return list(content.parts)


def _convert(content: Content, part: Json) -> None:
    kind = part.get("type")
    if kind == "reasoning" and not isinstance(part.get("text"), str):
        if not any(name in part for name in ("summary", "content", "encrypted_content")):
            raise _lacks("reasoning", "text or summary")
        openai_items.add_item(content, part)
    elif kind == "tool_result" and "call_id" not in part and "tool_use_id" in part:
        _convert_block(content, part)
    elif kind in _OWN:
        _check_own(part)
        content.add(part)
    elif kind in _OPENAI_TEXTS:
        content.add(parts.text(_required(part, "text")))
    elif kind == "refusal":
        content.add(parts.text(_required(part, "refusal")))
    elif kind in _OPENAI_ITEMS:
        if not (coerce.name(part.get("call_id")) or coerce.name(part.get("id"))):
            raise _lacks(str(kind), "call_id")
        if not str(kind).endswith("_output"):
            _required(part, "name")
        openai_items.add_item(content, part)
    elif kind in _OPENAI_FILES:
        _convert_openai_file(content, part)
    elif kind in _ANTHROPIC_FILES:
        _convert_anthropic_file(content, part)
    elif kind == "thinking":
        _required(part, "thinking")
        _convert_block(content, part)
    elif kind == "redacted_thinking":
        _convert_block(content, part)
    elif kind in _ANTHROPIC_CALLS:
        _required(part, "id")
        _required(part, "name")
        _convert_block(content, part)
    elif kind in _ANTHROPIC_RESULTS:
        _required(part, "tool_use_id")
        _convert_block(content, part)
    else:
        named = repr(kind)[:_LONGEST_TYPE] if kind is not None else "without a type"
        raise BadInput(
            f"Unknown part type {named}; nothing was written. Known: {', '.join(KNOWN_TYPES)}."
        )


def _convert_block(content: Content, block: Json) -> None:
    if block["type"] == "tool_result":
        _required(block, "tool_use_id")
    anthropic_blocks.add_block(content, block)


def _convert_openai_file(content: Content, part: Json) -> None:
    if openai_items.attach(content, part):
        return
    file = coerce.record(part.get("file")) or part
    data, name = file.get("file_data"), coerce.name(file.get("filename"))
    if isinstance(data, str) and not data.startswith("data:"):
        if content.attach_base64(data, mimetypes.guess_type(name or "")[0], name):
            return
        raise _lacks(str(part["type"]), "file_data in base64")
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    _refer(content, part, url or file.get("file_url") or file.get("file_id"))


def _convert_anthropic_file(content: Content, block: Json) -> None:
    source = coerce.record(block.get("source"))
    if source.get("type") == "content":
        inner = source.get("content")
        if isinstance(inner, str):
            content.add_text(inner)
            return
        for each in coerce.records(inner):
            _convert(content, each)
        return
    if not anthropic_blocks.attach(content, block):
        _refer(content, block, source.get("url") or source.get("file_id"))


def _refer(content: Content, part: Json, address: object) -> None:
    """Add a file that is only named, by an address or an id: nothing is fetched."""
    kind = str(part["type"])
    if not isinstance(address, str) or not address or address.startswith("data:"):
        raise _lacks(kind, "data in base64, a data: URL, a URL or a file id")
    noun = _NOUNS.get(kind, "file")
    content.add({**parts.text(f"[{noun}: {address}]"), "reference": part})


def _check_own(part: Json) -> None:
    kind = str(part["type"])
    for name in parts_of.required_fields(kind):
        if name not in part:
            raise _lacks(kind, name)
    wrong = parts_of.wrong_field(part)
    if wrong is not None:
        raise BadInput(
            f"{wrong} of a part of type {kind} has the wrong kind of value "
            f"({type(part[wrong]).__name__}); nothing was written."
        )


def _required(part: Json, name: str) -> str:
    value = part.get(name)
    if not isinstance(value, str):
        raise _lacks(str(part["type"]), name)
    return value


def _lacks(kind: str, what: str) -> BadInput:
    return BadInput(f"A part of type {kind} needs {what}; nothing was written.")
