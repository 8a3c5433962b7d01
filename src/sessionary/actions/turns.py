"""Turns: begin one, add its steps, renew its lease, end or interrupt it.

A turn begins in one transaction and ends in another. Between them its lease keeps everyone else from writing to the
session.
"""

from datetime import datetime, timedelta

from msgspec import Struct, field
from msgspec.structs import replace

from sessionary.actions import usage
from sessionary.actions.outbox import DeliveryAdded
from sessionary.actions.sessions import log, routing
from sessionary.actions.sessions.log import Appended, SessionChanged
from sessionary.clock import Moment
from sessionary.errors import Conflict, NotFound
from sessionary.model import transcript
from sessionary.model.message import Message, Part, Role, Text
from sessionary.model.reset import ResetPolicy
from sessionary.model.session import SessionHead
from sessionary.model.source import Channel, SessionKey, Source
from sessionary.model.turn import Arrival, Lease, Turn, TurnState
from sessionary.model.usage import Usage
from sessionary.store.database import RaceLost, Tx
from sessionary.store.tables import arrivals, blobs, deliveries, entries, sessions, turns

# How many waiting messages one turn takes.
MOST_ARRIVALS = 100
STOPPED_RESPONDING = "the agent stopped responding"
ask_to_stop = turns.ask_to_stop
list_turns = turns.of_session


class Claim(Struct, frozen=True):
    """Who asks for a lease, and for how long."""

    holder: str
    seconds: float
    agent: str | None = None


class Waiting(Struct, frozen=True):
    """A key, the session that it is bound to, and the messages that wait for a turn."""

    key: SessionKey
    head: SessionHead | None
    arrivals: tuple[Arrival, ...]


class Begun(Struct, frozen=True):
    """A turn that has begun: its lease, its session, and the messages it began with."""

    lease: Lease
    route: routing.Route
    prompts: tuple[Appended, ...] = ()


class TurnReply(Struct, frozen=True):
    """A message to deliver when a turn ends."""

    channel: Channel
    parts: tuple[Part, ...]


class Ending(Struct, frozen=True):
    """How a turn ends, and the last of its output; written in one transaction."""

    state: TurnState = TurnState.DONE
    reason: str | None = None
    messages: tuple[Message, ...] = ()
    usage: tuple[Usage, ...] = ()
    replies: tuple[TurnReply, ...] = field(default=())
    files: tuple[bytes, ...] = ()


def lock_waiting(tx: Tx, key: SessionKey) -> Waiting:
    """Lock a key until the transaction ends, and return the messages that wait for it."""
    head = routing.lock_and_get_current(tx, key)
    found = arrivals.waiting(tx, str(key), profile=key.profile, limit=MOST_ARRIVALS)
    return Waiting(key, head, tuple(found))


def begin(
    tx: Tx, key: SessionKey, *, policy: ResetPolicy, claim: Claim, moment: Moment
) -> Begun | None:
    """Begin a turn with the waiting messages of a key; return None if there are none, or a turn is running."""
    return begin_with(tx, lock_waiting(tx, key), policy=policy, claim=claim, moment=moment)


def begin_with(
    tx: Tx, waiting: Waiting, *, policy: ResetPolicy, claim: Claim, moment: Moment
) -> Begun | None:
    """Begin a turn with these messages; return None if there are none, or a turn is running."""
    key, head = waiting.key, waiting.head
    if not waiting.arrivals or (head is not None and head.running):
        return None
    last = waiting.arrivals[-1]
    route = routing.resolve_route(tx, key, head, last.source, policy=policy, moment=moment)
    lease = take_lease(tx, route.session_no, route.session_id, claim=claim, moment=moment)
    prompts = []
    for arrival in waiting.arrivals:
        message = with_author(arrival.message, arrival.source, key)
        appended = log.append(
            tx, route.session_id, message, profile=key.profile, at=arrival.received_at, lease=lease
        )
        arrivals.take(
            tx, arrival, session_no=route.session_no, turn_id=lease.turn_id, seq=appended.seq
        )
        prompts.append(appended)
    return Begun(lease, route, tuple(prompts))


