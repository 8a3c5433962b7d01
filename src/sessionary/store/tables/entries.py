"""The log, one row per entry; receipts by idempotency key; and the feed of changes for the index and live views."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from itertools import count as count_from
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from sessionary.clock import from_micros, to_micros
from sessionary.errors import BadInput, Damaged, Purged, Unreadable
from sessionary.model import codec, message, transcript
from sessionary.model.message import (
    MAX_SEQ,
    SEQ_BITS,
    Body,
    Compaction,
    Entry,
    Message,
    Retraction,
    Role,
    body_from_json,
    body_to_json,
    encode_body,
    kind_of,
    message_entry,
)
from sessionary.model.session import Segment, SessionFolder
from sessionary.model.turn import Lease
from sessionary.store.database import REMEDY, Row, Tx
from sessionary.store.tables import blobs
from sessionary.store.tables.blobs import Unpacker

PAGE = FEED_PAGE = 500
MAX_BODY = 32 * 1024 * 1024

_NATIVE_ID = re.compile(r'"platform_message_id":("(?:[^"\\]|\\.)*")')

ReadExtra = Callable[[Any], Any]


class LogRow(NamedTuple):
    """One line of the log as it is stored."""

    seq: int
    kind: str
    role: str | None
    at: int
    text: str

    @property
    def native_id(self) -> str | None:
        """The id that the tool or platform it came from gave it."""
        found = _NATIVE_ID.search(self.text)
        return None if found is None else str(codec.decode(found[1]))


class NewEntry(NamedTuple):
    """Where a message was appended, and whether its session has no preview yet."""

    session_no: int
    seq: int
    wants_preview: bool


class AppendReceipt(NamedTuple):
    """Where the message with an idempotency key was appended. A deleted session has no id."""

    session_no: int
    seq: int
    session_id: str | None


def entry_no(session_no: int, seq: int) -> int:
    """The number of an entry among all entries; those of a session are one range."""
    return session_no << SEQ_BITS | seq


def append(
    tx: Tx,
    session_id: str,
    message: Message,
    *,
    profile: str,
    at: datetime,
    turn_id: str | None,
    epoch: int = 0,
) -> NewEntry | None:
    """Append a message to an open session and update its head; None when it takes none.

    While a turn runs, the session takes only messages with its `turn_id` and its `epoch`; else only those without.
    """
    head = {
        "id": codec.storable_text(session_id),
        "profile": profile,
        "turn_id": turn_id or "",
        "epoch": epoch,
        # Only people and the agent are active; a tool's or the system's line is not.
        "active_at": to_micros(at) if message.role in (Role.USER, Role.ASSISTANT) else 0,
        "is_reply": int(message.role is Role.ASSISTANT),
        "tool_calls": message.tool_calls,
    }
    text = encode_body(message)
    is_large = has_large(text)
    if is_large:
        row = tx.one("advance", **head)
    else:
        row = tx.one("advance_with_entry", role=message.role, at=to_micros(at), body=text, **head)
    if row is None:
        return None
    session_no, seq, wants_preview = row
    if is_large:
        insert(tx, session_no, seq, at=at, body=message, turn_id=turn_id)
    else:
        check_seq(seq)
    return NewEntry(session_no, seq, bool(wants_preview))


def append_mark(
    tx: Tx, session_no: int, mark: Compaction | Retraction, *, at: datetime, lease: Lease | None
) -> int | None:
    """Append a compaction or a retraction; return its number, or None when another turn is running."""
    turn_id, epoch = (None, 0) if lease is None else (lease.turn_id, lease.epoch)
    row = tx.one("advance_mark", no=session_no, turn_id=turn_id or "", epoch=epoch)
    if row is None:
        return None
    seq: int = row[0]
    insert(tx, session_no, seq, at=at, body=mark, turn_id=turn_id)
    return seq


def insert_receipt(
    tx: Tx, idempotency_key: str, *, profile: str, session_no: int, seq: int
) -> bool:
    """Note where the message with this key was appended; say whether the key is new."""
    return bool(
        tx.run(
            "insert_receipt",
            profile=profile,
            idempotency_key=idempotency_key,
            session_no=session_no,
            seq=seq,
        )
    )


def find_receipt(tx: Tx, idempotency_key: str, *, profile: str) -> AppendReceipt | None:
    """Where the message with this key was appended."""
    row = tx.one("find_receipt", profile=profile, idempotency_key=idempotency_key)
    return None if row is None else AppendReceipt(*row)


def receipts_among(tx: Tx, idempotency_keys: Sequence[str], *, profile: str) -> set[str]:
    """Which of these idempotency keys were used."""
    rows = tx.all("receipts_among", profile=profile, names=codec.encode(idempotency_keys))
    return {key for (key,) in rows}


def insert(
    tx: Tx, session_no: int, seq: int, *, at: datetime, body: Body, turn_id: str | None
) -> None:
    """Write one line of the log and tell the feed."""
    put(tx, session_no, seq, at=at, body=body, turn_id=turn_id)
    tx.run("insert_feed", session_no=session_no, seq=seq, what="entry")


def put(
    tx: Tx, session_no: int, seq: int, *, at: datetime, body: Body, turn_id: str | None
) -> None:
    """Write one line of the log that the feed hears of later."""
    check_seq(seq)
    number = entry_no(session_no, seq)
    text = encode_body(body)
    if has_large(text):
        check_size(text)
        text = codec.encode(blobs.move_out(tx, body_to_json(body), entry_no=number))
    tx.run(
        "insert_entry",
        entry_no=number,
        kind=kind_of(body),
        role=body.role if isinstance(body, Message) else None,
        at=to_micros(at),
        turn_id=turn_id,
        body=text,
    )


def put_texts(tx: Tx, session_no: int, rows: Iterable[LogRow]) -> None:
    """Write lines of the log as they are; the caller tells the feed later."""
    before = entry_no(session_no, 0)
    ready = [
        (before + seq, kind, role, at, None, _moved_out(tx, before + seq, text))
        for seq, kind, role, at, text in rows
    ]
    tx.many("insert_entry", ready)


def rewrite(tx: Tx, row: Row, text: str) -> None:
    """Replace the stored body of an entry with an equivalent one; its number must be marked for that."""
    number, kind, role, at, turn_id, _ = row
    tx.run("delete_entries", first=number, last=number)
    tx.run(
        "insert_entry",
        entry_no=number,
        kind=kind,
        role=role,
        at=at,
        turn_id=turn_id,
        body=_moved_out(tx, number, text),
    )


def text_of(tx: Tx, number: int, text: str, unpacker: Unpacker) -> str:
    """A body's text out of its pack and with its large pieces read in, as it was once given."""
    if text.startswith(blobs.PACK_MARK):
        return unpacker.text(number, text)
    if blobs.MARK not in text:
        return text
    return codec.encode(blobs.move_in(tx, codec.decode(text)))


