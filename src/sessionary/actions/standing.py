"""How sessions stand, for a list: what their heads do not say."""

from collections.abc import Sequence
from dataclasses import dataclass

from sessionary.model.session import SessionHead
from sessionary.model.turn import TurnState
from sessionary.store.database import Tx
from sessionary.store.queries import pg_array_literal

_UNFINISHED = (TurnState.FAILED, TurnState.INTERRUPTED)


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """How many subagents worked for a session, and whether its last turn came to nothing."""

    subagents: int = 0
    failed: bool = False


def session_statuses(tx: Tx, heads: Sequence[SessionHead]) -> dict[str, SessionStatus]:
    """How each of these sessions stands, by its id; one question for all of them."""
    if not heads:
        return {}
    rows = tx.all("standings", numbers=pg_array_literal(head.no for head in heads))
    return {id: SessionStatus(count, state in _UNFINISHED) for id, count, state in rows}
