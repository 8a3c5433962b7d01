"""The outbox: rows in, deliveries out."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sessionary.clock import from_micros, to_micros
from sessionary.model import codec
from sessionary.model import message as parts_of
from sessionary.model.message import Part
from sessionary.model.source import Channel
from sessionary.model.turn import Delivery, DeliveryState
from sessionary.store.database import Row, Statement, Tx
from sessionary.store.tables.sessions import column, moment

# A profile that has sent to more platforms is listed by one query.
MOST_PLATFORMS = 20


class SendClaim(NamedTuple):
    """Who sends a delivery, and until when nobody else does."""

    holder: str
    until: datetime


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
    name, params = insert_statement(
        id,
        profile=profile,
        channel=channel,
        parts=parts,
        at=at,
        session_no=session_no,
        turn_id=turn_id,
    )
    tx.run(name, **params)


def insert_statement(
    id: str,
    *,
    profile: str,
    channel: Channel,
    parts: tuple[Part, ...],
    at: datetime,
    session_no: int | None = None,
    turn_id: str | None = None,
    claim: SendClaim | None = None,
) -> Statement:
    """Return the statement that writes a delivery.

    With a claim it is being sent from the beginning, and the statement returns its number.
    """
    params: dict[str, Any] = {
        "id": id,
        "profile": profile,
        "platform": column(channel.platform),
        "chat_id": column(channel.chat_id),
        "thread_id": column(channel.thread_id),
        "channel": str(channel),
        "session_no": session_no,
        "turn_id": turn_id,
        "parts": codec.encode([parts_of.to_json(part) for part in parts]),
        "at": to_micros(at),
    }
    if claim is None:
        return "insert_delivery", params
    held = {"holder": claim.holder, "lease_until": to_micros(claim.until)}
    return "insert_claimed_delivery", params | held


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


def list_page(
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
    params = {
        "profile": profile,
        "before": before,
        "state": state,
        "platform": platform,
        "channel": channel,
        "limit": limit,
    }
    # Each query reads along an index: most deliveries are sent, and most channels and profiles send little.
    is_open = state in (DeliveryState.WAITING, DeliveryState.SENDING)
    rows: list[Row] = []
    if is_open:
        pass
    elif channel is not None:
        rows = tx.all("list_done_deliveries_of_channel", **params)
    elif state is DeliveryState.ABANDONED:
        rows = tx.all("list_abandoned_deliveries", **params)
    elif platform is not None:
        rows = tx.all("list_done_deliveries_of_platform", **params)
    else:
        platforms = tx.all("platforms_of_deliveries", profile=profile, limit=MOST_PLATFORMS + 1)
        if len(platforms) > MOST_PLATFORMS:
            # A profile on this many platforms sends much: a scan of the newest deliveries soon finds its own.
            return [_delivery(row) for row in tx.all("list_deliveries", **params)]
        for (name,) in platforms:
            rows += tx.all("list_done_deliveries_of_platform", **params | {"platform": name})
    if is_open or state is None:
        rows += tx.all("list_open_deliveries", **params)
    rows.sort(key=lambda row: row[0], reverse=True)
    return [_delivery(row) for row in rows[:limit]]


def ids_by_prefix(tx: Tx, beginning: str, *, profile: str, limit: int) -> list[str]:
    """Return the ids of deliveries that begin so."""
    beyond = beginning + "\U0010ffff"
    rows = tx.all(
        "deliveries_by_prefix", first=beginning, beyond=beyond, profile=profile, limit=limit
    )
    return [id for (id,) in rows]


def claim(
    tx: Tx,
    *,
    holder: str,
    seconds: float,
    now: datetime,
    limit: int = 20,
    platform: str | None = None,
    profile: str | None = None,
) -> list[Delivery]:
    """Claim what is due, for some seconds: the first open delivery of each channel.

    A delivery whose sender died is claimed again, and counted as an unclear attempt. With a
    `profile`, only its deliveries are claimed: each profile sends by its own account.
    """
    rows = tx.all(
        "claim_deliveries",
        holder=holder,
        now=to_micros(now),
        lease_until=to_micros(now + timedelta(seconds=seconds)),
        limit=limit,
        platform=platform,
        profile=profile,
    )
    claimed = [get_by_no(tx, no) for no, _ in sorted(rows)]
    return [delivery for delivery in claimed if delivery is not None]


def mark_sent(
    tx: Tx, id: str, *, holder: str, at: datetime, platform_message_id: str | None = None
) -> bool:
    """Mark a delivery as sent; False if another sender has taken it over."""
    [rows] = tx.batch((_mark_statement(SentMark(id, at, platform_message_id), holder),))
    return bool(rows)


class SentMark(NamedTuple):
    """A delivery that a platform has accepted."""

    id: str
    at: datetime
    platform_message_id: str | None


def mark_all_sent(tx: Tx, marks: Sequence[SentMark], *, holder: str) -> bool:
    """Mark deliveries as sent unless another sender has taken them over; return whether their channels have more."""
    results = tx.batch([_mark_statement(mark, holder) for mark in marks])
    return any(row[0] for rows in results for row in rows)


def _mark_statement(mark: SentMark, holder: str) -> Statement:
    return "mark_sent", {
        "id": mark.id,
        "holder": holder,
        "at": to_micros(mark.at),
        "platform_message_id": column(mark.platform_message_id),
    }


def mark_failed(
    tx: Tx,
    id: str,
    *,
    holder: str,
    not_before: datetime,
    reason: str,
    unclear: bool = False,
    counted: bool = True,
) -> bool:
    """Let a delivery wait until it is tried again; False if another sender has taken it over.

    `unclear`: it may have arrived. Not `counted`: this was no attempt.
    """
    return bool(
        tx.run(
            "mark_failed",
            id=id,
            holder=holder,
            not_before=to_micros(not_before),
            reason=column(reason),
            unclear=int(unclear),
            uncounted=int(not counted),
        )
    )


def abandon(tx: Tx, id: str, *, reason: str, holder: str | None = None) -> bool:
    """Give a delivery up, with a reason that people see; False if it was sent, or is not the named holder's."""
    return bool(tx.run("mark_abandoned", id=id, reason=column(reason), holder=holder))


