"""What leaves the store or moves into packs: purged sessions, erased messages, old logs."""

from collections.abc import Container
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import Struct

from sessionary.clock import to_micros
from sessionary.model import codec
from sessionary.model import message as parts_of
from sessionary.model.message import MAX_SEQ, Attachment, Compaction, Entry, Message
from sessionary.model.session import Segment, SessionHead
from sessionary.model.source import Source, escape, source_as_stored
from sessionary.store.database import Row, Tx
from sessionary.store.tables import (
    blobs,
    checkpoints,
    entries,
    files,
    prefixes,
    questions,
    sessions,
)
from sessionary.store.tables.blobs import Unpacker

TOMBSTONE_SOURCE = '{"platform":"purged"}'
# At most this much goes into one pack, so that its transaction stays short.
PACK_ENTRIES = 200
PACK_BYTES = 1024 * 1024


class LogSize(NamedTuple):
    """How much a session has of its own."""

    entries: int
    bytes: int


def log_size(tx: Tx, session_no: int) -> LogSize:
    """Count a session's own entries and their bytes."""
    row = tx.one("session_bytes", first=entries.entry_no(session_no, 0), last=_last_no(session_no))
    return LogSize(0, 0) if row is None else LogSize(*row)


def prunable(
    tx: Tx,
    *,
    profile: str,
    before: datetime,
    platform: str | None = None,
    after: int = 0,
    limit: int = 500,
) -> list[tuple[int, str]]:
    """Return numbers and ids of sessions that ended before a time and are not pinned."""
    rows = tx.all(
        "prunable",
        profile=profile,
        before=to_micros(before),
        platform=sessions.column(platform),
        limit=limit,
        after=after,
    )
    return [(no, id) for no, id in rows]


def expired_trash(tx: Tx, *, before: datetime, limit: int) -> list[str]:
    """Return the ids of sessions that were moved to the trash before a time, the oldest first."""
    return [id for _, id in tx.all("expired_trash", before=to_micros(before), limit=limit)]


def bury(tx: Tx, head: SessionHead, *, at: datetime) -> None:
    """Turn a session's row into a tombstone, and remove its words from every table but the log."""
    tx.run("bury_session", no=head.no, at=to_micros(at), source=TOMBSTONE_SOURCE)
    tx.run("delete_bindings", session_no=head.no)
    for forget in ("delete_draft", "delete_holds", "forget_arrivals", "forget_deliveries"):
        tx.run(forget, no=head.no)
    questions.delete_of_session(tx, head.no)
    prefixes.delete_of_session(tx, head.no)
    checkpoints.delete_of_session(tx, head.no)
    delete_responses(tx, head.id)


def delete_log(tx: Tx, session_no: int, *, keep_through: int, profile: str) -> int:
    """Delete a session's own entries behind one, with its prompt and turns; return their number."""
    prompt_no = sessions.first_entry_no(session_no)
    delete_blobs(tx, prompt_no, prompt_no, profile=profile)
    first = entries.entry_no(session_no, keep_through + 1 if keep_through else 0)
    last = _last_no(session_no)
    delete_blobs(tx, first, last, profile=profile)
    deleted = tx.run("delete_entries", first=first, last=last)
    tx.run("forget_partials" if keep_through else "delete_turns", no=session_no)
    return deleted


def delete_blobs(
    tx: Tx, first: int, last: int, *, profile: str, but: frozenset[str] = frozenset()
) -> None:
    """Drop the references of these entries; delete the blobs that nothing else needs, except `but`."""
    hashes = [name for (name,) in tx.all("blobs_of_entries", first=first, last=last)]
    tx.run("delete_blob_refs", first=first, last=last)
    for name in dict.fromkeys(each for each in hashes if each not in but):
        tx.run("delete_upload", hash=name, profile=profile)
        tx.run("delete_blob_if_unused", hash=name)


def delete_files_of_entry(tx: Tx, head: SessionHead, seq: int) -> None:
    """Delete the files that programs keep with the bytes of an entry's attachments; the entry still has them."""
    number = entries.entry_no(head.no, seq)
    for (name,) in tx.all("blobs_of_entries", first=number, last=number):
        files.delete_of_blob(tx, name, profile=head.profile)


