"""The loop that runs scheduled tasks: each occurrence once, in the process that claims it."""

import asyncio
import logging
from collections.abc import Sequence

from msgspec import Struct

from sessionary.actions import access, outbox, schedules, turns
from sessionary.actions.budgets import lock_accounts, reserve, scope_name
from sessionary.actions.schedules import ClaimedRun
from sessionary.actions.sessions import edit, titles
from sessionary.clock import Moment
from sessionary.engine import notices
from sessionary.engine.context import TRUSTED, EngineContext
from sessionary.engine.ports import Agent
from sessionary.engine.turn import budgets
from sessionary.engine.turn.run import SERVER_STOPPED, TurnRun, TurnTarget
from sessionary.errors import NotAllowed, RetryLater, SessionaryError, StoreUnavailable
from sessionary.model.message import Text, message
from sessionary.model.schedule import RunState
from sessionary.model.session import Kind, Opening, TitleBy
from sessionary.model.source import Channel, Source, by_program
from sessionary.model.turn import TurnState
from sessionary.store.database import Tx
from sessionary.store.tables import sessions as table

MAX_RUNNING = 16
log = logging.getLogger(__name__)


class ScheduleTarget(Struct, frozen=True):
    """The channel of a scheduled task's output, or why there is none.

    With neither, the output stays in the session, as the schedule asks.
    """

    channel: Channel | None = None
    problem: str | None = None


