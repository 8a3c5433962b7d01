"""How far other tools' records were read, and which session is which of theirs."""

from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from sessionary.model import codec
from sessionary.model.session import SessionFolder
from sessionary.store.database import Tx
from sessionary.store.tables import blobs, sessions, transfer
from sessionary.store.tables.sessions import column

MAX_NAME = 1024
# Stands among what is known of a session from which someone was erased: its tool still has their words.
CLOSED = '"erased":true'
# Stands in what is known of every session that an import has made.
_OF_AN_IMPORT = '"import":'


class ReadUnit(Struct, frozen=True):
    """What a unit looked like when it was last read, and where to read on."""

    stamp: str
    place: int
    note: Any = None


class Imported(Struct, frozen=True):
    """A session that came from another tool. Hidden: it is not whole yet.

    Purged: it was, or someone was erased from it; in both cases its tool's words stay away. Own: it was recorded here
    while the tool ran as an agent of ours, and the tool's records would only repeat it.
    """

    no: int
    id: str
    base_seq: int
    last_seq: int
    is_hidden: bool = False
    is_purged: bool = False
    is_own: bool = False


@dataclass(slots=True)
class Added:
    """What new entries add to a session's head."""

    messages: int = 0
    tool_calls: int = 0
    last_reply_seq: int = 0
    compacted_seq: int = 0
    preview: str | None = None
    active_at: int = 0


def find_unit(tx: Tx, name: str, *, profile: str, tool: str) -> ReadUnit | None:
    """What is known of a unit; None when it was never read."""
    row = tx.one("find_import", profile=profile, tool=tool, name=_short(name))
    if row is None:
        return None
    stamp, place, note = row
    return ReadUnit(stamp, place, None if note is None else codec.decode(note))


def put_unit(tx: Tx, name: str, read: ReadUnit, *, profile: str, tool: str, at: int) -> None:
    """Note how far a unit was read."""
    tx.run(
        "put_import",
        profile=profile,
        tool=tool,
        name=_short(name),
        stamp=column(read.stamp),
        place=read.place,
        note=None if read.note is None else codec.encode(read.note),
        at=at,
    )


def find_session(tx: Tx, native_id: str, *, profile: str, tool: str) -> Imported | None:
    """The session that a tool knows by a name."""
    row = tx.one("find_imported", profile=profile, tool=tool, native_id=_short(native_id))
    if row is None:
        return None
    no, id, folder, end_reason, base_seq, last_seq, extra = row
    is_hidden = folder == SessionFolder.GONE and end_reason == transfer.FILLING
    if is_hidden:
        last_seq = transfer.last_entry(tx, no, base_seq=base_seq)
    is_purged = (folder == SessionFolder.GONE and not is_hidden) or CLOSED in extra
    is_own = not (is_hidden or is_purged or _OF_AN_IMPORT in extra)
    return Imported(no, id, base_seq, last_seq, is_hidden, is_purged, is_own)


def name_session(tx: Tx, native_id: str, no: int, *, profile: str, tool: str) -> None:
    """From now on the session is found by this name, unless another has it already."""
    tx.run(
        "put_imported",
        profile=profile,
        tool=tool,
        native_id=_short(native_id),
        session_no=no,
    )


def close(tx: Tx, no: int) -> None:
    """Read nothing more into a session from its tool's record, if it came from one."""
    if tx.one("is_imported", no=no) is not None:
        extra = {**sessions.details(tx, no).extra, "erased": True}
        set_facts(tx, no, model=None, extra=extra)


def set_facts(tx: Tx, no: int, *, model: str | None, extra: dict[str, Any]) -> None:
    """Write what a tool says of a session; without a model, the known one stays."""
    tx.run("set_imported_facts", no=no, model=model, extra=codec.encode(extra))


def add_counts(tx: Tx, no: int, added: Added, *, last_seq: int) -> None:
    """Add to a head what new entries at the end of its log bring."""
    tx.run(
        "add_counts",
        no=no,
        last_seq=last_seq,
        messages=added.messages,
        tool_calls=added.tool_calls,
        last_reply_seq=added.last_reply_seq,
        compacted_seq=added.compacted_seq,
        preview=added.preview,
        active_at=added.active_at,
    )


def _short(name: str) -> str:
    """A name as a column holds it; a long one is cut and told apart by its hash."""
    plain = codec.storable_text(name)
    if len(plain) <= MAX_NAME and plain == name:
        return plain
    return f"{plain[: MAX_NAME - 70]}…{blobs.hash_of_text(name)}"
