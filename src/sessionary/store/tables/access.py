"""The tables of permits, pairing requests, budgets and home channels."""

from datetime import datetime
from typing import Literal, NamedTuple

from sessionary.clock import from_micros, to_micros
from sessionary.model import codec
from sessionary.model.access import BudgetUse, PairingRequest, Permit
from sessionary.model.prompt import HomeAddress
from sessionary.store.database import Tx
from sessionary.store.tables.sessions import column

Guarded = Literal["login", "pairing"]
# No sum of tokens or money is larger.
NO_LIMIT = 2**53


class Guard(NamedTuple):
    """How many wrong codes or passwords were tried in a row, and until when none is accepted."""

    wrong: int = 0
    locked_until: datetime | None = None


def has_permit(tx: Tx, platform: str, person_id: str, *, profile: str) -> bool:
    """Whether a person has a permit."""
    person = codec.storable_text(person_id)
    return tx.one("get_permit", profile=profile, platform=platform, person_id=person) is not None


def insert_permit(tx: Tx, permit: Permit, *, profile: str) -> None:
    """Write a permit; one that is there gets the new name."""
    tx.run(
        "insert_permit",
        profile=profile,
        platform=permit.platform,
        person_id=codec.storable_text(permit.person_id),
        name=column(permit.name),
        at=to_micros(permit.given_at),
        given_by=permit.given_by,
    )


def delete_permit(tx: Tx, platform: str, person_id: str, *, profile: str) -> bool:
    """Delete a permit; say whether there was one."""
    person = codec.storable_text(person_id)
    return bool(tx.run("delete_permit", profile=profile, platform=platform, person_id=person))


def list_permits(tx: Tx, *, profile: str) -> list[Permit]:
    """The permits of a profile."""
    return [
        Permit(platform, person_id, name, from_micros(at), by)
        for platform, person_id, name, at, by in tx.all("list_permits", profile=profile)
    ]


def pairing_expires_at(tx: Tx, platform: str, person_id: str, *, profile: str) -> datetime | None:
    """Until when a person's last code is or was valid; None when they have not asked."""
    person = codec.storable_text(person_id)
    row = tx.one("get_pairing", profile=profile, platform=platform, person_id=person)
    return None if row is None else from_micros(row[1])


def count_pairings(tx: Tx, platform: str, *, profile: str, now: datetime) -> int:
    """How many valid codes a platform has."""
    row = tx.one("count_pairings", profile=profile, platform=platform, now=to_micros(now))
    return 0 if row is None else int(row[0])


def expire_oldest_pairing(
    tx: Tx, platform: str, *, profile: str, now: datetime, asked_before: datetime
) -> bool:
    """Let the oldest code expire that was asked for before a time; say whether there was one."""
    return bool(
        tx.run(
            "make_room_for_pairing",
            profile=profile,
            platform=platform,
            now=to_micros(now),
            before=to_micros(asked_before),
        )
    )


def insert_pairing(tx: Tx, request: PairingRequest, *, profile: str, code_hash: str) -> None:
    """Write a pairing request, or give a person's earlier one a new code."""
    tx.run(
        "insert_pairing",
        profile=profile,
        platform=request.platform,
        person_id=codec.storable_text(request.person_id),
        name=column(request.name),
        code_hash=code_hash,
        at=to_micros(request.asked_at),
        expires_at=to_micros(request.expires_at),
    )


def take_pairing(
    tx: Tx, code_hash: str, *, profile: str, now: datetime
) -> tuple[str, str, str | None] | None:
    """Delete the request with this valid code; return its platform, person and name."""
    row = tx.one("take_pairing", profile=profile, code_hash=code_hash, now=to_micros(now))
    return None if row is None else (row[0], row[1], row[2])


def list_pairings(tx: Tx, *, profile: str, now: datetime) -> list[PairingRequest]:
    """The requests whose codes are valid, in the order in which they were made."""
    return [
        PairingRequest(platform, person_id, name, from_micros(asked), from_micros(expires))
        for platform, person_id, name, asked, expires in tx.all(
            "list_pairings", profile=profile, now=to_micros(now)
        )
    ]


def delete_old_pairings(tx: Tx, *, now: datetime, asked_before: datetime) -> None:
    """Delete expired requests that were made before a time."""
    tx.run("delete_old_pairings", now=to_micros(now), before=to_micros(asked_before))


def get_guard(tx: Tx, what: Guarded, *, profile: str) -> Guard:
    """The wrong codes or passwords that were tried."""
    row = tx.one(f"get_{what}_guard", profile=profile)
    return Guard() if row is None else Guard(row[0], from_micros(row[1]))


