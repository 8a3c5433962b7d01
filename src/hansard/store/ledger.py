"""The ledger of model calls, and its sums."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from hansard.clock import from_micros, to_micros
from hansard.model import document
from hansard.model.usage import TOKEN_FIELDS, CostStatus, Usage, UsageTotal
from hansard.store.database import Row, Tx
from hansard.store.sessions import column

_EPOCH_DAY = datetime(1970, 1, 1, tzinfo=UTC)
# The same few words stand in most rows.
_word = lru_cache(maxsize=1024)(column)
GROUPS = ("day", "model", "provider", "source", "project", "session")


def row_of(usage: Usage, *, at: datetime) -> dict[str, Any]:
    """One call as the ledger keeps it, but for whose it is."""
    return {
        "call_id": column(usage.call_id),
        "at": to_micros(usage.at or at),
        "model": _word(usage.model),
        "provider": _word(usage.provider),
        "base_url": _word(usage.base_url),
        "billing_mode": _word(usage.billing_mode),
        "task": _word(usage.task),
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cost_microusd": usage.cost_microusd,
        "cost_status": usage.cost_status,
        "price_source": _word(usage.price_source),
        "price_version": _word(usage.price_version),
    }


def insert(
    tx: Tx, usage: Usage, *, profile: str, session_no: int, turn_id: str | None, at: datetime
) -> bool:
    """Write one call; a call id that is there already changes nothing. Say whether it was new."""
    new = tx.run(
        "insert_usage",
        profile=profile,
        session_no=session_no,
        turn_id=turn_id,
        **row_of(usage, at=at),
    )
    if new:
        _add(tx, usage, session_no=session_no)
    return bool(new)


def raise_to(tx: Tx, usage: Usage, *, profile: str, session_no: int, at: datetime) -> bool:
    """Write one call, or let a call that is there already grow to what is known of it now.

    A tool may note a call several times while its answer comes in, the last time with all of it.
    Say whether anything is new.
    """
    if insert(tx, usage, profile=profile, session_no=session_no, turn_id=None, at=at):
        return True
    row = tx.one("find_call", profile=profile, call_id=column(usage.call_id))
    if row is None or not _is_more(usage, row):
        return False
    owner: int = row[0]
    tx.one("lock_session_no", no=owner)
    tx.run("delete_call", profile=profile, call_id=column(usage.call_id))
    insert(tx, usage, profile=profile, session_no=owner, turn_id=None, at=at)
    set_total(tx, owner, total_of_session(tx, owner))
    return True


def raise_all(tx: Tx, rows: Sequence[dict[str, Any]], *, profile: str, session_no: int) -> None:
    """Write many calls, each once, or let those grow that are there; the head's sums come later."""
    fresh: dict[Any, dict[str, Any]] = {}
    for number, row in enumerate(rows):
        row.update(profile=profile, session_no=session_no, turn_id=None)
        name = number if row["call_id"] is None else row["call_id"]
        if name not in fresh or _grows(row, fresh[name]):
            fresh[name] = row
    names = [name for name in fresh if isinstance(name, str)]
    for found in tx.all("find_calls", profile=profile, names=document.encode(names)):
        more = fresh.pop(found[0])
        if _grows(more, dict(zip(TOKEN_FIELDS, found[2:], strict=True))):
            _replace(tx, more, owner=found[1])
    if fresh:
        tx.many("insert_usage", list(fresh.values()))


def _replace(tx: Tx, row: dict[str, Any], *, owner: int) -> None:
    tx.one("lock_session_no", no=owner)
    tx.run("delete_call", profile=row["profile"], call_id=row["call_id"])
    tx.run("insert_usage", **(row | {"session_no": owner}))
    sum_up(tx, owner)


def sum_up(tx: Tx, session_no: int) -> None:
    """Make a head's sums again from its calls."""
    set_total(tx, session_no, total_of_session(tx, session_no))


def _is_more(usage: Usage, row: Row) -> bool:
    known = dict(zip(TOKEN_FIELDS, row[1:], strict=False))
    return _grows({name: getattr(usage, name) for name in TOKEN_FIELDS}, known)


def _grows(more: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Whether a call's output, or else its other tokens, are more than was known."""
    if more["output_tokens"] != known["output_tokens"]:
        return bool(more["output_tokens"] > known["output_tokens"])
    total, before = (sum(int(each[name]) for name in TOKEN_FIELDS) for each in (more, known))
    return total > before


def of_session(tx: Tx, session_no: int) -> list[tuple[str | None, Usage]]:
    """A session's calls with the turn each belongs to, in order of time."""
    return [usage_of(row) for row in tx.all("usage_rows_of_session", no=session_no)]


def total_of_session(tx: Tx, session_no: int) -> UsageTotal:
    """The sum of a session's calls, added up anew."""
    row = tx.one("usage_of_session", no=session_no)
    assert row is not None
    return UsageTotal(*row)


def totals(
    tx: Tx, group: str, *, profile: str, since: datetime | None, until: datetime | None
) -> list[UsageTotal]:
    """Sums by day, model, provider, source, project or session."""
    rows = tx.all(
        f"usage_by_{group}",
        profile=profile,
        since=-(2**62) if since is None else to_micros(since),
        until=2**62 if until is None else to_micros(until),
    )
    if group == "day":
        rows = [
            ((_EPOCH_DAY + timedelta(days=row[0])).date().isoformat(), *row[1:]) for row in rows
        ]
    return [UsageTotal(*row) for row in rows]


def set_total(tx: Tx, session_no: int, total: UsageTotal) -> None:
    """Make a head's sums again."""
    tx.run(
        "set_usage",
        no=session_no,
        calls=total.calls,
        unknown_cost_calls=total.unknown_cost_calls,
        estimated_calls=total.estimated_calls,
        cost_microusd=total.known_cost_microusd,
        **{name: getattr(total, name) for name in TOKEN_FIELDS},
    )


def _add(tx: Tx, usage: Usage, *, session_no: int) -> None:
    tx.run(
        "add_usage",
        no=session_no,
        calls=1,
        unknown_cost_calls=int(usage.cost_microusd is None),
        estimated_calls=int(usage.cost_status is CostStatus.ESTIMATED),
        cost_microusd=usage.cost_microusd or 0,
        model=column(usage.model),
        **{name: getattr(usage, name) for name in TOKEN_FIELDS},
    )


def usage_of(row: Row) -> tuple[str | None, Usage]:
    """A row of the ledger as a value, with the turn it belongs to."""
    call_id, turn_id, at, model, provider, base_url, billing_mode, task, *rest = row
    tokens, (cost, status, price_source, price_version) = rest[:5], rest[5:]
    usage = Usage(
        model=model,
        provider=provider,
        base_url=base_url,
        billing_mode=billing_mode,
        task=task,
        cost_microusd=cost,
        cost_status=CostStatus(status),
        price_source=price_source,
        price_version=price_version,
        call_id=call_id,
        at=from_micros(at),
    )
    return turn_id, replace(usage, **dict(zip(TOKEN_FIELDS, tokens, strict=True)))
