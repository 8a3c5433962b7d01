"""Parts of a message in the form in which the log stores them: fields without a value are left out."""

import base64
import binascii
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import unquote_to_bytes

from sessionary.formats import coerce
from sessionary.formats.coerce import Json
from sessionary.store.tables.blobs import hash_of

_OWN_TYPES = ("text", "reasoning", "tool_call", "tool_result", "attachment")


def text(words: str) -> Json:
    """Return a text part."""
    return {"type": "text", "text": words}


def tool_call(id: object, name: str, arguments: Any = None) -> Json:
    """Return a request to run a tool; an id that is no text becomes an empty one."""
    made: Json = {"type": "tool_call", "id": coerce.text(id), "name": name}
    if arguments is not None:
        made["arguments"] = arguments
    return made


def tool_result(
    call_id: object, content: Any = "", *, name: object = None, is_error: bool = False
) -> Json:
    """Return what a tool answered; ids and names that are no texts are left out."""
    made: Json = {"type": "tool_result", "call_id": coerce.text(call_id)}
    if content is not None and content != "":
        made["content"] = content
    if name is not None and coerce.name(name) is not None:
        made["name"] = name
    if is_error:
        made["is_error"] = True
    return made


def attachment(data: bytes, media_type: str | None = None, name: str | None = None) -> Json:
    """Return a file's part; the bytes themselves are stored beside the message."""
    made: Json = {"type": "attachment", "blob": hash_of(data)}
    if media_type is not None and media_type != "application/octet-stream":
        made["media_type"] = media_type
    if name is not None:
        made["name"] = name
    made["size"] = len(data)
    return made


def unknown(data: Any, kind: str = "native") -> Json:
    """Return a part for something we have no type for, unchanged."""
    known = data.get("type") if isinstance(data, dict) else None
    if isinstance(known, str) and known not in _OWN_TYPES:
        return dict(data)
    return {"type": kind, "native": data}


@dataclass(slots=True)
class Content:
    """The parts of a message, and the bytes of the attachments among them."""

    parts: list[Json] = field(default_factory=list)
    blobs: list[bytes] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.parts)

    @property
    def text(self) -> str:
        """The text parts, one below the other."""
        return "\n".join(part["text"] for part in self.parts if part["type"] == "text")

    def has(self, kind: str) -> bool:
        """Whether there is a part of this type."""
        return any(part["type"] == kind for part in self.parts)

    def add_text(self, words: object) -> None:
        """Add a text, unless it is empty."""
        if isinstance(words, str) and words:
            self.parts.append({"type": "text", "text": words})

    def add_reasoning(self, words: object, details: Any = None) -> None:
        """Add what a model thought, unless it is empty."""
        if coerce.text(words) or details:
            made = {"type": "reasoning", "text": coerce.text(words)}
            self.parts.append(made | {"details": details} if details else made)

    def add_call(self, id: object, name: str, arguments: Any = None) -> None:
        """Add a request to run a tool."""
        self.parts.append(tool_call(id, name, arguments))

    def add_result(
        self, call_id: object, result: Any, *, name: object = None, is_error: bool = False
    ) -> None:
        """Add what a tool answered. Of a `Content` the text is the result; other parts follow it."""
        if isinstance(result, Content):
            self.parts.append(tool_result(call_id, result.text, name=name, is_error=is_error))
            self.parts.extend(part for part in result.parts if part["type"] != "text")
            self.blobs.extend(result.blobs)
        else:
            self.parts.append(tool_result(call_id, result, name=name, is_error=is_error))

    def attach(self, data: bytes, media_type: object = None, name: object = None) -> None:
        """Add a file."""
        kind = media_type if isinstance(media_type, str) and media_type else None
        called = name if isinstance(name, str) and name else None
        self.parts.append(attachment(data, kind, called))
        self.blobs.append(data)

    def attach_base64(
        self, encoded: object, media_type: object = None, name: object = None
    ) -> bool:
        """Add a file that is written in base64; return whether it could be read."""
        try:
            data = base64.b64decode(coerce.text(encoded), validate=True)
        except (binascii.Error, ValueError):
            return False
        if data:
            self.attach(data, media_type, name)
        return bool(data)

    def attach_url(self, url: object, name: object = None) -> bool:
        """Add a file that is written as a `data:` URL; nothing is fetched from any other."""
        if not isinstance(url, str) or not url.startswith("data:"):
            return False
        kind, comma, rest = url[5:].partition(",")
        if not comma:
            return False
        if kind.endswith(";base64"):
            return self.attach_base64(rest, kind.removesuffix(";base64"), name)
        self.attach(unquote_to_bytes(rest), kind.partition(";")[0], name)
        return True

    def add(self, *made: Json) -> Self:
        """Add finished parts."""
        self.parts.extend(made)
        return self

    def add_unknown(self, raw: Any) -> None:
        """Add something we have no part for, unchanged."""
        self.parts.append(unknown(raw))
