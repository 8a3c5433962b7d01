"""One turn, from its beginning in the store to its end there."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from hansard.actions import access, blobs, read, titles, turns, usage
from hansard.actions.turns import Begun, Ending, Reply
from hansard.clock import Occasion
from hansard.engine import budgets, lease, notices
from hansard.engine.bus import Live
from hansard.engine.parts import Parts
from hansard.engine.ports import Agent, Delta, Step, TurnRequest
from hansard.errors import BadInput, HansardError, TurnLost
from hansard.model.entry import Message, Role
from hansard.model.part import Text, ToolCall
from hansard.model.place import Channel, Source
from hansard.model.reset import ResetReason
from hansard.model.schedule import SILENT
from hansard.model.session import SessionHead
from hansard.model.surroundings import Surroundings
from hansard.model.tokens import estimate
from hansard.model.transcript import Chat
from hansard.model.turn import TurnState
from hansard.model.usage import Usage
from hansard.store.database import Tx

CHECKPOINT_SECONDS = 1.0
log = logging.getLogger("hansard.turn")


@dataclass(frozen=True, slots=True)
class Errand:
    """What a turn is for: who asked, where the answer goes, which agent takes it."""

    source: Source
    agent: Agent
    to: Channel | None
    scopes: tuple[str, ...] = ()
    notice: str | None = None
    is_job: bool = False


@dataclass(slots=True)
class _Course:
    """How far a running turn has come."""

    partial: list[str] = field(default_factory=list)
    held: Step | None = None
    said: int = 0
    checkpointed: float = 0.0
    reply: str = ""


class TurnRun:
    """Runs one turn: the only place where an agent's output meets the record."""

    def __init__(self, parts: Parts, begun: Begun, errand: Errand) -> None:
        self._parts = parts
        self._begun = begun
        self._errand = errand
        self._profile = parts.profile
        self._course = _Course()
        self._titled = True
        self._asked = ""
        self.context_tokens = 0

    async def run(self) -> TurnState:
        """Run the turn to its end; whatever happens, it has one, and a visible one."""
        work = asyncio.create_task(self._work())
        state, reason = TurnState.DONE, None
        async with lease.kept(self._parts, self._begun.lease, work) as keeper:
            try:
                async with asyncio.timeout(self._parts.settings.turn_seconds):
                    await work
            except TimeoutError:
                seconds = self._parts.settings.turn_seconds
                state, reason = TurnState.FAILED, f"it took longer than {seconds:.0f} s"
            except asyncio.CancelledError:
                if keeper.lost:
                    self._tell("lost")
                    return TurnState.INTERRUPTED
                if keeper.stop is None:
                    await self._end(TurnState.INTERRUPTED, "the server stopped")
                    raise
                state, reason = TurnState.INTERRUPTED, keeper.stop
            except TurnLost:
                self._tell("lost")
                return TurnState.INTERRUPTED
            except HansardError as error:
                state, reason = TurnState.FAILED, str(error)
            except (
                Exception
            ) as error:  # a runner is someone else's program: its failure ends its own turn
                log.exception("turn %s failed", self._begun.lease.turn_id)
                state, reason = TurnState.FAILED, f"{type(error).__name__}: {error}"
        await self._end(state, reason)
        return state

    async def _work(self) -> None:
        request = await self._request()
        self._tell("began")
        async for event in self._events(request):
            match event:
                case Delta():
                    await self._take_delta(event)
                case Step():
                    await self._take_step(event)
                case _:
                    raise BadInput(f"The agent gave {type(event).__name__} instead of a step.")

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
        parts, route = self._parts, self._begun.route
        facts = await parts.store.read(
            _facts, route.session_id, self._errand.source, parts=parts, reset=self._reset_reason()
        )
        self._titled = facts.head.title is not None
        self._asked = facts.head.preview or ""
        self.context_tokens = estimate(facts.context)
        return TurnRequest(
            turn_id=self._begun.lease.turn_id,
            session=facts.head,
            source=self._errand.source,
            system_prompt=parts.system_prompt(self._errand.agent.prompt, facts.surroundings),
            context=facts.context,
            blob=self._blob,
        )

    async def _blob(self, name: str) -> bytes:
        return await self._parts.store.read(
            blobs.read_blob, name, session_no=self._begun.lease.session_no
        )

    async def _take_delta(self, delta: Delta) -> None:
        course = self._course
        self._count(len(delta.text))
        self._tell("thinking" if delta.thinking else "delta", delta.text)
        if delta.thinking:
            return
        course.partial.append(delta.text)
        if time.monotonic() - course.checkpointed >= CHECKPOINT_SECONDS:
            course.checkpointed = time.monotonic()
            text = "".join(course.partial)
            await self._parts.store.write(turns.checkpoint, self._begun.lease, text)

    async def _take_step(self, step: Step) -> None:
        course = self._course
        await self._flush()
        said = step.message
        self._count(len(said.text))
        if said.role is Role.ASSISTANT and said.text:
            course.reply = said.text
        course.held = step
        # What may be the last word waits for the end of the turn, to be one step with it.
        if said.role is not Role.ASSISTANT or any(
            isinstance(part, ToolCall) for part in said.parts
        ):
            await self._flush()

    async def _flush(self) -> None:
        course = self._course
        if course.held is None:
            return
        step, course.held = course.held, None
        used = None if step.usage is None else self._parts.priced(step.usage)
        await self._parts.store.write(
            budgets.step,
            self._begun.lease,
            step.message,
            used,
            profile=self._profile,
            when=self._parts.occasion(),
            spending=self._spending(),
        )
        course.partial.clear()
        self._tell("step")

    async def _end(self, state: TurnState, reason: str | None) -> None:
        course, parts = self._course, self._parts
        step, course.held = course.held, None
        messages: tuple[Message, ...] = () if step is None else (step.message,)
        unfinished = "".join(course.partial)
        if step is None and unfinished:
            messages = (Message(Role.ASSISTANT, (Text(unfinished),), finish_reason=str(state)),)
        used = () if step is None or step.usage is None else (parts.priced(step.usage),)
        ending = Ending(state, reason, messages, used, self._replies(state, reason))
        when = parts.occasion()
        try:
            await asyncio.shield(
                _awaited(
                    parts.store.write(
                        budgets.end,
                        self._begun.lease,
                        ending,
                        profile=self._profile,
                        when=when,
                        spending=self._spending(),
                    )
                )
            )
        except TurnLost:
            self._tell("lost")
            return
        self._tell("ended", {"state": str(state), "reason": reason})
        if state is TurnState.DONE:
            await self._name()

    async def _name(self) -> None:
        """Give the session a title after its first answer, unless it has one."""
        if self._titled:
            return
        wanted, used = await self._errand.agent.titler.title(self._asked, self._course.reply)
        await self._parts.store.write(
            _name,
            self._begun.lease.session_id,
            wanted,
            None if used is None else self._parts.priced(used),
            profile=self._profile,
            when=self._parts.occasion(),
        )

    def _replies(self, state: TurnState, reason: str | None) -> tuple[Reply, ...]:
        to = self._errand.to
        if to is None:
            return ()
        texts = [] if self._errand.notice is None else [self._errand.notice]
        if state is TurnState.DONE:
            silent = self._errand.is_job and self._course.reply.strip() == SILENT
            texts += [] if silent or not self._course.reply else [self._course.reply]
        else:
            texts.append(notices.unfinished(state, reason, is_job=self._errand.is_job))
        return tuple(Reply(to, (Text(text),)) for text in texts)

    def _reset_reason(self) -> ResetReason | None:
        """Why the session before this one was over: the agent is told once, in the first turn."""
        route = self._begun.route
        told = route.opened and route.reset_from is not None and route.reason in set(ResetReason)
        return ResetReason(str(route.reason)) if told else None

    def _spending(self) -> "budgets.Spending":
        return budgets.Spending(self._errand.scopes, budgets.periods(self._parts.clock.now()))

    def _count(self, characters: int) -> None:
        self._course.said += characters
        if self._course.said > self._parts.settings.longest_output:
            raise BadInput("The agent said more than is allowed in one turn.")

    def _tell(self, kind: str, data: object = None) -> None:
        lease_ = self._begun.lease
        self._parts.bus.publish(Live(lease_.session_id, lease_.turn_id, kind, data))


