"""An estimate of tokens where no provider has counted them; always marked as one."""

from typing import Any

from sessionary.model import codec

_PER_TOKEN = 4.0
_WIDE = 0.75
_FIRST_WIDE = 0x2E80


def estimate(value: Any) -> int:
    """About how many tokens a text, or the text of a structure, has."""
    text = value if isinstance(value, str) else codec.encode(value)
    if text.isascii():
        return int(len(text) / _PER_TOKEN) + 1
    wide = sum(1 for char in text if ord(char) >= _FIRST_WIDE)
    return int((len(text) - wide) / _PER_TOKEN + wide * (_WIDE + 1 / _PER_TOKEN)) + 1
