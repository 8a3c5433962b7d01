"""The ledger: one row per model call, counted once."""

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from sessionary.clock import Moment
from sessionary.errors import BadInput
from sessionary.model import codec
from sessionary.model.usage import Usage, UsageTotal
from sessionary.store.database import Tx
from sessionary.store.tables import sessions, usage


def record(
    tx: Tx,
    session_no: int,
    used: Usage,
    *,
    profile: str,
    moment: Moment,
    turn_id: str | None = None,
) -> bool:
    """Count one call; a call id that was counted before changes nothing. Say whether it was new."""
    named = used if used.call_id else replace(used, call_id=f"call/{moment.new_id()}")
    return usage.insert(
        tx, named, profile=profile, session_no=session_no, turn_id=turn_id, at=moment.now
    )


def set_running_total(
    tx: Tx, session_no: int, used: Usage, *, profile: str, moment: Moment
) -> None:
    """For callers that report running totals: each report replaces the one before."""
    # The sum below must see every call that has been added to the head.
    sessions.lock_session_no(tx, session_no)
    # The session's id, not its number: a number means another session in another store.
    session_id = sessions.get_by_no(tx, session_no).id
    name = f"total/{session_id}/{used.model or ''}/{used.provider or ''}/{used.task or ''}"
    name = codec.storable_text(name)
    usage.delete_call(tx, name, profile=profile)
    usage.insert(
        tx,
        replace(used, call_id=name),
        profile=profile,
        session_no=session_no,
        turn_id=None,
        at=moment.now,
    )
    usage.sum_up(tx, session_no)


def sum_usage(
    tx: Tx,
    group: str,
    *,
    profile: str,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Sequence[UsageTotal]:
    """Sums by day, model, provider, source, project or session."""
    if group not in usage.GROUPS:
        raise BadInput(f"Usage is summed by {', '.join(usage.GROUPS)}, not by {group!r}.")
    return usage.totals(tx, group, profile=profile, since=since, until=until)