def _moved_out(tx: Tx, number: int, text: str) -> str:
    if not has_large(text):
        return text
    check_size(text)
    return codec.encode(blobs.move_out(tx, codec.decode(text), entry_no=number))


def has_large(text: str) -> bool:
    """Whether a body has pieces that are kept apart from it."""
    return len(text) > blobs.LARGE or '"attachment"' in text or blobs.MARK in text


def check_seq(seq: int) -> None:
    """Refuse a `seq` that would be a number of another session."""
    if seq > MAX_SEQ:
        raise BadInput(
            f"A session holds at most {MAX_SEQ:,} entries; nothing was written. Fork it to go on."
        )


def check_size(text: str) -> None:
    """Refuse a body that is larger than the log takes."""
    # A character is four bytes at most: the short ones are not measured.
    if len(text) > MAX_BODY >> 2 and (size := len(text.encode())) > MAX_BODY:
        raise BadInput(
            f"A message may have {MAX_BODY >> 20} MiB at most; this one has {size / (1 << 20):.1f}."
        )


def read(tx: Tx, segment: Segment, *, limit: int = PAGE, backwards: bool = False) -> list[Entry]:
    """Up to `limit` entries of a segment, from its beginning or from its end; always in order.

    Raises `Damaged` when one of them is missing, and `Purged` when the session was purged.
    """
    rows = read_rows(tx, segment, limit=limit, backwards=backwards)
    return entries_of(tx, rows, segment.session_id)


