"""The outbox: rows in, deliveries out."""

from datetime import datetime

from sessionary.clock import from_micros, to_micros
from sessionary.model import json_codec
from sessionary.model import part as parts_of
from sessionary.model.delivery import Delivery, DeliveryState
from sessionary.model.part import Part
from sessionary.model.source import Channel
from sessionary.store.database import Row, Tx
from sessionary.store.tables.sessions import column, moment


def insert(
    tx: Tx,
    id: str,
    *,
    profile: str,
    channel: Channel,
    parts: tuple[Part, ...],
    at: datetime,
    session_no: int | None = None,
    turn_id: str | None = None,
) -> None:
    """Write a delivery that waits to be sent."""
    tx.run(
        "insert_delivery",
        id=id,
        profile=profile,
        platform=column(channel.platform),
        chat_id=column(channel.chat_id),
        thread_id=column(channel.thread_id),
        channel=str(channel),
        session_no=session_no,
        turn_id=turn_id,
        parts=json_codec.encode([parts_of.to_json(part) for part in parts]),
        at=to_micros(at),
    )


def get(tx: Tx, id: str, *, profile: str) -> Delivery | None:
    """One delivery of this profile."""
    row = tx.one("get_delivery", id=id, profile=profile)
    return None if row is None else _delivery(row)


def get_by_no(tx: Tx, no: int) -> Delivery | None:
    """One delivery by its number."""
    row = tx.one("get_delivery_by_no", no=no)
    return None if row is None else _delivery(row)


def of_session(tx: Tx, session_no: int) -> list[Delivery]:
    """What a session sent or is sending, oldest first."""
    return [_delivery(row) for row in tx.all("deliveries_of_session", no=session_no)]


def listing(
    tx: Tx,
    *,
    profile: str,
    before: int,
    limit: int,
    state: DeliveryState | None = None,
    platform: str | None = None,
    channel: str | None = None,
) -> list[Delivery]:
    """Deliveries with numbers below `before`, newest first."""
    # What is open and what was abandoned have indexes of their own: most deliveries are sent.
    query = {
        DeliveryState.WAITING: "list_open_deliveries",
        DeliveryState.SENDING: "list_open_deliveries",
        DeliveryState.ABANDONED: "list_abandoned_deliveries",
    }
    rows = tx.all(
        "list_deliveries" if state is None else query.get(state, "list_deliveries"),
        profile=profile,
        before=before,
        state=None if state is None else str(state),
        platform=platform,
        channel=channel,
        limit=limit,
    )
    return [_delivery(row) for row in rows]


def _delivery(row: Row) -> Delivery:
    return Delivery(
        no=row[0],
        id=row[1],
        profile=row[2],
        channel=Channel(row[3], row[4], row[5]),
        session_id=row[6],
        turn_id=row[7],
        parts=tuple(parts_of.from_json(part) for part in json_codec.decode(row[8])),
        state=DeliveryState(row[9]),
        attempts=row[10],
        unclear_attempts=row[11],
        not_before=from_micros(row[12]),
        created_at=from_micros(row[13]),
        sent_at=moment(row[14]),
        reason=row[15],
        platform_message_id=row[16],
        redirected_to=row[17],
    )
