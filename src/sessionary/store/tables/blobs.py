"""Large pieces of content, kept once by the hash of their bytes."""

import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sessionary.clock import to_micros
from sessionary.errors import BadInput, NotFound, Unreadable
from sessionary.model import json_codec
from sessionary.model import part as parts_of
from sessionary.model.part import Attachment, Part
from sessionary.store.database import Tx

LARGE = 32 * 1024
_KEY = "$blob"
MARK = f'"{_KEY}"'
# Where a part holds what may grow without bound.
_TEXTS = ("text", "content", "arguments")


def hash_of(data: bytes) -> str:
    """The name of these bytes."""
    return hashlib.sha256(data).hexdigest()


def hash_of_text(text: str) -> str:
    """The name of a text's bytes."""
    return hash_of(_bytes(text))


def add(tx: Tx, data: bytes) -> str:
    """Store bytes once, for an entry that is to follow in this transaction; their hash."""
    name = hash_of(data)
    if tx.one("has_blob", hash=name) is None:
        tx.run("insert_blob", hash=name, size=len(data), data=data)
    return name


def keep(tx: Tx, data: bytes, *, entry_no: int) -> str:
    """Store bytes once and note that an entry needs them; their hash."""
    name = add(tx, data)
    tx.run("insert_blob_ref", hash=name, entry_no=entry_no)
    return name


def keep_text(tx: Tx, text: str, *, entry_no: int) -> str:
    """Store a text once; its hash."""
    return keep(tx, _bytes(text), entry_no=entry_no)


def exists(tx: Tx, name: str) -> bool:
    """Whether bytes with this hash are kept."""
    return tx.one("has_blob", hash=json_codec.storable_text(name)) is not None


def get(tx: Tx, name: str) -> bytes:
    """The bytes with this hash."""
    row = tx.one("get_blob", hash=name)
    if row is None:
        raise NotFound(f"There is no blob {name}.")
    data = bytes(row[0])
    if hash_of(data) != name:
        raise Unreadable(f"The blob {name} is not what was stored under that name.")
    return data


def get_text(tx: Tx, name: str) -> str:
    """The text with this hash."""
    return get(tx, name).decode("utf-8", "surrogatepass")


def move_out(tx: Tx, body: dict[str, Any], *, entry_no: int) -> dict[str, Any]:
    """The body with its large texts replaced by their hashes."""
    for part in body.get("parts", ()):
        for field in _TEXTS:
            value = part.get(field)
            if isinstance(value, str) and len(value) > LARGE:
                part[field] = {_KEY: keep_text(tx, value, entry_no=entry_no), "size": len(value)}
            elif isinstance(value, dict) and _KEY in value:
                # Someone's own data that looks like our mark: kept apart, or it would be read as one.
                part[field] = {_KEY: None, "value": value}
        if isinstance(made := parts_of.from_json(part), Attachment):
            _refer(tx, made.blob, entry_no=entry_no)
    return body


def move_in(tx: Tx, body: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `move_out`."""
    for part in body.get("parts", ()):
        for field in _TEXTS:
            value = part.get(field)
            if not isinstance(value, dict) or _KEY not in value:
                continue
            if value[_KEY] is None:
                part[field] = value["value"]
            else:
                try:
                    part[field] = get_text(tx, value[_KEY])
                except NotFound as error:
                    raise Unreadable(
                        f"A large text is missing from the store ({value[_KEY]})."
                    ) from error
    return body


def note_attachments(tx: Tx, parts: Iterable[Part], *, profile: str, at: datetime) -> None:
    """Keep the files of a message until it is an entry; refuse one whose bytes are not there."""
    for part in parts:
        if isinstance(part, Attachment):
            _check(tx, part.blob)
            note_upload(tx, part.blob, profile=profile, at=at)


def note_upload(tx: Tx, name: str, *, profile: str, at: datetime) -> None:
    """Note that a profile has brought these bytes in, at this time."""
    tx.run("note_upload", hash=name, profile=profile, at=to_micros(at))


def _refer(tx: Tx, name: str, *, entry_no: int) -> None:
    _check(tx, name)
    tx.run("insert_blob_ref", hash=name, entry_no=entry_no)


def _check(tx: Tx, name: str) -> None:
    if not exists(tx, name):
        raise BadInput(
            f"The bytes of attachment {name[:64]!a} are not in the store; nothing was written."
        )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
