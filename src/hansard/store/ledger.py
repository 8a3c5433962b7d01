"""The ledger of model calls, and its sums."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hansard.clock import from_micros, to_micros
from hansard.model.usage import TOKEN_FIELDS, CostStatus, Usage, UsageTotal
from hansard.store.database import Row, Tx
from hansard.store.sessions import column

_EPOCH_DAY = datetime(1970, 1, 1, tzinfo=UTC)
GROUPS = ("day", "model", "provider", "source", "project", "session")


def insert(
    tx: Tx, usage: Usage, *, profile: str, session_no: int, turn_id: str | None, at: datetime
) -> bool:
    """Write one call; a call id that is there already changes nothing. Say whether it was new."""
    when = usage.at or at
    new = tx.run(
        "insert_usage",
        profile=profile,
        call_id=column(usage.call_id),
        session_no=session_no,
        turn_id=turn_id,
        at=to_micros(when),
        model=column(usage.model),
        provider=column(usage.provider),
        base_url=column(usage.base_url),
        billing_mode=column(usage.billing_mode),
        task=column(usage.task),
        cost_microusd=usage.cost_microusd,
        cost_status=usage.cost_status,
        price_source=column(usage.price_source),
        price_version=column(usage.price_version),
        **{name: getattr(usage, name) for name in TOKEN_FIELDS},
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


def _is_more(usage: Usage, row: Row) -> bool:
    """Whether a call's output, or else its other tokens, are more than the ledger has."""
    known = dict(zip(TOKEN_FIELDS, row[1:], strict=False))
    if usage.output_tokens != known["output_tokens"]:
        return usage.output_tokens > int(known["output_tokens"])
    total: int = sum(getattr(usage, name) for name in TOKEN_FIELDS)
    return total > sum(map(int, known.values()))


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
