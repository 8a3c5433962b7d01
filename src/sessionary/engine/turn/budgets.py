"""Budgets of a turn: checked and reserved when it begins, counted after each step, and compared again before the next.

A turn may begin while something is left of every budget that it counts against. It reserves what it is expected
to use, at most what is left; what it uses is moved from its reservation to what was spent, and its end frees the
rest. A turn that has used up a budget ends before its next model call. So a budget is passed at most by the model
calls that were running when it was used up.
"""

from collections.abc import Iterable
from datetime import datetime
from itertools import chain

from msgspec import Struct

from sessionary.actions import budgets, outbox, turn_scripts, turns
from sessionary.actions.budgets import Account, Budgets
from sessionary.actions.turn_scripts import Ended
from sessionary.clock import Moment
from sessionary.engine import notices
from sessionary.engine.ports import Agent
from sessionary.model.access import BudgetStatus, BudgetUse
from sessionary.model.choice import with_pending
from sessionary.model.message import Message, Role, Text, ToolCall
from sessionary.model.session import SessionHead
from sessionary.model.source import Channel, SessionKey, Source
from sessionary.model.tokens import estimate
from sessionary.model.turn import Lease
from sessionary.model.usage import Usage, UsageTotal
from sessionary.store.database import Tx
from sessionary.store.tables import access
from sessionary.store.tables.deliveries import SendClaim

# What a turn reserves at least unless its budget says otherwise: a system prompt, a question, an answer.
FIRST_CALL_TOKENS = 4_000
FIRST_CALL_MICROUSD = 50_000
# The person who asked is warned about these; the owner, in the home channels, about all.
WARNED_KINDS = ("person", "channel", "session")


class Spending(Struct, frozen=True):
    """Against what a turn's usage is counted, when, and who is warned."""

    scopes: tuple[str, ...]
    now: datetime
    budgets: Budgets = {}
    # The channel of the person who asked.
    to: Channel | None = None
    # The platforms to which this installation delivers.
    deliverable: frozenset[str] = frozenset()


class StepResult(Struct, frozen=True):
    """The entry of a stored step, and why the turn must end now if a budget is used up."""

    seq: int
    used_up: str | None = None


def scopes_of(source: Source) -> tuple[str, ...]:
    """The scopes a message is counted under: its person and its channel."""
    person, channel = source.person, source.channel
    scopes = []
    if person is not None:
        scopes.append(budgets.scope_name("person", f"{source.platform}:{person.stable_id}"))
    if channel is not None:
        scopes.append(budgets.scope_name("channel", str(channel)))
    return tuple(scopes)


def turn_scopes(
    known: Budgets,
    *,
    profile: str | None = None,
    agent: str | None = None,
    session_id: str | None = None,
) -> tuple[str, ...]:
    """The scopes of a turn's profile, agent and session, as far as they are given and have a budget."""
    named = {"profile": profile, "agent": agent, "session": session_id}
    scopes = [budgets.scope_name(kind, name) for kind, name in named.items() if name is not None]
    return tuple(scope for scope in scopes if budgets.budget_of(scope, known) is not None)


def model_scopes(
    known: Budgets, *, agent: Agent, head: SessionHead | None = None
) -> tuple[str, ...]:
    """The scope of the model that a turn will probably call, if it is known and has a budget.

    It is the one that the session has chosen, or else the agent's own. What the turn uses is counted under the models
    that it really called.
    """
    settings = {} if head is None else with_pending(head.settings)
    chosen: str | None = settings.get("model")
    if settings.get("agent") not in (None, agent.name):
        chosen = None  # it was chosen for another agent
    elif chosen is not None and agent.model is not None and ":" not in agent.model:
        # `openai:gpt-5` is counted as `gpt-5`. A model at another address may have a colon in its name.
        chosen = chosen.partition(":")[2] or chosen
    model = chosen or agent.model or (None if head is None else head.model)
    if model is None:
        return ()
    scope = budgets.model_scope(model, known)
    return () if budgets.budget_of(scope, known) is None else (scope,)


def scopes_in_session(
    known: Budgets, sources: Iterable[Source], *, agent: Agent, head: SessionHead
) -> tuple[str, ...]:
    """The scopes that a turn in a session counts against, but for its model: messages, profile, agent and session."""
    own = turn_scopes(known, profile=head.profile, agent=agent.name, session_id=head.id)
    return tuple(dict.fromkeys(chain(*map(scopes_of, sources), own)))


def find_used_up(
    tx: Tx,
    known: Budgets,
    scopes: Iterable[str],
    *,
    agent: Agent,
    head: SessionHead,
    now: datetime,
) -> BudgetStatus | None:
    """The first budget that is used up, of these scopes or of the model that a turn in the session will call."""
    compared = (*scopes, *model_scopes(known, agent=agent, head=head))
    accounts = budgets.read_accounts(tx, compared, known, profile=head.profile, now=now)
    return next((each.status() for each in accounts.values() if each.is_used_up), None)


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


