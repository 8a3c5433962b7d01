"""JSON as it is stored, text that a database can store, and stored values that are not checked again."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import force_setattr

V = TypeVar("V", bound=msgspec.Struct)
_SURROGATE = re.compile("[\ud800-\udfff]")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def encode(value: Any) -> str:
    """Print a value as one line of JSON.

    A lone surrogate has no UTF-8 form, so such a text is written in escapes only.
    """
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:
        import json  # saves 2 ms for everyone without such a text

        return json.dumps(msgspec.to_builtins(value), ensure_ascii=True, separators=(",", ":"))


def decode(text: str | bytes) -> Any:
    """Read JSON text; the inverse of `encode`."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        import json  # as above: it reads lone surrogates, and numbers that have no end

        return json.loads(text)


def storable_text(text: str) -> str:
    """The text with what a database column cannot hold replaced visibly."""
    if not text.isascii():
        text = _SURROGATE.sub("\ufffd", text)
    return text.replace("\x00", "\ufffd")


def unchecked(blank: V, fields: Mapping[str, Any], **more: Any) -> V:
    """A copy of a value with other fields, which are not checked.

    For what was checked when it was stored: the rules may have changed since, and checking takes time.
    A mutable field of `blank` that is not given is shared with the copy.
    """
    made: V = blank.__copy__()  # type: ignore[attr-defined]  # what `copy.copy` calls, six times as fast
    for name, value in fields.items():
        force_setattr(made, name, value)
    for name, value in more.items():
        force_setattr(made, name, value)
    return made
