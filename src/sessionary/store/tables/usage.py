"""The ledger of model calls, and its sums."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from sessionary.clock import from_micros, to_micros
from sessionary.model import codec
from sessionary.model.usage import TOKEN_FIELDS, CostStatus, Usage, UsageTotal, as_stored
from sessionary.store.database import Row, Tx
from sessionary.store.tables.sessions import column

_EPOCH_DAY = datetime(1970, 1, 1, tzinfo=UTC)
# The same few words stand in most rows.
word = lru_cache(maxsize=1024)(column)
GROUPS = ("day", "model", "provider", "source", "project", "session")


class UsageRow(NamedTuple):
    """One call as the ledger keeps it, but for whose it is."""

    call_id: str | None
    at: int
    model: str | None = None
    provider: str | None = None
    base_url: str | None = None
    billing_mode: str | None = None
    task: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_microusd: int | None = None
    cost_status: str = CostStatus.UNKNOWN
    price_source: str | None = None
    price_version: str | None = None

    @property
    def tokens(self) -> tuple[int, ...]:
        """What it used, in the order of TOKEN_FIELDS: the output is the second of them."""
        return (
            self.input_tokens,
            self.output_tokens,
            self.cache_read_tokens,
            self.cache_write_tokens,
            self.reasoning_tokens,
        )


def call_of(usage: Usage, *, at: datetime) -> UsageRow:
    """A call whose time is known, or else this one."""
    return UsageRow(
        column(usage.call_id),
        to_micros(usage.at or at),
        word(usage.model),
        word(usage.provider),
        word(usage.base_url),
        word(usage.billing_mode),
        word(usage.task),
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
        usage.cost_microusd,
        usage.cost_status,
        word(usage.price_source),
        word(usage.price_version),
    )


def insert(
    tx: Tx, usage: Usage, *, profile: str, session_no: int, turn_id: str | None, at: datetime
) -> bool:
    """Write one call; a call id that is there already changes nothing. Say whether it was new."""
    new = tx.run(
        "insert_usage",
        profile=profile,
        session_no=session_no,
        turn_id=turn_id,
        **call_of(usage, at=at)._asdict(),
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
    call = call_of(usage, at=at)
    owner = _owner_of_less(tx, call, profile=profile)
    if owner is not None:
        tx.run("delete_call", profile=profile, call_id=call.call_id)
        insert(tx, usage, profile=profile, session_no=owner, turn_id=None, at=at)
        sum_up(tx, owner)
    return owner is not None


def raise_all(tx: Tx, calls: Sequence[UsageRow], *, profile: str, session_no: int) -> None:
    """Write many calls, each once, or let those grow that are there; the head's sums come later."""
    fresh: dict[str | int, UsageRow] = {}
    for number, call in enumerate(calls):
        name = number if call.call_id is None else call.call_id
        if name not in fresh or _grows(call, fresh[name].tokens):
            fresh[name] = call
    rows = [(profile, call[0], session_no, None, *call[1:]) for call in fresh.values()]
    if tx.many("insert_usage", rows) == len(rows):
        return
    names = [name for name in fresh if isinstance(name, str)]
    for name, _, *known in tx.all("find_calls", profile=profile, names=codec.encode(names)):
        if _grows(fresh[name], known):
            _replace(tx, fresh[name], profile=profile)


def _replace(tx: Tx, call: UsageRow, *, profile: str) -> None:
    owner = _owner_of_less(tx, call, profile=profile)
    if owner is not None:
        tx.run("delete_call", profile=profile, call_id=call.call_id)
        tx.many("insert_usage", [(profile, call[0], owner, None, *call[1:])])
        sum_up(tx, owner)


def _owner_of_less(tx: Tx, call: UsageRow, *, profile: str) -> int | None:
    """The session of a call of which less is known than this, held until the transaction ends."""
    owner: int | None = None
    while row := tx.one("find_call", profile=profile, call_id=call.call_id):
        session_no, *tokens, _ = row
        if not _grows(call, tokens):
            return None
        if session_no == owner:
            return owner
        # The lock comes before the comparison that counts: another transaction may just know more.
        owner = session_no
        tx.one("lock_session_no", no=owner)
    return None


def delete_call(tx: Tx, call_id: str, *, profile: str) -> None:
    """Delete one call; its session's sums stay as they are."""
    tx.run("delete_call", profile=profile, call_id=call_id)


def sum_up(tx: Tx, session_no: int) -> None:
    """Make a head's sums again from its calls."""
    set_total(tx, session_no, total_of_session(tx, session_no))


def _grows(more: UsageRow, known: Sequence[int]) -> bool:
    """Whether a call's output, or else its other tokens, are more than was known."""
    tokens = more.tokens
    if tokens[1] != known[1]:
        return tokens[1] > known[1]
    return sum(tokens) > sum(known)


def of_session(tx: Tx, session_no: int) -> list[tuple[str | None, Usage]]:
    """A session's calls with the turn each belongs to, in order of time."""
    return [usage_of(row) for row in tx.all("usage_rows_of_session", no=session_no)]


def delete_calls(tx: Tx, session_no: int, prefix: str) -> None:
    """Delete the calls of a session whose ids have this prefix, and recompute its total."""
    tx.run("delete_calls_from", no=session_no, first=prefix, beyond=prefix + "\U0010ffff")
    set_total(tx, session_no, total_of_session(tx, session_no))


def total_of_session(tx: Tx, session_no: int) -> UsageTotal:
    """Compute the sum of a session's calls."""
    row = tx.one("usage_of_session", no=session_no)
    assert row is not None
    return UsageTotal(*row)


def total_of_turn(tx: Tx, session_no: int, turn_id: str) -> UsageTotal:
    """Compute the sum of a turn's calls; the database looks at all calls of the session."""
    row = tx.one("usage_of_turn", no=session_no, turn_id=turn_id)
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
        # A summary or a title is asked for with another context than the conversation's.
        context_tokens=0 if usage.task else usage.total_tokens,
        **{name: getattr(usage, name) for name in TOKEN_FIELDS},
    )


def usage_of(row: Row) -> tuple[str | None, Usage]:
    """A row of the ledger as a value, with the turn it belongs to."""
    call_id, turn_id, at, model, provider, base_url, billing_mode, task, *rest = row
    tokens, (cost, status, price_source, price_version) = rest[:5], rest[5:]
    usage = as_stored(
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
        **dict(zip(TOKEN_FIELDS, tokens, strict=True)),
    )
    return turn_id, usage
