"""The loop that runs scheduled tasks: each occurrence once, whoever claims it."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from sessionary.actions import schedule, sessions, titles, turns
from sessionary.actions.schedule import Due
from sessionary.clock import Moment
from sessionary.engine import budgets, notices
from sessionary.engine.context import EngineContext
from sessionary.engine.errand import TurnTarget
from sessionary.engine.ports import Agent
from sessionary.engine.targets import Target, target_of, tell
from sessionary.engine.turn import SERVER_STOPPED, TurnRun
from sessionary.errors import NotAllowed, RetryLater, SessionaryError, StoreUnavailable
from sessionary.model.entry import message
from sessionary.model.schedule import RunState
from sessionary.model.session import Kind, Opening, TitleBy
from sessionary.model.source import Source
from sessionary.model.turn import TurnState
from sessionary.store.database import Tx
from sessionary.store.tables import sessions as table

AT_ONCE = 16
logger = logging.getLogger("sessionary.scheduler")


class Scheduler:
    """Claims what is due and runs it, several at once."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._running: set[asyncio.Task[None]] = set()
        self._turns: set[TurnRun] = set()
        self._stopping = False

    async def run(self) -> None:
        """Go on until cancelled; then every run is told to stop and ends in the record."""
        self._stopping = False
        try:
            while True:
                await self.run_due()
                await asyncio.sleep(self._context.settings.poll_seconds)
        finally:
            self._stopping = True
            for turn in self._turns:
                turn.stop(SERVER_STOPPED)
            # Not cancelled: one that is just being begun would be left running in the record.
            await asyncio.gather(*self._running, return_exceptions=True)

    @property
    def runs(self) -> int:
        """How many occurrences run in this process."""
        return len(self._running)

    async def run_due(self) -> int:
        """Begin whatever is due now and has room; how many."""
        context = self._context
        room = AT_ONCE - len(self._running)
        if room <= 0:
            return 0
        try:
            claim = context.store.write(
                schedule.claim_due,
                profile=context.profile,
                holder=context.holder,
                seconds=context.settings.lease_seconds,
                now=context.clock.now(),
                limit=room,
            )
            due = await claim.given_to(self._start_all)
        except (RetryLater, StoreUnavailable) as error:
            logger.warning("schedules cannot be read: %s", error)
            return 0
        return len(due)

    def _start_all(self, due: Sequence[Due]) -> None:
        for each in due:
            self.start(each)

    def start(self, due: Due) -> None:
        """Run an occurrence that was claimed, beside the others."""
        task = asyncio.create_task(self.run_one(due))
        self._running.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # Its lease runs out; then it is recorded as failed, and that is delivered.
            logger.error("a scheduled run could not be kept", exc_info=task.exception())

    async def run_one(self, due: Due) -> None:
        """Run one occurrence to its end, which is always recorded and, if bad, delivered."""
        context = self._context
        heartbeat = asyncio.create_task(self._keep(due))
        try:
            try:
                agent = context.agent_for(_source(due), due.schedule.agent)
                begun, target = await context.store.write(
                    _begin, due, context=context, moment=context.moment()
                )
            except SessionaryError as error:
                logger.warning("schedule %s failed: %s", due.schedule.name, error)
                await context.store.write(_fail, due, str(error), moment=context.moment())
                return
            await self._take_turn(due, TurnRun(context, begun, _target(due, agent, target)), target)
        finally:
            heartbeat.cancel()

    async def _take_turn(self, due: Due, run: TurnRun, target: Target) -> None:
        state, reason = RunState.FAILED, SERVER_STOPPED
        self._turns.add(run)
        if self._stopping:
            run.stop(SERVER_STOPPED)
        try:
            ended = await run.run()
            state = RunState.DONE if ended is TurnState.DONE else RunState.FAILED
            reason = run.reason or target.problem or ""
        finally:
            self._turns.discard(run)
            await self._context.store.write(
                schedule.end_run,
                due,
                state=state,
                now=self._context.clock.now(),
                reason=reason or None,
            )

    async def _keep(self, due: Due) -> None:
        context = self._context
        while True:
            await asyncio.sleep(context.settings.lease_seconds / 3)
            with suppress(RetryLater, StoreUnavailable):
                await context.store.write(
                    schedule.renew,
                    due,
                    holder=context.holder,
                    seconds=context.settings.lease_seconds,
                    now=context.clock.now(),
                )


def _target(due: Due, agent: Agent, target: Target) -> TurnTarget:
    return TurnTarget(
        source=_source(due),
        agent=agent,
        to=target.channel,
        scopes=(f"schedule:{due.schedule.name}",),
        is_job=True,
    )


def _fail(tx: Tx, due: Due, reason: str, *, moment: Moment) -> None:
    """Record an occurrence that could not even begin, and tell of it."""
    if schedule.end_run(tx, due, state=RunState.FAILED, now=moment.now, reason=reason):
        tell(tx, due, notices.run_failed(due.schedule.name, reason), moment=moment)


def _begin(
    tx: Tx, due: Due, *, context: EngineContext, moment: Moment
) -> tuple[turns.Begun, Target]:
    """A session of its own for the run, and its turn, in one step."""
    found = due.schedule
    accounts = budgets.accounts(
        tx, (f"schedule:{found.name}",), context.settings, profile=found.profile, now=moment.now
    )
    for account in accounts.values():
        if account.is_used_up:
            raise NotAllowed(f"its budget for the {account.budget.per} is used up")
        if account.is_reserved:
            raise NotAllowed(
                f"runs that have not ended need its budget for the {account.budget.per}"
            )
    prompt = message("user", found.prompt)
    opening = Opening(found.profile, _source(due), kind=Kind.JOB)
    id = sessions.open_session(tx, opening, moment=moment)
    claim = turns.Claim(context.holder, context.settings.lease_seconds, found.agent)
    begun = turns.begin_in(tx, id, prompt, profile=found.profile, claim=claim, moment=moment)
    expected = budgets.expected_use(None, (prompt,))
    budgets.reserve(tx, begun.lease.turn_id, accounts.values(), expected, profile=found.profile)
    head = table.get_by_no(tx, begun.lease.session_no)
    titles.name_automatically(tx, head, found.name, by=TitleBy.AGENT)
    schedule.ran_in(tx, due, head.no)
    return begun, target_of(tx, due)


def _source(due: Due) -> Source:
    return Source(platform="schedule", chat_id=due.schedule.id, chat_name=due.schedule.name)
