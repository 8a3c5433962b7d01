"""What the log says of one entry, as data: no values are built for those who only need the words."""

from typing import Any

from sessionary.errors import Damaged, Unreadable
from sessionary.model import document
from sessionary.model.entry import MAX_SEQ
from sessionary.store import blobs, packs
from sessionary.store.database import Tx
from sessionary.store.packs import Unpacker


def data_of(tx: Tx, number: int, text: str, unpacker: Unpacker) -> dict[str, Any]:
    """A body out of its pack and with its large texts read in, as it was once given."""
    if text.startswith(packs.MARK):
        return decoded(number, unpacker.text(number, text))
    data = decoded(number, text)
    return blobs.move_in(tx, data) if blobs.MARK in text else data


def readable(tx: Tx, number: int, text: str, unpacker: Unpacker) -> dict[str, Any] | None:
    """The same, or None when it is damaged: one entry must not stop a search of all others.

    Whoever opens its session is told, and `verify` names it.
    """
    try:
        return data_of(tx, number, text, unpacker)
    except Damaged:
        return None


def decoded(number: int, text: str) -> dict[str, Any]:
    """The JSON of a body; what is none is damage."""
    try:
        data = document.decode(text)
    except ValueError as error:
        raise Damaged(f"Entry {number & MAX_SEQ} cannot be read ({error}).") from error
    if not isinstance(data, dict) or not _has_parts(data.get("parts", ())):
        raise Unreadable(f"Entry {number & MAX_SEQ} cannot be read (it has no parts).")
    return data


def _has_parts(parts: Any) -> bool:
    return isinstance(parts, (list, tuple)) and all(type(part) is dict for part in parts)
