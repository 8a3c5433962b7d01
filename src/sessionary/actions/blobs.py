"""Bytes: kept once, read by those whose session needs them."""

from sessionary.errors import NotFound
from sessionary.store.database import Tx
from sessionary.store.tables import blobs, entries


def read_blob(tx: Tx, name: str, *, session_no: int) -> bytes:
    """The bytes of an attachment, if an entry of this session or of its history has it."""
    for own_no, *_ in tx.all("ancestors", no=session_no):
        first, last = entries.entry_no(own_no, 0), entries.entry_no(own_no + 1, 0) - 1
        if tx.one("entry_has_blob", hash=name, first=first, last=last) is not None:
            return blobs.get(tx, name)
    raise NotFound(f"There is no attachment {name[:64]!a} in this session.")


def hold(tx: Tx, data: bytes) -> str:
    """Keep bytes that an entry is about to refer to; their name."""
    return blobs.add(tx, data)
