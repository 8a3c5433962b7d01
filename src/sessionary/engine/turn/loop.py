"""The loop that begins and runs a turn for each session with waiting messages; and the compaction of sessions."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sessionary.actions import inbox, turn_scripts, turns
from sessionary.actions.inbox import ArrivalReceived
from sessionary.actions.sessions import read, revise
from sessionary.clock import Moment
from sessionary.engine import notices
from sessionary.engine.context import EngineContext, WakeSignal
from sessionary.engine.outbox import Outbox
from sessionary.engine.turn import budgets
from sessionary.engine.turn.run import (
    SERVER_STOPPED,
    TurnInput,
    TurnRun,
    TurnTarget,
    build_turn_input,
)
from sessionary.errors import Conflict, RetryLater, SessionaryError, StoreUnavailable
from sessionary.model.message import Message
from sessionary.model.reset import ResetPolicy, ResetReason
from sessionary.model.session import SessionHead
from sessionary.model.source import SessionKey, Source, session_named_by
from sessionary.model.tokens import estimate
from sessionary.model.transcript import Chat
from sessionary.model.turn import Arrival, TurnState
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals

# How many times to try to enqueue the outcome of a compaction while the store is unavailable.
NOTIFY_TRIES = 600
NOT_COMPACTED = "The conversation was not compacted"
log = logging.getLogger(__name__)


class CompactionRequest(Struct, frozen=True):
    """A session to compact, what the summary should focus on, and whom to tell the outcome."""

    session_id: str
    focus: str | None = None
    notify: Source | None = None


class Compactor:
    """Replaces the messages of a session, in what the model is given, with a summary of them."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        # The compactions that commands have started.
        self.running: set[asyncio.Task[str]] = set()

    def start(self, request: CompactionRequest) -> None:
        """Compact a session in the background."""
        task = asyncio.create_task(
            self.compact(request.session_id, focus=request.focus, notify=request.notify)
        )
        self.running.add(task)
        task.add_done_callback(self._on_finished)

    def _on_finished(self, task: "asyncio.Task[str]") -> None:
        self.running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a compaction failed", exc_info=task.exception())

    async def compact(
        self, session_id: str, *, focus: str | None, notify: Source | None = None
    ) -> str:
        """Compact a session as it is now; return the outcome as a text for the person who asked."""
        text = f"{NOT_COMPACTED}: the server stopped. Send /compact to try again."
        try:
            text = await self._summarize_and_store(session_id, focus)
        except SessionaryError as error:
            text = f"{NOT_COMPACTED}: {error}"
        finally:
            # /compact promises to report the outcome, also when the server stops.
            if notify is not None:
                await self._notify(notify, text)
        return text

    async def _summarize_and_store(self, session_id: str, focus: str | None) -> str:
        context = self._context
        head, chat = await context.store.read(_read_session, session_id, profile=context.profile)
        agent = context.agent_for(head.source, None)
        summary, used = await agent.summarizer.summarize(chat, focus=focus)
        await context.store.write(
            revise.compact_by_agent,
            head,
            summary,
            None if used is None else context.priced(used),
            moment=context.moment(),
        )
        return f"Compacted: {estimate(chat):,} tokens became {estimate(summary):,}."

    async def _notify(self, source: Source, text: str) -> None:
        """Enqueue the outcome for a person; retry up to NOTIFY_TRIES times while the store is unavailable."""
        context = self._context
        for _ in range(NOTIFY_TRIES):
            try:
                await context.store.write(
                    notices.send, context, source, text, moment=context.moment()
                )
            except (RetryLater, StoreUnavailable) as error:
                log.warning("the outcome of a compaction cannot be enqueued now: %s", error)
                await asyncio.sleep(context.settings.poll_seconds)
            else:
                return

    def is_due(self, tokens: int) -> bool:
        """Return whether a context of this many tokens must be compacted."""
        limit = self._context.settings.compact_at_tokens
        return limit is not None and tokens > limit


def _read_session(tx: Tx, session_id: str, *, profile: str) -> tuple[SessionHead, list[Chat]]:
    return read.get_head(tx, session_id, profile=profile), read.read_context(
        tx, session_id, profile=profile
    )


# How many keys with waiting messages one round of the loop reads.
KEYS_PER_ROUND = 200


class TurnStart(Struct, frozen=True):
    """The turn that began for a key, and what is needed to run it; `begun` is None if no turn began."""

    begun: turns.Begun | None
    source: Source | None = None
    key: SessionKey | None = None
    # The budgets that the turn counts against; None: those of its source.
    scopes: tuple[str, ...] | None = None
    # What the agent is given, if it was read in the transaction that began the turn.
    input: TurnInput | None = None
    # No turn began because running turns have reserved the rest of a budget.
    is_held_back: bool = False


