"""What messages have to do with questions: those that have answered one, and those that wait until one is answered."""

from sessionary.actions import questions
from sessionary.actions.sessions import routing
from sessionary.model.question import Question
from sessionary.model.source import SessionKey
from sessionary.model.turn import Arrival, ArrivalState, Turn
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals


def find_answered(tx: Tx, arrival: Arrival, *, profile: str) -> Question | None:
    """Return the question that a message has answered; None if it is an ordinary message."""
    reason = arrival.reason or ""
    if arrival.state is not ArrivalState.TAKEN or not reason.startswith(arrivals.ANSWERS):
        return None
    return questions.get(tx, reason.removeprefix(arrivals.ANSWERS), profile=profile)


def find_turn_id(tx: Tx, arrival: Arrival, *, profile: str) -> str | None:
    """Return the turn that a message belongs to: which it began or steered, or whose question it has answered."""
    if arrival.turn_id is not None:
        return arrival.turn_id
    answered = find_answered(tx, arrival, profile=profile)
    return None if answered is None else answered.turn_id


def get_answered(tx: Tx, arrival_id: str, *, profile: str) -> Question | None:
    """Return the question that the message with this arrival has answered."""
    found = arrivals.get(tx, arrival_id, profile=profile)
    return None if found is None else find_answered(tx, found, profile=profile)


def list_blocking(tx: Tx, arrival: Arrival, turn: Turn | None) -> list[Question]:
    """Return the open questions without whose answers a message gets no reply.

    Those of its own `turn`; or, while it waits for one, those of the turn that keeps its own from beginning.
    """
    if turn is not None:
        turn_id = turn.id if turn.has_asked and not turn.is_over else None
    elif arrival.state is ArrivalState.WAITING:
        head = routing.get_current(tx, SessionKey.parse(arrival.key))
        turn_id = head.running_turn if head is not None and head.waits_for_people else None
    else:
        return []
    asked = [] if turn_id is None else questions.of_turn(tx, turn_id)
    return [each for each in asked if each.is_open]
