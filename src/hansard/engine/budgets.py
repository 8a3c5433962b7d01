"""Budgets: counted with the ledger, compared before a turn starts."""

from dataclasses import dataclass
from datetime import datetime

from hansard.actions import access, turns
from hansard.actions.log import Appended
from hansard.clock import Occasion
from hansard.engine.settings import Budget, Settings
from hansard.model import document
from hansard.model.entry import Message
from hansard.model.place import Source
from hansard.model.turn import Lease
from hansard.model.usage import Usage
from hansard.store.database import Tx


@dataclass(frozen=True, slots=True)
class Spending:
    """Against what a turn's usage is counted."""

    scopes: tuple[str, ...] = ()
    periods: tuple[str, ...] = ()


def periods(now: datetime) -> tuple[str, str]:
    """The day and the month of a moment, in UTC."""
    return f"{now:%Y-%m-%d}", f"{now:%Y-%m}"


def scopes_of(source: Source) -> tuple[str, ...]:
    """The scopes a message is counted under: its person and its channel."""
    person, channel = source.person, source.channel
    scopes = [] if person is None else [f"person:{source.platform}:{person.stable_id}"]
    named = (*scopes, *(() if channel is None else (f"channel:{channel}",)))
    # An id may hold what no column can.
    return tuple(document.speakable(scope) for scope in named)


def used_up(
    tx: Tx, scopes: tuple[str, ...], settings: Settings, *, profile: str, now: datetime
) -> tuple[str, str] | None:
    """The first scope whose budget is used up, with its period; None when all may go on."""
    day, month = periods(now)
    for scope in scopes:
        budget = _budget(scope, settings)
        if budget is None:
            continue
        spent = access.spent(tx, scope, day if budget.per == "day" else month, profile=profile)
        over_tokens = budget.tokens is not None and spent.tokens >= budget.tokens
        over_money = budget.microusd is not None and spent.cost_microusd >= budget.microusd
        if over_tokens or over_money:
            return scope, budget.per
    return None


def step(
    tx: Tx,
    lease: Lease,
    said: Message,
    used: Usage | None,
    *,
    profile: str,
    when: Occasion,
    spending: Spending,
    files: tuple[bytes, ...] = (),
) -> Appended:
    """Add a finished step, and count what it used."""
    done = turns.step(tx, lease, said, used, profile=profile, when=when, files=files)
    if used is not None:
        _count(tx, used, spending, profile=profile)
    return done


def end(
    tx: Tx, lease: Lease, ending: turns.Ending, *, profile: str, when: Occasion, spending: Spending
) -> list[Appended]:
    """End a turn, and count what it used."""
    done = turns.end(tx, lease, ending, profile=profile, when=when)
    for used in ending.usage:
        _count(tx, used, spending, profile=profile)
    return done


def _budget(scope: str, settings: Settings) -> Budget | None:
    """The budget of exactly this scope, else of its kind."""
    return settings.budgets.get(scope) or settings.budgets.get(scope.split(":", 1)[0])


def _count(tx: Tx, used: Usage, spending: Spending, *, profile: str) -> None:
    tokens = (
        used.input_tokens + used.output_tokens + used.cache_read_tokens + used.cache_write_tokens
    )
    for scope in spending.scopes:
        for period in spending.periods:
            access.spend(
                tx,
                scope,
                period,
                profile=profile,
                tokens=tokens,
                cost_microusd=used.cost_microusd or 0,
            )
