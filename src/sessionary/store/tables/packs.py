"""Messages compressed together. An entry whose words are in a pack says which pack."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sessionary.errors import Unreadable
from sessionary.model import json_codec
from sessionary.model.entry import MAX_SEQ
from sessionary.store.database import Tx

LEVEL = 10
# Our own bodies begin with "parts", "summary" or "after": nobody else's words look like this.
MARK = '{"$pack":'
MAX_SIZE = 256 * 1024 * 1024


class Unpacker:
    """Reads words out of packs; the pack it read last is kept at hand."""

    __slots__ = ("_no", "_texts", "_tx")

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._no = 0
        self._texts: Mapping[str, str] = {}

    def text(self, entry_no: int, body: str) -> str:
        """The words of an entry, wherever they are."""
        if not body.startswith(MARK):
            return body
        no = int(json_codec.decode(body)["$pack"])
        if no != self._no:
            self._no, self._texts = no, get(self._tx, no)
        try:
            return self._texts[str(entry_no & MAX_SEQ)]
        except KeyError as error:
            raise Unreadable(f"Pack {no} lacks entry {entry_no & MAX_SEQ}.") from error


def mark(no: int) -> str:
    """What stands in the log for words that are in a pack."""
    return f"{MARK}{no}}}"


@dataclass(frozen=True, slots=True)
class Pack:
    """A pack that was made: its number, and the bytes of its words before and after."""

    no: int
    size: int
    packed_size: int


def put(tx: Tx, session_no: int, texts: Mapping[int, str]) -> Pack:
    """Compress the words of some entries."""
    plain = json_codec.encode({str(seq): text for seq, text in texts.items()}).encode()
    data = _zstandard().ZstdCompressor(level=LEVEL).compress(plain)
    row = tx.one(
        "insert_pack",
        session_no=session_no,
        first_seq=min(texts),
        last_seq=max(texts),
        size=len(plain),
        data=data,
    )
    assert row is not None
    return Pack(row[0], len(plain), len(data))


def get(tx: Tx, no: int) -> Mapping[str, str]:
    """The words of a pack by the numbers of their entries."""
    row = tx.one("get_pack", no=no)
    if row is None:
        raise Unreadable(f"Pack {no} is missing.")
    zstandard = _zstandard()
    try:
        plain = zstandard.ZstdDecompressor().decompress(bytes(row[0]), max_output_size=MAX_SIZE)
        texts: Mapping[str, str] = json_codec.decode(plain)
    except (zstandard.ZstdError, ValueError, TypeError) as error:
        raise Unreadable(f"Pack {no} cannot be read ({error}).") from error
    return texts


def _zstandard() -> Any:
    """What compresses, loaded when the first pack is met: most stores have none."""
    return importlib.import_module("zstandard")
