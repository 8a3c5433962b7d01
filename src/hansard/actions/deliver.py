"""Out of the outbox: claimed, sent, marked; at least once, in order for each channel."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from hansard.clock import Occasion, to_micros
from hansard.errors import Conflict, NotFound
from hansard.model.delivery import Delivery, DeliveryState
from hansard.model.part import Part
from hansard.model.place import Channel
from hansard.store import deliveries, sessions
from hansard.store.database import RaceLost, Tx


@dataclass(frozen=True, slots=True)
class DeliveryCame:
    """Published after a commit: something waits to be sent."""

    profile: str
    channel: str


def enqueue(
    tx: Tx,
    channel: Channel,
    parts: tuple[Part, ...],
    *,
    profile: str,
    when: Occasion,
    session_no: int | None = None,
) -> str:
    """Put something into the outbox; its id."""
    id = when.new_id()
    deliveries.insert(
        tx, id, profile=profile, channel=channel, parts=parts, at=when.now, session_no=session_no
    )
    tx.after_commit(DeliveryCame(profile, str(channel)))
    return id


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
    """Take what is due: the first open delivery of each channel.

    A sender that died is overtaken, and that is noted. A profile speaks with its own account.
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
    claimed = [deliveries.get_by_no(tx, row[0]) for row in sorted(rows)]
    return [delivery for delivery in claimed if delivery is not None]


def mark_sent(
    tx: Tx, id: str, *, holder: str, at: datetime, platform_message_id: str | None = None
) -> bool:
    """Note that a delivery arrived; False when another sender has taken it over."""
    return bool(
        tx.run(
            "mark_sent",
            id=id,
            holder=holder,
            at=to_micros(at),
            platform_message_id=sessions.column(platform_message_id),
        )
    )


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
    """Try again later. `unclear`: the person may have it already; not `counted`: as if not tried."""
    return bool(
        tx.run(
            "mark_failed",
            id=id,
            holder=holder,
            not_before=to_micros(not_before),
            reason=sessions.column(reason),
            unclear=int(unclear),
            uncounted=int(not counted),
        )
    )


def abandon(tx: Tx, id: str, *, reason: str, holder: str | None = None) -> bool:
    """Give a delivery up, with a reason that people see.

    False when it was sent, or when it is another sender's than the one named.
    """
    return bool(tx.run("mark_abandoned", id=id, reason=sessions.column(reason), holder=holder))


def bounce(tx: Tx, id: str, *, profile: str, platform: str, reason: str) -> bool:
    """The platform took a delivery and could not deliver it after all; it can be redirected."""
    given = {"profile": profile, "platform": platform, "reason": sessions.column(reason)}
    return bool(tx.run("mark_bounced", id=id, **given))


def redirect(tx: Tx, id: str, channel: Channel, *, profile: str, when: Occasion) -> str:
    """Send what was abandoned or still waits to another channel instead; the new delivery's id."""
    delivery = deliveries.get(tx, id, profile=profile)
    if delivery is None:
        raise NotFound(f"There is no delivery {id}.")
    if delivery.state not in (DeliveryState.WAITING, DeliveryState.ABANDONED):
        raise Conflict(f"Delivery {id} is {delivery.state}; nothing was changed.")
    session = None
    if delivery.session_id is not None:
        session = sessions.get(tx, delivery.session_id, profile=profile)
    no = None if session is None else session.no
    made = enqueue(tx, channel, delivery.parts, profile=profile, when=when, session_no=no)
    if not tx.run("mark_redirected", id=id, to=made):
        raise RaceLost  # someone else has redirected it meanwhile, or is sending it
    return made
