"""Interrupts the turns whose lease ran out, as a process does that cannot continue them."""

from sessionary.actions import turns
from sessionary.clock import Moment
from sessionary.model.turn import Turn
from sessionary.store.database import Tx
from sessionary.store.tables import turns as table


def interrupt_dead_turns(tx: Tx, *, moment: Moment) -> list[Turn]:
    """Interrupt the turns of every profile whose lease ran out; return them."""
    ended = []
    for turn_id in table.expired(tx, profile="main", now=moment.now, limit=100):
        session_no = table.session_no_of(tx, turn_id)
        assert session_no is not None
        turn = turns.interrupt_dead(tx, turn_id, session_no=session_no, moment=moment)
        if turn is not None:
            ended.append(turn)
    return ended
