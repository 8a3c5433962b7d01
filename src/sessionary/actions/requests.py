"""Requests with an idempotency key: a repeated one is done once and gets the same answer."""

from collections.abc import Callable
from datetime import datetime, timedelta

from msgspec import Struct

from sessionary.actions.sessions.log import check_idempotency_key
from sessionary.errors import BadInput, SessionaryError
from sessionary.store.database import RaceLost, Tx
from sessionary.store.tables import requests
from sessionary.store.tables.requests import AnsweredRequest

KEPT = timedelta(days=7)
ANOTHER = "That idempotency key belongs to another request; nothing was written. Choose a new one."


class StoredResponse(Struct, frozen=True):
    """The answer to a request: a status, a JSON text, and the session that it quotes."""

    status: int
    body: str
    session_id: str | None = None


class IdempotentRequest(Struct, frozen=True):
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
    """Do a request and store its answer in one transaction, or return the stored answer."""
    if request is None:
        return act(tx)
    check_idempotency_key(request.key)
    earlier = requests.get(tx, request.key, profile=profile)
    if earlier is not None:
        if earlier.fingerprint != request.fingerprint:
            raise BadInput(ANOTHER)
        return StoredResponse(earlier.status, earlier.body)
    try:
        answer = act(tx)
    except SessionaryError:
        # Refused perhaps only because the same request has just been done: then run again.
        if requests.get(tx, request.key, profile=profile) is not None:
            raise RaceLost from None
        raise
    requests.delete_old(tx, before=now - KEPT)
    done = AnsweredRequest(request.fingerprint, answer.status, answer.body)
    if not requests.insert(
        tx, request.key, done, profile=profile, session_id=answer.session_id, at=now
    ):
        raise RaceLost  # someone else was first with this key; the next run finds their answer
    return answer