def delete_requests(tx: Tx, head: SessionHead) -> None:
    """Delete what a session's models were sent besides the messages; its own system prompt stays."""
    tx.run("forget_requests_of_turns", no=head.no)
    number = sessions.first_entry_no(head.no)
    prompt = sessions.details(tx, head.no).prompt_hash
    for (name,) in tx.all("blobs_of_entries", first=number, last=number):
        if name != prompt:
            tx.run("delete_blob_ref", hash=name, entry_no=number)
            tx.run("delete_blob_if_unused", hash=name)


def delete_responses(tx: Tx, session_id: str) -> None:
    """Delete the stored responses to repeated requests that quote a session."""
    tx.run("forget_requests", id=session_id)


def replace_body(tx: Tx, head: SessionHead, entry: Entry, body: Message | Compaction) -> None:
    """Write another body in an entry's place; files that only the old one had are deleted."""
    parts = body.parts if isinstance(body, Message) else ()
    attached = frozenset(part.blob for part in parts if isinstance(part, Attachment))
    number = entries.entry_no(head.no, entry.seq)
    tx.run("mark_rewriting", entry_no=number)
    delete_blobs(tx, number, number, profile=head.profile, but=attached)
    tx.run("delete_entries", first=number, last=number)
    entries.put(tx, head.no, entry.seq, at=entry.at, body=body, turn_id=entry.turn_id)
    tx.run("unmark_rewriting", entry_no=number)


def clear_arrival(tx: Tx, session_no: int, seq: int) -> None:
    """Remove the words of the arrival that became an entry."""
    tx.run("forget_arrival_of_entry", session_no=session_no, seq=seq)


def clear_unassigned_arrivals(
    tx: Tx, person_id: str, *, platform: str, profile: str, page: int
) -> int:
    """Refuse and clear what a person wrote and what never reached a session; return how many."""
    cleared = after = 0
    while rows := tx.all("page_of_free_arrivals", profile=profile, after=after, limit=page):
        for no, text, _ in rows:
            after = no
            source = source_as_stored(codec.decode(text))
            ids = (source.user_id, source.user_id_alt)
            if source.platform == platform and person_id in ids:
                cleared += tx.run("forget_arrival", no=no)
    return cleared


def set_opener(tx: Tx, session_no: int, source: Source) -> None:
    """Write a session's source without the person who opened it."""
    tx.run("forget_opener", no=session_no, source=codec.encode(source.to_json()))


def sessions_of_platform(
    tx: Tx, platform: str, *, profile: str, after: int, limit: int
) -> list[int]:
    """Return the numbers of sessions that began on a platform or received a message from it."""
    # Keys of messages from the platform begin with this and a slash; «0» follows «/».
    keys = f"{profile}/{escape(platform, keep=':')}"
    rows = tx.all(
        "page_of_platform",
        profile=profile,
        platform=sessions.column(platform),
        first_key=f"{keys}/",
        last_key=f"{keys}0",
        after=after,
        limit=limit,
    )
    return [row[0] for row in rows]


def delete_permissions(tx: Tx, person_id: str, *, platform: str, profile: str) -> int:
    """Delete a person's permit and pairing; return how many there were."""
    whose = {
        "profile": profile,
        "platform": sessions.column(platform),
        "person_id": sessions.column(person_id),
    }
    return tx.run("delete_permit", **whose) + tx.run("delete_pairing_of", **whose)


def insert_receipt(tx: Tx, id: str, receipt: dict[str, Any], *, profile: str, at: datetime) -> None:
    """Keep the receipt of an erasure."""
    text = codec.encode(receipt)
    tx.run("insert_erasure", id=id, profile=profile, at=to_micros(at), receipt=text)


def receipts(tx: Tx, *, profile: str) -> list[dict[str, Any]]:
    """Return the receipts of all erasures of a profile, oldest first."""
    return [codec.decode(text) for (text,) in tx.all("list_erasures", profile=profile)]


class PackedEntries(Struct, frozen=True):
    """A pack that was made: its number, how many messages it has, their bytes before and after."""

    pack_no: int
    messages: int
    size: int
    packed_size: int


