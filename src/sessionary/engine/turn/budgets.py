"""Budgets: compared and reserved from when a turn begins, counted with the ledger as it goes on.

A turn may begin while something is left of every budget that it counts against. It reserves what it is expected
to use, at most what is left; what it uses is moved from its reservation to what was spent, and its end frees the
rest. So a budget is passed only by what running turns use beyond their reservations.
"""

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from sessionary.actions import turn_scripts, turns
from sessionary.actions.sessions.log import Appended
from sessionary.actions.turn_scripts import Ended
from sessionary.clock import Moment
from sessionary.config.engine import Budget, EngineSettings
from sessionary.model import codec
from sessionary.model.access import BudgetUse
from sessionary.model.message import Message
from sessionary.model.session import SessionHead
from sessionary.model.source import SessionKey, Source
from sessionary.model.tokens import estimate
from sessionary.model.turn import Lease
from sessionary.model.usage import Usage, UsageTotal
from sessionary.store.database import Tx
from sessionary.store.tables import access, sessions
from sessionary.store.tables.deliveries import SendClaim

# What a turn reserves at least unless its budget says otherwise: a system prompt, a question, an answer.
FIRST_CALL_TOKENS = 4_000
FIRST_CALL_MICROUSD = 50_000


class Spending(Struct, frozen=True):
    """Against what a turn's usage is counted, and when."""

    scopes: tuple[str, ...]
    now: datetime


def periods(now: datetime) -> tuple[str, str]:
    """The day and the month of a moment, in UTC."""
    return f"{now:%Y-%m-%d}", f"{now:%Y-%m}"


def scopes_of(source: Source) -> tuple[str, ...]:
    """The scopes a message is counted under: its person and its channel."""
    person, channel = source.person, source.channel
    scopes = [] if person is None else [f"person:{source.platform}:{person.stable_id}"]
    named = (*scopes, *(() if channel is None else (f"channel:{channel}",)))
    # An id may hold what no column can.
    return tuple(codec.storable_text(scope) for scope in named)


class Account(Struct, frozen=True):
    """A budget, with what was used of it in its period and what running turns have reserved."""

    scope: str
    budget: Budget
    used: BudgetUse

    @property
    def is_used_up(self) -> bool:
        """Whether the budget is gone: no turn may begin until the next period."""
        tokens, money = self.budget.tokens, self.budget.microusd
        return (tokens is not None and self.used.tokens >= tokens) or (
            money is not None and self.used.cost_microusd >= money
        )

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


def accounts(
    tx: Tx, scopes: Iterable[str], settings: EngineSettings, *, profile: str, now: datetime
) -> dict[str, Account]:
    """The accounts of the scopes that have a budget. Nobody else reserves from them until the transaction ends."""
    budgeted = {
        scope: budget
        for scope in sorted(set(scopes))
        if (budget := _budget(scope, settings)) is not None
    }
    for (
        scope
    ) in budgeted:  # sorted, so that two turns with the same scopes do not wait for each other
        sessions.lock_key(tx, f"budget/{scope}", profile=profile)
    if not budgeted:
        return {}
    day, month = periods(now)
    return {
        scope: Account(
            scope,
            budget,
            access.get_budget_use(
                tx, scope, day if budget.per == "day" else month, profile=profile
            ),
        )
        for scope, budget in budgeted.items()
    }


def expected_use(head: SessionHead | None, messages: Iterable[Message]) -> BudgetUse:
    """What a turn is expected to use, where the budget does not say it.

    The average call of its session, or what a first call usually needs if that is more; and the new messages.
    """
    tokens, money = FIRST_CALL_TOKENS, FIRST_CALL_MICROUSD
    if head is not None and head.usage.calls:
        used = head.usage
        counted = _tokens(used)
        tokens = max(tokens, counted // used.calls)
        money = max(money, used.known_cost_microusd // used.calls)
    return BudgetUse(tokens + sum(estimate(each.text) for each in messages), money)


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


def step(
    tx: Tx,
    lease: Lease,
    message: Message,
    used: Usage | None,
    *,
    profile: str,
    moment: Moment,
    spending: Spending,
    files: tuple[bytes, ...] = (),
) -> Appended:
    """Add a finished step, and count what it used."""
    done = turns.add_step(tx, lease, message, used, profile=profile, moment=moment, files=files)
    if used is not None:
        _count(tx, used, spending, profile=profile)
        access.use_reservations(
            tx, lease.turn_id, tokens=_tokens(used), cost_microusd=used.cost_microusd or 0
        )
    return done


class SimpleEnd(Struct, frozen=True):
    """What ends a turn that has reserved nothing: its session's last entry and key, and who sends its delivery."""

    last_seq: int
    key: SessionKey
    claim: SendClaim | None


def end(
    tx: Tx,
    lease: Lease,
    ending: turns.Ending,
    *,
    profile: str,
    moment: Moment,
    spending: Spending,
    simple: SimpleEnd | None = None,
) -> Ended:
    """End a turn, which frees what it had reserved, and count what it used."""
    ended = None
    if simple is not None:
        ended = turn_scripts.end(
            tx,
            lease,
            ending,
            last_seq=simple.last_seq,
            key=simple.key,
            claim=simple.claim,
            moment=moment,
        )
    if ended is None:
        turns.end(tx, lease, ending, profile=profile, moment=moment)
        ended = Ended()
    for used in ending.usage:
        _count(tx, used, spending, profile=profile)
    return ended


def _budget(scope: str, settings: EngineSettings) -> Budget | None:
    """The budget of exactly this scope, else of its kind."""
    return settings.budgets.get(scope) or settings.budgets.get(scope.split(":", 1)[0])


def _tokens(used: Usage | UsageTotal) -> int:
    return used.input_tokens + used.output_tokens + used.cache_read_tokens + used.cache_write_tokens


def _default(given: int | None, otherwise: int) -> int:
    return otherwise if given is None else given


def _at_most(wanted: int, left: int | None) -> int:
    return 0 if left is None else max(0, min(wanted, left))


def _count(tx: Tx, used: Usage, spending: Spending, *, profile: str) -> None:
    tokens = _tokens(used)
    # In one order: two turns that count against the same scopes must not wait for each other.
    for scope in sorted(spending.scopes):
        for period in periods(spending.now):
            access.add_spending(
                tx,
                scope,
                period,
                profile=profile,
                tokens=tokens,
                cost_microusd=used.cost_microusd or 0,
            )
