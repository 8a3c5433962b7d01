"""The table of answered requests, by their idempotency keys."""

from datetime import datetime
from typing import NamedTuple

from sessionary.clock import to_micros
from sessionary.store.database import Tx


class AnsweredRequest(NamedTuple):
    """What a request asked, by its fingerprint, and what it was answered."""

    fingerprint: str
    status: int
    body: str


def get(tx: Tx, idempotency_key: str, *, profile: str) -> AnsweredRequest | None:
    """The request that was answered under this key."""
    row = tx.one("get_request", profile=profile, idempotency_key=idempotency_key)
    return None if row is None else AnsweredRequest(*row)


def insert(
    tx: Tx,
    idempotency_key: str,
    request: AnsweredRequest,
    *,
    profile: str,
    session_id: str | None,
    at: datetime,
) -> bool:
    """Write an answer, and the session that it quotes; say whether the key is new."""
    return bool(
        tx.run(
            "insert_request",
            profile=profile,
            idempotency_key=idempotency_key,
            session_id=session_id,
            at=to_micros(at),
            **request._asdict(),
        )
    )


def delete_old(tx: Tx, *, before: datetime) -> None:
    """Delete the answers that were given before a time."""
    tx.run("delete_old_requests", before=to_micros(before))
