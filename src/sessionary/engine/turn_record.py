"""What is said in a running turn, on its way into the record."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sessionary.actions import read, turns
from sessionary.actions.turns import Begun, Ending
from sessionary.engine import budgets
from sessionary.engine.context import EngineContext
from sessionary.engine.errand import TurnTarget
from sessionary.engine.events import LiveEvent
from sessionary.engine.ports import Delta, Step
from sessionary.errors import BadInput, RetryLater, StoreUnavailable, TurnLost
from sessionary.model.entry import Message, Role
from sessionary.model.part import Attachment, Text, ToolCall
from sessionary.model.turn import TurnState
from sessionary.model.usage import Usage
from sessionary.store.result import Pending
from sessionary.store.tables import turns as table

# So long an answer waits in hand for a store that is away.
PATIENCE_SECONDS = 600.0
log = logging.getLogger("sessionary.turn")
T = TypeVar("T")


class TurnRecord:
    """Keeps the words and steps of a turn: the only place where an agent's output meets the record."""

    def __init__(self, context: EngineContext, begun: Begun, target: TurnTarget) -> None:
        self._context = context
        self._lease = begun.lease
        self._target = target
        # Words that no step has repeated yet; and the step that waits, with the words it was heard as.
        self._partial: list[str] = []
        self._is_checkpointed = True
        self._held: Step | None = None
        self._draft = ""
        self._is_doubtful = False
        self._last_seq = max((each.seq for each in begun.prompts), default=0)
        self._streamed = 0
        self._said = 0
        self._files: list[Attachment] = []
        # One write at a time: on PostgreSQL a checkpoint could overtake the step it belongs to.
        self._writing = asyncio.Lock()
        self.reply = ""
        # Whether the turn is to end now: then nothing waits for a store that is away.
        self.is_hurried = False

    def take_delta(self, delta: Delta) -> None:
        """Hear some words of a step that is still to come."""
        self._count(len(delta.text) or 1)
        self.tell("thinking" if delta.thinking else "delta", delta.text)
        if not delta.thinking:
            self._streamed += len(delta.text)
            self._partial.append(delta.text)
            self._is_checkpointed = False

    async def take_step(self, step: Step) -> None:
        """Take a whole step; it is durable at once, unless it may be the last word."""
        said = step.message
        async with self._writing:
            await self._flush()
            # What was streamed of it has been counted.
            self._count(max(1, len(said.text) - self._streamed))
            self._streamed = 0
            if said.role is Role.ASSISTANT:
                self.reply = said.text or self.reply
                self._files += [part for part in said.parts if isinstance(part, Attachment)]
            self._held = step
            self._draft = "".join(self._partial)
            self._partial.clear()
            # What may be the last word waits for the end of the turn, to be one step with it;
            # but not longer than a second: see `settle`.
            if said.role is not Role.ASSISTANT or any(
                isinstance(part, ToolCall) for part in said.parts
            ):
                await self._patiently(self._flush)

    async def settle(self) -> None:
        """Make durable what has been said: the step that waits for the end, else the words."""
        async with self._writing:
            await self._flush()
            if self._partial and not self._is_checkpointed:
                self._is_checkpointed = True
                text = "".join(self._partial)
                await _to_the_end(self._context.store.write(turns.checkpoint, self._lease, text))

    async def end(self, state: TurnState, reason: str | None) -> tuple[TurnState, str | None]:
        """End the turn with what was said and what its people are sent; how it ended, and why."""
        await self._patiently(self._settle_doubt)
        step, self._held = self._held, None
        error = await self._put_end(self._ending(state, reason, step))
        if isinstance(error, Exception) and not isinstance(
            error, TurnLost | RetryLater | StoreUnavailable
        ):
            # What was said cannot be written down; that it was said, and why not, can.
            log.error("turn %s cannot be kept", self._lease.turn_id, exc_info=error)
            state, reason = TurnState.FAILED, f"the answer cannot be kept: {error}"
            error = await self._put_end(self._apology(state, reason, step))
        if isinstance(error, TurnLost):
            self.tell("lost")
            return TurnState.INTERRUPTED, reason
        if error is not None:
            raise error
        self.tell("ended", {"state": str(state), "reason": reason})
        return state, reason

    def tell(self, kind: str, data: object = None) -> None:
        """Let whoever watches the turn know."""
        self._context.bus.publish(
            LiveEvent(self._lease.session_id, self._lease.turn_id, kind, data)
        )

    def _ending(self, state: TurnState, reason: str | None, step: Step | None) -> Ending:
        messages: tuple[Message, ...] = () if step is None else (step.message,)
        unfinished = "".join(self._partial)
        if unfinished:
            mark = "stop" if state is TurnState.DONE else str(state)
            messages += (Message(Role.ASSISTANT, (Text(unfinished),), finish_reason=mark),)
            self.reply = unfinished
        files = () if step is None else step.files
        replies = self._target.replies(
            state, reason, self.reply, self._files, context=self._context
        )
        return Ending(state, reason, messages, self._used(step), replies, files)

    def _apology(self, state: TurnState, reason: str, step: Step | None) -> Ending:
        """An end without what cannot be written down, but with the words that were heard of it."""
        said = Message(Role.ASSISTANT, (Text(self._draft),), finish_reason=str(state))
        replies = self._target.replies(
            state, reason, self.reply, self._files, context=self._context
        )
        return Ending(state, reason, (said,) if self._draft else (), self._used(step), replies)

    def _used(self, step: Step | None) -> tuple[Usage, ...]:
        return () if step is None or step.usage is None else (self._context.priced(step.usage),)

    async def _flush(self) -> None:
        await self._settle_doubt()
        step = self._held
        if step is None:
            return
        write = self._context.store.write(
            budgets.step,
            self._lease,
            step.message,
            None if step.usage is None else self._context.priced(step.usage),
            profile=self._context.profile,
            moment=self._context.moment(),
            spending=self._spending(),
            files=step.files,
        )
        try:
            done = await _to_the_end(write)
        except (RetryLater, StoreUnavailable) as error:
            self._is_doubtful = error.committed == "unknown"
            raise  # it may still go in with the end of the turn
        except asyncio.CancelledError:
            if write.error is None:  # who was cancelled meanwhile has written it down all the same
                self._is_kept(write.result().seq)
            raise
        except BaseException:
            # A step that cannot be written down leaves the words that were heard of it.
            self._held = None
            self._partial.insert(0, self._draft)
            raise
        self._is_kept(done.seq)

    def _is_kept(self, seq: int) -> None:
        """The step that waited is in the record."""
        self._last_seq, self._held = seq, None
        self.tell("step")

    async def _settle_doubt(self) -> None:
        """A step whose commit lost its answer may be in the record: nobody else writes there now."""
        if not self._is_doubtful:
            return
        head = await self._context.store.read(
            read.head, self._lease.session_id, profile=self._context.profile
        )
        self._is_doubtful = False
        if head.last_seq > self._last_seq:
            self._is_kept(head.last_seq)

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

    async def _try_end(self, ending: Ending) -> BaseException | None:
        write = self._context.store.write(
            budgets.end,
            self._lease,
            ending,
            profile=self._context.profile,
            moment=self._context.moment(),
            spending=self._spending(),
        )
        return await write.settled()

    async def _has_ended(self, ending: Ending) -> bool:
        """Whether the turn ended as we wished, and only the answer to that got lost."""
        id = self._lease.turn_id
        found = await self._context.store.read(table.get, id, profile=self._context.profile)
        return found is not None and found[0].state is ending.state

    async def _patiently(self, do: Callable[[], Awaitable[T]]) -> T:
        """Do something with the store; while it is away, what is in hand waits for it.

        Nobody else can take the turn from us meanwhile, and who does so later is found out then.
        """
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return await do()
            except (RetryLater, StoreUnavailable) as error:
                if self.is_hurried or time.monotonic() >= until:
                    raise
                log.warning("turn %s waits for the store: %s", self._lease.turn_id, error)
            await asyncio.sleep(self._context.settings.poll_seconds)

    def _spending(self) -> "budgets.Spending":
        return budgets.Spending(self._target.scopes, budgets.periods(self._context.clock.now()))

    def _count(self, characters: int) -> None:
        self._said += characters
        if self._said > self._context.settings.longest_output:
            raise BadInput("The agent said more than is allowed in one turn.")


async def _to_the_end(write: Pending[T]) -> T:
    """Wait for a write. Who is cancelled meanwhile goes only after it: nothing may overtake it."""
    await write.settled()
    return write.result()
