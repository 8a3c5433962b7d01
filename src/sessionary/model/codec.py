"""JSON as it is stored, text that a database can store, and quick construction of frozen values."""

import json
import re
from collections.abc import Callable
from dataclasses import fields, make_dataclass
from functools import cache
from itertools import repeat
from typing import Any, NamedTuple

_SURROGATE = re.compile("[\ud800-\udfff]")
# Loading msgspec takes longer than reading a screenful of documents without it.
_plain_reads = repeat(None, 200)


class _Msgspec(NamedTuple):
    encode: Callable[[Any], bytes]
    decode: Callable[[str | bytes], Any]
    failure: type[Exception]


def encode(value: Any) -> str:
    """Print a value as one line of JSON.

    A lone surrogate has no UTF-8 form, so such a text is written in escapes only.
    """
    try:
        return _msgspec().encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def decode(text: str | bytes) -> Any:
    """Read JSON text; the inverse of `encode`."""
    for _ in _plain_reads:
        return json.loads(text)
    fast = _msgspec()
    try:
        return fast.decode(text)
    except (fast.failure, UnicodeDecodeError):
        return json.loads(text)


def storable_text(text: str) -> str:
    """The text with what a database column cannot hold replaced visibly."""
    if not text.isascii():
        text = _SURROGATE.sub("\ufffd", text)
    return text.replace("\x00", "\ufffd")


@cache
def _msgspec() -> _Msgspec:
    import msgspec

    return _Msgspec(
        msgspec.json.Encoder().encode, msgspec.json.Decoder().decode, msgspec.DecodeError
    )


def mutable_class(value: type) -> Any:
    """Return a class with the slots of a frozen dataclass that is not frozen itself.

    Setting each field of a frozen value takes longer than reading the row that it comes from. So an
    instance of this class is filled, and `made.__class__ = value` turns it into the frozen one. Nothing
    is checked on the way: it is for what was checked when it was stored.
    """
    names = [each.name for each in fields(value)]
    return make_dataclass(f"{value.__name__}Mutable", names, slots=True, eq=False, repr=False)
