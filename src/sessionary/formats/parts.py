"""Parts of a message in the form the log keeps: what says nothing is left out."""

import base64
import binascii
from typing import Any

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
