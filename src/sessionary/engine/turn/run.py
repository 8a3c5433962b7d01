"""Running one turn: what the agent is given, its lease, and how the turn ends."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from sessionary.actions import access, files, usage
from sessionary.actions.sessions import read, titles
from sessionary.actions.sessions.routing import Route
from sessionary.actions.turns import Begun
from sessionary.clock import Moment
from sessionary.engine.context import EngineContext
from sessionary.engine.ports import Delta, Step, TurnRequest
from sessionary.engine.turn.lease import LeaseHeartbeat
from sessionary.engine.turn.record import TurnRecord, TurnTarget
from sessionary.errors import BadInput, SessionaryError, TurnLost
from sessionary.model import transcript
from sessionary.model.message import Message, Role
from sessionary.model.prompt import PromptContext
from sessionary.model.reset import ResetReason
from sessionary.model.session import SessionHead
from sessionary.model.source import Source
from sessionary.model.tokens import estimate
from sessionary.model.transcript import Chat
from sessionary.model.turn import TurnState
from sessionary.model.usage import Usage
from sessionary.store.database import Tx

# A runner that never waits yields to the event loop after this many events.
YIELD_EVERY = 64
# How long a cancelled runner may take to end.
CANCEL_GRACE_SECONDS = 5.0
SERVER_STOPPED = "the server stopped"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TurnInput:
    """What the agent is given: the session, its context, where it takes place, and its settings."""

    head: SessionHead
    context: list[Chat]
    surroundings: PromptContext
    settings: Mapping[str, Any]


def read_turn_input(tx: Tx, source: Source, *, route: Route, context: EngineContext) -> TurnInput:
    """Read what the agent is given, as of the beginning of the turn."""
    head = read.head(tx, route.session_id, profile=context.profile)
    entries = read.since_compaction(tx, head)
    adapter = context.adapters.get(source.platform)
    notes = adapter.capabilities.notes if adapter is not None else ()
    redacts = adapter is None or not adapter.capabilities.ids_needed_for_mentions
    # The agent is told once, in the first turn, why the session before this one was over.
    was_reset = route.opened and route.reset_from is not None and route.reason in set(ResetReason)
    surroundings = PromptContext(
        source=source,
        shared=transcript.named_from(entries) is not None,
        platform_notes=notes,
        connected=context.deliverable,
        homes=frozenset(access.homes(tx, profile=context.profile)),
        redact=context.redact_people and redacts,
        reset=ResetReason(str(route.reason)) if was_reset else None,
    )
    return TurnInput(head, transcript.context(entries), surroundings, read.settings(tx, head))


class TurnRun:
    """Runs one turn: the agent, its lease, and an end whatever happens."""

    def __init__(self, context: EngineContext, begun: Begun, target: TurnTarget) -> None:
        self._context = context
        self._begun = begun
        self._target = target
        self._record = TurnRecord(context, begun, target)
        self._titled = True
        self._first_prompt = ""
        self._heartbeat: LeaseHeartbeat | None = None
        self._stop: str | None = None
        self.context_tokens = 0
        self.reason: str | None = None

    async def run(self) -> TurnState:
        """Run the turn; whatever happens, its end is recorded and its people are turn_input."""
        work = asyncio.create_task(self._work())
        is_cancelled = is_late = False
        async with LeaseHeartbeat(
            self._context, self._begun.lease, work, self._record.checkpoint
        ) as heartbeat:
            self._heartbeat = heartbeat
            if self._stop is not None:
                heartbeat.request_stop(self._stop)
            try:
                await asyncio.wait({work}, timeout=self._context.settings.turn_seconds)
                is_late = not work.done()
            except asyncio.CancelledError:
                is_cancelled = True
                heartbeat.request_stop(SERVER_STOPPED)
            if not work.done():
                work.cancel()
                await asyncio.wait({work}, timeout=CANCEL_GRACE_SECONDS)
        state, self.reason = self._outcome(work, heartbeat, is_late=is_late)
        state, self.reason = await self._record.end(state, self.reason)
        if is_cancelled:
            raise asyncio.CancelledError
        return state

    def stop(self, reason: str) -> None:
        """End the turn now, keeping what the agent has said so far."""
        self._stop = self._stop or reason
        self._record.is_hurried = True
        if self._heartbeat is not None:
            self._heartbeat.request_stop(reason)

    def check_stop(self) -> None:
        """Check now whether a stop was requested."""
        if self._heartbeat is not None:
            self._heartbeat.check_now()

    @property
    def needs_title(self) -> bool:
        """Whether the session has no title yet."""
        return not self._titled

    async def set_title(self) -> None:
        """Give the session a title after its first reply."""
        title, used = await self._target.agent.titler.title(self._first_prompt, self._record.reply)
        await self._context.store.write(
            _set_title,
            self._begun.lease.session_id,
            title,
            None if used is None else self._context.priced(used),
            profile=self._context.profile,
            moment=self._context.moment(),
        )

    def _outcome(
        self, work: "asyncio.Task[None]", heartbeat: LeaseHeartbeat, *, is_late: bool
    ) -> tuple[TurnState, str | None]:
        """Return how the turn ended, and the reason for people."""
        error = work.exception() if work.done() and not work.cancelled() else None
        if error is not None and not isinstance(error, Exception):
            raise error
        # A turn whose heartbeat failed is not done, even if its agent ended normally when it was cancelled.
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
        # A runner is foreign code: any failure ends this turn only.
        log.error("turn %s failed", self._begun.lease.turn_id, exc_info=error)
        return TurnState.FAILED, f"{type(error).__name__}: {error}"

    async def _work(self) -> None:
        request = await self._request()
        self._record.publish("began")
        events = 0
        async for event in self._events(request):
            match event:
                case Delta():
                    self._record.add_delta(event)
                case Step(message=Message(role=Role.ASSISTANT | Role.TOOL)):
                    await self._record.add_step(event)
                case _:
                    raise BadInput(f"The agent gave {_describe(event)} instead of a step.")
            events += 1
            if events % YIELD_EVERY == 0:
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
        turn_input = await context.store.read(
            read_turn_input, self._target.source, route=self._begun.route, context=context
        )
        self._titled = turn_input.head.title is not None
        self._first_prompt = turn_input.head.preview or ""
        if context.settings.compact_at_tokens is not None:
            self.context_tokens = estimate(turn_input.context)
        return TurnRequest(
            turn_id=self._begun.lease.turn_id,
            session=turn_input.head,
            source=self._target.source,
            system_prompt=context.system_prompt(self._target.agent.prompt, turn_input.surroundings),
            context=turn_input.context,
            blob=self._blob,
            settings=turn_input.settings,
        )

    async def _blob(self, name: str) -> bytes:
        return await self._context.store.read(
            files.read_blob, name, session_no=self._begun.lease.session_no
        )


def _set_title(
    tx: Tx, session_id: str, title: str | None, used: Usage | None, *, profile: str, moment: Moment
) -> None:
    head = read.head(tx, session_id, profile=profile)
    if title is not None:
        titles.name_automatically(tx, head, title)
    if used is not None:
        usage.record(tx, head.no, used, profile=profile, moment=moment)


def _describe(event: object) -> str:
    if isinstance(event, Step) and isinstance(event.message, Message):
        return f"a message of the {event.message.role}"
    return type(event).__name__