def read_rows(tx: Tx, segment: Segment, *, limit: int, backwards: bool = False) -> list[Row]:
    """The rows that `read` makes entries of. Numbers are dense, so that a lost row is noticed here."""
    rows = tx.all(
        "read_entries_back" if backwards else "read_entries",
        first=entry_no(segment.no, segment.first),
        last=entry_no(segment.no, segment.last),
        limit=limit,
    )
    count = max(0, min(limit, segment.last - segment.first + 1))
    first = segment.last - count + 1 if backwards else segment.first
    if backwards:
        rows.reverse()
    number = entry_no(segment.no, first)
    if [row[0] for row in rows] != list(range(number, number + count)):
        _refuse_gap(tx, segment, first=first, present={row[0] & MAX_SEQ for row in rows})
    return rows


def read_texts(tx: Tx, segment: Segment, *, limit: int) -> list[LogRow]:
    """Up to `limit` lines of a stretch, as `put_texts` takes them, out of packs and with large texts."""
    unpacker = Unpacker(tx)
    return [
        LogRow(number & MAX_SEQ, kind, role, at, text_of(tx, number, text, unpacker))
        for number, kind, role, at, _, text in read_rows(tx, segment, limit=limit)
    ]


def _refuse_gap(tx: Tx, segment: Segment, *, first: int, present: set[int]) -> None:
    """Raise what a gap means: the session was purged, or the store has lost part of its log."""
    missing = next(seq for seq in count_from(first) if seq not in present)
    owner = tx.one("lineage_of", no=segment.no)
    if owner is not None and owner[1] == SessionFolder.GONE:
        # What living forks read of a purged session is kept.
        needed = tx.one("needed_below", no=segment.no)
        if needed is None or missing > (needed[0] or 0):
            raise Purged(f"Session {segment.session_id} was purged; it is gone for good.")
    elif owner is not None and not owner[4] < missing <= owner[5]:
        # Receipts and the feed still know entries that an older export did not bring back.
        raise Purged(
            f"Entry {missing} of session {segment.session_id} was purged; it is gone for good."
        )
    raise Damaged(
        f"Entry {missing} of session {segment.session_id} is missing from the log: "
        f"the store is damaged. {REMEDY}"
    )


def walk(tx: Tx, segments: Iterable[Segment]) -> Iterator[Entry]:
    """Every entry of the segments, in order, read a page at a time."""
    for segment in segments:
        first = segment.first
        while first <= segment.last:
            page = read(tx, Segment(segment.no, segment.session_id, first, segment.last))
            yield from page
            if len(page) < PAGE:
                break
            first = page[-1].seq + 1


def marks(tx: Tx, segments: Iterable[Segment]) -> list[Entry]:
    """The compactions and retractions of the segments, found without reading the rest."""
    found: list[Entry] = []
    for segment in segments:
        rows = tx.all(
            "read_marks",
            first=entry_no(segment.no, segment.first),
            last=entry_no(segment.no, segment.last),
        )
        found.extend(entry_of(tx, row, segment.session_id) for row in rows)
    return found


def retractions(tx: Tx, segments: Iterable[Segment]) -> list[Entry]:
    """The retractions of the segments."""
    found: list[Entry] = []
    for segment in segments:
        first, last = entry_no(segment.no, segment.first), entry_no(segment.no, segment.last)
        rows = tx.all("read_retractions", first=first, last=last)
        found.extend(entry_of(tx, row, segment.session_id) for row in rows)
    return found


def marks_in_effect(tx: Tx, segments: Sequence[Segment]) -> list[Entry]:
    """The retractions of the segments, and the compaction in effect if there is one.

    A long session has many compactions, each with its summary; the others are not read.
    """
    found = retractions(tx, segments)
    retracted = transcript.retracted(found)
    for segment in reversed(segments):
        first, last = segment.first, segment.last
        while last >= first:
            row = tx.one(
                "read_last_compaction",
                first=entry_no(segment.no, first),
                last=entry_no(segment.no, last),
            )
            if row is None:
                break
            entry = entry_of(tx, row, segment.session_id)
            if not transcript.is_retracted(entry.seq, retracted):
                return sorted([*found, entry], key=lambda mark: mark.seq)
            last = next(begin for begin, end in retracted if begin <= entry.seq <= end) - 1
    return found


