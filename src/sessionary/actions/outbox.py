"""The outbox: deliveries are sent at least once, in order for each channel."""

import re
from collections.abc import Collection

from msgspec import Struct

from sessionary.actions import access, inbox
from sessionary.clock import Moment
from sessionary.errors import Ambiguous, BadInput, Conflict, NotAllowed, NotFound
from sessionary.model import codec
from sessionary.model.message import Part
from sessionary.model.session import Cursor
from sessionary.model.source import Channel
from sessionary.model.turn import Delivery, DeliveryState
from sessionary.store.database import Tx
from sessionary.store.tables import deliveries, sessions

GIVEN_UP = "given up by the owner"
_LONGEST_REASON = 500
_SHORTEST_REF = 4
_CANDIDATES = 6
_ID_LIKE = re.compile(r"[A-Za-z0-9_-]+")


class DeliveryAdded(Struct, frozen=True):
    """Published after a commit: something waits to be sent."""

    profile: str
    channel: str


def enqueue(
    tx: Tx,
    channel: Channel,
    parts: tuple[Part, ...],
    *,
    profile: str,
    moment: Moment,
    session_no: int | None = None,
) -> str:
    """Add a delivery to the outbox; return its id."""
    id = moment.new_id()
    deliveries.insert(
        tx, id, profile=profile, channel=channel, parts=parts, at=moment.now, session_no=session_no
    )
    tx.after_commit(DeliveryAdded(profile, str(channel)))
    return id


# What senders do is one statement each.
claim = deliveries.claim
mark_sent = deliveries.mark_sent
mark_all_sent = deliveries.mark_all_sent
mark_failed = deliveries.mark_failed
abandon = deliveries.abandon
bounce = deliveries.bounce


class DeliveryPage(Struct, frozen=True):
    """A page of the outbox, and the cursor of the next one."""

    items: tuple[Delivery, ...]
    next: str | None


def list_deliveries(
    tx: Tx,
    *,
    profile: str,
    limit: int,
    state: DeliveryState | None = None,
    channel: str | None = None,
    cursor: str | None = None,
) -> DeliveryPage:
    """A page of the outbox, newest first. `channel` is a platform, or `platform:chat[:thread]`."""
    before = Cursor.first() if cursor is None else Cursor.parse(cursor)
    is_platform = channel is not None and ":" not in channel
    found = deliveries.list_page(
        tx,
        profile=profile,
        before=before.no,
        limit=limit + 1,
        state=state,
        platform=sessions.column(channel) if is_platform else None,
        channel=None if channel is None or is_platform else str(Channel.parse(channel)),
    )
    page = tuple(found[:limit])
    following = str(Cursor.after(page[-1].no, page[-1].no)) if len(found) > limit else None
    return DeliveryPage(page, following)


def find(tx: Tx, ref: str, *, profile: str) -> Delivery:
    """A delivery by its id, or by a beginning that only one id has."""
    wanted = codec.storable_text(ref)
    found = deliveries.get(tx, wanted, profile=profile)
    if found is None and len(wanted) >= _SHORTEST_REF and _ID_LIKE.fullmatch(wanted):
        ids = deliveries.ids_by_prefix(tx, wanted, profile=profile, limit=_CANDIDATES)
        if len(ids) > 1:
            raise Ambiguous(
                f"{wanted!r} is the beginning of several deliveries: {', '.join(ids)}.", ids
            )
        found = deliveries.get(tx, ids[0], profile=profile) if ids else None
    if found is None:
        raise NotFound(f"There is no delivery {wanted}.")
    return found


def retry(tx: Tx, ref: str, *, profile: str, moment: Moment) -> Delivery:
    """Send what waits or was abandoned as soon as possible, under the same id.

    It goes before what still waits for its channel, because it is older.
    """
    delivery = find(tx, ref, profile=profile)
    _refuse_empty(delivery)
    if not deliveries.retry(tx, delivery.id, now=moment.now):
        raise _not_changed(tx, delivery)
    tx.after_commit(DeliveryAdded(profile, str(delivery.channel)))
    return find(tx, delivery.id, profile=profile)


def abandon_by_owner(
    tx: Tx, ref: str, *, profile: str, moment: Moment, reason: str = GIVEN_UP
) -> Delivery:
    """Give up what waits: it is not sent, and the next for its channel goes on."""
    delivery = find(tx, ref, profile=profile)
    why = " ".join(reason.split())[:_LONGEST_REASON] or GIVEN_UP
    if not deliveries.abandon_unsent(tx, delivery.id, reason=why, now=moment.now):
        raise _not_changed(tx, delivery)
    tx.after_commit(DeliveryAdded(profile, str(delivery.channel)))
    return find(tx, delivery.id, profile=profile)


def redirect(
    tx: Tx,
    ref: str,
    channel: Channel,
    *,
    profile: str,
    moment: Moment,
    platforms: Collection[str],
) -> Delivery:
    """Send what waits or was abandoned to another channel instead; the new delivery.

    `platforms`: those that this installation delivers to. The channel must be a chat that has or had a conversation
    in this profile, or its platform's home channel: a mistyped id must not send someone's words to a stranger.
    """
    delivery = find(tx, ref, profile=profile)
    _check_target(tx, channel, profile=profile, platforms=platforms)
    if channel == delivery.channel:
        raise BadInput(f"Delivery {delivery.id} goes to {channel} already; retry it instead.")
    _refuse_empty(delivery)
    session = None
    if delivery.session_id is not None:
        session = sessions.get(tx, delivery.session_id, profile=profile)
    no = None if session is None else session.no
    made = moment.new_id()
    # The old delivery first: if it is being sent or was redirected already, nothing new must be created.
    if not deliveries.redirect(tx, delivery.id, to=made, now=moment.now):
        raise _not_changed(tx, delivery)
    deliveries.insert(
        tx,
        made,
        profile=profile,
        channel=channel,
        parts=delivery.parts,
        at=moment.now,
        session_no=no,
    )
    tx.after_commit(DeliveryAdded(profile, str(channel)))
    # What waited behind it may go on.
    tx.after_commit(DeliveryAdded(profile, str(delivery.channel)))
    return find(tx, made, profile=profile)


def _check_target(tx: Tx, channel: Channel, *, profile: str, platforms: Collection[str]) -> None:
    if channel.platform not in platforms:
        known = ", ".join(sorted(platforms)) or "none"
        raise NotAllowed(
            f"There is no channel {channel.platform!r} in this configuration (there are: {known}); "
            "nothing was changed."
        )
    homes = access.list_homes(tx, profile=profile)
    if any((home.platform, home.chat_id) == (channel.platform, channel.chat_id) for home in homes):
        return
    if not inbox.has_conversation(tx, channel, profile=profile):
        raise NotAllowed(
            f"Nobody has talked with the agent in {channel}, and it is no home channel; nothing was changed. "
            "Write to the agent there, or send it /sethome there, and redirect again."
        )


def _refuse_empty(delivery: Delivery) -> None:
    if not delivery.parts:
        raise Conflict(
            f"The session of delivery {delivery.id} was purged; there is nothing left to send."
        )


def _not_changed(tx: Tx, delivery: Delivery) -> Conflict:
    now = deliveries.get(tx, delivery.id, profile=delivery.profile) or delivery
    match now.state:
        case DeliveryState.SENT:
            why = "was sent already"
        case DeliveryState.REDIRECTED:
            why = f"was redirected already, as delivery {now.redirected_to}"
        case DeliveryState.SENDING:
            why = "is being sent now; look again in a minute"
        case _:
            why = f"is {now.state}"
    return Conflict(f"Delivery {now.id} {why}. Nothing was changed.")
