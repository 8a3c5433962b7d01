"""The loop that turns what waits in the inbox into turns."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from sessionary.actions import deliver, receive, turns
from sessionary.actions.receive import ArrivalCame
from sessionary.clock import Moment
from sessionary.engine import budgets, notices
from sessionary.engine.compaction import Compactor
from sessionary.engine.context import EngineContext
from sessionary.engine.errand import TurnTarget
from sessionary.engine.turn import SERVER_STOPPED, TurnRun
from sessionary.engine.wake import Wake
from sessionary.errors import Conflict, RetryLater, SessionaryError, StoreUnavailable
from sessionary.model.arrival import Arrival
from sessionary.model.key import SessionKey
from sessionary.model.part import Text
from sessionary.model.reset import ResetPolicy, ResetReason
from sessionary.model.source import Source, session_named_by
from sessionary.model.turn import TurnState
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals

# How many conversations with waiting messages are looked at in one round.
KEYS_AT_ONCE = 200
log = logging.getLogger("sessionary.loop")


@dataclass(frozen=True, slots=True)
class Beginning:
    """A turn that was begun for a key, and what its run needs to know; or none."""

    begun: turns.Begun | None
    source: Source | None = None
    scopes: tuple[str, ...] = ()
    # None was begun because running turns have reserved the rest of a budget.
    is_held_back: bool = False


class TurnLoop:
    """Begins a turn for every key that has something waiting, as many at once as allowed."""

    def __init__(self, context: EngineContext, compactor: Compactor) -> None:
        self._context = context
        self._compactor = compactor
        # The one key that this process serves; None: whichever has something waiting.
        self.only: SessionKey | None = None
        self._wake: Wake | None = None
        self._running: dict[str, asyncio.Task[bool]] = {}
        self._runs: dict[str, TurnRun] = {}
        self._naming: set[asyncio.Task[None]] = set()
        self._came: set[str] = set()
        self._held_back: set[str] = set()
        self._kept_free = 0
        self._stopping = False

    async def run(self) -> None:
        """Go on until cancelled; then every running turn is told to stop and ends in the record."""
        self._stopping = False
        self._wake = Wake(
            self._context.store, self._concerns, seconds=self._context.settings.poll_seconds
        )
        try:
            while True:
                self._look()
                await self._begin_waiting()
                await self._wake.pause()
        finally:
            self._wake.close()
            await self._stop_all()

    def wake(self) -> None:
        """Look at the inbox now."""
        if self._wake is not None:
            self._wake.ring()

    @property
    def has_room(self) -> bool:
        """Whether one more turn may run in this process."""
        return len(self._running) + self._kept_free < self._context.settings.most_turns

    @contextmanager
    def room_for(self, key: SessionKey) -> Iterator[bool]:
        """Keep room for a turn of this key; whether one may be begun together with its message."""
        is_looking = self._wake is not None and not self._stopping
        may_begin = is_looking and self.has_room and str(key) not in self._running
        self._kept_free += may_begin
        try:
            yield may_begin
        finally:
            self._kept_free -= may_begin

    async def finish(self, *, seconds: float) -> None:
        """Wait for what was begun while the loop was stopping, and was told to stop."""
        if self._running:
            await asyncio.wait(self._running.values(), timeout=seconds)

    def take(self, key: SessionKey, beginning: Beginning) -> None:
        """Run a turn that was begun together with the arrival of its message, if one was."""
        if beginning.begun is None:
            return
        name = str(key)
        if name in self._running:  # a round that looked at the inbox before us, and finds nothing
            name = f"{name} {beginning.begun.lease.turn_id}"
        self._start(name, self._run(name, beginning))

    @property
    def turns(self) -> int:
        """How many turns run in this process, and titles that are being looked for."""
        return len(self._running) + len(self._naming)

    def _concerns(self, event: object) -> bool:
        if not isinstance(event, ArrivalCame) or event.profile != self._context.profile:
            return False
        self._came.add(event.key)
        return True

    def _look(self) -> None:
        """Whose conversation got a message may be wanted to stop: it looks at once."""
        came, self._came = self._came, set()
        for name in came & self._runs.keys():
            self._runs[name].look()

    async def _begin_waiting(self) -> None:
        try:
            # Whoever is held back by a budget must not take the places of others in this list.
            limit = KEYS_AT_ONCE + len(self._held_back)
            keys = await self._context.store.read(
                receive.waiting_keys, profile=self._context.profile, limit=limit
            )
        except (RetryLater, StoreUnavailable) as error:
            log.warning("the inbox cannot be read: %s", error)
            return
        self._held_back &= set(keys)
        served = None if self.only is None else str(self.only)
        for key in keys:
            if served is not None and key != served:
                continue
            if key not in self._running and self.has_room:
                self._start(key, self._serve(SessionKey.parse(key)))

    def _start(self, name: str, turn: Coroutine[Any, Any, bool]) -> None:
        task = asyncio.create_task(turn)
        self._running[name] = task
        task.add_done_callback(lambda done: self._done(name, done))

    def _done(self, name: str, task: "asyncio.Task[bool]") -> None:
        self._running.pop(name, None)
        self._runs.pop(name, None)
        if task.cancelled():
            return
        if task.exception() is not None:
            log.error("a turn of %s ended badly", name, exc_info=task.exception())
        elif task.result():
            # Only then: a key whose turn runs elsewhere would be tried again without a pause.
            self.wake()

    async def _serve(self, key: SessionKey) -> bool:
        """One turn for a key; say whether there was one.

        A failure of the store is met again by the next round.
        """
        context = self._context
        try:
            beginning = await context.store.write(
                begin, key, context=context, moment=context.moment()
            )
        except (RetryLater, StoreUnavailable, Conflict) as error:
            log.warning("a turn of %s could not be begun: %s", key, error)
            return False
        except SessionaryError as error:
            log.warning("what waits for %s cannot be answered: %s", key, error)
            why = notices.unanswerable(str(error))
            await context.store.write(refuse_all, context, key, why, moment=context.moment())
            return True
        if beginning.is_held_back:
            self._held_back.add(str(key))
        else:
            self._held_back.discard(str(key))
        return await self._run(str(key), beginning)

    async def _run(self, name: str, beginning: Beginning) -> bool:
        if beginning.begun is None or beginning.source is None:
            return False
        run = TurnRun(self._context, beginning.begun, self._target(beginning))
        self._runs[name] = run
        if self._stopping:
            run.stop(SERVER_STOPPED)
        try:
            state = await run.run()
            if self._compactor.is_due(run.context_tokens):
                await self._compactor.compact(beginning.begun.lease.session_id, focus=None)
        except (RetryLater, StoreUnavailable) as error:
            log.warning("a turn of %s could not be kept: %s", name, error)
            await asyncio.sleep(self._context.settings.poll_seconds)
            return False
        if state is TurnState.DONE and run.wants_name:
            self._name(run)
        return True

    def _name(self, run: TurnRun) -> None:
        """Find a title beside the next turn, which need not wait for it."""
        task = asyncio.create_task(run.name())
        self._naming.add(task)
        task.add_done_callback(self._named)

    def _named(self, task: "asyncio.Task[None]") -> None:
        self._naming.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.warning("a session got no title", exc_info=task.exception())

    def _target(self, beginning: Beginning) -> TurnTarget:
        context, source = self._context, beginning.source
        assert source is not None
        return TurnTarget(
            source=source,
            agent=context.agent_for(source, None),
            to=source.channel if source.platform in context.deliverable else None,
            scopes=beginning.scopes,
        )

    async def _stop_all(self) -> None:
        self._stopping = True
        for run in self._runs.values():
            run.stop(SERVER_STOPPED)
        for task in self._naming:
            task.cancel()
        # Not cancelled: one that is just being begun would be left running in the record.
        await asyncio.gather(*self._running.values(), *self._naming, return_exceptions=True)


def begin(tx: Tx, key: SessionKey, *, context: EngineContext, moment: Moment) -> Beginning:
    """Begin a turn with the waiting messages; a person whose budget is used up is told so instead.

    What only waits for running turns to free their part of a budget goes on waiting.
    """
    admitted = _admitted(tx, turns.waiting(tx, key), context=context, moment=moment)
    found = admitted.waiting
    if not found.arrivals:
        return Beginning(None, is_held_back=admitted.is_held_back)
    source = found.arrivals[0].source
    # Who names a session wants that one, however old it is.
    policy = ResetPolicy() if session_named_by(source) else context.policies.choose(source)
    name = context.agent_for(source, None).name
    claim = turns.Claim(context.holder, context.settings.lease_seconds, name)
    begun = turns.begin_with(tx, found, policy=policy, claim=claim, moment=moment)
    if begun is None:
        return Beginning(None)
    route = begun.route
    if admitted.accounts:
        expected = budgets.expected_use(
            None if route.opened else found.head, (each.message for each in found.arrivals)
        )
        budgets.reserve(tx, begun.lease.turn_id, admitted.accounts, expected, profile=key.profile)
    if route.had_activity and route.reason in set(ResetReason) and policy.notifies(source.platform):
        _tell(tx, context, source, notices.reset(route.reason), moment=moment)
    return Beginning(begun, source, admitted.scopes)


def refuse_all(
    tx: Tx, context: EngineContext, key: SessionKey, why: str, *, moment: Moment
) -> None:
    """Answer everything that waits for a key with a refusal."""
    waiting = arrivals.waiting(tx, str(key), profile=key.profile, limit=turns.MOST_ARRIVALS)
    _refuse(tx, context, [(arrival, why) for arrival in waiting], moment=moment)


@dataclass(frozen=True, slots=True)
class _Admitted:
    """What a turn may begin with, against what it is counted, and whether budgets hold the next message back."""

    waiting: turns.Waiting
    scopes: tuple[str, ...]
    accounts: tuple[budgets.Account, ...]
    is_held_back: bool


def _admitted(tx: Tx, found: turns.Waiting, *, context: EngineContext, moment: Moment) -> _Admitted:
    """What waits, of those who may still ask. Whoever is beyond a budget is refused.

    From the first message on whose budget is reserved by running turns, everything waits: the order stays.
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
    counted: dict[str, None] = {}
    is_held_back = False
    for arrival, scopes in zip(found.arrivals, scopes_of, strict=True):
        limits = [accounts[scope] for scope in scopes if scope in accounts]
        over = next((each for each in limits if each.is_used_up), None)
        if over is not None:
            why = notices.budget_used_up(over.scope, over.budget.per)
            refused.append((arrival, why))
        elif any(each.is_reserved for each in limits):
            is_held_back = True
            break
        else:
            admitted.append(arrival)
            counted |= dict.fromkeys(scopes)
    _refuse(tx, context, refused, moment=moment)
    return _Admitted(
        replace(found, arrivals=tuple(admitted)),
        tuple(counted),
        tuple(accounts[scope] for scope in counted if scope in accounts),
        is_held_back,
    )


def _refuse(
    tx: Tx, context: EngineContext, refused: Iterable[tuple[Arrival, str]], *, moment: Moment
) -> None:
    told: set[tuple[str, str]] = set()
    for arrival, why in refused:
        arrivals.refuse(tx, arrival, reason=why)
        if (str(arrival.source.channel), why) not in told:
            told.add((str(arrival.source.channel), why))
            _tell(tx, context, arrival.source, why, moment=moment)


def _tell(tx: Tx, context: EngineContext, source: Source, text: str, *, moment: Moment) -> None:
    channel = source.channel
    if channel is not None and channel.platform in context.deliverable:
        deliver.enqueue(tx, channel, (Text(text),), profile=context.profile, moment=moment)
