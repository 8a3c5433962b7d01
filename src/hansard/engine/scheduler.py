"""The loop that runs scheduled tasks: each occurrence once, whoever claims it."""

import asyncio
import logging

from hansard.actions import access, schedule, sessions, titles, turns
from hansard.actions.schedule import Due
from hansard.clock import Occasion
from hansard.engine import budgets
from hansard.engine.parts import Parts
from hansard.engine.turn import Errand, TurnRun
from hansard.errors import HansardError, RetryLater, StoreUnavailable
from hansard.model.entry import message
from hansard.model.place import Channel, Source
from hansard.model.schedule import RunState
from hansard.model.session import Kind, Opening, TitleBy
from hansard.model.turn import TurnState
from hansard.store import sessions as table
from hansard.store.database import Tx

logger = logging.getLogger("hansard.scheduler")


class Scheduler:
    """Claims what is due and runs it, several at once."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._running: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Go on until cancelled."""
        try:
            while True:
                await self.run_due()
                await asyncio.sleep(self._parts.settings.poll_seconds)
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    async def run_due(self) -> int:
        """Begin whatever is due now; how many."""
        parts = self._parts
        try:
            due = await parts.store.write(
                schedule.claim_due,
                holder=parts.holder,
                seconds=parts.settings.lease_seconds,
                now=parts.clock.now(),
            )
        except (RetryLater, StoreUnavailable) as error:
            logger.warning("schedules cannot be read: %s", error)
            return 0
        for each in due:
            task = asyncio.create_task(self.run_one(each))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return len(due)

    async def run_one(self, due: Due) -> None:
        """Run one occurrence to its end, which is always recorded."""
        parts = self._parts
        keeper = asyncio.create_task(self._keep(due))
        state, reason = RunState.FAILED, "stopped"
        try:
            begun = await parts.store.write(_begin, due, parts=parts, when=parts.occasion())
            errand = await self._errand(due)
            ended = await TurnRun(parts, begun, errand).run()
            state = RunState.DONE if ended is TurnState.DONE else RunState.FAILED
            reason = "" if ended is TurnState.DONE else str(ended)
        except HansardError as error:
            reason = str(error)
            logger.warning("schedule %s failed: %s", due.schedule.name, error)
        finally:
            keeper.cancel()
            await parts.store.write(
                schedule.end_run, due, state=state, now=parts.clock.now(), reason=reason or None
            )

    async def _keep(self, due: Due) -> None:
        parts = self._parts
        while True:
            await asyncio.sleep(parts.settings.lease_seconds / 3)
            await parts.store.write(
                schedule.renew,
                due,
                holder=parts.holder,
                seconds=parts.settings.lease_seconds,
                now=parts.clock.now(),
            )

    async def _errand(self, due: Due) -> Errand:
        found = due.schedule
        source = _source(due)
        target = await self._parts.store.read(target_of, due, profile=found.profile)
        deliverable = target is not None and target.platform in self._parts.deliverable
        return Errand(
            source=source,
            agent=self._parts.agent_for(source, found.agent),
            to=target if deliverable else None,
            scopes=(f"schedule:{found.name}",),
            is_job=True,
        )


def target_of(tx: Tx, due: Due, *, profile: str) -> Channel | None:
    """Where the output goes; None for `local`, or where nothing is known of the place."""
    found = due.schedule
    match found.deliver_to:
        case "local":
            return None
        case "origin":
            return None if found.origin is None else found.origin.channel
        case name if ":" not in name:
            homes = {home.platform: home for home in access.homes(tx, profile=profile)}
            home = homes.get(name)
            return None if home is None else Channel(home.platform, home.chat_id, home.thread_id)
        case explicit:
            return Channel.parse(explicit)


def _begin(tx: Tx, due: Due, *, parts: Parts, when: Occasion) -> turns.Begun:
    """A session of its own for the run, and its turn, in one step."""
    found = due.schedule
    over = budgets.used_up(
        tx, (f"schedule:{found.name}",), parts.settings, profile=found.profile, now=when.now
    )
    if over is not None:
        raise RetryLater(f"The budget of schedule {found.name!r} is used up.")
    opening = Opening(found.profile, _source(due), kind=Kind.JOB)
    id = sessions.open_session(tx, opening, when=when)
    claim = turns.Claim(parts.holder, parts.settings.lease_seconds, found.agent)
    begun = turns.begin_in(
        tx, id, message("user", found.prompt), profile=found.profile, claim=claim, when=when
    )
    head = table.get_by_no(tx, begun.lease.session_no)
    titles.name_automatically(tx, head, found.name, by=TitleBy.AGENT)
    schedule.ran_in(tx, due, head.no)
    return begun


def _source(due: Due) -> Source:
    return Source(platform="schedule", chat_id=due.schedule.id, chat_name=due.schedule.name)