def take_steering(
    tx: Tx,
    key: SessionKey,
    lease: Lease,
    *,
    by_default: bool,
    known: Budgets,
    now: datetime,
) -> list[Source]:
    """Append the messages that steer a turn to the log; return where they came from.

    The message of someone whose budget is used up waits, and is refused when the turn has ended.
    """

    def may_steer(source: Source) -> bool:
        accounts = budgets.read_accounts(tx, scopes_of(source), known, profile=key.profile, now=now)
        return not any(account.is_used_up for account in accounts.values())

    return turns.take_steering(tx, key, lease, by_default=by_default, may_steer=may_steer)


def may_be_last(message: Message) -> bool:
    """Whether a step may be the last of its turn: an answer without tool calls."""
    return message.role is Role.ASSISTANT and not any(
        isinstance(part, ToolCall) for part in message.parts
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
    request: turns.RequestRecord | None = None,
) -> StepResult:
    """Add a finished step, count what it used, and compare that with the budgets."""
    done = turns.add_step(
        tx, lease, message, used, profile=profile, moment=moment, files=files, request=request
    )
    if used is None:
        return StepResult(done.seq)
    is_last = may_be_last(message)
    return StepResult(
        done.seq,
        _use(tx, lease, used, spending, profile=profile, moment=moment, is_last=is_last),
    )


def count_summary(
    tx: Tx,
    used: Usage,
    spending: Spending,
    *,
    profile: str,
    moment: Moment,
    lease: Lease | None = None,
) -> str | None:
    """Count what a summary used; if that used up a budget of the running turn, return why it must end."""
    if lease is not None:
        return _use(tx, lease, used, spending, profile=profile, moment=moment, is_last=False)
    accounts = _count(tx, (used,), spending, profile=profile)
    _warn(tx, accounts, spending, profile=profile, moment=moment)
    return None


def _use(
    tx: Tx,
    lease: Lease,
    used: Usage,
    spending: Spending,
    *,
    profile: str,
    moment: Moment,
    is_last: bool,
) -> str | None:
    """Count what a turn used, and warn its people; if a budget is used up, return why no model may be called again."""
    accounts = _count(tx, (used,), spending, profile=profile)
    access.use_reservations(
        tx, lease.turn_id, tokens=_tokens(used), cost_microusd=used.cost_microusd or 0
    )
    used_up = next((account for account in accounts if account.is_used_up), None)
    is_stopped = used_up is not None and not is_last
    _warn(tx, accounts, spending, profile=profile, moment=moment, is_stopped=is_stopped)
    return None if used_up is None else notices.budget_stop(used_up.status())


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
    if ending.usage:
        accounts = _count(tx, ending.usage, spending, profile=profile)
        _warn(tx, accounts, spending, profile=profile, moment=moment)
    return ended


def _tokens(used: Usage | UsageTotal) -> int:
    return used.input_tokens + used.output_tokens + used.cache_read_tokens + used.cache_write_tokens


def _count(tx: Tx, calls: Iterable[Usage], spending: Spending, *, profile: str) -> list[Account]:
    amounts: dict[str, BudgetUse] = {}
    for used in calls:
        for scope in (*spending.scopes, *_called_model(used, spending.budgets)):
            before = amounts.get(scope, BudgetUse())
            amounts[scope] = BudgetUse(
                before.tokens + _tokens(used), before.cost_microusd + (used.cost_microusd or 0)
            )
    return budgets.count(tx, amounts, spending.budgets, profile=profile, now=spending.now)


def _called_model(used: Usage, known: Budgets) -> tuple[str, ...]:
    if used.model is None or not known:
        return ()
    scope = budgets.model_scope(used.model, known)
    return () if budgets.budget_of(scope, known) is None else (scope,)


def _warn(
    tx: Tx,
    accounts: Iterable[Account],
    spending: Spending,
    *,
    profile: str,
    moment: Moment,
    is_stopped: bool = False,
) -> None:
    """Warn of each threshold once: the person who asked in their channel, the owner in the home channels.

    The person whose turn stops is told by its end.
    """
    for account in accounts:
        threshold = budgets.note_threshold(tx, account, profile=profile)
        if threshold is None:
            continue
        texts: dict[Channel, str] = {}
        status = account.status()
        for home in access.list_homes(tx, profile=profile):
            channel = Channel(home.platform, home.chat_id, home.thread_id)
            texts[channel] = notices.budget_warning(status, threshold, names_scope=True)
        if spending.to is not None:
            if is_stopped and account.is_used_up:
                texts.pop(spending.to, None)
            elif account.scope.partition(":")[0] in WARNED_KINDS:
                texts.setdefault(spending.to, notices.budget_warning(status, threshold))
        for channel, text in texts.items():
            if channel.platform in spending.deliverable:
                outbox.enqueue(tx, channel, (Text(text),), profile=profile, moment=moment)
