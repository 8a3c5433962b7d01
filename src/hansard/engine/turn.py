"""One turn, from its beginning in the store to its end there."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hansard.actions import access, blobs, read, titles, turns, usage
from hansard.actions.turns import Begun, Ending, Reply
from hansard.clock import Occasion
from hansard.engine import budgets, lease, notices
from hansard.engine.bus import Live
from hansard.engine.notices import NEWER_MESSAGE
from hansard.engine.parts import Parts
from hansard.engine.pieces import for_platform
from hansard.engine.ports import Agent, Delta, Step, TurnRequest
from hansard.errors import BadInput, HansardError, RetryLater, StoreUnavailable, TurnLost
from hansard.model import transcript
from hansard.model.entry import Message, Role
from hansard.model.part import Attachment, Part, Text, ToolCall
from hansard.model.place import Channel, Source
from hansard.model.reset import ResetReason
from hansard.model.schedule import SILENT
from hansard.model.session import SessionHead
from hansard.model.surroundings import Surroundings
from hansard.model.tokens import estimate
from hansard.model.transcript import Chat
from hansard.model.turn import TurnState
from hansard.model.usage import Usage
from hansard.store import turns as table
from hansard.store.database import Tx
from hansard.store.pending import Pending

BREATHER = 64
STUBBORN_SECONDS = 5.0
# So long an answer waits in hand for a store that is away.
PATIENCE_SECONDS = 600.0
SERVER_STOPPED = "the server stopped"
log = logging.getLogger("hansard.turn")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Errand:
    """What a turn is for: who asked, where the answer goes, which agent takes it."""

    source: Source
    agent: Agent
    to: Channel | None
    scopes: tuple[str, ...] = ()
    is_job: bool = False


@dataclass(slots=True)
class _Course:
    """How far a running turn has come."""

    partial: list[str] = field(default_factory=list)
    is_checkpointed: bool = True
    held: Step | None = None
    is_doubtful: bool = False
    last_seq: int = 0
    draft: str = ""
    streamed: int = 0
    said: int = 0
    events: int = 0
    reply: str = ""
    files: list[Attachment] = field(default_factory=list)


class TurnRun:
    """Runs one turn: the only place where an agent's output meets the record."""

    def __init__(self, parts: Parts, begun: Begun, errand: Errand) -> None:
        self._parts = parts
        self._begun = begun
        self._errand = errand
        self._profile = parts.profile
        self._course = _Course(last_seq=max((each.seq for each in begun.prompts), default=0))
        self._titled = True
        self._asked = ""
        # One write at a time: on PostgreSQL a checkpoint could overtake the step it belongs to.
        self._writing = asyncio.Lock()
        self._keeper: lease.Keeper | None = None
        self._stop: str | None = None
        self.context_tokens = 0
        self.reason: str | None = None

    async def run(self) -> TurnState:
        """Run the turn to its end; whatever happens, it has one, and a visible one."""
        work = asyncio.create_task(self._work())
        is_cancelled = is_late = False
        async with lease.kept(self._parts, self._begun.lease, work, self._settle) as keeper:
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
        state = await self._end(state, self.reason)
        if is_cancelled:
            raise asyncio.CancelledError
        return state

    def stop(self, reason: str) -> None:
        """End the turn now; what was said until now is kept."""
        self._stop = self._stop or reason
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
        wanted, used = await self._errand.agent.titler.title(self._asked, self._course.reply)
        await self._parts.store.write(
            _name,
            self._begun.lease.session_id,
            wanted,
            None if used is None else self._parts.priced(used),
            profile=self._profile,
            when=self._parts.occasion(),
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
        if isinstance(error, HansardError):
            return TurnState.FAILED, str(error)
        # A runner is someone else's program: its failure ends its own turn.
        log.error("turn %s failed", self._begun.lease.turn_id, exc_info=error)
        return TurnState.FAILED, f"{type(error).__name__}: {error}"

    async def _work(self) -> None:
        request = await self._request()
        self._tell("began")
        async for event in self._events(request):
            match event:
                case Delta():
                    self._take_delta(event)
                case Step(message=Message(role=Role.ASSISTANT | Role.TOOL)):
                    await self._take_step(event)
                case _:
                    raise BadInput(f"The agent gave {_kind(event)} instead of a step.")
            self._course.events += 1
            if self._course.events % BREATHER == 0:
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
        parts, route = self._parts, self._begun.route
        facts = await parts.store.read(
            _facts, route.session_id, self._errand.source, parts=parts, reset=self._reset_reason()
        )
        self._titled = facts.head.title is not None
        self._asked = facts.head.preview or ""
        if parts.settings.compact_at_tokens is not None:
            self.context_tokens = estimate(facts.context)
        return TurnRequest(
            turn_id=self._begun.lease.turn_id,
            session=facts.head,
            source=self._errand.source,
            system_prompt=parts.system_prompt(self._errand.agent.prompt, facts.surroundings),
            context=facts.context,
            blob=self._blob,
            settings=facts.settings,
        )

    async def _blob(self, name: str) -> bytes:
        return await self._parts.store.read(
            blobs.read_blob, name, session_no=self._begun.lease.session_no
        )

    def _take_delta(self, delta: Delta) -> None:
        course = self._course
        self._count(len(delta.text) or 1)
        self._tell("thinking" if delta.thinking else "delta", delta.text)
        if not delta.thinking:
            course.streamed += len(delta.text)
            course.partial.append(delta.text)
            course.is_checkpointed = False

    async def _take_step(self, step: Step) -> None:
        course = self._course
        said = step.message
        async with self._writing:
            await self._flush()
            # What was streamed of it has been counted.
            self._count(max(1, len(said.text) - course.streamed))
            course.streamed = 0
            if said.role is Role.ASSISTANT:
                course.reply = said.text or course.reply
                course.files += [part for part in said.parts if isinstance(part, Attachment)]
            course.held = step
            course.draft = "".join(course.partial)
            course.partial.clear()
            # What may be the last word waits for the end of the turn, to be one step with it;
            # but not longer than a second: see `_settle`.
            if said.role is not Role.ASSISTANT or any(
                isinstance(part, ToolCall) for part in said.parts
            ):
                await self._patiently(self._flush)

    async def _settle(self) -> None:
        """Make durable what has been said: the step that waits for the end, else the words."""
        course = self._course
        async with self._writing:
            await self._flush()
            if course.partial and not course.is_checkpointed:
                course.is_checkpointed = True
                text = "".join(course.partial)
                await _to_the_end(
                    self._parts.store.write(turns.checkpoint, self._begun.lease, text)
                )

    async def _flush(self) -> None:
        course = self._course
        await self._settle_doubt()
        step = course.held
        if step is None:
            return
        used = None if step.usage is None else self._parts.priced(step.usage)
        write = self._parts.store.write(
            budgets.step,
            self._begun.lease,
            step.message,
            used,
            profile=self._profile,
            when=self._parts.occasion(),
            spending=self._spending(),
            files=step.files,
        )
        try:
            done = await _to_the_end(write)
        except (RetryLater, StoreUnavailable) as error:
            course.is_doubtful = error.committed == "unknown"
            raise  # it may still go in with the end of the turn
        except asyncio.CancelledError:
            if write.error is None:  # who was cancelled meanwhile has written it down all the same
                self._is_kept(write.result().seq)
            raise
        except BaseException:
            # A step that cannot be written down leaves the words that were heard of it.
            course.held = None
            course.partial.insert(0, course.draft)
            raise
        self._is_kept(done.seq)

    def _is_kept(self, seq: int) -> None:
        """The step that waited is in the record."""
        self._course.last_seq, self._course.held = seq, None
        self._tell("step")

    async def _settle_doubt(self) -> None:
        """A step whose commit lost its answer may be in the record: nobody else writes there now."""
        course = self._course
        if not course.is_doubtful:
            return
        head = await self._parts.store.read(
            read.head, self._begun.lease.session_id, profile=self._profile
        )
        course.is_doubtful = False
        if head.last_seq > course.last_seq:
            self._is_kept(head.last_seq)

    async def _end(self, state: TurnState, reason: str | None) -> TurnState:
        course, parts = self._course, self._parts
        await self._patiently(self._settle_doubt)
        step, course.held = course.held, None
        messages: tuple[Message, ...] = () if step is None else (step.message,)
        unfinished = "".join(course.partial)
        if unfinished:
            mark = "stop" if state is TurnState.DONE else str(state)
            messages += (Message(Role.ASSISTANT, (Text(unfinished),), finish_reason=mark),)
            course.reply = unfinished
        used = () if step is None or step.usage is None else (parts.priced(step.usage),)
        files = () if step is None else step.files
        ending = Ending(state, reason, messages, used, self._replies(state, reason), files)
        error = await self._put_end(ending)
        if isinstance(error, Exception) and not isinstance(
            error, TurnLost | RetryLater | StoreUnavailable
        ):
            # What was said cannot be written down; that it was said, and why not, can.
            log.error("turn %s cannot be kept", self._begun.lease.turn_id, exc_info=error)
            state, self.reason = TurnState.FAILED, f"the answer cannot be kept: {error}"
            said = Message(Role.ASSISTANT, (Text(course.draft),), finish_reason=str(state))
            kept = (said,) if course.draft else ()
            ending = Ending(state, self.reason, kept, used, self._replies(state, self.reason))
            error = await self._put_end(ending)
        if isinstance(error, TurnLost):
            self._tell("lost")
            return TurnState.INTERRUPTED
        if error is not None:
            raise error
        self._tell("ended", {"state": str(state), "reason": self.reason})
        return state

    async def _put_end(self, ending: Ending) -> BaseException | None:
        """End the turn in the record; the error if that was not possible."""
        doubts: list[bool] = []

        async def put() -> BaseException | None:
            error = await self._try_end(ending)
            if isinstance(error, RetryLater | StoreUnavailable):
                doubts.append(error.committed == "unknown")
                raise error
            return error

        try:
            error = await self._patiently(put)
        except (RetryLater, StoreUnavailable) as away:
            return away
        is_ours = isinstance(error, TurnLost) and any(doubts) and await self._has_ended(ending)
        return None if is_ours else error

    async def _patiently(self, do: Callable[[], Awaitable[T]]) -> T:
        """Do something with the store; while it is away, what is in hand waits for it.

        Nobody else can take the turn from us meanwhile, and who does so later is found out then.
        """
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return await do()
            except (RetryLater, StoreUnavailable) as error:
                if self._stop is not None or time.monotonic() >= until:
                    raise
                log.warning("turn %s waits for the store: %s", self._begun.lease.turn_id, error)
            await asyncio.sleep(self._parts.settings.poll_seconds)

    async def _try_end(self, ending: Ending) -> BaseException | None:
        write = self._parts.store.write(
            budgets.end,
            self._begun.lease,
            ending,
            profile=self._profile,
            when=self._parts.occasion(),
            spending=self._spending(),
        )
        return await write.settled()

    async def _has_ended(self, ending: Ending) -> bool:
        """Whether the turn ended as we wished, and only the answer to that got lost."""
        id = self._begun.lease.turn_id
        found = await self._parts.store.read(table.get, id, profile=self._profile)
        return found is not None and found[0].state is ending.state

    def _replies(self, state: TurnState, reason: str | None) -> tuple[Reply, ...]:
        to, said, files = self._errand.to, self._course.reply, tuple(self._course.files)
        if to is None or reason == NEWER_MESSAGE:
            return ()
        if state is not TurnState.DONE:
            files = ()
            name = self._errand.source.chat_name or ""
            is_job = self._errand.is_job
            said = notices.run_failed(name, reason) if is_job else notices.unfinished(state, reason)
        elif self._errand.is_job and said.strip() == SILENT:
            return ()
        said = said or ("" if files else notices.NOTHING_SAID)
        pieces = for_platform(said, to.platform, self._parts)
        *first, last = [(Text(text),) if text else () for text in pieces]
        # What the agent gives out goes with its last words.
        said_last: tuple[Part, ...] = (*last, *files)
        return tuple(Reply(to, parts) for parts in (*first, said_last))

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
    settings: Mapping[str, Any]


def _facts(
    tx: Tx, session_id: str, source: Source, *, parts: Parts, reset: ResetReason | None
) -> _Facts:
    """What the agent is told, as of the turn's beginning."""
    head = read.head(tx, session_id, profile=parts.profile)
    log = read.since_compaction(tx, head)
    adapter = parts.adapters.get(source.platform)
    notes = adapter.capabilities.notes if adapter is not None else ()
    redacts = adapter is None or not adapter.capabilities.ids_needed_for_mentions
    surroundings = Surroundings(
        source=source,
        shared=transcript.named_from(log) is not None,
        platform_notes=notes,
        connected=parts.deliverable,
        homes=frozenset(access.homes(tx, profile=parts.profile)),
        redact=parts.redact_people and redacts,
        reset=reset,
    )
    return _Facts(head, transcript.context(log), surroundings, read.settings(tx, head))


def _name(
    tx: Tx, session_id: str, wanted: str | None, used: Usage | None, *, profile: str, when: Occasion
) -> None:
    head = read.head(tx, session_id, profile=profile)
    if wanted is not None:
        titles.name_automatically(tx, head, wanted)
    if used is not None:
        usage.record(tx, head.no, used, profile=profile, when=when)


async def _to_the_end(write: Pending[T]) -> T:
    """Wait for a write. Who is cancelled meanwhile goes only after it: nothing may overtake it."""
    await write.settled()
    return write.result()


def _kind(event: object) -> str:
    if isinstance(event, Step) and isinstance(event.message, Message):
        return f"a message of the {event.message.role}"
    return type(event).__name__
