"""Messages as another program wrote them: kept beside what people read, and read without that."""

import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from sessionary.model.entry import MAX_SEQ
from sessionary.model.session import Segment
from sessionary.store.database import Tx
from sessionary.store.tables import entries

Read = Callable[[Any], Any]


def walk(tx: Tx, segments: Iterable[Segment], name: str, read: Read) -> Iterator[tuple[int, Any]]:
    """Every entry of the stretches in order: its number, and what `read` makes of what is kept
    under `name` with it. An entry with nothing there that can be read is given as an `Entry`.
    """
    for segment in segments:
        rest = segment
        while rest.first <= rest.last:
            page = list(_page(tx, rest, name, read))
            yield from page
            if len(page) < entries.PAGE:
                break
            rest = replace(rest, first=page[-1][0] + 1)


def _page(tx: Tx, segment: Segment, name: str, read: Read) -> Iterator[tuple[int, Any]]:
    decode, failure = _reader()
    for row in entries.read_rows(tx, segment, limit=entries.PAGE):
        try:
            found = read(decode(row[5]).extra.get(name)) if row[1] == "message" else None
        except (failure, UnicodeDecodeError):
            found = None  # `entry_of` reads what this reader does not, or says that it is damaged
        if found is None:
            entry = entries.entry_of(tx, row, segment.session_id)
            found = read(getattr(entry.body, "extra", {}).get(name)) or entry
        yield row[0] & MAX_SEQ, found


@cache
def _reader() -> tuple[Any, type[Exception]]:
    """Reads of a body what is kept beside its parts, and passes over the parts."""
    msgspec = importlib.import_module("msgspec")
    body = msgspec.defstruct("NativeBody", [("extra", dict[str, Any], {})])
    return msgspec.json.Decoder(body).decode, msgspec.MsgspecError
