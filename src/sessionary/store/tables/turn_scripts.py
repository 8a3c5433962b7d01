"""The statements that begin and end most turns: one batch that looks, one that writes."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sessionary.clock import to_micros
from sessionary.model import codec
from sessionary.model.message import MAX_SEQ, SEQ_BITS, Entry, Message, Role, body_to_json
from sessionary.model.prompt import HomeAddress
from sessionary.model.session import SessionHead
from sessionary.model.source import Source
from sessionary.model.turn import Lease
from sessionary.store.database import Row, Statement, Tx
from sessionary.store.tables import entries, sessions
from sessionary.store.tables.sessions import column


class IdleSession(NamedTuple):
    """A session in which no turn is running, locked until the transaction ends."""

    head: SessionHead
    epoch: int
    homes: frozenset[HomeAddress]


class TakenArrival(NamedTuple):
    """A message as received, which becomes the prompt of a turn at once."""

    id: str
    key: str
    profile: str
    idempotency_key: str
    source: Source
    message: Message
    at: datetime


def find_idle_session(
    tx: Tx, key: str, *, profile: str, idempotency_key: str
) -> IdleSession | None:
    """Lock a key, and return its session; None if a turn is running in it, a message waits, or this one came before."""
    _, found, homes = tx.batch(
        (
            ("lock_key", {"profile": profile, "key": key}),
            (
                "find_session_of_key",
                {"profile": profile, "key": key, "idempotency_key": idempotency_key},
            ),
            ("list_homes", {"profile": profile}),
        )
    )
    if not found:
        return None
    *columns, epoch, is_waited_for, is_repeated = found[0]
    head = sessions.head(tuple(columns))
    if head.running or is_waited_for or is_repeated:
        return None
    return IdleSession(
        head,
        epoch,
        frozenset(HomeAddress(platform, id, name, thread) for platform, id, thread, name in homes),
    )


def begin_with_prompt(
    tx: Tx,
    lease: Lease,
    arrival: TakenArrival,
    prompt: str,
    *,
    seq: int,
    preview: str | None,
    agent: str | None,
    until: datetime,
    resumable: bool,
    read_from: int | None,
) -> list[Entry] | None:
    """Write the arrival, the turn and its prompt, the JSON text of the log's entry `seq`.

    Return the entries from `read_from` on; None without it, or if one of them is missing.
    """
    no, turn_id, at = lease.session_no, lease.turn_id, to_micros(arrival.at)
    number = entries.entry_no(no, seq)
    stored = codec.encode(body_to_json(arrival.message) | {"role": arrival.message.role})
    entries.check_size(stored)
    entries.check_seq(seq)
    statements: list[Statement] = [
        (
            "insert_taken_arrival",
            {
                "id": arrival.id,
                "profile": arrival.profile,
                "idempotency_key": arrival.idempotency_key,
                "key": arrival.key,
                "source": codec.encode(arrival.source.to_json()),
                "message": stored,
                "received_at": at,
                "session_no": no,
                "turn_id": turn_id,
                "seq": seq,
            },
        ),
        (
            "begin_with_prompt",
            {"no": no, "turn_id": turn_id, "epoch": lease.epoch, "seq": seq, "at": at},
        ),
        (
            "insert_turn",
            {
                "id": turn_id,
                "session_no": no,
                "agent": column(agent),
                "epoch": lease.epoch,
                "holder": lease.holder,
                "lease_until": to_micros(until),
                "at": at,
                "first_seq": seq,
                "resumable": int(resumable),
            },
        ),
        *_entry(number, Role.USER, at, turn_id, prompt),
    ]
    if preview is not None:
        statements.append(("set_preview", {"no": no, "preview": preview}))
    if read_from is None or read_from == seq:
        tx.batch(statements)
        if read_from is None:
            return None
        row = (number, "message", Role.USER, at, turn_id, prompt)
        return entries.entries_of(tx, [row], lease.session_id)
    first = entries.entry_no(no, read_from)
    statements.append(
        ("read_entries", {"first": first, "last": number, "limit": number - first + 1})
    )
    rows = tx.batch(statements)[-1]
    if len(rows) != number - first + 1:
        return None  # numbers are dense: reading the whole log reports what is missing
    return entries.entries_of(tx, rows, lease.session_id)


class Freed(NamedTuple):
    """A session whose turn is over: what there is to do besides."""

    has_deliveries: bool
    has_arrivals: bool


def end_with_reply(
    tx: Tx, lease: Lease, *, seq: int, at: datetime, profile: str, key: str, channel: str | None
) -> Freed | None:
    """Count the reply as entry `seq`, and free the session; None if this turn may not write it there.

    Return whether deliveries to the channel are open, and whether messages wait for the key.
    """
    params = {
        "no": lease.session_no,
        "turn_id": lease.turn_id,
        "epoch": lease.epoch,
        "seq": seq,
        "at": to_micros(at),
        "profile": profile,
        "key": key,
        "channel": channel,
    }
    # A batch of one: on PostgreSQL it takes the beginning of the transaction along.
    [found] = tx.batch((("end_with_reply", params),))
    return Freed(*map(bool, found[0])) if found else None


def write_reply(
    tx: Tx,
    lease: Lease,
    reply: str,
    deliveries: Sequence[Statement],
    *,
    seq: int,
    at: datetime,
    request_hash: str | None,
) -> tuple[Entry, list[list[Row]]] | None:
    """Write the reply, its deliveries and the end of the turn; None if the turn was not running.

    Return the entry, and what the statements of the deliveries returned.
    """
    number, micros = entries.entry_no(lease.session_no, seq), to_micros(at)
    end = {
        "id": lease.turn_id,
        "epoch": lease.epoch,
        "state": "done",
        "at": micros,
        "reason": None,
        "keep_partial": 0,
        "request_hash": request_hash,
    }
    entry = _entry(number, Role.ASSISTANT, micros, lease.turn_id, reply)
    results = tx.batch((*entry, *deliveries, ("end_turn", end)))
    if not results[-1]:
        return None
    row = (number, "message", Role.ASSISTANT, micros, lease.turn_id, reply)
    [written] = entries.entries_of(tx, [row], lease.session_id)
    return written, results[len(entry) : -1]


def _entry(number: int, role: Role, at: int, turn_id: str, body: str) -> tuple[Statement, ...]:
    entry = {
        "entry_no": number,
        "kind": "message",
        "role": role,
        "at": at,
        "turn_id": turn_id,
        "body": body,
    }
    feed = {"session_no": number >> SEQ_BITS, "seq": number & MAX_SEQ, "what": "entry"}
    return ("insert_entry", entry), ("insert_feed", feed)
