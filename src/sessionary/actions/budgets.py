"""Budgets: how much may be used in a day or a month, what was used of it, and which warnings were sent.

A scope is what usage is counted under: `person:telegram:42`, `channel:telegram:7`, `schedule:morning`, `session:ID`,
`agent:assistant`, `model:gpt-5` or `profile:main`. The budget of a scope is the one with exactly its name, else the one
of its kind, which is the word before the colon.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from sessionary.model import codec
from sessionary.model.access import BudgetStatus, BudgetUse
from sessionary.store.database import Tx
from sessionary.store.tables import access, sessions

if TYPE_CHECKING:
    from sessionary.config.engine import Budget

# The budgets of the settings, by scope or kind.
Budgets: TypeAlias = "Mapping[str, Budget]"
# At these shares of a budget, in percent, its people are warned.
THRESHOLDS = (50, 80, 100)
# At most this many scopes of one kind are listed, those that have used the most.
MOST_LISTED = 200
# Providers answer with the version of a model: gpt-5-2025-08-07, claude-opus-4-1-20250805.
_MODEL_VERSION = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8}|latest)$")


def periods(now: datetime) -> tuple[str, str]:
    """The day and the month of a moment, in UTC."""
    return f"{now:%Y-%m-%d}", f"{now:%Y-%m}"


def scope_name(kind: str, name: str) -> str:
    """Return the scope of this kind and name, as it is stored."""
    # An id may hold what no column can.
    return codec.storable_text(f"{kind}:{name}")


def model_scope(name: str, budgets: Budgets) -> str:
    """Return the scope of a model: without its version, unless there is a budget for just this version."""
    exact = scope_name("model", name)
    return exact if exact in budgets else _MODEL_VERSION.sub("", exact)


def budget_of(scope: str, budgets: Budgets) -> "Budget | None":
    """Return the budget of exactly this scope, else of its kind."""
    return budgets.get(scope) or budgets.get(scope.partition(":")[0])


class Account(Struct, frozen=True):
    """A budget, with what was used of it in its period and what running turns have reserved."""

    scope: str
    budget: "Budget"
    used: BudgetUse
    now: datetime

    @property
    def period(self) -> str:
        """The day or the month, in UTC."""
        day, month = periods(self.now)
        return day if self.budget.per == "day" else month

    @property
    def resets_at(self) -> datetime:
        """When the next period begins."""
        midnight = self.now.replace(hour=0, minute=0, second=0, microsecond=0)
        if self.budget.per == "day":
            return midnight + timedelta(days=1)
        return (midnight.replace(day=28) + timedelta(days=4)).replace(day=1)

    @property
    def is_used_up(self) -> bool:
        """Whether the budget is gone: no turn may begin until the next period."""
        return self.has_passed(100)

    @property
    def is_reserved(self) -> bool:
        """Whether running turns have reserved what is left: no turn may begin until one of them ends."""
        tokens, money = self.tokens_left, self.microusd_left
        return (tokens is not None and tokens <= 0) or (money is not None and money <= 0)

    @property
    def tokens_left(self) -> int | None:
        """The tokens that are neither used nor reserved; None without a limit."""
        if self.budget.tokens is None:
            return None
        return self.budget.tokens - self.used.tokens - self.used.reserved_tokens

    @property
    def microusd_left(self) -> int | None:
        """The money that is neither used nor reserved; None without a limit."""
        if self.budget.microusd is None:
            return None
        return self.budget.microusd - self.used.cost_microusd - self.used.reserved_microusd

    def has_passed(self, percent: int) -> bool:
        """Whether this share of the tokens or of the money is used."""
        tokens, money = self.budget.tokens, self.budget.microusd
        return (tokens is not None and self.used.tokens * 100 >= tokens * percent) or (
            money is not None and self.used.cost_microusd * 100 >= money * percent
        )

    def status(self, warned: tuple[int, ...] = ()) -> BudgetStatus:
        """Return the account as people see it."""
        return BudgetStatus(
            scope=self.scope,
            per=self.budget.per,
            period=self.period,
            resets_at=self.resets_at,
            limit_tokens=self.budget.tokens,
            limit_microusd=self.budget.microusd,
            used_tokens=self.used.tokens,
            used_microusd=self.used.cost_microusd,
            reserved_tokens=self.used.reserved_tokens,
            reserved_microusd=self.used.reserved_microusd,
            warned=warned,
        )


def lock_accounts(
    tx: Tx, scopes: Iterable[str], budgets: Budgets, *, profile: str, now: datetime
) -> dict[str, Account]:
    """Like `read_accounts`; nobody else reserves from these accounts until the transaction ends."""
    budgeted = sorted(scope for scope in set(scopes) if budget_of(scope, budgets) is not None)
    # Sorted, so that two turns with the same scopes do not deadlock.
    for scope in budgeted:
        sessions.lock_key(tx, f"budget/{scope}", profile=profile)
    return read_accounts(tx, budgeted, budgets, profile=profile, now=now)


def read_accounts(
    tx: Tx, scopes: Iterable[str], budgets: Budgets, *, profile: str, now: datetime
) -> dict[str, Account]:
    """Return the accounts of the scopes that have a budget, as they are now."""
    found: dict[str, Account] = {}
    for scope in scopes:
        budget = budget_of(scope, budgets)
        if budget is not None:
            account = Account(scope, budget, BudgetUse(), now)
            used = access.get_budget_use(tx, scope, account.period, profile=profile)
            found[scope] = Account(scope, budget, used, now)
    return found


def reserve(
    tx: Tx, turn_id: str, accounts: Iterable[Account], expected: BudgetUse, *, profile: str
) -> None:
    """Reserve what a turn is expected to use, and never more than is left: reservations alone pass no budget."""
    for account in accounts:
        tokens = _default(account.budget.reserve_tokens, expected.tokens)
        money = _default(account.budget.reserve_microusd, expected.cost_microusd)
        access.insert_reservation(
            tx,
            turn_id,
            account.scope,
            profile=profile,
            tokens=_at_most(tokens, account.tokens_left),
            cost_microusd=_at_most(money, account.microusd_left),
        )


def count(
    tx: Tx, amounts: Mapping[str, BudgetUse], budgets: Budgets, *, profile: str, now: datetime
) -> list[Account]:
    """Count what was used under each scope; return the accounts of those with a budget, without reservations.

    Their rows stay locked until the transaction ends, so that each transaction sees what it made of them.
    """
    accounts = []
    # In one order, so that two turns with the same scopes do not deadlock.
    for scope in sorted(amounts):
        budget = budget_of(scope, budgets)
        tokens, cost = amounts[scope].tokens, amounts[scope].cost_microusd
        for period, per in zip(periods(now), ("day", "month"), strict=True):
            if budget is None or budget.per != per:
                access.add_spending(
                    tx, scope, period, profile=profile, tokens=tokens, cost_microusd=cost
                )
            else:
                total = access.add_spending_and_get(
                    tx, scope, period, profile=profile, tokens=tokens, cost_microusd=cost
                )
                accounts.append(Account(scope, budget, total, now))
    return accounts


def note_threshold(tx: Tx, account: Account, *, profile: str) -> int | None:
    """Return the highest threshold that an account has passed, if nobody was warned of it in this period.

    It counts as reported from now on, and so do the lower ones.
    """
    passed = [each for each in reversed(THRESHOLDS) if account.has_passed(each)]
    for each in passed:
        is_new = access.insert_budget_warning(
            tx, account.scope, account.period, each, profile=profile, at=account.now
        )
        if each == passed[0] and not is_new:
            return None
    return passed[0] if passed else None


def list_status(tx: Tx, budgets: Budgets, *, profile: str, now: datetime) -> list[BudgetStatus]:
    """Return every budget with what was used of it: of a kind, one for each scope that has used something.

    A kind of which nothing was used is listed once, with the kind as its scope. Those nearest to their limit are first.
    """
    found: list[BudgetStatus] = []
    for name, budget in budgets.items():
        kind, _, own = name.partition(":")
        if kind == "profile":
            if own in ("", profile) and (own or f"{name}:{profile}" not in budgets):
                found += _named_status(tx, f"profile:{profile}", budgets, profile=profile, now=now)
        elif own:
            found += _named_status(tx, name, budgets, profile=profile, now=now)
        else:
            found += _kind_status(tx, kind, budget, budgets, profile=profile, now=now)
    return sorted(found, key=lambda status: (-status.percent, status.scope))


def _named_status(
    tx: Tx, scope: str, budgets: Budgets, *, profile: str, now: datetime
) -> list[BudgetStatus]:
    accounts = read_accounts(tx, (scope,), budgets, profile=profile, now=now)
    return [
        account.status(
            access.list_budget_warnings(
                tx, scope.partition(":")[0], account.period, profile=profile
            ).get(scope, ())
        )
        for account in accounts.values()
    ]


def _kind_status(
    tx: Tx, kind: str, budget: "Budget", budgets: Budgets, *, profile: str, now: datetime
) -> list[BudgetStatus]:
    unused = Account(kind, budget, BudgetUse(), now)
    spending = access.list_spending(
        tx,
        kind,
        unused.period,
        profile=profile,
        token_limit=budget.tokens,
        microusd_limit=budget.microusd,
        limit=MOST_LISTED,
    )
    warned = access.list_budget_warnings(tx, kind, unused.period, profile=profile)
    used = [
        Account(scope, budget, used, now).status(warned.get(scope, ()))
        for scope, used in spending
        if scope not in budgets
    ]
    return used or [unused.status()]


def _default(given: int | None, otherwise: int) -> int:
    return otherwise if given is None else given


def _at_most(wanted: int, left: int | None) -> int:
    return 0 if left is None else max(0, min(wanted, left))