def set_guard(tx: Tx, what: Guarded, guard: Guard, *, profile: str) -> None:
    """Write the wrong codes or passwords that were tried."""
    until = 0 if guard.locked_until is None else to_micros(guard.locked_until)
    tx.run(f"set_{what}_guard", profile=profile, wrong=guard.wrong, locked_until=until)


def get_budget_use(tx: Tx, scope: str, period: str, *, profile: str) -> BudgetUse:
    """What a scope has used in a period, and has reserved now."""
    row = tx.one("get_spending", profile=profile, scope=scope, period=period)
    return BudgetUse() if row is None else BudgetUse(*row)


def add_spending(
    tx: Tx, scope: str, period: str, *, profile: str, tokens: int, cost_microusd: int
) -> None:
    """Count what was used against a budget."""
    tx.run(
        "add_spending",
        profile=profile,
        scope=scope,
        period=period,
        tokens=tokens,
        cost_microusd=cost_microusd,
    )


def add_spending_and_get(
    tx: Tx, scope: str, period: str, *, profile: str, tokens: int, cost_microusd: int
) -> BudgetUse:
    """Count what was used against a budget; return what is used now, without reservations."""
    row = tx.one(
        "add_spending_and_get",
        profile=profile,
        scope=scope,
        period=period,
        tokens=tokens,
        cost_microusd=cost_microusd,
    )
    assert row is not None
    return BudgetUse(*row)


def list_spending(
    tx: Tx,
    kind: str,
    period: str,
    *,
    profile: str,
    token_limit: int | None,
    microusd_limit: int | None,
    limit: int,
) -> list[tuple[str, BudgetUse]]:
    """Return the scopes of a kind with what they have used and reserved, the largest share of the limits first."""
    first, beyond = _range_of(kind)
    return [
        (scope, BudgetUse(*used))
        for scope, *used in tx.all(
            "list_spending",
            profile=profile,
            first=first,
            beyond=beyond,
            period=period,
            token_limit=token_limit or NO_LIMIT,
            microusd_limit=microusd_limit or NO_LIMIT,
            limit=limit,
        )
    ]


def insert_budget_warning(
    tx: Tx, scope: str, period: str, threshold: int, *, profile: str, at: datetime
) -> bool:
    """Note that a threshold of a budget is reported; return False if it was noted before."""
    return bool(
        tx.run(
            "insert_budget_warning",
            profile=profile,
            scope=scope,
            period=period,
            threshold=threshold,
            at=to_micros(at),
        )
    )


def list_budget_warnings(
    tx: Tx, kind: str, period: str, *, profile: str
) -> dict[str, tuple[int, ...]]:
    """Return the thresholds that were reported in a period, by scope, for the scopes of a kind."""
    first, beyond = _range_of(kind)
    found: dict[str, tuple[int, ...]] = {}
    for scope, threshold in tx.all(
        "list_budget_warnings", profile=profile, first=first, beyond=beyond, period=period
    ):
        found[scope] = (*found.get(scope, ()), threshold)
    return found


def delete_scope(tx: Tx, scope: str, *, profile: str) -> None:
    """Delete what a scope has used, and the warnings about it."""
    tx.run("delete_spending", profile=profile, scope=scope)
    tx.run("delete_budget_warnings", profile=profile, scope=scope)


def _range_of(kind: str) -> tuple[str, str]:
    """Return the first name of a kind's scopes, and the first name beyond them: ";" follows ":"."""
    return f"{kind}:", f"{kind};"


def insert_reservation(
    tx: Tx, turn_id: str, scope: str, *, profile: str, tokens: int, cost_microusd: int
) -> None:
    """Reserve a part of a budget for a turn."""
    tx.run(
        "insert_reservation",
        turn_id=turn_id,
        profile=profile,
        scope=scope,
        tokens=tokens,
        cost_microusd=cost_microusd,
    )


def use_reservations(tx: Tx, turn_id: str, *, tokens: int, cost_microusd: int) -> None:
    """Reduce a turn's reservations by what it used."""
    tx.run("use_reservations", turn_id=turn_id, tokens=tokens, cost_microusd=cost_microusd)


def set_home(tx: Tx, home: HomeAddress, *, profile: str, at: datetime) -> None:
    """Make a channel its platform's home channel."""
    tx.run(
        "set_home",
        profile=profile,
        platform=home.platform,
        chat_id=codec.storable_text(home.chat_id),
        thread_id=column(home.thread_id),
        name=column(home.name),
        at=to_micros(at),
    )


def list_homes(tx: Tx, *, profile: str) -> list[HomeAddress]:
    """The home channel of every platform that has one."""
    return [
        HomeAddress(platform, chat_id, name, thread_id)
        for platform, chat_id, thread_id, name in tx.all("list_homes", profile=profile)
    ]
