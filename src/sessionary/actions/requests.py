"""Requests that change something: the same one twice is done once and gets the same answer."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sessionary.actions.sessions.log import check_idempotency_key
from sessionary.clock import to_micros
from sessionary.errors import BadInput, SessionaryError
from sessionary.store.database import RaceLost, Tx

KEPT = timedelta(days=7)
ANOTHER = "That idempotency key belongs to another request; nothing was written. Choose a new one."


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """What a request is answered: a status, and a JSON text; the session it speaks of."""

    status: int
    body: str
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """The key a caller chose for a request, and what the request said."""

    key: str
    fingerprint: str


def run_once(
    tx: Tx,
    request: IdempotentRequest | None,
    act: Callable[[Tx], StoredResponse],
    *,
    profile: str,
    now: datetime,
) -> StoredResponse:
    """Do it and note the answer in one transaction, or give the answer that was noted."""
    if request is None:
        return act(tx)
    check_idempotency_key(request.key)
    row = tx.one("get_request", profile=profile, idempotency_key=request.key)
    if row is not None:
        if row[0] != request.fingerprint:
            raise BadInput(ANOTHER)
        return StoredResponse(row[1], row[2])
    try:
        answer = act(tx)
    except SessionaryError:
        # It may be refused only because its twin has just done it; then the twin's answer is ours.
        if tx.one("get_request", profile=profile, idempotency_key=request.key) is not None:
            raise RaceLost from None
        raise
    tx.run("delete_old_requests", before=to_micros(now - KEPT))
    is_new = tx.run(
        "insert_request",
        profile=profile,
        idempotency_key=request.key,
        fingerprint=request.fingerprint,
        status=answer.status,
        body=answer.body,
        session_id=answer.session_id,
        at=to_micros(now),
    )
    if not is_new:
        raise RaceLost  # someone else was first with this key; the next run finds theirs
    return answer
