"""The inbox: rows in, arrivals out."""

from datetime import datetime
from typing import NamedTuple

from sessionary.clock import from_micros, to_micros
from sessionary.model import codec
from sessionary.model.message import Attachment, Message, body_from_json, body_to_json
from sessionary.model.source import Source, source_as_stored
from sessionary.model.turn import Arrival, ArrivalState
from sessionary.store.database import Row, Tx
from sessionary.store.tables import blobs, entries
from sessionary.store.tables.sessions import column

# How the reason of an arrival begins that has answered a question; the question's id comes after it.
ANSWERS = "answers question "


def insert(
    tx: Tx,
    id: str,
    *,
    profile: str,
    idempotency_key: str,
    key: str,
    source: Source,
    message: Message,
    at: datetime,
) -> Arrival | None:
    """Write an arrival; None when one came before with the same idempotency key."""
    text = _stored(tx, message, profile=profile, at=at)
    row = tx.one(
        "insert_arrival",
        id=id,
        profile=profile,
        idempotency_key=idempotency_key,
        key=key,
        source=codec.encode(source.to_json()),
        message=text,
        received_at=to_micros(at),
    )
    return None if row is None else Arrival(row[0], id, key, source, message, at)


def get(tx: Tx, id: str, *, profile: str) -> Arrival | None:
    """One arrival of this profile."""
    row = tx.one("get_arrival", id=id, profile=profile)
    return None if row is None else _arrival(row)


def get_by_idempotency_key(tx: Tx, idempotency_key: str, *, profile: str) -> Arrival | None:
    """The arrival that came first with this idempotency key."""
    row = tx.one("get_arrival_by_idempotency_key", idempotency_key=idempotency_key, profile=profile)
    return None if row is None else _arrival(row)


def id_of_entry(tx: Tx, session_no: int, seq: int) -> str | None:
    """The id of the arrival that became an entry; it looks at all arrivals of the session."""
    row = tx.one("arrival_of_entry", session_no=session_no, seq=seq)
    return None if row is None else row[0]


def set_source(tx: Tx, arrival: Arrival, source: Source) -> None:
    """Replace what is known of where an arrival came from."""
    tx.run("set_arrival_source", no=arrival.no, source=codec.encode(source.to_json()))


def waiting(tx: Tx, key: str, *, profile: str, limit: int) -> list[Arrival]:
    """What waits for this key, in the order of arrival."""
    return [
        _arrival(row) for row in tx.all("waiting_arrivals", key=key, profile=profile, limit=limit)
    ]


def rewrite(tx: Tx, arrival: Arrival, message: Message, *, profile: str, at: datetime) -> bool:
    """Put another message into an arrival that waits; say whether it still did."""
    text = _stored(tx, message, profile=profile, at=at)
    return bool(tx.run("rewrite_arrival", no=arrival.no, message=text))


def last_source_of_turn(tx: Tx, turn_id: str, *, session_no: int) -> Source | None:
    """Where the last message of a running turn came from; None for a turn without an arrival."""
    row = tx.one("last_source_of_turn", session_no=session_no, turn_id=turn_id)
    return None if row is None else _source(row[0])


def sources_of_turn(tx: Tx, turn_id: str, *, session_no: int) -> list[Source]:
    """Where the messages of a turn came from, in the order of arrival; none for a turn without an arrival.

    It looks at all arrivals of the session.
    """
    rows = tx.all("sources_of_turn", session_no=session_no, turn_id=turn_id)
    return [_source(source) for (source,) in rows]


def take(tx: Tx, arrival: Arrival, *, session_no: int, turn_id: str, seq: int) -> None:
    """Note that an arrival has become an entry."""
    tx.run("take_arrival", no=arrival.no, session_no=session_no, turn_id=turn_id, seq=seq)


def refuse(tx: Tx, arrival: Arrival, *, reason: str) -> bool:
    """Note that an arrival will not become an entry, and why; say whether it still waited."""
    return bool(tx.run("refuse_arrival", no=arrival.no, reason=column(reason)))


def mark_answered(tx: Tx, arrival: Arrival, *, command: str) -> None:
    """Note that an arrival was a command, which does not become an entry."""
    tx.run("answer_arrival", no=arrival.no, reason=f"/{command}")


def mark_answer(tx: Tx, arrival: Arrival, *, question_id: str) -> None:
    """Note that an arrival has answered a question, and does not become an entry."""
    tx.run("answer_arrival", no=arrival.no, reason=f"{ANSWERS}{question_id}")


def rename_key(tx: Tx, old: str, new: str, *, profile: str) -> None:
    """Let what waits for a key wait for another one."""
    tx.run("rename_arrivals", profile=profile, old=old, new=new)


def keys_waiting(tx: Tx, *, profile: str, limit: int) -> list[str]:
    """Return the keys that have something waiting, the oldest first."""
    return [key for key, _ in tx.all("keys_with_arrivals", profile=profile, limit=limit)]


class WorkCounts(NamedTuple):
    """How much a profile has to do: arrivals in the inbox, deliveries in the outbox, running turns."""

    waiting: int
    sending: int
    running: int


def count_work(tx: Tx, *, profile: str) -> WorkCounts:
    """Count what a profile has in the inbox, in the outbox and running."""
    return WorkCounts(*tx.all("count_waiting", profile=profile)[0])


def _stored(tx: Tx, message: Message, *, profile: str, at: datetime) -> str:
    """Return a message as its row has it, and keep its files: nothing else says yet that they are needed."""
    text = codec.encode(body_to_json(message) | {"role": message.role})
    # What could never become an entry would block its key for ever.
    entries.check_size(text)
    for part in message.parts:
        if isinstance(part, Attachment):
            blobs.check_exists(tx, part.blob)
            blobs.note_upload(tx, part.blob, profile=profile, at=at)
    return text


def _arrival(row: Row) -> Arrival:
    no, id, key, source, message, received_at, state, session_id, turn_id, seq, reason = row
    data = codec.decode(message)
    body = body_from_json("message", data.get("role", "user"), {"parts": []} | data)
    assert isinstance(body, Message)
    return Arrival(
        no=no,
        id=id,
        key=key,
        source=_source(source),
        message=body,
        received_at=from_micros(received_at),
        state=ArrivalState(state),
        session_id=session_id,
        turn_id=turn_id,
        seq=seq,
        reason=reason,
    )


def _source(text: str) -> Source:
    return source_as_stored({"platform": "unknown"} | codec.decode(text))