@dataclass(frozen=True, slots=True)
class _Facts:
    head: SessionHead
    context: list[Chat]
    surroundings: Surroundings


def _facts(
    tx: Tx, session_id: str, source: Source, *, parts: Parts, reset: ResetReason | None
) -> _Facts:
    """What the agent is told, as of the turn's beginning."""
    head = read.head(tx, session_id, profile=parts.profile)
    adapter = parts.adapters.get(source.platform)
    notes = adapter.capabilities.notes if adapter is not None else ()
    redacts = adapter is None or not adapter.capabilities.ids_needed_for_mentions
    surroundings = Surroundings(
        source=source,
        shared=read.names_speakers(head),
        platform_notes=notes,
        connected=parts.deliverable,
        homes=frozenset(access.homes(tx, profile=parts.profile)),
        redact=parts.redact_people and redacts,
        reset=reset,
    )
    return _Facts(head, read.context(tx, session_id, profile=parts.profile), surroundings)


def _name(
    tx: Tx, session_id: str, wanted: str | None, used: Usage | None, *, profile: str, when: Occasion
) -> None:
    head = read.head(tx, session_id, profile=profile)
    if wanted is not None:
        titles.name_automatically(tx, head, wanted)
    if used is not None:
        usage.record(tx, head.no, used, profile=profile, when=when)


async def _awaited(pending: object) -> object:
    return await pending  # type: ignore[misc]
