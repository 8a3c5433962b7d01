"""What waits to be answered can be changed, or taken back."""

from sessionary.actions import log, routing
from sessionary.clock import Moment
from sessionary.errors import Conflict, NotFound
from sessionary.model.key import SessionKey
from sessionary.model.message import Message
from sessionary.model.turn import Arrival, ArrivalState
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals

TAKEN_BACK = "taken back"


def rewrite(tx: Tx, id: str, said: Message, *, profile: str, moment: Moment) -> Arrival:
    """Put other words into a message that waits; only its own writer's, who named the session."""
    found = _waiting(tx, id, profile=profile)
    if not SessionKey.parse(found.key).names_session:
        raise Conflict("Someone else wrote that message; nothing was changed. It can be removed.")
    if not arrivals.rewrite(tx, found, said, profile=profile, at=moment.now):
        raise _taken(found)
    _tell(tx, found)
    return _get(tx, id, profile=profile)


def withdraw(tx: Tx, id: str, *, profile: str) -> Arrival:
    """Take a message back that waits; it stays known, and is never answered."""
    found = _waiting(tx, id, profile=profile)
    if not arrivals.refuse(tx, found, reason=TAKEN_BACK):
        raise _taken(found)
    _tell(tx, found)
    return _get(tx, id, profile=profile)


def _waiting(tx: Tx, id: str, *, profile: str) -> Arrival:
    found = _get(tx, id, profile=profile)
    # Whoever begins a turn holds the key first, and reads what waits only then.
    routing.lock(tx, SessionKey.parse(found.key))
    found = _get(tx, id, profile=profile)
    if found.state is not ArrivalState.WAITING:
        raise _taken(found)
    return found


def _taken(found: Arrival) -> Conflict:
    return Conflict(f"Message {found.id} waits no longer ({found.state}); nothing was changed.")


def _get(tx: Tx, id: str, *, profile: str) -> Arrival:
    found = arrivals.get(tx, id, profile=profile)
    if found is None:
        raise NotFound(f"There is no arrival {id}.")
    return found


def _tell(tx: Tx, found: Arrival) -> None:
    """Whoever looks at the session sees what waits as it is now."""
    head = routing.current(tx, SessionKey.parse(found.key))
    if head is not None:
        log.tell(tx, head)
