"""Accepting a message that someone vouches for: durable, and where possible begun, in one step.

These are functions of a transaction, so that whoever answers a request can note the answer in
the same one. After the commit, `Engine.carry_on` runs what was begun.
"""

from dataclasses import dataclass

from sessionary.actions import log, refusals, routing, sessions
from sessionary.clock import Moment
from sessionary.engine import loop
from sessionary.engine.context import EngineContext
from sessionary.engine.intake import Received, take_in
from sessionary.engine.loop import Beginning
from sessionary.errors import NotAllowed
from sessionary.model.entry import Message
from sessionary.model.key import SessionKey
from sessionary.model.session import Opening, SessionFolder, SessionHead
from sessionary.model.source import Source, at_session
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of a message: what the inbox says, and the turn that was begun with it.

    `session_id` is the session that contains the message. It is None while the message waits: until a turn takes it,
    the conversation may be reset or switched, and the message goes where the conversation is then.
    `current_session_id` is the session that the conversation is on now.
    """

    key: SessionKey
    received: Received
    beginning: Beginning
    session_id: str | None
    turn_id: str | None = None
    seq: int | None = None
    current_session_id: str | None = None


@dataclass(frozen=True, slots=True)
class Asking:
    """A message that goes to the agent, under the idempotency key of whoever asks."""

    message: Message
    idempotency_key: str | None = None
    begin: bool = True


def accept(
    tx: Tx, context: EngineContext, source: Source, asking: Asking, *, moment: Moment
) -> Accepted:
    """Take in a message where its source's conversation is; begin its turn if none is running."""
    key = context.key(source)
    received = take_in(
        tx,
        context,
        source,
        asking.message,
        idempotency_key=asking.idempotency_key,
        code="",
        moment=moment,
        vouched=True,
    )
    beginning = Beginning(None)
    if asking.begin and received.new and received.answer is None:
        beginning = loop.begin(tx, key, context=context, moment=moment)
    if received.new and beginning.begun is None:
        _show_waiting(tx, key)
    return _accepted(tx, key, received, beginning)


def ask(
    tx: Tx, context: EngineContext, session_id: str, asking: Asking, *, moment: Moment
) -> Accepted:
    """Take in a message for a session that is named; it waits while a turn is running there."""
    head = sessions.lock_session(tx, session_id, profile=context.profile)
    _refuse_closed(head)
    source = at_session(head.id)
    routing.bind(tx, context.key(source), head.no, moment=moment)
    return accept(tx, context, source, asking, moment=moment)


def ask_anew(
    tx: Tx, context: EngineContext, opening: Opening, asking: Asking, *, moment: Moment
) -> Accepted:
    """Open a session with a message to the agent."""
    earlier = (
        None if asking.idempotency_key is None else _earlier(tx, context, asking.idempotency_key)
    )
    if earlier is not None:
        return earlier
    id = sessions.open_session(tx, opening, moment=moment)
    accepted = ask(tx, context, id, asking, moment=moment)
    if accepted.beginning.begun is None:
        # No session without a message: everything is undone.
        why = accepted.received.answer or "a budget is used up, or reserved by running turns."
        raise NotAllowed(f"No session was opened: {why}")
    return accepted


def _show_waiting(tx: Tx, key: SessionKey) -> None:
    """Whoever looks at the session sees at once that something waits for it."""
    head = routing.current(tx, key)
    if head is not None and head.running:
        log.tell(tx, head)


def _earlier(tx: Tx, context: EngineContext, idempotency_key: str) -> Accepted | None:
    found = arrivals.get_by_idempotency_key(tx, idempotency_key, profile=context.profile)
    if found is None:
        return None
    return _accepted(
        tx, SessionKey.parse(found.key), Received(found.id, new=False), Beginning(None)
    )


def _accepted(tx: Tx, key: SessionKey, received: Received, beginning: Beginning) -> Accepted:
    arrival = (
        None
        if received.arrival_id is None
        else arrivals.get(tx, received.arrival_id, profile=key.profile)
    )
    head = routing.current(tx, key)
    current = head.id if head is not None and head.is_open else None
    if arrival is None:
        return Accepted(key, received, beginning, None, current_session_id=current)
    return Accepted(
        key, received, beginning, arrival.session_id, arrival.turn_id, arrival.seq, current
    )


def _refuse_closed(head: SessionHead) -> None:
    if head.read_only:
        raise refusals.read_only(head.id)
    if not head.is_open or head.folder is SessionFolder.TRASH:
        raise refusals.ended(head)
