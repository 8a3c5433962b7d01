"""What an agent keeps with a session from one turn to the next, such as the id of its own session.

It is kept in the session's `extra`, with the last entry that the log had then and the turn that kept it. From these two
the next turn can tell what was said since, and whether something was taken back that the agent knows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sessionary.actions import turns
from sessionary.actions.sessions import edit
from sessionary.engine.ports import KeptState, NativeSession
from sessionary.engine.turn.compaction import CurrentContext
from sessionary.model.message import Retraction
from sessionary.model.session import Segment
from sessionary.model.turn import Lease, TurnState
from sessionary.store.database import Tx
from sessionary.store.tables import entries, imports, sessions
from sessionary.store.tables import turns as turn_rows


def keep(
    tx: Tx,
    lease: Lease,
    agent: str,
    data: Mapping[str, Any],
    *,
    native: NativeSession | None,
    profile: str,
) -> None:
    """Keep data of an agent with the session of its turn; raise `TurnLost` if the lease is lost.

    With `native`, imports of that tool recognise its session as this one from now on.
    """
    turns.get_stop_reason(tx, lease)
    head = sessions.get_by_no(tx, lease.session_no)
    kept = {"data": dict(data), "turn_id": lease.turn_id, "through": head.last_seq}
    edit.update_extra(tx, head, sessions.AGENT_STATE, lambda known: {**known, agent: kept})
    if native is not None:
        imports.name_session(tx, native.id, head.no, profile=profile, tool=native.tool)


def read(
    tx: Tx, lease: Lease, agent: str, found: CurrentContext, *, profile: str
) -> KeptState | None:
    """Return what an agent has kept with the session of its turn, or with the one that it was forked from."""
    segments = sessions.segments(tx, lease.session_no)
    for segment in reversed(segments):
        by_agent = sessions.details(tx, segment.no).extra.get(sessions.AGENT_STATE)
        kept = by_agent.get(agent) if isinstance(by_agent, dict) else None
        if isinstance(kept, dict):
            return _state(tx, lease, kept, segment, segments, found, profile=profile)
    return None


def _state(
    tx: Tx,
    lease: Lease,
    kept: Mapping[str, Any],
    segment: Segment,
    segments: Sequence[Segment],
    found: CurrentContext,
    *,
    profile: str,
) -> KeptState:
    turn_id, through = kept["turn_id"], kept["through"]
    is_inherited = segment.no != lease.session_no
    last = sessions.get_by_no(tx, segment.no).last_seq
    own = Segment(segment.no, segment.session_id, through + 1, last)
    # The agent knows what it has written itself in the turn in which it kept this.
    for entry in entries.walk(tx, [own]):
        if entry.turn_id != turn_id:
            break
        through = entry.seq
    # A fork may have begun before the last thing that the agent knows.
    is_rewound = is_inherited and through > segment.last
    for mark in entries.retractions(tx, segments):
        if isinstance(mark.body, Retraction) and mark.seq > through > mark.body.after:
            is_rewound = True
    compaction = found.current
    is_compacted = compaction is not None and compaction.through > through
    since = [
        chat
        for seq, chat in zip(found.fold.seqs, found.fold.messages(), strict=True)
        if seq > through or (seq == 0 and is_compacted)
    ]
    known = turn_rows.get(tx, turn_id, profile=profile)
    return KeptState(
        data=kept["data"],
        turn_id=turn_id,
        since=tuple(since),
        is_finished=known is not None and known[0].state is TurnState.DONE,
        is_rewound=is_rewound,
        is_inherited=is_inherited,
    )
