"""The loop that turns what waits in the inbox into turns."""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from hansard.actions import deliver, receive, turns
from hansard.actions.receive import ArrivalCame
from hansard.clock import Occasion
from hansard.engine import budgets, notices
from hansard.engine.compaction import Compactor
from hansard.engine.parts import Parts
from hansard.engine.settings import WhileRunning
from hansard.engine.turn import Errand, TurnRun
from hansard.engine.wake import Wake
from hansard.errors import RetryLater, StoreUnavailable
from hansard.model.key import SessionKey
from hansard.model.part import Text
from hansard.model.place import Source, session_named_by
from hansard.model.reset import ResetPolicy
from hansard.store import arrivals
from hansard.store.database import Tx

log = logging.getLogger("hansard.loop")


@dataclass(frozen=True, slots=True)
class Beginning:
    """A turn that was begun for a key, and what its run needs to know; or none."""

    begun: turns.Begun | None
    source: Source | None = None
    notice: str | None = None


class TurnLoop:
    """Begins a turn for every key that has something waiting, as many at once as allowed."""

    def __init__(self, parts: Parts, compactor: Compactor) -> None:
        self._parts = parts
        self._compactor = compactor
        self._wake: Wake | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()

    async def run(self) -> None:
        """Go on until cancelled; then every running turn is told to stop and ends in the record."""
        self._wake = Wake(
            self._parts.store, self._concerns, seconds=self._parts.settings.poll_seconds
        )
        try:
            while True:
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
        return len(self._running) < self._parts.settings.most_turns

    def take(self, key: SessionKey, beginning: Beginning) -> None:
        """Run a turn that was begun together with the arrival of its message."""
        name = str(key)
        if name in self._running:  # a round that looked at the inbox before us, and finds nothing
            name = f"{name} {'' if beginning.begun is None else beginning.begun.lease.turn_id}"
        self._start(name, self._run(key, beginning))

    @property
    def turns(self) -> int:
        """How many turns run in this process."""
        return len(self._running)

    def _concerns(self, event: object) -> bool:
        if not isinstance(event, ArrivalCame) or event.profile != self._parts.profile:
            return False
        self._again.add(event.key)
        return True

    async def _begin_waiting(self) -> None:
        try:
            keys = await self._parts.store.read(receive.waiting_keys, profile=self._parts.profile)
        except (RetryLater, StoreUnavailable) as error:
            log.warning("the inbox cannot be read: %s", error)
            return
        for key in keys:
            if key in self._running:
                self._interrupt(key)
            elif self.has_room:
                self._start(key, self._serve(SessionKey.parse(key)))

    def _start(self, name: str, turn: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(turn)
        self._running[name] = task
        task.add_done_callback(lambda _: self._done(name))

    def _done(self, key: str) -> None:
        self._running.pop(key, None)
        self.wake()

    def _interrupt(self, key: str) -> None:
        if self._parts.settings.while_running is WhileRunning.INTERRUPT and key in self._again:
            self._again.discard(key)
            self._running[key].cancel()

    async def _serve(self, key: SessionKey) -> None:
        """One turn for a key; a failure of the store is met again by the next round."""
        parts = self._parts
        try:
            beginning = await parts.store.write(begin, key, parts=parts, when=parts.occasion())
            self._again.discard(str(key))
            await self._run(key, beginning)
        except (RetryLater, StoreUnavailable) as error:
            log.warning("a turn of %s could not be begun: %s", key, error)
            await asyncio.sleep(parts.settings.poll_seconds)

    async def _run(self, key: SessionKey, beginning: Beginning) -> None:
        parts = self._parts
        try:
            if beginning.begun is not None and beginning.source is not None:
                run = TurnRun(parts, beginning.begun, self._errand(beginning))
                await run.run()
                if self._compactor.is_due(run.context_tokens):
                    await self._compactor.compact(beginning.begun.lease.session_id, focus=None)
        except (RetryLater, StoreUnavailable) as error:
            log.warning("a turn of %s could not be kept: %s", key, error)
            await asyncio.sleep(parts.settings.poll_seconds)

    def _errand(self, beginning: Beginning) -> Errand:
        parts, source = self._parts, beginning.source
        assert source is not None
        return Errand(
            source=source,
            agent=parts.agent_for(source, None),
            to=source.channel if source.platform in parts.deliverable else None,
            scopes=budgets.scopes_of(source),
            notice=beginning.notice,
        )

    async def _stop_all(self) -> None:
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)


def begin(tx: Tx, key: SessionKey, *, parts: Parts, when: Occasion) -> Beginning:
    """Begin a turn with what waits, unless a budget is used up: then say so instead."""
    waiting = arrivals.waiting(tx, str(key), profile=key.profile, limit=1)
    if not waiting:
        return Beginning(None)
    source = waiting[0].source
    over = budgets.used_up(
        tx, budgets.scopes_of(source), parts.settings, profile=key.profile, now=when.now
    )
    if over is not None:
        _refuse(tx, parts, key, notices.budget_used_up(*over), when=when)
        return Beginning(None)
    # Who names a session wants that one, however old it is.
    policy = ResetPolicy() if session_named_by(source) else parts.policies.choose(source)
    name = parts.agent_for(source, None).name
    claim = turns.Claim(parts.holder, parts.settings.lease_seconds, name)
    begun = turns.begin(tx, key, policy=policy, claim=claim, when=when)
    if begun is None:
        return Beginning(None)
    tells = begun.route.reset_from is not None and begun.route.reason in ("idle", "daily")
    notice = (
        notices.reset(begun.route.reason) if tells and policy.notifies(source.platform) else None
    )
    return Beginning(begun, source, notice)


def _refuse(tx: Tx, parts: Parts, key: SessionKey, why: str, *, when: Occasion) -> None:
    for arrival in arrivals.waiting(tx, str(key), profile=key.profile, limit=turns.MOST_ARRIVALS):
        arrivals.refuse(tx, arrival, reason=why)
        channel = arrival.source.channel
        if channel is not None and channel.platform in parts.deliverable:
            deliver.enqueue(tx, channel, (Text(why),), profile=key.profile, when=when)
