"""Content kept apart from the log: large texts and files by their hash, old messages compressed in packs."""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from sessionary.clock import to_micros
from sessionary.errors import BadInput, NotFound, Unreadable
from sessionary.model import codec
from sessionary.model import message as parts_of
from sessionary.model.message import MAX_SEQ, SEQ_BITS, Attachment
from sessionary.store.database import Tx

LARGE = 32 * 1024
_KEY = "$blob"
MARK = f'"{_KEY}"'
PACK_LEVEL = 10
# A body of the log begins with "parts", "summary" or "after", never with this.
PACK_MARK = '{"$pack":'
MAX_PACK_SIZE = 256 * 1024 * 1024
# The fields of a part that may grow without bound.
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
    add_reference(tx, name, entry_no=entry_no)
    return name


def add_reference(tx: Tx, name: str, *, entry_no: int) -> None:
    """Note that an entry needs bytes that are stored."""
    tx.run("insert_blob_ref", hash=name, entry_no=entry_no)


def keep_text(tx: Tx, text: str, *, entry_no: int) -> str:
    """Store a text once; its hash."""
    return keep(tx, _bytes(text), entry_no=entry_no)


def exists(tx: Tx, name: str) -> bool:
    """Whether bytes with this hash are kept."""
    return tx.one("has_blob", hash=codec.storable_text(name)) is not None


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
            check_exists(tx, made.blob)
            tx.run("insert_blob_ref", hash=made.blob, entry_no=entry_no)
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


def note_upload(tx: Tx, name: str, *, profile: str, at: datetime) -> None:
    """Note that a profile has brought these bytes in, at this time."""
    tx.run("note_upload", hash=name, profile=profile, at=to_micros(at))


def profile_has(tx: Tx, name: str, *, profile: str) -> bool:
    """Whether a profile has uploaded these bytes, or one of its sessions has them."""
    known = codec.storable_text(name)
    return tx.one("profile_has_blob", hash=known, profile=profile) is not None


def session_has(tx: Tx, name: str, *, session_no: int) -> bool:
    """Whether an entry of a session's own log refers to these bytes."""
    first = session_no << SEQ_BITS
    row = tx.one("entry_has_blob", hash=name, first=first, last=first | MAX_SEQ)
    return row is not None


def delete_old_uploads(tx: Tx, *, before: datetime, limit: int) -> int:
    """Forget what was uploaded before a time, and delete what nothing refers to; return how many."""
    old = tx.all("old_uploads", before=to_micros(before), limit=limit)
    for profile, name in old:
        tx.run("delete_upload", hash=name, profile=profile)
        delete_if_unused(tx, name)
    return len(old)


def delete_if_unused(tx: Tx, name: str) -> None:
    """Delete bytes that no entry and no upload refers to."""
    tx.run("delete_blob_if_unused", hash=name)


def check_exists(tx: Tx, name: str) -> None:
    """Refuse an attachment whose bytes are not in the store."""
    if not exists(tx, name):
        raise BadInput(
            f"The bytes of attachment {name[:64]!a} are not in the store; nothing was written."
        )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


class Unpacker:
    """Reads words out of packs; the pack it read last is kept at hand."""

    __slots__ = ("_no", "_texts", "_tx")

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._no = 0
        self._texts: Mapping[str, str] = {}

    def text(self, entry_no: int, body: str) -> str:
        """The words of an entry, wherever they are."""
        if not body.startswith(PACK_MARK):
            return body
        no = int(codec.decode(body)["$pack"])
        if no != self._no:
            self._no, self._texts = no, get_pack(self._tx, no)
        try:
            return self._texts[str(entry_no & MAX_SEQ)]
        except KeyError as error:
            raise Unreadable(f"Pack {no} lacks entry {entry_no & MAX_SEQ}.") from error


def pack_mark(no: int) -> str:
    """The body in the log of an entry whose text is in a pack."""
    return f"{PACK_MARK}{no}}}"


class Pack(Struct, frozen=True):
    """A pack that was made: its number, and the bytes of its words before and after."""

    no: int
    size: int
    packed_size: int


def put_pack(tx: Tx, session_no: int, texts: Mapping[int, str]) -> Pack:
    """Compress the texts of some entries."""
    import zstandard  # as in `get_pack`

    plain = codec.encode({str(seq): text for seq, text in texts.items()}).encode()
    data = zstandard.ZstdCompressor(level=PACK_LEVEL).compress(plain)
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


def get_pack(tx: Tx, no: int) -> Mapping[str, str]:
    """The words of a pack by the numbers of their entries."""
    import zstandard  # most stores have no packs: saves 3 ms at the start

    row = tx.one("get_pack", no=no)
    if row is None:
        raise Unreadable(f"Pack {no} is missing.")
    try:
        plain = zstandard.ZstdDecompressor().decompress(
            bytes(row[0]), max_output_size=MAX_PACK_SIZE
        )
        texts: Mapping[str, str] = codec.decode(plain)
    except (zstandard.ZstdError, ValueError, TypeError) as error:
        raise Unreadable(f"Pack {no} cannot be read ({error}).") from error
    return texts
