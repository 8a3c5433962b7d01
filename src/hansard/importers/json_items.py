"""Large JSON documents that are one list: their items one after the other, never all at once."""

import re
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import msgspec

from hansard.errors import BadInput

MAX_ITEM = 256 * 1024 * 1024
CHUNK = 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
# What can change the depth or begin a string; and how a string ends.
_SIGN = re.compile(rb'["\[\]{}]')
_IN_STRING = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_decode = msgspec.json.Decoder().decode


class Item(NamedTuple):
    """One item of the list: its number from 0, and its value, or why it has none."""

    number: int
    data: Any
    why: str | None = None


def items(file: BinaryIO, *, max_item: int = MAX_ITEM) -> Iterator[Item]:
    """The items of a list; `BadInput` when the document is no list or ends inside it."""
    source = _Source(file)
    source.drop(_BOM)
    if source.next_sign() != b"[":
        raise BadInput("It is not a list in JSON.")
    source.take(1)
    number = 0
    while (sign := source.next_sign()) != b"]":
        if sign == b"":
            raise BadInput(f"It ends inside the list, after {number} whole items.")
        if sign == b",":
            source.take(1)
            continue
        yield _item(number, source.value(max_item))
        number += 1


def _item(number: int, text: bytes | None) -> Item:
    if text is None:
        return Item(number, None, "too large")
    try:
        return Item(number, _decode(text))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Item(number, None, f"not JSON ({str(error)[:100]})")


class _Source:
    """The bytes that have been read and not yet used."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._bytes = b""
        self._more()

    def _more(self) -> bool:
        chunk = self._file.read(CHUNK)
        self._bytes += chunk
        return bool(chunk)

    def drop(self, prefix: bytes) -> None:
        self._bytes = self._bytes.removeprefix(prefix)

    def take(self, count: int) -> bytes:
        taken, self._bytes = self._bytes[:count], self._bytes[count:]
        return taken

    def next_sign(self) -> bytes:
        """The next byte that is no space, still unused; none at the end."""
        while True:
            self._bytes = self._bytes.lstrip(_SPACE)
            if self._bytes:
                return self._bytes[:1]
            if not self._more():
                return b""

    def value(self, max_item: int) -> bytes | None:
        """The bytes of one value; None for one that is too large, which is passed over."""
        if self._bytes[:1] not in (b"{", b"["):
            return self._scalar()
        pieces: list[bytes] = []
        size = depth = 0
        in_string = False
        at = 0
        while True:
            at, depth, in_string = _scan(self._bytes, at, depth, in_string=in_string)
            is_done = depth == 0
            piece = self.take(at)
            size += len(piece)
            if size <= max_item:
                pieces.append(piece)
            else:
                pieces.clear()
            at = 0
            if is_done:
                return b"".join(pieces) if size <= max_item else None
            if not self._more():
                raise BadInput("It ends in the middle of an item.")

    def _scalar(self) -> bytes:
        at = 0
        while True:
            found = re.compile(rb"[,\]]").search(self._bytes, at)
            if found is not None:
                return self.take(found.start())
            at = len(self._bytes)
            if at > CHUNK or not self._more():
                raise BadInput("It ends in the middle of an item.")


def _scan(data: bytes, at: int, depth: int, *, in_string: bool) -> tuple[int, int, bool]:
    """Follow brackets and strings until the value closes or the bytes end: where, how deep."""
    length = len(data)
    while at < length:
        if in_string:
            found = _IN_STRING.match(data, at)
            assert found is not None
            at = found.end()
            if at >= length or data[at : at + 1] == b"\\":
                # A lone backslash at the end: what follows it is not here yet.
                return min(at, length), depth, True
            at, in_string = at + 1, False
            continue
        sign = _SIGN.search(data, at)
        if sign is None:
            return length, depth, False
        at = sign.end()
        match sign.group():
            case b'"':
                in_string = True
            case b"{" | b"[":
                depth += 1
            case _:
                depth -= 1
                if depth == 0:
                    return at, 0, False
    return at, depth, in_string
