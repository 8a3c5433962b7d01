"""The loop that runs a turn for each session with waiting messages, and continues turns whose process has ended."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sessionary.actions import inbox, outbox, schedules, turn_scripts, turns
from sessionary.actions.budgets import Account, lock_accounts, reserve
from sessionary.actions.inbox import ArrivalReceived
from sessionary.actions.questions import QuestionsChanged
from sessionary.actions.schedules import ClaimedRun
from sessionary.actions.sessions import log as session_log
from sessionary.actions.sessions import routing
from sessionary.clock import Moment
from sessionary.engine import notices
from sessionary.engine.context import EngineContext, WakeSignal
from sessionary.engine.outbox import Outbox
from sessionary.engine.ports import Agent
from sessionary.engine.turn import budgets
from sessionary.engine.turn.run import (
    SERVER_STOPPED,
    TurnInput,
    TurnRun,
    TurnTarget,
    build_turn_input,
)
from sessionary.errors import Conflict, RetryLater, SessionaryError, StoreUnavailable
from sessionary.model import transcript
from sessionary.model.access import BudgetStatus
from sessionary.model.message import Attachment, Message, Role, Text
from sessionary.model.reset import ResetPolicy, ResetReason
from sessionary.model.session import Kind, SessionHead
from sessionary.model.source import SessionKey, Source, session_named_by
from sessionary.model.turn import Arrival, Turn, TurnState
from sessionary.model.turn_options import awaited_by
from sessionary.model.view import time_text
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals, sessions
from sessionary.store.tables import turns as turn_rows

log = logging.getLogger(__name__)

# How many keys with waiting messages one round of the loop reads.
KEYS_PER_ROUND = 200


class TurnStart(Struct, frozen=True):
    """The turn that began for a key, and what is needed to run it; `begun` is None if no turn began."""

    begun: turns.Begun | None
    source: Source | None = None
    key: SessionKey | None = None
    # The sources of all its messages, if there are several.
    sources: tuple[Source, ...] = ()
    # The budgets that the turn counts against; None: those of its source.
    scopes: tuple[str, ...] | None = None
    # What the agent is given, if it was read in the transaction that began the turn.
    input: TurnInput | None = None
    # No turn began because running turns have reserved the rest of a budget.
    is_held_back: bool = False
    # The scheduled run whose turn is continued.
    due: ClaimedRun | None = None
    # No turn began because a budget is used up: the notice that says so.
    refusal: str | None = None


class TurnLoop:
    """Runs a turn for every key with waiting messages, up to `most_turns` at once."""

    def __init__(
        self,
        context: EngineContext,
        outbox: Outbox,
        resume_run: Callable[[ClaimedRun, turns.Begun, tuple[Source, ...]], None],
    ) -> None:
        """`resume_run` continues the turn of a scheduled run."""
        self._context = context
        self._outbox = outbox
        self._resume_run = resume_run
        # The only keys for which this process runs turns; None means all keys.
        self.only: Collection[SessionKey] | None = None
        # Whether another process continues the turns of these when this one stops.
        self.hands_over = False
        self._wake: WakeSignal | None = None
        self._running: dict[str, asyncio.Task[bool]] = {}
        self._runs: dict[str, TurnRun] = {}
        self._title_tasks: set[asyncio.Task[None]] = set()
        # Keys with a new message since the last round.
        self._arrived: set[str] = set()
        # Keys whose messages wait because running turns have reserved the rest of a budget.
        self._held_back: set[str] = set()
        # Whether the last round left messages waiting, for a running turn or a free slot.
        self._has_left = False
        self._reserved_slots = 0
        self._look_for_released_at = 0.0
        self._stopping = False

    async def run(self) -> None:
        """Run until cancelled; then stop every running turn and record its end."""
        self._stopping = False
        self._wake = WakeSignal(
            self._context.store, self._note_arrival, seconds=self._context.settings.poll_seconds
        )
        try:
            while True:
                self._check_stops()
                await self._continue_released()
                await self._begin_waiting()
                await self._wake.wait()
        finally:
            self._wake.close()
            await self._stop_all()

    def wake(self) -> None:
        """Read the inbox now instead of at the next poll."""
        if self._wake is not None:
            self._wake.wake()

    @property
    def has_free_slot(self) -> bool:
        """Whether one more turn may run in this process."""
        return len(self._running) + self._reserved_slots < self._context.settings.most_turns

    @contextmanager
    def reserve_slot(self, key: SessionKey) -> Iterator[bool]:
        """Reserve a slot, if possible, for a turn that begins while its message is stored; yield whether it was."""
        is_running = self._wake is not None and not self._stopping
        may_begin = is_running and self.has_free_slot and str(key) not in self._running
        self._reserved_slots += may_begin
        try:
            yield may_begin
        finally:
            self._reserved_slots -= may_begin

    async def finish(self, *, seconds: float) -> None:
        """Wait up to `seconds` for the turns that began while the loop was stopping."""
        if self._running:
            await asyncio.wait(self._running.values(), timeout=seconds)

    def run_started(self, key: SessionKey, start: TurnStart) -> None:
        """Run the turn that began in the transaction that stored its message, if one began."""
        if start.begun is None:
            return
        name = str(key)
        if name in self._running:  # a task of an earlier round, which will find no message left
            name = f"{name} {start.begun.lease.turn_id}"
        self._start(name, self._run(name, start))

    @property
    def turns(self) -> int:
        """The number of turns and title requests that are running in this process."""
        return len(self._running) + len(self._title_tasks)

    def _note_arrival(self, event: object) -> bool:
        if isinstance(event, QuestionsChanged) and event.profile == self._context.profile:
            self._look_for_released_at = 0.0  # a turn may go on
            return True
        if not isinstance(event, ArrivalReceived) or event.profile != self._context.profile:
            return False
        self._arrived.add(event.key)
        return True

    def _check_stops(self) -> None:
        """Make the running turns whose key got a message check at once whether they must stop."""
        arrived, self._arrived = self._arrived, set()
        for name in arrived & self._runs.keys():
            self._runs[name].check_stop()

    async def _continue_released(self) -> None:
        """Continue turns that another process has left because it stopped; look for them once in `poll_seconds`."""
        now = time.monotonic()
        if now < self._look_for_released_at:
            return
        self._look_for_released_at = now + self._context.settings.poll_seconds
        free = self._context.settings.most_turns - len(self._running) - self._reserved_slots
        if free <= 0:
            return
        try:
            found = await self._context.store.read(
                turns.list_released, profile=self._context.profile, limit=free
            )
            if found:
                await self.take_over(found)
        except (RetryLater, StoreUnavailable) as error:
            log.warning("turns cannot be continued now: %s", error)

    async def take_over(self, turn_ids: Iterable[str]) -> None:
        """Continue turns whose process has ended; those that cannot be continued are interrupted."""
        context = self._context
        for turn_id in turn_ids:
            if not self.has_free_slot:
                return
            # A turn of our own whose lease has run out is only late: it renews the lease, or finds that it is lost.
            if turn_id in context.running:
                continue
            if await context.store.read(find_dead_turn, turn_id, only=self.only, context=context):
                write = context.store.write(
                    take_over, turn_id, only=self.only, context=context, moment=context.moment()
                )
                await write.handoff(self._run_continued)

    def _run_continued(self, start: TurnStart | None) -> None:
        if start is None or start.begun is None:
            return
        resumption = start.begun.resumption
        reason = None if resumption is None else resumption.turn.resume_reason
        level = logging.WARNING if reason == turns.PROCESS_DIED else logging.INFO
        log.log(level, "turn %s goes on in this process: %s", start.begun.lease.turn_id, reason)
        if start.due is not None:
            self._resume_run(start.due, start.begun, start.sources)
        elif start.key is not None:
            self.run_started(start.key, start)

    async def _begin_waiting(self) -> None:
        try:
            # Keys that are held back stay in this list: read more, so that the others are not left out.
            limit = KEYS_PER_ROUND + len(self._held_back)
            keys = await self._context.store.read(
                inbox.list_waiting_keys, profile=self._context.profile, limit=limit
            )
        except (RetryLater, StoreUnavailable) as error:
            log.warning("the inbox cannot be read: %s", error)
            return
        self._held_back &= set(keys)
        served = None if self.only is None else {str(key) for key in self.only}
        self._has_left = False
        for key in keys:
            if served is not None and key not in served:
                continue
            if key not in self._running and self.has_free_slot:
                self._start(key, self._begin_and_run(SessionKey.parse(key)))
            else:
                self._has_left = True

    def _start(self, name: str, turn: Coroutine[Any, Any, bool]) -> None:
        task = asyncio.create_task(turn)
        self._running[name] = task
        task.add_done_callback(lambda done: self._on_done(name, done))

    def _on_done(self, name: str, task: "asyncio.Task[bool]") -> None:
        self._running.pop(name, None)
        self._runs.pop(name, None)
        if task.cancelled():
            return
        if task.exception() is not None:
            log.error("a turn of %s failed unexpectedly", name, exc_info=task.exception())
        elif task.result():
            # Not after every task: a key whose turn runs in another process would be tried again without a pause,
            # and most turns leave nothing behind.
            self.wake()

    async def _begin_and_run(self, key: SessionKey) -> bool:
        """Begin and run one turn for a key; return whether to read the inbox again at once.

        If the store fails, the next round of the loop tries again.
        """
        context = self._context
        try:
            start = await context.store.write(begin, key, context=context, moment=context.moment())
        except (RetryLater, StoreUnavailable, Conflict) as error:
            log.warning("could not begin a turn for %s: %s", key, error)
            return False
        except SessionaryError as error:
            log.warning("the messages waiting for %s cannot be answered: %s", key, error)
            why = notices.unanswerable(str(error))
            await context.store.write(refuse_all, context, key, why, moment=context.moment())
            return True
        if start.is_held_back:
            self._held_back.add(str(key))
        else:
            self._held_back.discard(str(key))
        if start.begun is None:
            self._has_left = True  # a turn may be running in its session, for another key
        return await self._run(str(key), start)

    async def _run(self, name: str, start: TurnStart) -> bool:
        if start.begun is None or start.source is None:
            return False
        target = self._target(start)
        run = TurnRun(self._context, start.begun, target, start.input, self._outbox)
        self._runs[name] = run
        if self._stopping:
            self._end(run)
        try:
            state = await run.run()
            if state is TurnState.DONE and run.may_need_compaction:
                await run.compact_if_due()
        except (RetryLater, StoreUnavailable) as error:
            log.warning("a turn of %s could not be stored: %s", name, error)
            await asyncio.sleep(self._context.settings.poll_seconds)
            return False
        if state is TurnState.DONE and run.needs_title:
            self._start_title_request(run)
        return run.may_wait or self._has_left or bool(self._held_back)

    def _start_title_request(self, run: TurnRun) -> None:
        """Request a title in the background, so that the next turn does not wait for it."""
        task = asyncio.create_task(run.set_title())
        self._title_tasks.add(task)
        task.add_done_callback(self._on_titled)

    def _on_titled(self, task: "asyncio.Task[None]") -> None:
        self._title_tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.warning("a session got no title", exc_info=task.exception())

    def _target(self, start: TurnStart) -> TurnTarget:
        context, source = self._context, start.source
        assert source is not None
        return TurnTarget(
            source=source,
            agent=context.agent_for(source, start.begun.agent if start.begun else None),
            to=source.channel if notices.can_reach(context, source) else None,
            scopes=start.scopes,
            key=start.key,
            sources=start.sources,
        )

    def _end(self, run: TurnRun) -> None:
        """End a turn because this process stops: another one continues it, unless only this one could."""
        if self.only is None or self.hands_over:
            run.hand_over()
        else:
            run.stop(SERVER_STOPPED)

    async def _stop_all(self) -> None:
        self._stopping = True
        for run in self._runs.values():
            self._end(run)
        for task in self._title_tasks:
            task.cancel()
        # The turns are awaited, not cancelled: one that is just beginning would stay "running" in the store.
        await asyncio.gather(*self._running.values(), *self._title_tasks, return_exceptions=True)


class DeadTurn(Struct, frozen=True):
    """A turn whose process has ended, and what is needed to continue it."""

    turn: Turn
    head: SessionHead
    # Where its messages came from; the answer goes to the first one's channel.
    sources: tuple[Source, ...]
    key: SessionKey

    @property
    def source(self) -> Source:
        """Where the turn was asked for."""
        return self.sources[0]


def find_dead_turn(
    tx: Tx, turn_id: str, *, only: Collection[SessionKey] | None, context: EngineContext
) -> DeadTurn | None:
    """Return a turn for this process to continue or interrupt; None if it is left to another one.

    That is so for a turn that may be continued and belongs to another profile, or to a key that is not in `only`.
    """
    session_no = turn_rows.session_no_of(tx, turn_id)
    if session_no is None:
        return None
    head = sessions.get_by_no(tx, session_no)
    found = turn_rows.get(tx, turn_id, profile=head.profile)
    if found is None:
        return None
    # Where the turn was asked for: a session may continue in another chat than it was opened in.
    sources = arrivals.sources_of_turn(tx, turn_id, session_no=head.no) or [head.source]
    dead = DeadTurn(found[0], head, tuple(sources), context.key(sources[0]))
    is_ours = head.profile == context.profile and (only is None or dead.key in only)
    is_for_others = dead.turn.resumable or dead.turn.is_woken
    return dead if is_ours or not is_for_others else None


def take_over(
    tx: Tx,
    turn_id: str,
    *,
    only: Collection[SessionKey] | None,
    context: EngineContext,
    moment: Moment,
) -> TurnStart | None:
    """Continue a turn whose process has ended; if it cannot be continued, interrupt it and tell its people."""
    dead = find_dead_turn(tx, turn_id, only=only, context=context)
    if dead is None:
        return None
    turn, settings = dead.turn, context.settings
    agent = _agent_of(turn, dead.source, context) if turn.resumable or turn.is_woken else None
    resumes = agent is not None and agent.resumes
    claim = turns.Claim(
        context.holder,
        settings.lease_seconds,
        None if agent is None else turn.agent,
        resumes,
        catalog=context.catalog,
    )
    attempts = settings.resume_attempts if resumes else 0
    scopes, refusal = None, None
    if agent is not None:
        scopes, refusal = _budgets_of_dead(tx, dead, agent, context=context, moment=moment)
    taken = turns.take_over(
        tx, turn_id, claim=claim, attempts=attempts, moment=moment, refusal=refusal
    )
    if isinstance(taken, Turn):
        _tell_interrupted(tx, taken, dead, context=context, moment=moment)
    if not isinstance(taken, turns.Begun):
        return None
    due = schedules.find_run(tx, dead.head.no) if dead.head.kind is Kind.JOB else None
    if due is not None:
        schedules.take_over_run(
            tx, due, holder=context.holder, seconds=settings.lease_seconds, now=moment.now
        )
    return TurnStart(taken, dead.source, dead.key, dead.sources, scopes, due=due)


def _budgets_of_dead(
    tx: Tx, dead: DeadTurn, agent: Agent, *, context: EngineContext, moment: Moment
) -> tuple[tuple[str, ...] | None, str | None]:
    """Return the budgets that a turn counts against, and why it may call no model any more if one is used up."""
    known, head = context.settings.budgets, dead.head
    if head.kind is Kind.JOB:  # a schedule counts its runs itself
        return None, None
    scopes = budgets.scopes_in_session(known, dead.sources, agent=agent, head=head)
    used_up = budgets.find_used_up(tx, known, scopes, agent=agent, head=head, now=moment.now)
    return scopes, None if used_up is None else notices.budget_stop(used_up)


def stop_turn(
    tx: Tx, session_no: int, *, reason: str, context: EngineContext, moment: Moment
) -> tuple[bool, bool]:
    """Ask the running turn of a session to stop, and end it at once if its process has ended.

    Return whether a turn was running, and whether it has ended now.
    """
    was_running, is_dead = turns.stop(tx, session_no, reason=reason, moment=moment)
    turn_id = sessions.get_by_no(tx, session_no).running_turn
    if is_dead and turn_id is not None:
        take_over(tx, turn_id, only=None, context=context, moment=moment)
    return was_running, not sessions.get_by_no(tx, session_no).running


def _agent_of(turn: Turn, source: Source, context: EngineContext) -> Agent | None:
    """Return the agent of a turn that another process began; None if this one does not have it."""
    try:
        return context.agent_for(source, turn.agent)
    except SessionaryError as error:
        log.warning("turn %s cannot be continued: %s", turn.id, error)
        return None


def _tell_interrupted(
    tx: Tx, turn: Turn, dead: DeadTurn, *, context: EngineContext, moment: Moment
) -> None:
    head, channel = dead.head, dead.source.channel
    if channel is None or not notices.can_reach(context, dead.source):
        return
    if turn.reason != notices.NEWER_MESSAGE:
        text = notices.unfinished(turn.state, turn.reason)
        outbox.enqueue(
            tx, channel, (Text(text),), profile=head.profile, moment=moment, session_no=head.no
        )


def begin(tx: Tx, key: SessionKey, *, context: EngineContext, moment: Moment) -> TurnStart:
    """Begin a turn with the waiting messages; refuse those whose budget is used up.

    Messages wait while running turns have reserved the rest of their budget.
    """
    allowed = _apply_budgets(tx, turns.lock_waiting(tx, key), context=context, moment=moment)
    waiting = allowed.waiting
    if not waiting.arrivals:
        return TurnStart(None, is_held_back=allowed.is_held_back, refusal=allowed.refusal)
    source = waiting.arrivals[0].source
    policy, claim = _policy_and_claim(source, context)
    begun = turns.begin_with(tx, waiting, policy=policy, claim=claim, moment=moment)
    if begun is None:
        return TurnStart(None)
    route = begun.route
    scopes, accounts = allowed.scopes, allowed.accounts
    if context.settings.budgets and route.opened:
        own = budgets.turn_scopes(context.settings.budgets, session_id=route.session_id)
        scopes += own
        accounts += tuple(_lock_accounts(tx, own, context, moment=moment).values())
    if accounts:
        expected = budgets.expected_use(
            None if route.opened else waiting.head,
            (arrival.message for arrival in waiting.arrivals),
        )
        reserve(tx, begun.lease.turn_id, accounts, expected, profile=key.profile)
    if route.had_activity and route.reason in set(ResetReason) and policy.notifies(source.platform):
        notices.send(tx, context, source, notices.reset(route.reason), moment=moment)
    sources = tuple(arrival.source for arrival in waiting.arrivals)
    return TurnStart(begun, source, key, sources if len(sources) > 1 else (), scopes)


def begin_with_message(
    tx: Tx,
    source: Source,
    message: Message,
    *,
    context: EngineContext,
    moment: Moment,
    idempotency_key: str | None,
) -> tuple[str, TurnStart] | None:
    """Store a message and begin its turn at once; None if that takes more: then nothing is written yet.

    Return the id of the arrival and the turn.
    """
    if context.settings.budgets:
        return None
    policy, claim = _policy_and_claim(source, context)
    key = context.key(source)
    found = turn_scripts.begin(
        tx,
        key,
        source,
        message,
        policy=policy,
        claim=claim,
        moment=moment,
        idempotency_key=idempotency_key,
        known_context=lambda no, epoch: context.contexts.get(no, epoch=epoch),
    )
    if found is None:
        return None
    turn_input = None
    if found.context is not None:
        turn_input = build_turn_input(
            tx,
            source,
            found.head,
            found.context,
            route=found.begun.route,
            homes=found.homes,
            context=context,
        )
    return found.arrival_id, TurnStart(found.begun, source, key, input=turn_input)


def _policy_and_claim(source: Source, context: EngineContext) -> tuple[ResetPolicy, turns.Claim]:
    agent, settings = context.agent_for(source, None), context.settings
    resumable = agent.resumes and settings.resume_attempts > 0
    claim = turns.Claim(
        context.holder,
        settings.lease_seconds,
        agent.name,
        resumable,
        catalog=context.catalog,
        platform=source.platform,
        is_resumable=lambda name: (
            context.agent_for(source, name).resumes and settings.resume_attempts > 0
        ),
    )
    return _policy(source, context), claim


def _policy(source: Source, context: EngineContext) -> ResetPolicy:
    # A message that was sent to a certain session goes there: no policy resets that session.
    is_for_session = session_named_by(source) is not None or awaited_by(source) is not None
    return ResetPolicy() if is_for_session else context.policies.choose(source)


def refuse_all(
    tx: Tx, context: EngineContext, key: SessionKey, why: str, *, moment: Moment
) -> None:
    """Refuse every message that waits for a key."""
    waiting = arrivals.waiting(tx, str(key), profile=key.profile, limit=turns.MOST_ARRIVALS)
    _refuse(tx, context, [_Refusal(arrival, why) for arrival in waiting], moment=moment)


class _Refusal(Struct, frozen=True):
    """A message that gets no turn, why, and the budget that is used up if that is the reason."""

    arrival: Arrival
    why: str
    budget: BudgetStatus | None = None


class _WithinBudget(Struct, frozen=True):
    """The messages a turn may begin with, the budgets they count against, and whether a budget holds back the rest."""

    waiting: turns.Waiting
    scopes: tuple[str, ...]
    accounts: tuple[Account, ...]
    is_held_back: bool
    # Why the first message was refused, if no message waits.
    refusal: str | None


def _apply_budgets(
    tx: Tx, found: turns.Waiting, *, context: EngineContext, moment: Moment
) -> _WithinBudget:
    """Return the waiting messages whose budgets allow a turn; refuse those whose budget is used up.

    The first message whose budget is reserved by running turns waits, and so do all after it, to keep the order.
    """
    known = context.settings.budgets
    shared: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    if known and found.arrivals:
        source = found.arrivals[0].source
        policy = _policy(source, context)
        continued = routing.get_continued(tx, found.head, policy=policy, moment=moment)
        agent = (
            context.agent_for(source, None) if continued is None else context.agent_of(continued)
        )
        shared = budgets.turn_scopes(
            known,
            profile=found.key.profile,
            agent=agent.name,
            session_id=None if continued is None else continued.id,
        )
        model = budgets.model_scopes(known, agent=agent, head=continued)
    scopes_of = [(*budgets.scopes_of(arrival.source), *shared) for arrival in found.arrivals]
    accounts = _lock_accounts(
        tx, chain(chain.from_iterable(scopes_of), model), context, moment=moment
    )
    admitted: list[Arrival] = []
    refused: list[_Refusal] = []
    counted: dict[str, None] = {}  # the scopes in order, without repeats
    is_held_back = False
    for arrival, scopes in zip(found.arrivals, scopes_of, strict=True):
        limits = [accounts[scope] for scope in (*scopes, *model) if scope in accounts]
        used_up = next((each for each in limits if each.is_used_up), None)
        if used_up is not None:
            budget = used_up.status()
            refused.append(_Refusal(arrival, notices.budget_used_up(budget), budget))
        elif any(each.is_reserved for each in limits):
            is_held_back = True
            break
        else:
            admitted.append(arrival)
            counted |= dict.fromkeys(scopes)
    # What was sent to a session by its id is recorded there, which only the running turn may do: it waits for its end.
    is_running = found.head is not None and found.head.running
    if refused and not (is_running and session_named_by(refused[0].arrival.source)):
        _refuse(tx, context, refused, moment=moment)
    return _WithinBudget(
        replace(found, arrivals=tuple(admitted)),
        tuple(counted),
        tuple(accounts[scope] for scope in (*counted, *model) if scope in accounts),
        is_held_back,
        refused[0].why if refused and not is_held_back else None,
    )


def _lock_accounts(
    tx: Tx, scopes: Iterable[str], context: EngineContext, *, moment: Moment
) -> dict[str, Account]:
    return lock_accounts(
        tx, scopes, context.settings.budgets, profile=context.profile, now=moment.now
    )


def _refuse(tx: Tx, context: EngineContext, refused: Iterable[_Refusal], *, moment: Moment) -> None:
    notified: set[tuple[str, str]] = set()  # each channel is told each reason once
    for refusal in refused:
        source, why = refusal.arrival.source, refusal.why
        arrivals.refuse(tx, refusal.arrival, reason=why)
        session_id = session_named_by(source)
        if session_id is not None:
            _record_refusal(tx, session_id, refusal, moment=moment)
        elif (str(source.channel), why) not in notified:
            notified.add((str(source.channel), why))
            notices.send(tx, context, source, why, moment=moment)


def _record_refusal(tx: Tx, session_id: str, refusal: _Refusal, *, moment: Moment) -> None:
    """Record in a session that a message which waited for it was refused, with the message: it is nowhere else."""
    message, why, budget = refusal.arrival.message, refusal.why, refusal.budget
    profile = SessionKey.parse(refusal.arrival.key).profile
    head = sessions.get(tx, session_id, profile=profile)
    if head is None or not head.is_open or head.running or head.read_only:
        log.warning("a message to session %s was refused: %s", session_id, why)
        return
    lines = (Text(f"{why}\n\n{message.text}".rstrip()),)
    files = tuple(part for part in message.parts if isinstance(part, Attachment))
    record: dict[str, Any] = {"kind": "refused", "reason": why}
    if budget is not None:
        # So that it can be said in another language.
        resets_at = time_text(budget.resets_at)
        record["budget"] = {"scope": budget.scope, "per": budget.per, "resets_at": resets_at}
    entry = Message(
        Role.SYSTEM, lines + files, person=message.person, extra={transcript.RECORD: record}
    )
    session_log.append(tx, session_id, entry, profile=profile, at=moment.now)