class LogExtent(NamedTuple):
    """How many entries a stretch of a log has, its first and last, and when a message was last said."""

    size: int
    first: int
    last: int
    active_at: datetime | None


def extent(tx: Tx, session_no: int, *, first: int = 0, last: int = MAX_SEQ) -> LogExtent:
    """Count a session's own entries, all or those of a stretch; `first` and `last` are 0 if there are none."""
    row = tx.one(
        "count_entries", first=entry_no(session_no, first), last=entry_no(session_no, last)
    )
    size, lowest, highest, active_at = row if row is not None else (0, 0, 0, None)
    active = None if active_at is None else from_micros(active_at)
    return LogExtent(size, lowest & MAX_SEQ, highest & MAX_SEQ, active)


def count_rounds(tx: Tx, segments: Iterable[Segment]) -> int:
    """Count the rounds of these parts of a log: one or more user messages with at least one reply after them."""
    count, before = 0, ""
    for segment in segments:
        row = tx.one(
            "count_rounds",
            first=entry_no(segment.no, segment.first),
            last=entry_no(segment.no, segment.last),
            before=before,
        )
        if row is not None:
            count, before = count + row[0], row[1] or before
    return count


def entries_of(tx: Tx, rows: Sequence[Row], session_id: str) -> list[Entry]:
    """Rows of the log as values; messages of texts take a short way."""
    shared: Unpacker | None = None
    decode, failure = message.reader()
    found = []
    for row in rows:
        number, kind, role, at, turn_id, text = row
        try:
            body = decode(text) if kind == "message" else None
        except (failure, UnicodeDecodeError, TypeError):
            body = None
        if body is None:
            shared = shared or Unpacker(tx)
            found.append(entry_of(tx, row, session_id, shared))
        else:
            seq = number & MAX_SEQ
            moment = _moment(at, seq, session_id)
            found.append(message_entry(session_id, seq, moment, turn_id, role=role, body=body))
    return found


