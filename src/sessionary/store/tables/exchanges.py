"""The table of exchanges that passed the recording proxy and are not in the log yet."""

from datetime import datetime
from typing import Any

from msgspec import Struct

from sessionary.clock import from_micros, to_micros
from sessionary.model import codec
from sessionary.store.database import Row, Tx
from sessionary.store.tables.sessions import column

# Where the people and sessions of the proxy are.
PLATFORM = "proxy"
OPEN = "open"
DONE = "done"
FAILED = "failed"
# How many are read at once to be recorded in one transaction, for which those that pass have to wait.
_MOST_AT_ONCE = 4
_MOST_BYTES_AT_ONCE = 1024 * 1024


class StoredExchange(Struct, frozen=True):
    """A request and its response, as far as it came; both as the proxy has packed them."""

    id: str
    profile: str
    state: str
    holder: str
    began_at: datetime
    done_at: datetime
    facts: dict[str, Any]
    request: bytes = b""
    response: bytes = b""
    person_id: str | None = None


class OpenExchange(Struct, frozen=True):
    """An exchange whose response is awaited, by which process, and until when that is believed to run."""

    id: str
    holder: str
    expires_at: datetime


def put(tx: Tx, exchange: StoredExchange, *, expires_at: datetime) -> None:
    """Write an exchange, or what is known of it now; one that is done stays as it is."""
    tx.run(
        "put_exchange",
        id=exchange.id,
        profile=exchange.profile,
        state=exchange.state,
        holder=exchange.holder,
        expires_at=to_micros(expires_at),
        began_at=to_micros(exchange.began_at),
        done_at=to_micros(exchange.done_at),
        person_id=column(exchange.person_id),
        facts=codec.encode(exchange.facts),
        request=exchange.request,
        response=exchange.response,
    )


def next_done(tx: Tx) -> list[StoredExchange]:
    """The exchanges that are to be recorded next: those that were done first, several if they are small."""
    fitting = total = 0
    for (size,) in tx.all("next_exchange_sizes", limit=_MOST_AT_ONCE):
        total += size
        if fitting and total > _MOST_BYTES_AT_ONCE:
            break
        fitting += 1
    return [_exchange(row) for row in tx.all("next_exchanges", limit=fitting)] if fitting else []


def lock(tx: Tx, id: str) -> str | None:
    """Lock an exchange until the transaction ends; return its state, or None if it is not there any more."""
    row = tx.one("lock_exchange", id=id)
    return None if row is None else str(row[0])


def set_failed(tx: Tx, id: str, facts: dict[str, Any]) -> None:
    """Note that an exchange could not be recorded; it is kept as it is."""
    tx.run("fail_exchange", id=id, facts=codec.encode(facts))


def retry_failed(tx: Tx) -> None:
    """Let what could not be recorded be tried again."""
    tx.run("retry_failed_exchanges")


def delete(tx: Tx, id: str) -> None:
    """Delete an exchange that is in the log now."""
    tx.run("delete_exchange", id=id)


def renew(tx: Tx, holder: str, *, expires_at: datetime) -> None:
    """Note that a process is still there."""
    tx.run("renew_exchanges", holder=holder, expires_at=to_micros(expires_at))


def list_open(tx: Tx, *, but: str, limit: int) -> list[OpenExchange]:
    """The exchanges whose responses other processes await."""
    rows = tx.all("list_open_exchanges", holder=but, limit=limit)
    return [OpenExchange(id, holder, from_micros(expires_at)) for id, holder, expires_at in rows]


def abandon(tx: Tx, found: OpenExchange, *, now: datetime) -> bool:
    """Let an exchange be recorded as far as it came; return False if its process has renewed or ended it."""
    return bool(
        tx.run(
            "abandon_exchange",
            id=found.id,
            holder=found.holder,
            expires_at=to_micros(found.expires_at),
            now=to_micros(now),
        )
    )


def count(tx: Tx) -> dict[str, int]:
    """How many exchanges are in each state."""
    return dict(tx.all("count_exchanges"))


def delete_of_person(tx: Tx, person_id: str, *, profile: str) -> None:
    """Delete the exchanges that name a person."""
    tx.run("delete_exchanges_of_person", profile=profile, person_id=column(person_id))


def _exchange(row: Row) -> StoredExchange:
    id, profile, state, holder, began_at, done_at, person_id, facts, request, response = row
    return StoredExchange(
        id=id,
        profile=profile,
        state=state,
        holder=holder,
        began_at=from_micros(began_at),
        done_at=from_micros(done_at),
        facts=codec.decode(facts),
        request=bytes(request),
        response=bytes(response),
        person_id=person_id,
    )
