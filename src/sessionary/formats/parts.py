"""Parts of a message in the form in which the log stores them."""

import base64
import binascii
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes

from sessionary.store.tables.blobs import hash_of

Json = dict[str, Any]


def text(words: str) -> Json:
    """Words for people."""
    return {"type": "text", "text": words}


def reasoning(words: str, details: Any = None) -> Json:
    """What a model thought."""
    made: Json = {"type": "reasoning", "text": words}
    if details is not None:
        made["details"] = details
    return made


def tool_call(id: str, name: str, arguments: Any = None) -> Json:
    """A request to run a tool."""
    made: Json = {"type": "tool_call", "id": id, "name": name}
    if arguments is not None:
        made["arguments"] = arguments
    return made


def tool_result(
    call_id: str, content: Any = "", *, name: str | None = None, is_error: bool = False
) -> Json:
    """What a tool answered."""
    made: Json = {"type": "tool_result", "call_id": call_id}
    if content != "":
        made["content"] = content
    if name is not None:
        made["name"] = name
    if is_error:
        made["is_error"] = True
    return made


def attachment(data: bytes, media_type: str | None = None, name: str | None = None) -> Json:
    """A file; its bytes go beside the message, in `Said.blobs`."""
    made: Json = {"type": "attachment", "blob": hash_of(data)}
    if media_type is not None and media_type != "application/octet-stream":
        made["media_type"] = media_type
    if name is not None:
        made["name"] = name
    made["size"] = len(data)
    return made


def unknown(data: Any, kind: str = "native") -> Json:
    """Something we have no part for, kept as it came."""
    known = {"text", "reasoning", "tool_call", "tool_result", "attachment"}
    if isinstance(data, dict) and isinstance(data.get("type"), str) and data["type"] not in known:
        return data
    return {"type": kind, "native": data}


def decoded(data: object) -> bytes | None:
    """The bytes of a base64 text; None when it is none."""
    if not isinstance(data, str):
        return None
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


@dataclass(slots=True)
class Content:
    """Parts of a message, and the bytes of the attachments among them."""

    parts: list[Json] = field(default_factory=list)
    blobs: list[bytes] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.parts)

    def say(self, words: object) -> None:
        """Add words, if there are any."""
        if isinstance(words, str) and words:
            self.parts.append(text(words))

    def think(self, words: object, details: Any = None) -> None:
        """Add what a model thought, if it is told."""
        said = words if isinstance(words, str) else ""
        if said or details:
            self.parts.append(reasoning(said, details or None))

    def attach(self, data: bytes, media_type: object = None, name: object = None) -> None:
        """Add a file."""
        kind = media_type if isinstance(media_type, str) and media_type else None
        called = name if isinstance(name, str) and name else None
        self.parts.append(attachment(data, kind, called))
        self.blobs.append(data)

    def attach_base64(
        self, encoded: object, media_type: object = None, name: object = None
    ) -> bool:
        """Add a file that is written as text; say whether it could be read."""
        data = decoded(encoded)
        if data is None or not data:
            return False
        self.attach(data, media_type, name)
        return True

    def attach_url(self, url: object, name: object = None) -> bool:
        """Add a file that is written as a `data:` address; nothing is fetched from any other."""
        if not isinstance(url, str) or not url.startswith("data:"):
            return False
        kind, comma, rest = url[5:].partition(",")
        if not comma:
            return False
        if kind.endswith(";base64"):
            return self.attach_base64(rest, kind.removesuffix(";base64"), name)
        self.attach(unquote_to_bytes(rest), kind.partition(";")[0], name)
        return True

    def add(self, *made: Json) -> None:
        """Add parts that are made already."""
        self.parts.extend(made)

    def keep(self, raw: Any) -> None:
        """Add something we have no part for, as it came."""
        self.parts.append(unknown(raw))