class Scheduler:
    """Claims the occurrences that are due and runs them, several at once."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._running: set[asyncio.Task[None]] = set()
        self._turns: set[TurnRun] = set()
        self._stopping = False

    async def run(self) -> None:
        """Run until cancelled; then every run is stopped and its end is recorded."""
        self._stopping = False
        try:
            while True:
                await self.run_due()
                await asyncio.sleep(self._context.settings.poll_seconds)
        finally:
            self._stopping = True
            for turn in self._turns:
                turn.hand_over()
            # Not cancelled: a turn that is just beginning would stay "running" in the store.
            await asyncio.gather(*self._running, return_exceptions=True)

    @property
    def runs(self) -> int:
        """How many occurrences run in this process."""
        return len(self._running)

    async def run_due(self) -> int:
        """Start the occurrences that are due, up to the limit; return how many."""
        context = self._context
        free = MAX_RUNNING - len(self._running)
        if free <= 0:
            return 0
        try:
            claim = context.store.write(
                schedules.claim_due,
                profile=context.profile,
                holder=context.holder,
                seconds=context.settings.lease_seconds,
                now=context.clock.now(),
                limit=free,
            )
            due = await claim.handoff(self._start_all)
        except (RetryLater, StoreUnavailable) as error:
            log.warning("schedules cannot be read: %s", error)
            return 0
        return len(due)

    def _start_all(self, due: Sequence[ClaimedRun]) -> None:
        for each in due:
            self.start(each)

    def start(self, due: ClaimedRun) -> None:
        """Run a claimed occurrence in the background."""
        task = asyncio.create_task(self.run_one(due))
        self._running.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # Its lease runs out; then the sweeper records it as failed and notifies its people.
            log.error("the end of a scheduled run could not be stored", exc_info=task.exception())

    def resume(self, due: ClaimedRun, begun: turns.Begun, sources: tuple[Source, ...] = ()) -> None:
        """Continue the turn of an occurrence whose process has ended, in the background.

        `sources` are those of the messages that it has.
        """
        task = asyncio.create_task(self.run_one(due, begun, sources))
        self._running.add(task)
        task.add_done_callback(self._finished)

    async def run_one(
        self,
        due: ClaimedRun,
        continued: turns.Begun | None = None,
        sources: tuple[Source, ...] = (),
    ) -> None:
        """Run one occurrence, or continue its turn; its end is always recorded, and a failure is delivered."""
        context = self._context
        heartbeat = asyncio.create_task(self._renew(due))
        try:
            try:
                agent = context.agent_for(source_of(due), due.schedule.agent)
                if continued is None:
                    begun, target = await context.store.write(
                        _begin, due, agent, context=context, moment=context.moment()
                    )
                else:
                    begun = continued
                    target = await context.store.read(target_of, due)
            except SessionaryError as error:
                log.warning("schedule %s failed: %s", due.schedule.name, error)
                await context.store.write(_fail, due, str(error), moment=context.moment())
                return
            scopes = _scopes(due, agent, context, session_id=begun.lease.session_id)
            target_of_turn = _target(due, agent, target, scopes=scopes, sources=sources)
            run = TurnRun(context, begun, target_of_turn)
            await self._run_turn(due, run, target)
        finally:
            heartbeat.cancel()

    async def _run_turn(self, due: ClaimedRun, run: TurnRun, target: ScheduleTarget) -> None:
        state, reason = RunState.FAILED, SERVER_STOPPED
        self._turns.add(run)
        if self._stopping:
            run.hand_over()
        ended = None
        try:
            ended = await run.run()
            state = RunState.DONE if ended is TurnState.DONE else RunState.FAILED
            reason = run.reason or target.problem or ""
        finally:
            self._turns.discard(run)
            # Whichever process continues a turn that was left to it, or that waits for people, ends the run.
            if ended not in (TurnState.RUNNING, TurnState.WAITING):
                await self._context.store.write(
                    schedules.end_run,
                    due,
                    state=state,
                    now=self._context.clock.now(),
                    reason=reason or None,
                )

    async def _renew(self, due: ClaimedRun) -> None:
        context = self._context
        while True:
            await asyncio.sleep(context.settings.lease_seconds / 3)
            try:
                await context.store.write(
                    schedules.renew,
                    due,
                    holder=context.holder,
                    seconds=context.settings.lease_seconds,
                    now=context.clock.now(),
                )
            except (RetryLater, StoreUnavailable) as error:
                # Renewed with the next round, if the lease has not run out by then.
                log.warning("schedule %s cannot renew its lease: %s", due.schedule.name, error)


def _target(
    due: ClaimedRun,
    agent: Agent,
    target: ScheduleTarget,
    *,
    scopes: tuple[str, ...],
    sources: tuple[Source, ...],
) -> TurnTarget:
    return TurnTarget(
        source=source_of(due),
        agent=agent,
        to=target.channel,
        scopes=scopes,
        is_job=True,
        sources=sources,
    )


def _scopes(
    due: ClaimedRun, agent: Agent, context: EngineContext, *, session_id: str | None = None
) -> tuple[str, ...]:
    """Return what a run is counted under."""
    shared = budgets.turn_scopes(
        context.settings.budgets,
        profile=due.schedule.profile,
        agent=agent.name,
        session_id=session_id,
    )
    return (scope_name("schedule", due.schedule.name), *shared)


def _fail(tx: Tx, due: ClaimedRun, reason: str, *, moment: Moment) -> None:
    """Record an occurrence that could not begin, and notify its people."""
    if schedules.end_run(tx, due, state=RunState.FAILED, now=moment.now, reason=reason):
        notify(tx, due, notices.run_failed(due.schedule.name, reason), moment=moment)


def _begin(
    tx: Tx, due: ClaimedRun, agent: Agent, *, context: EngineContext, moment: Moment
) -> tuple[turns.Begun, ScheduleTarget]:
    """Open a session for the run and begin its turn, in one transaction."""
    task, known = due.schedule, context.settings.budgets
    checked = (*_scopes(due, agent, context), *budgets.model_scopes(known, agent=agent))
    accounts = lock_accounts(tx, checked, known, profile=task.profile, now=moment.now)
    for account in accounts.values():
        if account.is_used_up:
            raise NotAllowed(notices.run_budget_used_up(account.status()))
        if account.is_reserved:
            raise NotAllowed(notices.run_budget_reserved(account.status()))
    prompt = message("user", task.prompt)
    opening = Opening(task.profile, source_of(due), kind=Kind.JOB)
    id = edit.open_session(tx, opening, moment=moment)
    settings = context.settings
    resumable = agent.resumes and settings.resume_attempts > 0
    claim = turns.Claim(context.holder, settings.lease_seconds, agent.name, resumable)
    begun = turns.begin_in_session(tx, id, prompt, profile=task.profile, claim=claim, moment=moment)
    own = budgets.turn_scopes(known, session_id=id)
    accounts |= lock_accounts(tx, own, known, profile=task.profile, now=moment.now)
    expected = budgets.expected_use(None, (prompt,))
    reserve(tx, begun.lease.turn_id, accounts.values(), expected, profile=task.profile)
    head = table.get_by_no(tx, begun.lease.session_no)
    titles.name_automatically(tx, head, task.name, by=TitleBy.AGENT)
    schedules.set_run_session(tx, due, head.no)
    return begun, target_of(tx, due)


def source_of(due: ClaimedRun) -> Source:
    """Return where the turn of an occurrence comes from: its schedule."""
    source = Source(platform="schedule", chat_id=due.schedule.id, chat_name=due.schedule.name)
    return by_program(source) if due.schedule.by_program else source


def target_of(tx: Tx, due: ClaimedRun) -> ScheduleTarget:
    """Return where the output of an occurrence goes.

    The adapter of that platform may run in another process.
    """
    task = due.schedule
    match task.deliver_to:
        case "local":
            return ScheduleTarget()
        case "origin":
            channel = None if task.origin is None else task.origin.channel
            # These platforms have no outbox: people read the session there.
            is_here = channel is None or channel.platform in TRUSTED
            return ScheduleTarget() if is_here else ScheduleTarget(channel)
        case name if ":" not in name:
            homes = {home.platform: home for home in access.list_homes(tx, profile=task.profile)}
            home = homes.get(name)
            if home is None:
                return ScheduleTarget(
                    problem=f"not delivered: {name} has no home channel; send /sethome"
                )
            return ScheduleTarget(Channel(home.platform, home.chat_id, home.thread_id))
        case explicit:
            return ScheduleTarget(Channel.parse(explicit))


def notify(tx: Tx, due: ClaimedRun, text: str, *, moment: Moment) -> None:
    """Enqueue a notice about an occurrence where its output goes."""
    channel = target_of(tx, due).channel
    if channel is not None:
        outbox.enqueue(tx, channel, (Text(text),), profile=due.schedule.profile, moment=moment)