class TurnLoop:
    """Runs a turn for every key with waiting messages, up to `most_turns` at once."""

    def __init__(self, context: EngineContext, compactor: Compactor, outbox: Outbox) -> None:
        self._context = context
        self._compactor = compactor
        self._outbox = outbox
        # The only key for which this process runs turns; None means all keys.
        self.only: SessionKey | None = None
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
        if not isinstance(event, ArrivalReceived) or event.profile != self._context.profile:
            return False
        self._arrived.add(event.key)
        return True

    def _check_stops(self) -> None:
        """Make the running turns whose key got a message check at once whether they must stop."""
        arrived, self._arrived = self._arrived, set()
        for name in arrived & self._runs.keys():
            self._runs[name].check_stop()

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
        served = None if self.only is None else str(self.only)
        self._has_left = False
        for key in keys:
            if served is not None and key != served:
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
        run = TurnRun(self._context, start.begun, self._target(start), start.input, self._outbox)
        self._runs[name] = run
        if self._stopping:
            run.stop(SERVER_STOPPED)
        try:
            state = await run.run()
            if self._compactor.is_due(run.context_tokens):
                await self._compactor.compact(start.begun.lease.session_id, focus=None)
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
            agent=context.agent_for(source, None),
            to=source.channel if source.platform in context.deliverable else None,
            scopes=start.scopes,
            key=start.key,
        )

    async def _stop_all(self) -> None:
        self._stopping = True
        for run in self._runs.values():
            run.stop(SERVER_STOPPED)
        for task in self._title_tasks:
            task.cancel()
        # The turns are awaited, not cancelled: one that is just beginning would stay "running" in the store.
        await asyncio.gather(*self._running.values(), *self._title_tasks, return_exceptions=True)


def begin(tx: Tx, key: SessionKey, *, context: EngineContext, moment: Moment) -> TurnStart:
    """Begin a turn with the waiting messages; refuse those whose budget is used up.

    Messages wait while running turns have reserved the rest of their budget.
    """
    allowed = _apply_budgets(tx, turns.lock_waiting(tx, key), context=context, moment=moment)
    waiting = allowed.waiting
    if not waiting.arrivals:
        return TurnStart(None, is_held_back=allowed.is_held_back)
    source = waiting.arrivals[0].source
    policy, claim = _policy_and_claim(source, context)
    begun = turns.begin_with(tx, waiting, policy=policy, claim=claim, moment=moment)
    if begun is None:
        return TurnStart(None)
    route = begun.route
    if allowed.accounts:
        expected = budgets.expected_use(
            None if route.opened else waiting.head,
            (arrival.message for arrival in waiting.arrivals),
        )
        budgets.reserve(tx, begun.lease.turn_id, allowed.accounts, expected, profile=key.profile)
    if route.had_activity and route.reason in set(ResetReason) and policy.notifies(source.platform):
        notices.send(tx, context, source, notices.reset(route.reason), moment=moment)
    return TurnStart(begun, source, key, allowed.scopes)


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
            settings=found.settings,
            context=context,
        )
    return found.arrival_id, TurnStart(found.begun, source, key, input=turn_input)


def _policy_and_claim(source: Source, context: EngineContext) -> tuple[ResetPolicy, turns.Claim]:
    # A message that was sent to a session by its id goes there: no policy resets that session.
    policy = ResetPolicy() if session_named_by(source) else context.policies.choose(source)
    name = context.agent_for(source, None).name
    return policy, turns.Claim(context.holder, context.settings.lease_seconds, name)


def refuse_all(
    tx: Tx, context: EngineContext, key: SessionKey, why: str, *, moment: Moment
) -> None:
    """Refuse every message that waits for a key."""
    waiting = arrivals.waiting(tx, str(key), profile=key.profile, limit=turns.MOST_ARRIVALS)
    _refuse(tx, context, [(arrival, why) for arrival in waiting], moment=moment)


class _WithinBudget(Struct, frozen=True):
    """The messages a turn may begin with, the budgets they count against, and whether a budget holds back the rest."""

    waiting: turns.Waiting
    scopes: tuple[str, ...]
    accounts: tuple[budgets.Account, ...]
    is_held_back: bool


def _apply_budgets(
    tx: Tx, found: turns.Waiting, *, context: EngineContext, moment: Moment
) -> _WithinBudget:
    """Return the waiting messages whose budgets allow a turn; refuse those whose budget is used up.

    The first message whose budget is reserved by running turns waits, and so do all after it, to keep the order.
    """
    scopes_of = [budgets.scopes_of(arrival.source) for arrival in found.arrivals]
    accounts = budgets.accounts(
        tx,
        chain.from_iterable(scopes_of),
        context.settings,
        profile=found.key.profile,
        now=moment.now,
    )
    admitted: list[Arrival] = []
    refused: list[tuple[Arrival, str]] = []
    counted: dict[str, None] = {}  # the scopes in order, without repeats
    is_held_back = False
    for arrival, scopes in zip(found.arrivals, scopes_of, strict=True):
        limits = [accounts[scope] for scope in scopes if scope in accounts]
        used_up = next((each for each in limits if each.is_used_up), None)
        if used_up is not None:
            why = notices.budget_used_up(used_up.scope, used_up.budget.per)
            refused.append((arrival, why))
        elif any(each.is_reserved for each in limits):
            is_held_back = True
            break
        else:
            admitted.append(arrival)
            counted |= dict.fromkeys(scopes)
    _refuse(tx, context, refused, moment=moment)
    return _WithinBudget(
        replace(found, arrivals=tuple(admitted)),
        tuple(counted),
        tuple(accounts[scope] for scope in counted if scope in accounts),
        is_held_back,
    )


def _refuse(
    tx: Tx, context: EngineContext, refused: Iterable[tuple[Arrival, str]], *, moment: Moment
) -> None:
    notified: set[tuple[str, str]] = set()  # each channel is told each reason once
    for arrival, why in refused:
        arrivals.refuse(tx, arrival, reason=why)
        if (str(arrival.source.channel), why) not in notified:
            notified.add((str(arrival.source.channel), why))
            notices.send(tx, context, arrival.source, why, moment=moment)