def abandon_unsent(tx: Tx, id: str, *, reason: str, now: datetime) -> bool:
    """Give up a delivery that waits and that nobody is sending; say whether it did."""
    return bool(tx.run("mark_abandoned_by_owner", id=id, reason=column(reason), now=to_micros(now)))


def bounce(tx: Tx, id: str, *, profile: str, platform: str, reason: str) -> bool:
    """Note that the platform accepted a delivery and could not deliver it; False if it had not accepted it."""
    return bool(
        tx.run("mark_bounced", id=id, profile=profile, platform=platform, reason=column(reason))
    )


def retry(tx: Tx, id: str, *, now: datetime) -> bool:
    """Make a delivery that nobody is sending due now; say whether that was so."""
    return bool(tx.run("retry_delivery", id=id, now=to_micros(now)))


def redirect(tx: Tx, id: str, *, to: str, now: datetime) -> bool:
    """Mark a delivery that nobody is sending as replaced by another; say whether that was so."""
    return bool(tx.run("mark_redirected", id=id, to=to, now=to_micros(now)))


def shorten_waits(tx: Tx, *, now: datetime, lease_until: datetime, horizon: datetime) -> None:
    """Make due what waits beyond the horizon: the clock was set back since."""
    tx.run(
        "bring_deliveries_back",
        now=to_micros(now),
        until=to_micros(lease_until),
        horizon=to_micros(horizon),
    )


def _delivery(row: Row) -> Delivery:
    no, id, profile, platform, chat_id, thread_id, session_id, turn_id, parts, *rest = row
    state, attempts, unclear_attempts, not_before, created_at, sent_at, *last = rest
    reason, platform_message_id, redirected_to = last
    return Delivery(
        no=no,
        id=id,
        profile=profile,
        channel=Channel(platform, chat_id, thread_id),
        session_id=session_id,
        turn_id=turn_id,
        parts=tuple(parts_of.from_json(part) for part in codec.decode(parts)),
        state=DeliveryState(state),
        attempts=attempts,
        unclear_attempts=unclear_attempts,
        not_before=from_micros(not_before),
        created_at=from_micros(created_at),
        sent_at=moment(sent_at),
        reason=reason,
        platform_message_id=platform_message_id,
        redirected_to=redirected_to,
    )
