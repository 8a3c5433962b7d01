"""What became of a message, as the record has it: in whatever process it is answered."""

from dataclasses import dataclass

from sessionary.actions.sessions import read
from sessionary.model.message import Message, Role, ToolCall, ToolResult
from sessionary.model.turn import ArrivalState, Turn, TurnState
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals, turns

REFUSED = str(ArrivalState.REFUSED)
PAGE = 500


# One text of the agent, or one call or result of a tool.
Happening = str | ToolCall | ToolResult


@dataclass(frozen=True, slots=True)
class Seen:
    """How far the answer to an arrival has come since the last look."""

    session_id: str | None = None
    turn_id: str | None = None
    # What the agent has said and done since: texts, and calls and results of tools.
    said: tuple["Happening", ...] = ()
    # The last entry that was looked at.
    seq: int = 0
    # How it ended, and why; None while it waits or is being answered.
    state: str | None = None
    reason: str | None = None


def look(tx: Tx, arrival_id: str, *, profile: str, after: int = 0, most: int | None = None) -> Seen:
    """What was said behind an entry; while the turn runs, in at most so many entries."""
    found = arrivals.get(tx, arrival_id, profile=profile)
    if found is None or found.state is ArrivalState.REFUSED:
        return Seen(state=REFUSED, reason=None if found is None else found.reason)
    known = None if found.turn_id is None else turns.get(tx, found.turn_id, profile=profile)
    if known is None:
        return Seen()
    turn = known[0]
    is_over = turn.state is not TurnState.RUNNING
    seq, said = _said(tx, turn, profile=profile, after=after, most=None if is_over else most)
    state = str(turn.state) if is_over else None
    return Seen(turn.session_id, turn.id, said, seq, state, turn.reason)


def _said(
    tx: Tx, turn: Turn, *, profile: str, after: int, most: int | None
) -> tuple[int, tuple[Happening, ...]]:
    """The last entry that was read, and what the agent said and did up to it."""
    seq, left = max(after, turn.first_seq - 1), most
    said: list[Happening] = []
    while left is None or left > 0:
        page = read.log_of(tx, turn.session_id, profile=profile, after=seq, limit=PAGE)
        for entry in page:
            seq = entry.seq
            if entry.turn_id != turn.id or not isinstance(entry.body, Message):
                continue
            if entry.body.role is Role.ASSISTANT and entry.body.text:
                said.append(entry.body.text)
            said += [part for part in entry.body.parts if isinstance(part, ToolCall | ToolResult)]
            if left is not None and entry.body.role is not Role.USER:
                left -= 1
                if left == 0:
                    break
        if len(page) < PAGE:
            break
    return seq, tuple(said)