def unpacked_sessions(
    tx: Tx, *, profile: str, before: datetime, after: int, limit: int
) -> list[tuple[int, str]]:
    """Return numbers and ids of sessions that were quiet since a time and have unpacked messages."""
    rows = tx.all(
        "page_to_pack", profile=profile, before=to_micros(before), after=after, limit=limit
    )
    return [(no, id) for no, id in rows]


def pack_next(tx: Tx, head: SessionHead) -> PackedEntries | None:
    """Move the next messages of a session into a pack; None when there are no more."""
    chosen = _next_texts(tx, head)
    if not chosen:
        return None
    made = blobs.put_pack(tx, head.no, {row[0] & MAX_SEQ: text for row, text in chosen})
    mark = blobs.pack_mark(made.no)
    _rewrite(tx, [(row, mark) for row, _ in chosen])
    return PackedEntries(made.no, len(chosen), made.size, made.packed_size)


def unpack(tx: Tx, session_no: int, *, among: Container[int] | None = None) -> int:
    """Move a session's messages back into its log, of all packs or of some; return how many packs."""
    packs = [
        row
        for row in tx.all("packs_of_session", session_no=session_no)
        if among is None or row[0] in among
    ]
    for pack_no, first, last in packs:
        unpacker = Unpacker(tx)
        rows = tx.all(
            "read_entries",
            first=entries.entry_no(session_no, first),
            last=entries.entry_no(session_no, last),
            limit=last - first + 1,
        )
        mark = blobs.pack_mark(pack_no)
        _rewrite(tx, [(row, unpacker.text(row[0], mark)) for row in rows if row[5] == mark])
        tx.run("delete_pack", no=pack_no)
    return len(packs)


def delete_packs(tx: Tx, session_no: int) -> None:
    """Delete a session's packs without reading them: damaged ones can be deleted too."""
    tx.run("delete_packs", session_no=session_no)


def _next_texts(tx: Tx, head: SessionHead) -> list[tuple[Row, str]]:
    """Return the next rows that are in no pack, each with its whole text."""
    packed = tx.one("packed_through", session_no=head.no)
    first = max(packed[0] if packed else 0, head.base_seq) + 1
    chosen: list[tuple[Row, str]] = []
    while not chosen and first <= head.last_seq:
        size, unpacker = 0, Unpacker(tx)
        last = min(head.last_seq, first + PACK_ENTRIES - 1)
        segment = Segment(head.no, head.id, first, last)
        for row in entries.read_rows(tx, segment, limit=PACK_ENTRIES):
            number, kind, _, _, _, body = row
            # Compactions and retractions are few and read by themselves: they are not packed.
            if kind != "message" or body.startswith(blobs.PACK_MARK):
                continue
            text = entries.text_of(tx, number, body, unpacker)
            chosen.append((row, text))
            size += len(text)
            if size > PACK_BYTES:
                break
        first = last + 1
    return chosen


def _rewrite(tx: Tx, changes: list[tuple[Row, str]]) -> None:
    """Write entries again with another text for the same words."""
    if not changes:
        return
    tx.many("mark_rewriting", [{"entry_no": row[0]} for row, _ in changes])
    for row, text in changes:
        entries.rewrite(tx, row, text)
        _delete_packed_blobs(tx, row[0], row[5], text)
    tx.run("unmark_rewriting_between", first=changes[0][0][0], last=changes[-1][0][0])


def _delete_packed_blobs(tx: Tx, number: int, before: str, after: str) -> None:
    """Delete the large texts of an entry that are in its pack now; attachments stay."""
    if blobs.MARK not in before or not after.startswith(blobs.PACK_MARK):
        return
    attached = {
        part.blob
        for data in codec.decode(before)["parts"]
        if isinstance(part := parts_of.from_json(data), Attachment)
    }
    for (name,) in tx.all("blobs_of_entries", first=number, last=number):
        if name not in attached:
            tx.run("delete_blob_ref", hash=name, entry_no=number)
            tx.run("delete_blob_if_unused", hash=name)


def _last_no(session_no: int) -> int:
    return entries.entry_no(session_no + 1, 0) - 1