def entry_of(tx: Tx, row: Row, session_id: str, unpacker: Unpacker | None = None) -> Entry:
    """A row of the log as a value, out of its pack and with its large texts read in."""
    number, kind, role, at, turn_id, text = row
    seq = number & MAX_SEQ
    if not isinstance(text, str):
        raise Damaged(_unreadable(seq, session_id, TypeError("it is not a text")))
    is_packed = text.startswith(blobs.PACK_MARK)
    if is_packed:
        text = (unpacker or Unpacker(tx)).text(number, text)
    try:
        data: dict[str, Any] = codec.decode(text)
    except ValueError as error:
        # All that is written was encoded by us: this is not a strange message, but a damaged one.
        raise Damaged(_unreadable(seq, session_id, error)) from error
    try:
        if blobs.MARK in text and not is_packed:
            data = blobs.move_in(tx, data)
        body = body_from_json(kind, role, data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable(_unreadable(seq, session_id, error)) from error
    return Entry(session_id, seq, _moment(at, seq, session_id), body, turn_id)


def data_of(tx: Tx, number: int, text: str, unpacker: Unpacker) -> dict[str, Any]:
    """Return a body as JSON data, out of its pack and with its large texts read in.

    For callers that need the words only and build no `Entry`.
    """
    if text.startswith(blobs.PACK_MARK):
        return decoded(number, unpacker.text(number, text))
    data = decoded(number, text)
    return blobs.move_in(tx, data) if blobs.MARK in text else data


def readable(tx: Tx, number: int, text: str, unpacker: Unpacker) -> dict[str, Any] | None:
    """Return the same, or None when the body is damaged, so that one entry does not stop a search.

    Opening its session raises `Damaged`, and `verify` names the entry.
    """
    try:
        return data_of(tx, number, text, unpacker)
    except Damaged:
        return None


def read_data(tx: Tx, number: int) -> tuple[str | None, dict[str, Any] | None]:
    """Return the role and the body of one entry; the body is None when it is damaged."""
    no, seq = number >> SEQ_BITS, number & MAX_SEQ
    [row] = read_rows(tx, Segment(no, f"number {no}", seq, seq), limit=1)
    _, _, role, _, _, text = row
    return role, readable(tx, number, text, Unpacker(tx))


def decoded(number: int, text: str) -> dict[str, Any]:
    """Decode the JSON of a body; raises `Damaged` when it is not JSON."""
    try:
        data = codec.decode(text)
    except ValueError as error:
        raise Damaged(f"Entry {number & MAX_SEQ} cannot be read ({error}).") from error
    if not isinstance(data, dict) or not _has_parts(data.get("parts", ())):
        raise Unreadable(f"Entry {number & MAX_SEQ} cannot be read (it has no parts).")
    return data


def _has_parts(parts: Any) -> bool:
    return isinstance(parts, (list, tuple)) and all(type(part) is dict for part in parts)


def _moment(at: Any, seq: int, session_id: str) -> datetime:
    try:
        return from_micros(at)
    except (TypeError, ValueError, OverflowError) as error:
        raise Damaged(_unreadable(seq, session_id, error)) from error


def _unreadable(seq: int, session_id: str, error: Exception) -> str:
    return f"Entry {seq} of session {session_id} cannot be read ({error})."


class FeedChange(Struct, frozen=True):
    """One row of the feed. A purged session has no profile to show any more."""

    position: int
    session_no: int
    seq: int
    what: str
    session_id: str | None
    profile: str | None


def reply_of_turn(tx: Tx, session_no: int, turn_id: str | None) -> int | None:
    """Return the seq of the last message that a turn's agent wrote."""
    first = entry_no(session_no, 0)
    last = entry_no(session_no + 1, 0) - 1
    row = tx.one("reply_of_turn", first=first, last=last, turn_id=turn_id)
    return None if row is None else int(row[0]) - first


def insert_feed(
    tx: Tx, session_no: int, what: Literal["entry", "head", "turn", "gone"], *, seq: int = 0
) -> None:
    """Note that an entry, the head or a turn of a session is new, or that it was purged."""
    tx.run("insert_feed", session_no=session_no, seq=seq, what=what)


def last_position(tx: Tx) -> int:
    """Return where the feed ends now."""
    row = tx.one("last_position")
    return 0 if row is None else int(row[0])


def read_feed(tx: Tx, after: int, *, limit: int = FEED_PAGE) -> list[FeedChange]:
    """Return what changed after a position, in every profile; the caller shows only its own."""
    return [FeedChange(*row) for row in tx.all("read_feed", after=after, limit=limit)]


def walk_extra(
    tx: Tx, segments: Iterable[Segment], name: str, read: ReadExtra
) -> Iterator[tuple[int, Any]]:
    """Yield every entry of the segments in order: its `seq`, and `read(extra[name])`.

    Programs keep their own form of a message in `extra`. Where `read` finds nothing there, the
    second value is the `Entry` itself.
    """
    for segment in segments:
        rest = segment
        while rest.first <= rest.last:
            page = list(_extra_page(tx, rest, name, read))
            yield from page
            if len(page) < PAGE:
                break
            rest = replace(rest, first=page[-1][0] + 1)


def _extra_page(tx: Tx, segment: Segment, name: str, read: ReadExtra) -> Iterator[tuple[int, Any]]:
    decode, failure = _extra_decoder()
    for row in read_rows(tx, segment, limit=PAGE):
        number, kind, _, _, _, text = row
        try:
            found = read(decode(text).extra.get(name)) if kind == "message" else None
        except (failure, UnicodeDecodeError):
            found = None  # `entry_of` decodes every form, or says that the entry is damaged
        if found is None:
            entry = entry_of(tx, row, segment.session_id)
            found = read(getattr(entry.body, "extra", {}).get(name)) or entry
        yield number & MAX_SEQ, found


@cache
def _extra_decoder() -> tuple[Any, type[Exception]]:
    """Decodes the `extra` of a body and skips its parts."""
    import msgspec  # saves 11 ms for everyone who reads no program's own form

    body = msgspec.defstruct("NativeBody", [("extra", dict[str, Any], {})])
    return msgspec.json.Decoder(body).decode, msgspec.MsgspecError