def begin_in_session(
    tx: Tx,
    session_id: str,
    message: Message | None,
    *,
    profile: str,
    claim: Claim,
    moment: Moment,
    idempotency_key: str | None = None,
    files: tuple[bytes, ...] = (),
) -> Begun:
    """Begin a turn in the session with this id, with a message or without; a repeated message raises `Conflict`."""
    _refuse_repeat(tx, idempotency_key, message, profile=profile)
    head = sessions.get(tx, session_id, profile=profile)
    if head is None:
        raise NotFound(f"There is no session {session_id}.")
    if head.read_only:
        raise log.read_only_error(session_id)
    lease = take_lease(tx, head.no, session_id, claim=claim, moment=moment)
    prompts: tuple[Appended, ...] = ()
    if message is not None:
        for data in files:
            blobs.add(tx, data)
        prompts = (
            log.append(
                tx,
                session_id,
                message,
                profile=profile,
                at=moment.now,
                idempotency_key=idempotency_key,
                lease=lease,
            ),
        )
    return Begun(lease, routing.Route(session_id, head.no), prompts)


def begin_for_source(
    tx: Tx,
    key: SessionKey,
    source: Source,
    message: Message,
    *,
    policy: ResetPolicy,
    claim: Claim,
    moment: Moment,
    idempotency_key: str | None = None,
    files: tuple[bytes, ...] = (),
) -> Begun:
    """Begin a turn with a message in the session of its source; a repeated message raises `Conflict`."""
    _refuse_repeat(tx, idempotency_key, message, profile=key.profile)
    route = routing.route(tx, key, source, policy=policy, moment=moment)
    lease = take_lease(tx, route.session_no, route.session_id, claim=claim, moment=moment)
    if key.is_shared:
        message = transcript.mark_shared(message)
    for data in files:
        blobs.add(tx, data)
    prompt = log.append(
        tx,
        route.session_id,
        message,
        profile=key.profile,
        at=moment.now,
        idempotency_key=idempotency_key,
        lease=lease,
    )
    return Begun(lease, route, (prompt,))


def take_lease(tx: Tx, session_no: int, session_id: str, *, claim: Claim, moment: Moment) -> Lease:
    """Take the lease of a session in which no turn is running; a turn whose lease ran out is interrupted first."""
    turn_id = moment.new_id()
    row = turns.take_session(tx, session_no, turn_id)
    if row is None and interrupt_if_dead(tx, session_no, moment=moment):
        row = turns.take_session(tx, session_no, turn_id)
    if row is None:
        head = sessions.get_by_no(tx, session_no)
        if head.running:
            raise log.running_error(session_id)
        if not head.is_open:
            raise log.ended_error(head)
        raise RaceLost
    epoch, last_seq = row
    lease = Lease(turn_id, session_no, session_id, epoch, claim.holder)
    until = moment.now + timedelta(seconds=claim.seconds)
    turns.insert(tx, lease, first_seq=last_seq + 1, agent=claim.agent, at=moment.now, until=until)
    return lease


def append_step(
    tx: Tx,
    lease: Lease,
    message: Message,
    *,
    profile: str,
    at: datetime,
    idempotency_key: str | None = None,
) -> Appended:
    """Add a finished step and delete its checkpoint; raise `TurnLost` if the lease is lost."""
    appended = log.append(
        tx,
        lease.session_id,
        message,
        profile=profile,
        at=at,
        idempotency_key=idempotency_key,
        lease=lease,
    )
    turns.checkpoint(tx, lease, None)
    return appended


def add_step(
    tx: Tx,
    lease: Lease,
    message: Message,
    used: Usage | None,
    *,
    profile: str,
    moment: Moment,
    files: tuple[bytes, ...] = (),
) -> Appended:
    """Add a finished step with its files and its usage."""
    for data in files:
        blobs.add(tx, data)
    appended = append_step(tx, lease, message, profile=profile, at=moment.now)
    if used is not None:
        usage.record(
            tx, lease.session_no, used, profile=profile, moment=moment, turn_id=lease.turn_id
        )
    return appended


def renew(tx: Tx, lease: Lease, *, seconds: float, now: datetime) -> None:
    """Extend a turn's lease; raise `TurnLost` if it is lost."""
    if not turns.renew(tx, lease, until=now + timedelta(seconds=seconds)):
        raise log.turn_lost_error(lease)


def checkpoint(tx: Tx, lease: Lease, text: str) -> None:
    """Store the text that has been streamed so far of the unfinished step; raise `TurnLost` if the lease is lost."""
    if not turns.checkpoint(tx, lease, text):
        raise log.turn_lost_error(lease)


