"""One turn, from its beginning in the store to its end there."""

import asyncio
import logging
from collections.abc import AsyncIterator

from sessionary.actions import blobs, read, titles, usage
from sessionary.actions.turns import Begun
from sessionary.clock import Moment
from sessionary.engine import lease
from sessionary.engine.briefing import read_turn_input
from sessionary.engine.context import EngineContext
from sessionary.engine.errand import TurnTarget
from sessionary.engine.ports import Delta, Step, TurnRequest
from sessionary.engine.turn_record import TurnRecord
from sessionary.errors import BadInput, SessionaryError, TurnLost
from sessionary.model.entry import Message, Role
from sessionary.model.tokens import estimate
from sessionary.model.turn import TurnState
from sessionary.model.usage import Usage
from sessionary.store.database import Tx

BREATHER = 64
STUBBORN_SECONDS = 5.0
SERVER_STOPPED = "the server stopped"
log = logging.getLogger("sessionary.turn")


class TurnRun:
    """Runs one turn: an agent, its lease, and an end whatever happens."""

    def __init__(self, context: EngineContext, begun: Begun, target: TurnTarget) -> None:
        self._context = context
        self._begun = begun
        self._target = target
        self._record = TurnRecord(context, begun, target)
        self._titled = True
        self._asked = ""
        self._heartbeat: lease.LeaseHeartbeat | None = None
        self._stop: str | None = None
        self.context_tokens = 0
        self.reason: str | None = None

    async def run(self) -> TurnState:
        """Run the turn to its end; whatever happens, it has one, and a visible one."""
        work = asyncio.create_task(self._work())
        is_cancelled = is_late = False
        async with lease.kept(
            self._context, self._begun.lease, work, self._record.settle
        ) as heartbeat:
            self._heartbeat = heartbeat
            if self._stop is not None:
                heartbeat.ask_to_stop(self._stop)
            try:
                await asyncio.wait({work}, timeout=self._context.settings.turn_seconds)
                is_late = not work.done()
            except asyncio.CancelledError:
                is_cancelled = True
                heartbeat.ask_to_stop(SERVER_STOPPED)
            if not work.done():
                work.cancel()
                await asyncio.wait({work}, timeout=STUBBORN_SECONDS)
        state, self.reason = self._outcome(work, heartbeat, is_late=is_late)
        state, self.reason = await self._record.end(state, self.reason)
        if is_cancelled:
            raise asyncio.CancelledError
        return state

    def stop(self, reason: str) -> None:
        """End the turn now; what was said until now is kept."""
        self._stop = self._stop or reason
        self._record.is_hurried = True
        if self._heartbeat is not None:
            self._heartbeat.ask_to_stop(reason)

    def look(self) -> None:
        """Look now whether someone wants this turn to stop."""
        if self._heartbeat is not None:
            self._heartbeat.look()

    @property
    def wants_name(self) -> bool:
        """Whether the session has no title yet."""
        return not self._titled

    async def name(self) -> None:
        """Give the session a title after its first answer."""
        wanted, used = await self._target.agent.titler.title(self._asked, self._record.reply)
        await self._context.store.write(
            _name,
            self._begun.lease.session_id,
            wanted,
            None if used is None else self._context.priced(used),
            profile=self._context.profile,
            moment=self._context.moment(),
        )

    def _outcome(
        self, work: "asyncio.Task[None]", heartbeat: lease.LeaseHeartbeat, *, is_late: bool
    ) -> tuple[TurnState, str | None]:
        """How the turn ended, in one word and for people."""
        error = work.exception() if work.done() and not work.cancelled() else None
        if error is not None and not isinstance(error, Exception):
            raise error
        # What could not be kept is not done, whatever the agent makes of being stopped for it.
        if work.done() and not work.cancelled() and error is None and heartbeat.error is None:
            return TurnState.DONE, None
        if heartbeat.lost or isinstance(error, TurnLost):
            return TurnState.INTERRUPTED, "another process has taken over"
        if is_late:
            seconds = self._context.settings.turn_seconds
            return TurnState.FAILED, f"it took longer than {seconds:g} s"
        if heartbeat.stop is not None:
            return TurnState.INTERRUPTED, heartbeat.stop
        error = error or heartbeat.error
        if error is None:
            return TurnState.FAILED, "the agent gave up by itself"
        if isinstance(error, SessionaryError):
            return TurnState.FAILED, str(error)
        # A runner is someone else's program: its failure ends its own turn.
        log.error("turn %s failed", self._begun.lease.turn_id, exc_info=error)
        return TurnState.FAILED, f"{type(error).__name__}: {error}"

    async def _work(self) -> None:
        request = await self._request()
        self._record.tell("began")
        events = 0
        async for event in self._events(request):
            match event:
                case Delta():
                    self._record.take_delta(event)
                case Step(message=Message(role=Role.ASSISTANT | Role.TOOL)):
                    await self._record.take_step(event)
                case _:
                    raise BadInput(f"The agent gave {_kind(event)} instead of a step.")
            events += 1
            if events % BREATHER == 0:
                # One that never waits for anything must not keep everyone else waiting.
                await asyncio.sleep(0)

    async def _events(self, request: TurnRequest) -> AsyncIterator[Delta | Step]:
        stream = self._target.agent.runner.run(request)
        try:
            async for event in stream:
                yield event
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    async def _request(self) -> TurnRequest:
        context = self._context
        told = await context.store.read(
            read_turn_input, self._target.source, route=self._begun.route, context=context
        )
        self._titled = told.head.title is not None
        self._asked = told.head.preview or ""
        if context.settings.compact_at_tokens is not None:
            self.context_tokens = estimate(told.context)
        return TurnRequest(
            turn_id=self._begun.lease.turn_id,
            session=told.head,
            source=self._target.source,
            system_prompt=context.system_prompt(self._target.agent.prompt, told.surroundings),
            context=told.context,
            blob=self._blob,
            settings=told.settings,
        )

    async def _blob(self, name: str) -> bytes:
        return await self._context.store.read(
            blobs.read_blob, name, session_no=self._begun.lease.session_no
        )


def _name(
    tx: Tx, session_id: str, wanted: str | None, used: Usage | None, *, profile: str, moment: Moment
) -> None:
    head = read.head(tx, session_id, profile=profile)
    if wanted is not None:
        titles.name_automatically(tx, head, wanted)
    if used is not None:
        usage.record(tx, head.no, used, profile=profile, moment=moment)


def _kind(event: object) -> str:
    if isinstance(event, Step) and isinstance(event.message, Message):
        return f"a message of the {event.message.role}"
    return type(event).__name__
