"""Files that are one JSON document, read whole: never more than a limit."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from sessionary.errors import BadInput
from sessionary.formats import json_text, shape
from sessionary.importers.base import files

MOST = 256 * 1024 * 1024


def read(path: Path, *, most: int = MOST) -> Any:
    """What a file says; `BadInput` when it is too large or not JSON."""
    if files.size_of(path) > most:
        raise BadInput(f"{path} is larger than {most:,} bytes; it was left alone.")
    with files.opened(path) as file:
        text = file.read(most + 1)
    if json_text.is_heavy(text):
        raise BadInput(f"{path} holds too many values; it was left alone.")
    found = shape.parsed(text.removeprefix(b"\xef\xbb\xbf"))
    if found is None:
        raise BadInput(f"{path} is not JSON, or not all of it is there; it was left alone.")
    return found


def read_if_any(path: Path, *, most: int = MOST) -> Any:
    """What a file says; None when it is not there or not readable."""
    try:
        return read(path, most=most)
    except BadInput:
        return None


MAX_ITEM = 256 * 1024 * 1024
CHUNK = 1024 * 1024
MAX_SCALAR = 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_NO_SPACE = re.compile(rb"[^ \t\r\n]")
_END_OF_SCALAR = re.compile(rb"[,\]]")
# What can change the depth or begin a string.
_SIGN = re.compile(rb'["\[\]{}]')
_BACKSLASH = ord("\\")
_decode = msgspec.json.Decoder().decode


class Item(NamedTuple):
    """One item of the list: its number from 0, and its value, or why it has none."""

    number: int
    data: Any
    why: str | None = None


def items(file: BinaryIO, *, max_item: int = MAX_ITEM) -> Iterator[Item]:
    """The items of a list, or the one object that the document is.

    `BadInput` when it is neither, or ends inside.
    """
    source = _Source(file)
    source.drop(_BOM)
    first = source.next_sign()
    if first == b"{":
        yield _item(0, source.value(max_item))
        return
    if first != b"[":
        raise BadInput("It is not a list in JSON.")
    source.step()
    number = 0
    while (sign := source.next_sign()) != b"]":
        if sign == b"":
            raise BadInput(f"It ends inside the list, after {number} whole items.")
        if sign == b",":
            source.step()
            continue
        yield _item(number, source.value(max_item))
        number += 1


def _item(number: int, text: bytes | None) -> Item:
    if text is None or json_text.is_heavy(text):
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
        # Where what is not used begins: small items must not move all the rest each time.
        self._at = 0
        self._more()

    def _more(self) -> bool:
        chunk = self._file.read(CHUNK)
        self._bytes = self._bytes[self._at :] + chunk
        self._at = 0
        return bool(chunk)

    def drop(self, prefix: bytes) -> None:
        if self._bytes.startswith(prefix, self._at):
            self._at += len(prefix)

    def take(self, end: int) -> bytes:
        """The bytes up to a place in what was read."""
        taken = self._bytes[self._at : end]
        self._at = end
        return taken

    def step(self) -> None:
        """Pass over one sign."""
        self._at += 1

    def next_sign(self) -> bytes:
        """The next byte that is no space, still unused; none at the end."""
        while True:
            found = _NO_SPACE.search(self._bytes, self._at)
            if found is not None:
                self._at = found.start()
                return found.group()
            self._at = len(self._bytes)
            if not self._more():
                return b""

    def value(self, max_item: int) -> bytes | None:
        """The bytes of one value; None for one that is too large, which is passed over."""
        if self._bytes[self._at : self._at + 1] not in (b"{", b"["):
            return self._scalar()
        pieces: list[bytes] = []
        size = depth = 0
        in_string = False
        while True:
            at, depth, in_string = _scan(self._bytes, self._at, depth, in_string=in_string)
            piece = self.take(at)
            size += len(piece)
            if size <= max_item:
                pieces.append(piece)
            else:
                pieces.clear()
            if depth == 0:
                return b"".join(pieces) if size <= max_item else None
            if not self._more():
                raise BadInput("It ends in the middle of an item.")

    def _scalar(self) -> bytes:
        searched = 0
        while True:
            found = _END_OF_SCALAR.search(self._bytes, self._at + searched)
            if found is not None:
                return self.take(found.start())
            searched = len(self._bytes) - self._at
            if searched > MAX_SCALAR or not self._more():
                raise BadInput("It ends in the middle of an item.")


def _scan(data: bytes, at: int, depth: int, *, in_string: bool) -> tuple[int, int, bool]:
    """Follow brackets and strings until the value closes or the bytes end: where, how deep."""
    length = len(data)
    while at < length:
        if in_string:
            at, in_string = _past_string(data, at)
            if in_string:
                return at, depth, True
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


def _past_string(data: bytes, at: int) -> tuple[int, bool]:
    """Where the string ends in which we are, or where the bytes end and that it goes on."""
    while (quote := data.find(b'"', at)) >= 0:
        if not _is_escaped(data, at, quote):
            return quote + 1, False
        at = quote + 1
    # A lone backslash at the end: what follows it is not here yet.
    return len(data) - _is_escaped(data, at, len(data)), True


def _is_escaped(data: bytes, begin: int, at: int) -> bool:
    """Whether an odd number of backslashes stands before a place."""
    before = at
    while before > begin and data[before - 1] == _BACKSLASH:
        before -= 1
    return (at - before) % 2 == 1
