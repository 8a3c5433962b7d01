"""Recording a turn: its steps and streamed text, its end, and the replies that are delivered."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sessionary.actions import turns
from sessionary.actions.sessions import read
from sessionary.actions.turns import Begun, Ending, TurnReply
from sessionary.engine import notices
from sessionary.engine.context import EngineContext
from sessionary.engine.events import LiveEvent
from sessionary.engine.ports import Agent, Delta, Step
from sessionary.engine.turn import budgets
from sessionary.errors import BadInput, RetryLater, StoreUnavailable, TurnLost
from sessionary.model.message import Attachment, Message, Part, Role, Text, ToolCall
from sessionary.model.schedule import SILENT
from sessionary.model.source import Channel, Source
from sessionary.model.turn import TurnState
from sessionary.model.usage import Usage
from sessionary.store.database import Pending
from sessionary.store.tables import turns as table

# How long an unsaved reply waits for a store that is away.
STORE_WAIT_SECONDS = 600.0
log = logging.getLogger(__name__)
T = TypeVar("T")
_SEPARATORS = ("\n\n", "\n", " ")
# A piece has at least this share of the longest length.
_SMALLEST_PIECE = 0.3


@dataclass(frozen=True, slots=True)
class TurnTarget:
    """Who asked for a turn, which agent runs it, and where its reply goes."""

    source: Source
    agent: Agent
    to: Channel | None
    scopes: tuple[str, ...] = ()
    is_job: bool = False

    def replies(
        self,
        state: TurnState,
        reason: str | None,
        reply: str,
        files: Sequence[Attachment],
        *,
        context: EngineContext,
    ) -> tuple[TurnReply, ...]:
        """Return what is delivered: the reply with its files, or why there is none."""
        if self.to is None or reason == notices.NEWER_MESSAGE:
            return ()
        if state is not TurnState.DONE:
            reply, files = self._failure(state, reason), ()
        elif self.is_job and reply.strip() == SILENT:
            return ()
        reply = reply or ("" if files else notices.NOTHING_SAID)
        # Without the adapter in this process the text stays whole: the adapter that sends it splits it.
        adapter = context.adapters.get(self.to.platform)
        texts = [reply] if adapter is None else split_text(reply, adapter.capabilities.longest_text)
        *first, last = [(Text(text),) if text else () for text in texts]
        # The files go with the last piece of text.
        last_parts: tuple[Part, ...] = (*last, *files)
        return tuple(TurnReply(self.to, parts) for parts in (*first, last_parts))

    def _failure(self, state: TurnState, reason: str | None) -> str:
        if self.is_job:
            return notices.run_failed(self.source.chat_name or "", reason)
        return notices.unfinished(state, reason)


class TurnRecord:
    """Writes a turn's output to the store: the only place where it is written."""

    def __init__(self, context: EngineContext, begun: Begun, target: TurnTarget) -> None:
        self._context = context
        self._lease = begun.lease
        self._target = target
        # Streamed text that no step contains yet; and the step that is not written yet, with its streamed text.
        self._partial: list[str] = []
        self._is_checkpointed = True
        self._held: Step | None = None
        self._draft = ""
        self._is_doubtful = False
        self._last_seq = max((each.seq for each in begun.prompts), default=0)
        self._streamed = 0
        self._output = 0
        self._files: list[Attachment] = []
        # One write at a time: on PostgreSQL a checkpoint could overtake the step it belongs to.
        self._writing = asyncio.Lock()
        self.reply = ""
        # Whether the turn must end now: then nothing waits for a store that is away.
        self.is_hurried = False

    def add_delta(self, delta: Delta) -> None:
        """Add streamed text of a step that has not come yet."""
        self._count(len(delta.text) or 1)
        self.publish("thinking" if delta.thinking else "delta", delta.text)
        if not delta.thinking:
            self._streamed += len(delta.text)
            self._partial.append(delta.text)
            self._is_checkpointed = False

    async def add_step(self, step: Step) -> None:
        """Add a finished step; it is durable at once, unless it may be the last of the turn."""
        message = step.message
        async with self._writing:
            await self._flush()
            # What was streamed of it has been counted.
            self._count(max(1, len(message.text) - self._streamed))
            self._streamed = 0
            if message.role is Role.ASSISTANT:
                self.reply = message.text or self.reply
                self._files += [part for part in message.parts if isinstance(part, Attachment)]
            self._held = step
            self._draft = "".join(self._partial)
            self._partial.clear()
            # A step that may be the last is written with the end of the turn, in one transaction; but
            # it waits no longer than a second: see `checkpoint`.
            if message.role is not Role.ASSISTANT or any(
                isinstance(part, ToolCall) for part in message.parts
            ):
                await self._with_retries(self._flush)

    async def checkpoint(self) -> None:
        """Make the output so far durable: the step that waits, and the streamed text."""
        async with self._writing:
            await self._flush()
            if self._partial and not self._is_checkpointed:
                self._is_checkpointed = True
                text = "".join(self._partial)
                await _wait_uncancellable(
                    self._context.store.write(turns.checkpoint, self._lease, text)
                )

    async def end(self, state: TurnState, reason: str | None) -> tuple[TurnState, str | None]:
        """End the turn with its last messages and deliveries; return how it ended, and why."""
        await self._with_retries(self._resolve_doubt)
        step, self._held = self._held, None
        error = await self._write_end(self._ending(state, reason, step))
        if isinstance(error, Exception) and not isinstance(
            error, TurnLost | RetryLater | StoreUnavailable
        ):
            # The output cannot be stored; end the turn without it and say why.
            log.error("turn %s cannot be stored", self._lease.turn_id, exc_info=error)
            state, reason = TurnState.FAILED, f"the answer cannot be kept: {error}"
            error = await self._write_end(self._ending_without(state, reason, step))
        if isinstance(error, TurnLost):
            self.publish("lost")
            return TurnState.INTERRUPTED, reason
        if error is not None:
            raise error
        self.publish("ended", {"state": str(state), "reason": reason})
        return state, reason

    def publish(self, kind: str, data: object = None) -> None:
        """Publish a live event of this turn."""
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

    def _ending_without(self, state: TurnState, reason: str, step: Step | None) -> Ending:
        """Return an end without the step that cannot be stored, but with its streamed text."""
        message = Message(Role.ASSISTANT, (Text(self._draft),), finish_reason=str(state))
        replies = self._target.replies(
            state, reason, self.reply, self._files, context=self._context
        )
        return Ending(state, reason, (message,) if self._draft else (), self._used(step), replies)

    def _used(self, step: Step | None) -> tuple[Usage, ...]:
        return () if step is None or step.usage is None else (self._context.priced(step.usage),)

    async def _flush(self) -> None:
        await self._resolve_doubt()
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
            done = await _wait_uncancellable(write)
        except (RetryLater, StoreUnavailable) as error:
            self._is_doubtful = error.committed == "unknown"
            raise  # it may still go in with the end of the turn
        except asyncio.CancelledError:
            if write.error is None:  # cancelled meanwhile, but written
                self._mark_written(write.result().seq)
            raise
        except BaseException:
            # A step that cannot be stored leaves its streamed text.
            self._held = None
            self._partial.insert(0, self._draft)
            raise
        self._mark_written(done.seq)

    def _mark_written(self, seq: int) -> None:
        """The step that waited is stored."""
        self._last_seq, self._held = seq, None
        self.publish("step")

    async def _resolve_doubt(self) -> None:
        """Find out whether a step was written whose commit got no answer; nobody else writes to the session now."""
        if not self._is_doubtful:
            return
        head = await self._context.store.read(
            read.head, self._lease.session_id, profile=self._context.profile
        )
        self._is_doubtful = False
        if head.last_seq > self._last_seq:
            self._mark_written(head.last_seq)

    async def _write_end(self, ending: Ending) -> BaseException | None:
        """Write the end of the turn; return the error if that was not possible."""
        doubts: list[bool] = []

        async def put() -> BaseException | None:
            error = await self._context.store.write(
                budgets.end,
                self._lease,
                ending,
                profile=self._context.profile,
                moment=self._context.moment(),
                spending=self._spending(),
            ).wait_uncancellable()
            if isinstance(error, RetryLater | StoreUnavailable):
                doubts.append(error.committed == "unknown")
                raise error
            return error

        try:
            error = await self._with_retries(put)
        except (RetryLater, StoreUnavailable) as away:
            return away
        is_ours = isinstance(error, TurnLost) and any(doubts) and await self._has_ended(ending)
        return None if is_ours else error

    async def _has_ended(self, ending: Ending) -> bool:
        """Return whether the turn has this end: the write worked, and only its answer was lost."""
        id = self._lease.turn_id
        found = await self._context.store.read(table.get, id, profile=self._context.profile)
        return found is not None and found[0].state is ending.state

    async def _with_retries(self, do: Callable[[], Awaitable[T]]) -> T:
        """Do something with the store, again and again while it is away.

        No other process can take the turn while the store is away; one that takes it afterwards is noticed then.
        """
        until = time.monotonic() + STORE_WAIT_SECONDS
        while True:
            try:
                return await do()
            except (RetryLater, StoreUnavailable) as error:
                if self.is_hurried or time.monotonic() >= until:
                    raise
                log.warning("turn %s waits for the store: %s", self._lease.turn_id, error)
            await asyncio.sleep(self._context.settings.poll_seconds)

    def _spending(self) -> budgets.Spending:
        return budgets.Spending(self._target.scopes, budgets.periods(self._context.clock.now()))

    def _count(self, characters: int) -> None:
        self._output += characters
        if self._output > self._context.settings.longest_output:
            raise BadInput("The agent said more than is allowed in one turn.")


async def _wait_uncancellable(write: Pending[T]) -> T:
    """Wait for a write to finish, also when cancelled: nothing may overtake it."""
    await write.wait_uncancellable()
    return write.result()


def split_text(text: str, longest: int) -> list[str]:
    """Split a text into pieces of at most `longest` characters, where a reader would pause."""
    pieces: list[str] = []
    while len(text) > longest:
        cut = _split_position(text, longest)
        pieces.append(text[:cut].rstrip() or text[:cut])
        text = text[cut:].lstrip("\n ") if text[cut - 1 : cut].isspace() else text[cut:]
    return [*pieces, text] if text or not pieces else pieces


def _split_position(text: str, longest: int) -> int:
    """Return where to split: after a paragraph, a line or a word, if that is not too early."""
    for separator in _SEPARATORS:
        position = text.rfind(separator, 0, longest - len(separator) + 1)
        if position >= longest * _SMALLEST_PIECE:
            return position + len(separator)
    return longest