def end(tx: Tx, lease: Lease, ending: Ending, *, profile: str, moment: Moment) -> list[Appended]:
    """End a turn: write its last entries, usage, deliveries and state."""
    for data in ending.files:
        blobs.add(tx, data)
    appended = [
        log.append(tx, lease.session_id, message, profile=profile, at=moment.now, lease=lease)
        for message in ending.messages
    ]
    for used in ending.usage:
        usage.record(
            tx, lease.session_no, used, profile=profile, moment=moment, turn_id=lease.turn_id
        )
    for reply in ending.replies:
        deliveries.insert(
            tx,
            moment.new_id(),
            profile=profile,
            channel=reply.channel,
            parts=reply.parts,
            at=moment.now,
            session_no=lease.session_no,
            turn_id=lease.turn_id,
        )
        tx.after_commit(DeliveryAdded(profile, str(reply.channel)))
    if not turns.end(tx, lease.turn_id, state=ending.state, at=moment.now, reason=ending.reason):
        raise log.turn_lost_error(lease)
    if not appended:  # an appended entry has added its own row to the feed
        entries.insert_feed(tx, lease.session_no, "turn")
    tx.after_commit(SessionChanged(profile, lease.session_id))
    return appended


def end_failed(
    tx: Tx, lease: Lease, *, state: TurnState, reason: str, profile: str, moment: Moment
) -> Turn | None:
    """End the caller's own turn after a failure; its entries stay. Return None if the turn has ended already."""
    return interrupt(tx, lease.turn_id, profile=profile, moment=moment, reason=reason, state=state)


def interrupt(
    tx: Tx,
    turn_id: str,
    *,
    profile: str,
    moment: Moment,
    reason: str,
    state: TurnState = TurnState.INTERRUPTED,
) -> Turn | None:
    """End a turn that was stopped or whose process died; its entries stay. Return None if it was not running."""
    found = turns.get(tx, turn_id, profile=profile)
    if found is None:
        raise NotFound(f"There is no turn {turn_id}.")
    # Lock the session before the turn, as everywhere; then read the turn again, which may have ended meanwhile.
    routing.lock_and_reload(tx, found[1])
    turn, session_no = turns.get(tx, turn_id, profile=profile) or found
    if turn.state is not TurnState.RUNNING:
        return None
    lease = Lease(turn_id, session_no, turn.session_id, turn.epoch, turn.holder)
    if turn.partial:
        partial = Message(Role.ASSISTANT, (Text(turn.partial),), finish_reason="interrupted")
        log.append(tx, turn.session_id, partial, profile=profile, at=turn.began_at, lease=lease)
    if not turns.end(tx, turn_id, state=state, at=moment.now, reason=reason):
        return None
    entries.insert_feed(tx, session_no, "turn")
    tx.after_commit(SessionChanged(profile, turn.session_id))
    ended = turns.get(tx, turn_id, profile=profile)
    return None if ended is None else ended[0]


def interrupt_dead(tx: Tx, turn_id: str, *, session_no: int, moment: Moment) -> Turn | None:
    """Interrupt a turn whose lease ran out; return None if it has been renewed or has ended meanwhile."""
    head = routing.lock_and_reload(tx, session_no)
    if not turns.lock_expired(tx, turn_id, now=moment.now):
        return None
    return interrupt(tx, turn_id, profile=head.profile, moment=moment, reason=STOPPED_RESPONDING)


def interrupt_if_dead(tx: Tx, session_no: int, *, moment: Moment) -> bool:
    """Interrupt the running turn of a session if its lease ran out; return whether that happened."""
    turn_id = sessions.get_by_no(tx, session_no).running_turn
    if turn_id is None:
        return False
    return interrupt_dead(tx, turn_id, session_no=session_no, moment=moment) is not None


def get_stop_reason(tx: Tx, lease: Lease) -> str | None:
    """Return why this turn was asked to stop, or None; raise `TurnLost` if the lease is lost."""
    stop = turns.get_stop(tx, lease)
    if stop is None:
        raise log.turn_lost_error(lease)
    return stop[0]


def _refuse_repeat(
    tx: Tx, idempotency_key: str | None, message: Message | None, *, profile: str
) -> None:
    if idempotency_key is None:
        return
    earlier = log.find_repeat(tx, idempotency_key, profile=profile, message=message)
    if earlier is not None:
        raise Conflict(
            f"That message is in session {earlier.session_id} already, as entry {earlier.seq}."
        )


def with_author(message: Message, source: Source, key: SessionKey) -> Message:
    """Return an arrival's message with its author and its id on the platform."""
    complete = replace(
        message,
        person=message.person or source.person,
        platform_message_id=message.platform_message_id or source.platform_message_id,
    )
    return transcript.mark_shared(complete) if key.is_shared else complete
