"""One turn, from its beginning in the store to its end there."""

import asyncio
import logging
from collections.abc import AsyncIterator

from sessionary.actions import blobs, read, titles, usage
from sessionary.actions.turns import Begun
from sessionary.clock import Moment
from sessionary.engine import lease
from sessionary.engine.briefing import brief
from sessionary.engine.errand import Errand
from sessionary.engine.parts import EngineContext
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

    def __init__(self, parts: EngineContext, begun: Begun, errand: Errand) -> None:
        self._parts = parts
        self._begun = begun
        self._errand = errand
        self._record = TurnRecord(parts, begun, errand)
        self._titled = True
        self._asked = ""
        self._keeper: lease.Keeper | None = None
        self._stop: str | None = None
        self.context_tokens = 0
        self.reason: str | None = None

    async def run(self) -> TurnState:
        """Run the turn to its end; whatever happens, it has one, and a visible one."""
        work = asyncio.create_task(self._work())
        is_cancelled = is_late = False
        async with lease.kept(self._parts, self._begun.lease, work, self._record.settle) as keeper:
            self._keeper = keeper
            if self._stop is not None:
                keeper.ask_to_stop(self._stop)
            try:
                await asyncio.wait({work}, timeout=self._parts.settings.turn_seconds)
                is_late = not work.done()
            except asyncio.CancelledError:
                is_cancelled = True
                keeper.ask_to_stop(SERVER_STOPPED)
            if not work.done():
                work.cancel()
                await asyncio.wait({work}, timeout=STUBBORN_SECONDS)
        state, self.reason = self._outcome(work, keeper, is_late=is_late)
        state, self.reason = await self._record.end(state, self.reason)
        if is_cancelled:
            raise asyncio.CancelledError
        return state

    def stop(self, reason: str) -> None:
        """End the turn now; what was said until now is kept."""
        self._stop = self._stop or reason
        self._record.is_hurried = True
        if self._keeper is not None:
            self._keeper.ask_to_stop(reason)

    def look(self) -> None:
        """Look now whether someone wants this turn to stop."""
        if self._keeper is not None:
            self._keeper.look()

    @property
    def wants_name(self) -> bool:
        """Whether the session has no title yet."""
        return not self._titled

    async def name(self) -> None:
        """Give the session a title after its first answer."""
        wanted, used = await self._errand.agent.titler.title(self._asked, self._record.reply)
        await self._parts.store.write(
            _name,
            self._begun.lease.session_id,
            wanted,
            None if used is None else self._parts.priced(used),
            profile=self._parts.profile,
            moment=self._parts.moment(),
        )

    def _outcome(
        self, work: "asyncio.Task[None]", keeper: lease.Keeper, *, is_late: bool
    ) -> tuple[TurnState, str | None]:
        """How the turn ended, in one word and for people."""
        error = work.exception() if work.done() and not work.cancelled() else None
        if error is not None and not isinstance(error, Exception):
            raise error
        # What could not be kept is not done, whatever the agent makes of being stopped for it.
        if work.done() and not work.cancelled() and error is None and keeper.error is None:
            return TurnState.DONE, None
        if keeper.lost or isinstance(error, TurnLost):
            return TurnState.INTERRUPTED, "another process has taken over"
        if is_late:
            seconds = self._parts.settings.turn_seconds
            return TurnState.FAILED, f"it took longer than {seconds:g} s"
        if keeper.stop is not None:
            return TurnState.INTERRUPTED, keeper.stop
        error = error or keeper.error
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
        stream = self._errand.agent.runner.run(request)
        try:
            async for event in stream:
                yield event
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    async def _request(self) -> TurnRequest:
        parts = self._parts
        told = await parts.store.read(
            brief, self._errand.source, route=self._begun.route, parts=parts
        )
        self._titled = told.head.title is not None
        self._asked = told.head.preview or ""
        if parts.settings.compact_at_tokens is not None:
            self.context_tokens = estimate(told.context)
        return TurnRequest(
            turn_id=self._begun.lease.turn_id,
            session=told.head,
            source=self._errand.source,
            system_prompt=parts.system_prompt(self._errand.agent.prompt, told.surroundings),
            context=told.context,
            blob=self._blob,
            settings=told.settings,
        )

    async def _blob(self, name: str) -> bytes:
        return await self._parts.store.read(
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
