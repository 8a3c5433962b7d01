"""JSON text as we keep it: any Unicode goes in and comes back."""

import json
import re
from typing import Any

import msgspec

_SURROGATE = re.compile("[\ud800-\udfff]")
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def encode(value: Any) -> str:
    """Print a value as one line of JSON.

    A lone surrogate has no UTF-8 form, so such a text is written in escapes only.
    """
    try:
        return _encoder.encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def decode(text: str | bytes) -> Any:
    """Read JSON text; the inverse of `encode`."""
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(text)


def speakable(text: str) -> str:
    """The text with what a database column cannot hold replaced visibly."""
    if not text.isascii():
        text = _SURROGATE.sub("\ufffd", text)
    return text.replace("\x00", "\ufffd")
