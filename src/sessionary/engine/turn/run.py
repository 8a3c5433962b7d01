"""Runs one turn: reads its input, renews its lease, records its output and its end."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from types import TracebackType
from typing import Any, Self, TypeVar

from msgspec import Struct

from sessionary.actions import access, files, turns, usage
from sessionary.actions import questions as question_actions
from sessionary.actions.questions import QuestionsChanged
from sessionary.actions.sessions import read, titles
from sessionary.actions.sessions.routing import Route
from sessionary.actions.turn_scripts import Ended
from sessionary.actions.turns import Begun, Ending, RequestRecord, Resumption, TurnReply
from sessionary.clock import Moment
from sessionary.config.engine import ToolDecision, WhileRunning
from sessionary.engine import notices, policy, questions
from sessionary.engine.context import EngineContext, LiveEvent, WakeSignal
from sessionary.engine.outbox import Outbox, split_text
from sessionary.engine.policy import Asking
from sessionary.engine.ports import (
    Agent,
    Ask,
    Delta,
    KeptState,
    NativeSession,
    ProposedCall,
    Step,
    TurnRequest,
)
from sessionary.engine.turn import budgets, compaction, kept
from sessionary.engine.turn.compaction import CompactedContext, CurrentContext
from sessionary.errors import (
    BadInput,
    Conflict,
    NotAllowed,
    NotFound,
    RetryLater,
    SessionaryError,
    StoreUnavailable,
    TurnLost,
)
from sessionary.model import compaction as compaction_rules
from sessionary.model.compaction import CompactionLimits, CompactionPlan
from sessionary.model.message import (
    Attachment,
    Message,
    Part,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from sessionary.model.policy import PolicyVerdict
from sessionary.model.prompt import HomeAddress, PromptContext
from sessionary.model.question import NewQuestion, Question
from sessionary.model.redact import Redactor
from sessionary.model.reset import ResetReason
from sessionary.model.schedule import SILENT
from sessionary.model.session import SessionHead
from sessionary.model.source import Channel, SessionKey, Source
from sessionary.model.transcript import (
    Chat,
    ContextFold,
    chat_tokens,
    chats_of,
    join_answer,
)
from sessionary.model.turn import Delivery, DeliveryState, Lease, TurnState
from sessionary.model.turn_options import TurnOptions, awaited_by
from sessionary.model.usage import Usage
from sessionary.store.database import Pending, Tx
from sessionary.store.tables import arrivals, deliveries, meta
from sessionary.store.tables import questions as question_rows
from sessionary.store.tables import turns as table

CHECKPOINT_SECONDS = 1.0
# How long a cancelled agent may take to end; after that, the turn ends without it.
CANCEL_GRACE_SECONDS = 5.0
log = logging.getLogger(__name__)


class LeaseHeartbeat:
    """Renews a lease while `work` runs; cancels the work when the lease is lost, a stop is requested or time is up.

    At least every second it calls `checkpoint`, which stores the agent's output so far, and reads whether a stop was
    requested. It renews the lease after a third of its time. Use it as an asynchronous context manager.
    """

    # Most turns end before the first check is due: until then there is only a timer, and these are as they are here.
    is_late = False
    lost = False
    stop: str | None = None
    error: BaseException | None = None
    _closing = False
    _task: "asyncio.Task[None] | None" = None
    _time_limit: "asyncio.TimerHandle | None" = None
    _grace: "asyncio.TimerHandle | None" = None

    def __init__(
        self,
        context: EngineContext,
        lease: Lease,
        work: "asyncio.Task[None]",
        checkpoint: Callable[[], Awaitable[None]],
    ) -> None:
        self._context = context
        self._lease = lease
        self._work = work
        self._checkpoint = checkpoint
        self._loop = asyncio.get_running_loop()
        # Done when the work is, or when it does not end although it was cancelled.
        self._finished: asyncio.Future[None] = self._loop.create_future()
        work.add_done_callback(self._finish)
        settings = context.settings
        pause = min(settings.lease_seconds / 3, max(settings.poll_seconds, 0.01))
        self._interval = min(pause, CHECKPOINT_SECONDS)
        self._began = self._loop.time()
        self._timer = self._loop.call_at(
            self._began + min(self._interval, settings.turn_seconds), self._start
        )
        self._renewed_at = time.monotonic(), context.clock.now()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close()

    async def wait(self) -> None:
        """Wait until the work has ended, or has not ended within CANCEL_GRACE_SECONDS after it was cancelled."""
        await self._finished

    def check_now(self) -> None:
        """Check now whether a stop was requested."""
        self._start()
        if self._task is not None:
            self._wake.set()

    async def _close(self) -> None:
        for timer in (self._timer, self._time_limit, self._grace):
            if timer is not None:
                timer.cancel()
        self._closing = True
        if self._task is not None:
            self._wake.set()
            # Not cancelled: a write in progress must finish before the end of the turn is written.
            await asyncio.gather(self._task, return_exceptions=True)

    def request_stop(self, reason: str) -> None:
        """Cancel the work, as if the stop had been requested in the store."""
        self.stop = self.stop or reason
        self._cancel_work()

    def _start(self) -> None:
        self._timer.cancel()
        if self._task is None and not self._closing:
            self._wake = asyncio.Event()
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._on_ended)
            limit = self._began + self._context.settings.turn_seconds
            self._time_limit = self._loop.call_at(limit, self._on_time_limit)

    def _on_time_limit(self) -> None:
        self.is_late = not self._work.done()
        self._cancel_work()

    def _cancel_work(self) -> None:
        self._work.cancel()
        if self._grace is None:
            self._grace = self._loop.call_later(CANCEL_GRACE_SECONDS, self._finish)

    def _finish(self, _: object = None) -> None:
        if not self._finished.done():
            self._finished.set_result(None)

    async def _run(self) -> None:
        """Check and renew until closed, or until the work is cancelled."""
        while not self._closing:
            self._wake.clear()
            try:
                await self._check()
            except TurnLost:
                log.warning("turn %s has lost its lease", self._lease.turn_id)
                self.lost = True
            except (RetryLater, StoreUnavailable) as error:
                # If the lease runs out meanwhile, the next renewal raises `TurnLost`.
                log.warning("turn %s cannot renew its lease: %s", self._lease.turn_id, error)
            if self.lost or self.stop is not None:
                self._cancel_work()
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._wake.wait()

    def _on_ended(self, task: "asyncio.Task[None]") -> None:
        """Cancel the work if the heartbeat itself failed: nothing renews the lease any more."""
        if not task.cancelled() and task.exception() is not None:
            self.error = task.exception()
            self._cancel_work()

    async def _check(self) -> None:
        await self._checkpoint()
        store, seconds = self._context.store, self._context.settings.lease_seconds
        if self._is_renewal_due(seconds / 3):
            stop = await store.write(_renew, self._lease, seconds=seconds, context=self._context)
            self._renewed_at = time.monotonic(), self._context.clock.now()
        else:
            stop = await store.read(turns.get_stop_reason, self._lease)
        # Keep a stop that this process requested in the meantime.
        self.stop = self.stop or stop

    def _is_renewal_due(self, seconds: float) -> bool:
        # By either clock: other processes compare the lease with the wall clock, which may have been set forward.
        monotonic, wall = self._renewed_at
        return (
            time.monotonic() - monotonic >= seconds
            or abs((self._context.clock.now() - wall).total_seconds()) >= seconds
        )


def _renew(tx: Tx, lease: Lease, *, seconds: float, context: EngineContext) -> str | None:
    turns.renew(tx, lease, seconds=seconds, now=context.clock.now())
    return turns.get_stop_reason(tx, lease)


# How long to retry writing a turn's output while the store is unavailable.
STORE_WAIT_SECONDS = 600.0

T = TypeVar("T")


class TurnTarget(Struct, frozen=True):
    """Who asked for a turn, which agent runs it, and where its reply goes."""

    source: Source
    agent: Agent
    to: Channel | None
    # The budgets that its usage counts against; None: those of its source, profile, agent and session.
    scopes: tuple[str, ...] | None = None
    is_job: bool = False
    # The key of its source, if it is known already.
    key: SessionKey | None = None
    # The sources of all its messages, if there are others than `source`.
    sources: tuple[Source, ...] = ()

    def replies(
        self,
        state: TurnState,
        reason: str | None,
        reply: str,
        files: Sequence[Attachment],
        *,
        context: EngineContext,
    ) -> tuple[TurnReply, ...]:
        """Return what to deliver when the turn ends: the reply with its files, or why there is none."""
        if self.to is None or reason == notices.NEWER_MESSAGE:
            return ()
        if state is not TurnState.DONE:
            reply, files = self._failure_text(state, reason), ()
        elif self.is_job and reply.strip() == SILENT:
            return ()
        reply = reply or ("" if files else notices.NOTHING_SAID)
        # If the adapter runs in another process, it splits the text when it sends it.
        adapter = context.adapters.get(self.to.platform)
        longest = None if adapter is None else adapter.capabilities.longest_text
        texts = [reply] if longest is None else split_text(reply, longest) or [""]
        # The files go with the last piece of text.
        *first, last = [(Text(text),) if text else () for text in texts]
        last_parts: tuple[Part, ...] = (*last, *files)
        return tuple(TurnReply(self.to, parts) for parts in (*first, last_parts))

    def _failure_text(self, state: TurnState, reason: str | None) -> str:
        if self.is_job:
            return notices.run_failed(self.source.chat_name or "", reason)
        return notices.unfinished(state, reason)


class TurnRecord:
    """Writes a turn's output to the store; nothing else does."""

    def __init__(
        self, context: EngineContext, begun: Begun, target: TurnTarget, outbox: Outbox | None
    ) -> None:
        self._context = context
        self._lease = begun.lease
        self._target = target
        self._outbox = outbox
        # Whether messages may wait for the session, now that its turn has ended.
        self.may_wait = True
        # Streamed text of the step that has not come yet.
        self._partial: list[str] = []
        self._is_checkpointed = True
        # The step that has come but is not written yet, and the text that was streamed for it.
        self._pending_step: Step | None = None
        self._pending_text = ""
        # Whether the commit of the pending step got no answer: it may have been written.
        self._is_commit_unknown = False
        self._last_seq = max((each.seq for each in begun.prompts), default=0)
        # Tool calls that have no result yet, and the tools of which it is not known whether they ran.
        self._open_calls: list[str] = []
        self._unknown_tools: list[str] = []
        # What the model is sent besides the messages, until it is stored with a step or the end.
        self._request: RequestRecord | None = None
        # The size of the context after the last model call as its provider counted it, and what was added since.
        self._reported_tokens = 0
        self._added_tokens = 0
        # Counts of characters: streamed for the current step, and all output of the turn.
        self._streamed_length = 0
        self._output_length = 0
        self._files: list[Attachment] = []
        # One write at a time: on PostgreSQL a checkpoint could be committed after the step that replaces it.
        self._write_lock = asyncio.Lock()
        self.reply = ""
        # The beginning of the answer, if the model goes on writing it after an interruption.
        self._beginning = ""
        # Where the messages came from that have joined the turn while it was running, and their budgets.
        self.steering_sources: tuple[Source, ...] = ()
        self._steering_scopes: tuple[str, ...] = ()
        # Why the turn must not call a model again: a budget is used up.
        self._used_up: str | None = None
        # Whether the turn must end now: then writes are not retried while the store is unavailable.
        self.must_end_now = False
        if begun.resumption is not None:
            self._take_up(begun.resumption)

    def _take_up(self, resumption: Resumption) -> None:
        """Start from what the turn has done before it was continued."""
        for message in resumption.steps:
            self._output_length += max(1, len(message.text))
            if message.role is Role.ASSISTANT:
                self._files += [part for part in message.parts if isinstance(part, Attachment)]
            self._count_calls(message)
        self._open_calls = [call.id for call in resumption.unfinished]
        self.reply, self._beginning = join_answer(resumption.steps)

    @property
    def has_open_calls(self) -> bool:
        """Whether a tool call has no result yet."""
        return bool(self._open_calls)

    @property
    def tokens(self) -> tuple[int, int]:
        """The size of the context after the last model call of the turn, 0 before it, and what was added since."""
        return self._reported_tokens, self._added_tokens

    def add_delta(self, delta: Delta) -> None:
        """Add streamed text of the step that has not come yet."""
        self._check_budget()
        self._count_output(len(delta.text) or 1)
        self.publish("thinking" if delta.thinking else "delta", delta.text)
        if not delta.thinking:
            self._streamed_length += len(delta.text)
            self._partial.append(delta.text)
            self._is_checkpointed = False

    async def add_step(self, step: Step) -> None:
        """Add a finished step; it is durable at once, unless it may be the last of the turn."""
        message = step.message
        async with self._write_lock:
            await self._flush()
            # The part that was streamed has been counted already.
            self._count_output(max(1, len(message.text) - self._streamed_length))
            self._streamed_length = 0
            if message.role is Role.ASSISTANT:
                self.reply = self._beginning + message.text if message.text else self.reply
                self._beginning = ""
                self._files += [part for part in message.parts if isinstance(part, Attachment)]
            self._count_calls(message)
            self._count_tokens(step)
            self._pending_step = step
            self._pending_text = "".join(self._partial)
            self._partial.clear()
            # A step that may be the last is written in one transaction with the end of the turn, or
            # by the next `checkpoint`, at most a second later.
            if not budgets.may_be_last(message):
                await self.with_retries(self._flush)
                self._check_budget()

    @property
    def has_pending_step(self) -> bool:
        """Whether a step waits for the end of the turn, because it may be the last."""
        return self._pending_step is not None

    async def write_pending_step(self) -> None:
        """Write a step that was not the last one after all: more text comes after it."""
        async with self._write_lock:
            await self.with_retries(self._flush)

    def _count_calls(self, message: Message) -> None:
        for part in message.parts:
            if isinstance(part, ToolCall):
                self._open_calls.append(part.id)
            elif isinstance(part, ToolResult):
                if part.call_id in self._open_calls:
                    self._open_calls.remove(part.call_id)
                if part.extra.get("outcome") == "unknown":
                    self._unknown_tools.append(part.name or "a tool")

    def _count_tokens(self, step: Step) -> None:
        if step.usage is not None and not step.usage.task:
            self._reported_tokens, self._added_tokens = step.usage.total_tokens, 0
        else:
            self._added_tokens += sum(map(chat_tokens, chats_of(step.message)))

    async def checkpoint(self) -> None:
        """Store the output so far: the pending step, and the streamed text."""
        async with self._write_lock:
            await self._flush()
            if self._partial and not self._is_checkpointed:
                self._is_checkpointed = True
                text = "".join(self._partial)
                write = self._context.store.write(_checkpoint, self._lease, text, self._request)
                await _wait_uncancellable(write)
                self._mark_request_stored()

    def note_request(self, request: RequestRecord) -> None:
        """Store what the model is sent besides the messages with the next step, or with the end of the turn."""
        self._request = request

    async def compact(self, done: CompactedContext) -> None:
        """Append a compaction to the log, with what its summary used."""
        async with self._write_lock:
            await self.with_retries(self._flush)
            _, stored = await self._append(
                lambda: self._context.store.write(
                    compaction.store_compaction,
                    self._lease.session_id,
                    done,
                    profile=self._context.profile,
                    moment=self._context.moment(),
                    spending=self.spending(has_usage=done.used is not None),
                    lease=self._lease,
                )
            )
            self._reported_tokens, self._added_tokens = done.size_after, 0
            self.publish("step")
            if stored is not None:
                self._used_up = stored.used_up
                self._check_budget()

    async def take_new_messages(self) -> tuple[int, ...]:
        """Append the waiting messages that steer this turn to the log; return their entries."""
        context = self._context
        key = self._target.key or context.key(self._target.source)
        steers = context.settings.while_running is WhileRunning.STEER
        if not await self.with_retries(
            lambda: context.store.read(
                turns.has_steering, key, self._lease.session_no, by_default=steers
            )
        ):
            return ()
        async with self._write_lock:
            await self.with_retries(self._flush)
            taken, sources = await self._append(
                lambda: context.store.write(
                    budgets.take_steering,
                    key,
                    self._lease,
                    by_default=steers,
                    known=context.settings.budgets,
                    now=context.clock.now(),
                )
            )
            if taken:
                self.publish("step")
                await self._count_steering(sources)
            return taken

    async def _count_steering(self, sources: Sequence[Source] | None) -> None:
        """Count the turn from now on against the budgets of those who steer it, and let the policy know them."""
        context, lease = self._context, self._lease
        if sources is None:  # the answer of the write was lost
            sources = await self.with_retries(
                lambda: context.store.read(
                    arrivals.sources_of_turn, lease.turn_id, session_no=lease.session_no
                )
            )
        self.steering_sources += tuple(sources)
        self._steering_scopes += tuple(chain.from_iterable(map(budgets.scopes_of, sources)))

    async def _append(self, write: "Callable[[], Pending[T]]") -> tuple[tuple[int, ...], T | None]:
        """Append entries other than a step; return them and the result of the write, None if its answer was lost.

        While the store is unavailable it is tried again. What was written without an answer is not written twice: only
        this turn writes to the session.
        """
        is_unknown = False
        result: T | None = None

        async def write_once() -> int:
            nonlocal is_unknown, result
            last_seq = await self._read_last_seq() if is_unknown else self._last_seq
            if last_seq == self._last_seq:
                try:
                    result = await _wait_uncancellable(write())
                except (RetryLater, StoreUnavailable) as error:
                    is_unknown = is_unknown or error.committed == "unknown"
                    raise
                last_seq = await self._read_last_seq()
            return last_seq

        first, self._last_seq = self._last_seq + 1, await self.with_retries(write_once)
        return tuple(range(first, self._last_seq + 1)), result

    async def release(self, reason: str) -> bool:
        """Leave the turn to another process, with its output so far; return whether the lease still held."""
        async with self._write_lock:
            await self._flush()
            text = "".join(self._partial) or None
            write = self._context.store.write(
                _release, self._lease, text, self._request, reason=reason
            )
            released = await _wait_uncancellable(write)
        self.publish("lost")
        return released

    async def park(self, asked: Sequence[NewQuestion], *, asking: Asking) -> TurnState:
        """Write the questions of the turn, and let it wait for people; return its state."""
        context = self._context
        is_unknown = False

        async def write() -> None:
            nonlocal is_unknown
            await self._flush()
            if is_unknown and await self._is_parked():
                return
            try:
                await _wait_uncancellable(
                    context.store.write(
                        questions.park,
                        self._lease,
                        asked,
                        asking=asking,
                        context=context,
                        moment=context.moment(),
                    )
                )
            except (RetryLater, StoreUnavailable) as error:
                is_unknown = is_unknown or error.committed == "unknown"
                raise

        async with self._write_lock:
            await self.with_retries(write)
        self.publish("ended", {"state": str(TurnState.WAITING), "reason": None})
        return TurnState.WAITING

    async def ask_now(self, asked: NewQuestion, *, seconds: float, asking: Asking) -> Question:
        """Write a question while the turn keeps running, and ask it."""
        context, lease = self._context, self._lease
        async with self._write_lock:
            await self.with_retries(self._flush)
            _, made = await self._append(
                lambda: context.store.write(
                    questions.ask_now,
                    lease,
                    asked,
                    seconds=seconds,
                    asking=asking,
                    context=context,
                    moment=context.moment(),
                )
            )
            if made is None:  # the answer of the write was lost: it is the last one
                *_, made = await self.with_retries(
                    lambda: context.store.read(question_rows.of_turn, lease.turn_id)
                )
        self.publish("step")
        return made

    async def add_decision(self, question: Question) -> None:
        """Record in the log what became of a question that was asked while the turn kept running."""
        context = self._context
        async with self._write_lock:
            await self.with_retries(self._flush)
            await self._append(
                lambda: context.store.write(
                    question_actions.record, self._lease, question, moment=context.moment()
                )
            )
        self.publish("step")

    async def _is_parked(self) -> bool:
        """Return whether the turn is held by nobody: it waits for people, or was answered already."""
        id, profile = self._lease.turn_id, self._context.profile
        found = await self._context.store.read(table.get, id, profile=profile)
        return found is not None and found[0].holder != self._lease.holder

    async def end(self, state: TurnState, reason: str | None) -> tuple[TurnState, str | None]:
        """Write the end of the turn with its last messages and deliveries; return how it ended, and why."""
        if self._is_commit_unknown:
            await self.with_retries(self._resolve_unknown_commit)
        step, self._pending_step = self._pending_step, None
        error = await self._write_end(self._build_ending(state, reason, step))
        if isinstance(error, Exception) and not isinstance(
            error, TurnLost | RetryLater | StoreUnavailable
        ):
            # The last step cannot be stored: end the turn without it, and say why.
            log.error("turn %s cannot be stored", self._lease.turn_id, exc_info=error)
            state, reason = TurnState.FAILED, f"the answer cannot be stored: {error}"
            error = await self._write_end(self._build_ending_without(state, reason, step))
        if isinstance(error, TurnLost):
            self.publish("lost")
            return TurnState.INTERRUPTED, reason
        if error is not None:
            raise error
        self.publish("ended", {"state": str(state), "reason": reason})
        return state, reason

    def publish(self, kind: str, data: object = None, *, seq: int | None = None) -> None:
        """Publish a live event of this turn."""
        self._context.bus.publish(
            LiveEvent(self._lease.session_id, self._lease.turn_id, kind, data, seq)
        )

    def _build_ending(self, state: TurnState, reason: str | None, step: Step | None) -> Ending:
        messages: tuple[Message, ...] = () if step is None else (step.message,)
        unfinished = "".join(self._partial)
        if unfinished:
            finish = "stop" if state is TurnState.DONE else str(state)
            messages += (Message(Role.ASSISTANT, (Text(unfinished),), finish_reason=finish),)
            self.reply = self._beginning + unfinished
        files = () if step is None else step.files
        replies = self._replies(state, reason)
        return Ending(state, reason, messages, self._used(step), replies, files, self._request)

    def _replies(self, state: TurnState, reason: str | None) -> tuple[TurnReply, ...]:
        """Return what to deliver when the turn ends; first which tools may have run, if the agent reports that."""
        target = self._target
        replies = target.replies(state, reason, self.reply, self._files, context=self._context)
        if not replies or not self._unknown_tools or not target.agent.reports_unknown_calls:
            return replies
        notice = Text(notices.unknown_calls(self._unknown_tools))
        return (TurnReply(replies[0].channel, (notice,)), *replies)

    def _build_ending_without(self, state: TurnState, reason: str, step: Step | None) -> Ending:
        """Return an ending without the step that cannot be stored, but with the text streamed for it."""
        message = Message(Role.ASSISTANT, (Text(self._pending_text),), finish_reason=str(state))
        replies = self._replies(state, reason)
        messages = (message,) if self._pending_text else ()
        return Ending(state, reason, messages, self._used(step), replies, request=self._request)

    def _used(self, step: Step | None) -> tuple[Usage, ...]:
        return () if step is None or step.usage is None else (self._context.priced(step.usage),)

    async def _flush(self) -> None:
        """Write the pending step, if there is one."""
        await self._resolve_unknown_commit()
        step = self._pending_step
        if step is None:
            return
        write = self._context.store.write(
            budgets.step,
            self._lease,
            step.message,
            None if step.usage is None else self._context.priced(step.usage),
            profile=self._context.profile,
            moment=self._context.moment(),
            spending=self.spending(has_usage=step.usage is not None),
            files=step.files,
            request=self._request,
        )
        try:
            done = await _wait_uncancellable(write)
        except (RetryLater, StoreUnavailable) as error:
            self._is_commit_unknown = error.committed == "unknown"
            raise  # the step stays pending: it may still be written with the end of the turn
        except asyncio.CancelledError:
            if write.error is None:  # cancelled meanwhile, but written
                self._mark_written(write.result().seq)
            raise
        except BaseException:
            # The step cannot be stored: drop it, but keep the text that was streamed for it.
            self._pending_step = None
            self._partial.insert(0, self._pending_text)
            raise
        self._mark_written(done.seq)
        self._used_up = done.used_up

    def _check_budget(self) -> None:
        """End the turn before its next model call if a budget is used up; an answer that is paid for is delivered."""
        if self._used_up is not None:
            raise NotAllowed(self._used_up)

    def _mark_written(self, seq: int) -> None:
        """Note that the pending step is stored."""
        self._last_seq, self._pending_step = seq, None
        self._mark_request_stored()
        self.publish("step", seq=seq)

    def _mark_request_stored(self) -> None:
        if self._request is not None:
            self._context.requests.mark_stored(self._lease, self._request)
            self._request = None

    async def _resolve_unknown_commit(self) -> None:
        """Find out whether a step was written whose commit got no answer: only this turn writes to the session."""
        if not self._is_commit_unknown:
            return
        last_seq = await self._read_last_seq()
        self._is_commit_unknown = False
        if last_seq > self._last_seq:
            self._mark_written(last_seq)

    async def _read_last_seq(self) -> int:
        head = await self._context.store.read(
            read.get_head, self._lease.session_id, profile=self._context.profile
        )
        return head.last_seq

    async def _write_end(self, ending: Ending) -> BaseException | None:
        """Write the end of the turn; return the error if that was not possible."""
        may_be_committed = False

        async def write() -> BaseException | None:
            nonlocal may_be_committed
            context, outbox, channel = self._context, self._outbox, self._target.to
            claim = None
            if outbox is not None and channel is not None and ending.replies:
                claim = outbox.reserve(channel.platform)
            simple = None
            if not context.settings.budgets:
                key = self._target.key or context.key(self._target.source)
                simple = budgets.SimpleEnd(self._last_seq, key, claim)
            pending = context.store.write(
                budgets.end,
                self._lease,
                ending,
                profile=context.profile,
                moment=context.moment(),
                spending=self.spending(has_usage=bool(ending.usage)),
                simple=simple,
            )
            try:
                error = await pending.wait_uncancellable()
            finally:
                # What the store says this process is sending must be sent, even if the turn was cancelled.
                claimed = () if pending.error is not None else self._note_ended(pending.result())
                if outbox is not None and channel is not None and claim is not None:
                    outbox.send(channel.platform, claimed)
            if isinstance(error, RetryLater | StoreUnavailable):
                may_be_committed = may_be_committed or error.committed == "unknown"
                raise error
            return error

        try:
            error = await self.with_retries(write)
        except (RetryLater, StoreUnavailable) as unavailable:
            return unavailable
        # If an earlier try was committed, the next one finds that the turn is over.
        if isinstance(error, TurnLost) and may_be_committed and await self._has_ended(ending):
            await self._send_claimed()
            return None
        return error

    async def _send_claimed(self) -> None:
        """Send what was written as being sent by this process, in a commit that got no answer."""
        outbox, channel = self._outbox, self._target.to
        if outbox is None or channel is None:
            return
        found = await self._context.store.read(deliveries.of_session, self._lease.session_no)
        claimed = [
            each
            for each in found
            if each.turn_id == self._lease.turn_id and each.state is DeliveryState.SENDING
        ]
        # If it cannot be sent now, it is claimed when its claim has run out.
        if claimed and outbox.reserve(channel.platform) is not None:
            outbox.send(channel.platform, claimed)

    def _note_ended(self, ended: Ended) -> tuple[Delivery, ...]:
        self.may_wait = ended.may_wait
        self._mark_request_stored()
        if ended.reply is not None:
            lease = self._lease
            self._context.contexts.extend(lease.session_no, ended.reply, epoch=lease.epoch)
        return ended.claimed

    async def _has_ended(self, ending: Ending) -> bool:
        """Return whether the turn has ended in this state in the store."""
        id = self._lease.turn_id
        found = await self._context.store.read(table.get, id, profile=self._context.profile)
        return found is not None and found[0].state is ending.state

    async def with_retries(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Run an operation of the store; while the store is unavailable, retry for STORE_WAIT_SECONDS.

        Meanwhile no other process can take over the turn. If one does so later, the operation raises `TurnLost`.
        """
        until = time.monotonic() + STORE_WAIT_SECONDS
        while True:
            try:
                return await operation()
            except (RetryLater, StoreUnavailable) as error:
                if self.must_end_now or time.monotonic() >= until:
                    raise
                log.warning("turn %s is waiting for the store: %s", self._lease.turn_id, error)
            await asyncio.sleep(self._context.settings.poll_seconds)

    def spending(self, *, has_usage: bool) -> budgets.Spending:
        """Return against what the turn's usage is counted."""
        context, target = self._context, self._target
        scopes = target.scopes or ()
        if has_usage and target.scopes is None:
            scopes = budgets.scopes_of(target.source) + budgets.turn_scopes(
                context.settings.budgets,
                profile=context.profile,
                agent=target.agent.name,
                session_id=self._lease.session_id,
            )
        return budgets.Spending(
            tuple(dict.fromkeys(scopes + self._steering_scopes)),
            context.clock.now(),
            context.settings.budgets,
            target.to,
            context.deliverable,
        )

    def _count_output(self, characters: int) -> None:
        self._output_length += characters
        if self._output_length > self._context.settings.longest_output:
            raise BadInput("The agent said more than is allowed in one turn.")


def _checkpoint(tx: Tx, lease: Lease, text: str, request: RequestRecord | None) -> None:
    """Store the streamed text of the unfinished step, and what the model was sent for it."""
    turns.checkpoint(tx, lease, text)
    turns.store_request(tx, lease, request)


def _release(
    tx: Tx, lease: Lease, text: str | None, request: RequestRecord | None, *, reason: str
) -> bool:
    """Store the streamed text of the unfinished step, and let another process take the turn over."""
    if text is not None:
        _checkpoint(tx, lease, text, request)
    return turns.release(tx, lease, reason=reason)


async def _wait_uncancellable(write: Pending[T]) -> T:
    """Return the result of a write; a cancellation takes effect only after the write, so that none overtakes it."""
    await write.wait_uncancellable()
    return write.result()


# After this many events, let other tasks run: a runner may never wait by itself.
YIELD_EVERY = 64
SERVER_STOPPED = "the server stopped"
# No model's window is so small that a context of this many tokens is near it.
SMALL_CONTEXT = 1_000
# How long tools may go on when the server stops, so that their results are recorded.
TOOL_GRACE_SECONDS = 4.0


class TurnInput(Struct, frozen=True):
    """What a turn's agent is given: the session, its messages, facts for the prompt, and its settings."""

    head: SessionHead
    context: ContextFold
    prompt_context: PromptContext
    settings: Mapping[str, Any]


def read_turn_input(tx: Tx, source: Source, *, begun: Begun, context: EngineContext) -> TurnInput:
    """Read what the agent is given for its turn."""
    head = read.get_head(tx, begun.route.session_id, profile=context.profile)
    known = context.contexts.get(head.no, epoch=begun.lease.epoch)
    return build_turn_input(
        tx,
        source,
        head,
        read.fold_context(tx, head, known),
        route=begun.route,
        homes=frozenset(access.list_homes(tx, profile=context.profile)),
        context=context,
    )


def build_turn_input(
    tx: Tx,
    source: Source,
    head: SessionHead,
    fold: ContextFold,
    *,
    route: Route,
    homes: frozenset[HomeAddress],
    context: EngineContext,
) -> TurnInput:
    """Return what the agent is given for its turn, from what was read of its session."""
    settings = context.catalog.for_turn(head.settings, platform=source.platform)
    adapter = context.adapters.get(source.platform)
    notes = adapter.capabilities.notes if adapter is not None else ()
    may_redact = adapter is None or not adapter.capabilities.ids_needed_for_mentions
    # Only in the first turn the agent is told why the session before this one ended.
    was_reset = route.opened and route.reset_from is not None and route.reason in set(ResetReason)
    prompt_context = PromptContext(
        source=source,
        shared=fold.is_shared,
        platform_notes=notes,
        connected=context.deliverable,
        homes=homes,
        redactor=Redactor(meta.redaction_salt(tx))
        if context.redact_people and may_redact
        else None,
        reset=ResetReason(str(route.reason)) if was_reset else None,
        persona=context.catalog.persona_prompt(settings),
    )
    return TurnInput(head, fold, prompt_context, settings)


class TurnRun:
    """Runs the agent for one turn, keeps its lease, and records its end whatever happens.

    It implements the `TurnServices` port, which the agent may call.
    """

    def __init__(
        self,
        context: EngineContext,
        begun: Begun,
        target: TurnTarget,
        turn_input: "TurnInput | None" = None,
        outbox: Outbox | None = None,
    ) -> None:
        self._context = context
        self._begun = begun
        self._target = target
        # What was read when the turn began; otherwise it is read now.
        self._input = turn_input
        self._record = TurnRecord(context, begun, target, outbox)
        self._has_title = True
        self._first_prompt = ""
        self._heartbeat: LeaseHeartbeat | None = None
        self._stop: str | None = None
        self._is_handing_over = False
        # The size of the context when the turn began, once it was asked for, and what of it no compaction changes.
        self._first_size: int | None = None
        self._overhead = 0
        self._compacting: asyncio.Task[None] | None = None
        self._system_prompt = ""
        # What the agent asks people.
        self._asked: tuple[NewQuestion, ...] = ()
        resumption = begun.resumption
        self._prompts = (
            tuple(each.seq for each in begun.prompts) if resumption is None else resumption.prompts
        )
        self.model: str | None = None
        self.reason: str | None = None

    async def run(self) -> TurnState:
        """Run the turn and return its final state; a failure is recorded and delivered like a reply.

        A turn that is left to another process is still `RUNNING`.
        """
        turn_id = self._begun.lease.turn_id
        self._context.running.add(turn_id)
        try:
            return await self._run()
        finally:
            self._context.running.discard(turn_id)

    async def _run(self) -> TurnState:
        # A task of its own: an agent that does not end when it is cancelled is left behind.
        work = asyncio.create_task(self._run_agent())
        is_cancelled = False
        async with LeaseHeartbeat(
            self._context, self._begun.lease, work, self._record.checkpoint
        ) as heartbeat:
            self._heartbeat = heartbeat
            if self._stop is not None:
                heartbeat.request_stop(self._stop)
            try:
                await heartbeat.wait()
            except asyncio.CancelledError:
                is_cancelled = True
                heartbeat.request_stop(SERVER_STOPPED)
                await asyncio.wait({work}, timeout=CANCEL_GRACE_SECONDS)
        state, self.reason = self._outcome(work, heartbeat)
        is_released = False
        if self._is_handing_over and self.reason == SERVER_STOPPED:
            is_released = await self._record.release(SERVER_STOPPED)
        if is_released:
            state = TurnState.RUNNING
        elif state is TurnState.DONE and self._asked:
            state, self.reason = await self._park()
        else:
            state, self.reason = await self._record.end(state, self.reason)
        if is_cancelled:
            raise asyncio.CancelledError
        return state

    async def _park(self) -> tuple[TurnState, str | None]:
        """Let the turn wait for people; if that is not possible, end it."""
        try:
            return await self._record.park(self._asked, asking=self._asking()), None
        except TurnLost:
            return await self._record.end(TurnState.INTERRUPTED, "another process has taken over")
        except SessionaryError as error:
            if isinstance(error, RetryLater | StoreUnavailable):
                raise
            return await self._record.end(
                TurnState.FAILED, f"its question cannot be asked: {error}"
            )

    def stop(self, reason: str) -> None:
        """End the turn now; the output so far is kept."""
        self._stop = self._stop or reason
        self._record.must_end_now = True
        if self._compacting is not None:
            self._compacting.cancel()
        if self._heartbeat is not None:
            self._heartbeat.request_stop(reason)

    def hand_over(self) -> None:
        """Leave the turn to another process because this one stops; a turn that cannot be continued is ended.

        Tools that are running may finish within TOOL_GRACE_SECONDS.
        """
        if not self._is_resumable:
            self.stop(SERVER_STOPPED)
            return
        self._is_handing_over = True
        self._record.must_end_now = True
        if self._compacting is not None:
            self._compacting.cancel()
        if self._heartbeat is None:
            self._stop = self._stop or SERVER_STOPPED
        elif self._record.has_open_calls:
            loop = asyncio.get_running_loop()
            loop.call_later(TOOL_GRACE_SECONDS, self._heartbeat.request_stop, SERVER_STOPPED)
        else:
            self._heartbeat.request_stop(SERVER_STOPPED)

    @property
    def _is_resumable(self) -> bool:
        return self._target.agent.resumes and self._context.settings.resume_attempts > 0

    def check_stop(self) -> None:
        """Check now whether a stop was requested."""
        if self._heartbeat is not None:
            self._heartbeat.check_now()

    @property
    def may_wait(self) -> bool:
        """Whether messages may wait for the session, now that the turn has ended."""
        return self._record.may_wait

    @property
    def may_need_compaction(self) -> bool:
        """Whether the session may be near the model's window, now that the turn has ended."""
        settings = self._context.settings
        return settings.compact_at_tokens is not None or self._record.tokens[0] > SMALL_CONTEXT

    async def compact_if_due(self) -> None:
        """Compact the session after its turn, if it has come near the model's window.

        If the server stops meanwhile, the next turn does it.
        """
        self._compacting = asyncio.create_task(self._compact_if_due())
        try:
            await asyncio.wait({self._compacting})
        finally:
            self._compacting.cancel()
        if not self._compacting.cancelled():
            self._compacting.result()

    async def _compact_if_due(self) -> None:
        context, agent = self._context, self._target.agent
        session_id = self._begun.lease.session_id
        limits = compaction.limits_of(agent, self.model, context)
        if limits is None or self._stop is not None or self._is_handing_over:
            return
        reported, added = self._record.tokens
        if reported and reported + added <= limits.due:
            return
        try:
            found = await context.store.read(
                compaction.read_session_context, session_id, profile=context.profile
            )
            size = compaction.read_size(found)
            if size <= limits.due:
                return
            plan = self._plan(found, limits, size)
            if plan is None:
                return
            done = await compaction.summarize(agent, found, plan, limits=limits, size=size)
            await context.store.write(
                compaction.store_compaction,
                session_id,
                compaction.with_price(done, context.priced),
                profile=context.profile,
                moment=context.moment(),
                spending=self._record.spending(has_usage=done.used is not None),
            )
        except Conflict as error:
            # A turn that has begun meanwhile compacts before its first model call.
            log.info("session %s was not compacted: %s", session_id, error)
        except SessionaryError as error:
            log.warning("session %s was not compacted: %s", session_id, error)

    def _plan(
        self,
        found: CurrentContext,
        limits: CompactionLimits,
        size: int,
        *,
        prompts: Sequence[int] = (),
        is_too_long: bool = False,
    ) -> CompactionPlan | None:
        return compaction_rules.plan_compaction(
            found.fold,
            limits=limits,
            size=size,
            overhead=self._overhead,
            current=found.current,
            pinned=found.pinned,
            prompts=prompts,
            is_too_long=is_too_long,
        )

    @property
    def needs_title(self) -> bool:
        """Whether the session has no title yet."""
        return not self._has_title

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
        self, work: "asyncio.Task[None]", heartbeat: LeaseHeartbeat
    ) -> tuple[TurnState, str | None]:
        """Return how the turn ended, and the reason to show to people."""
        error = work.exception() if work.done() and not work.cancelled() else None
        if error is not None and not isinstance(error, Exception):
            raise error
        # A turn whose heartbeat failed is not done, even if its agent ended normally when it was cancelled.
        if work.done() and not work.cancelled() and error is None and heartbeat.error is None:
            return TurnState.DONE, None
        if heartbeat.lost or isinstance(error, TurnLost):
            return TurnState.INTERRUPTED, "another process has taken over"
        if heartbeat.is_late:
            seconds = self._context.settings.turn_seconds
            return TurnState.FAILED, f"it took longer than {seconds:g} s"
        if heartbeat.stop is not None:
            return TurnState.INTERRUPTED, heartbeat.stop
        error = error or heartbeat.error
        if error is None:
            return TurnState.FAILED, "the agent cancelled its own run"
        if isinstance(error, SessionaryError):
            return TurnState.FAILED, str(error)
        # A runner may be third-party code: whatever it raises ends this turn only.
        log.error("turn %s failed", self._begun.lease.turn_id, exc_info=error)
        return TurnState.FAILED, f"{type(error).__name__}: {error}"

    async def _run_agent(self) -> None:
        request = await self._build_request()
        self._record.publish("began")
        stream = self._target.agent.runner.run(request)
        events = 0
        try:
            async for event in stream:
                match event:
                    case Delta():
                        if self._record.has_pending_step:
                            await self._record.write_pending_step()
                        self._record.add_delta(event)
                    case Step(message=Message(role=Role.ASSISTANT | Role.TOOL)):
                        await self._record.add_step(event)
                        self._stop_between_steps()
                    case Ask(questions=asked) if asked:
                        self._check_asked(asked)
                        self._asked = asked
                        return
                    case _:
                        raise BadInput(f"The agent gave {_describe(event)} instead of a step.")
                events += 1
                if events % YIELD_EVERY == 0:
                    await asyncio.sleep(0)
        finally:
            # Not every iterator has it.
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    def _check_asked(self, asked: Sequence[NewQuestion]) -> None:
        """Refuse two questions of one name; one that was asked before would be asked again and again."""
        resumption = self._begun.resumption
        known = [] if resumption is None else [each.asked.name for each in resumption.questions]
        for each in asked:
            if each.name in known:
                raise BadInput(f"The agent asked the question {each.name!r} twice in one turn.")
            known.append(each.name)

    def _stop_between_steps(self) -> None:
        """Stop now that no tool is running, if the turn is to be left to another process."""
        if self._is_handing_over and self._heartbeat and not self._record.has_open_calls:
            self._heartbeat.request_stop(SERVER_STOPPED)

    async def record_request(
        self,
        *,
        model: str | None,
        tools: Sequence[Mapping[str, Any]],
        settings: Mapping[str, Any],
        window: int | None = None,
    ) -> None:
        """Record what the model is sent besides the messages, and its window."""
        self.model = model
        sent: dict[str, Any] = {
            "system_prompt": self._system_prompt,
            "model": model,
            "tools": list(tools),
            "settings": dict(settings),
        }
        if window is not None:
            sent["window"] = window
        self._record.note_request(self._context.requests.record(self._begun.lease, sent))

    async def fit(
        self, *, window: int | None, overhead: int = 0, is_too_long: bool = False
    ) -> Sequence[Chat] | None:
        """Compact the conversation if it nears the model's window; return the new context, or None if it stays."""
        context, settings, record = self._context, self._context.settings, self._record
        self._overhead = overhead
        size = self._size(overhead)
        percent = settings.compact_at_percent
        if is_too_long:
            # The model reads less than this, whatever is known of its window.
            window, percent = min(window or size, size), percent or 100
        limits = compaction_rules.limits_for(
            window, percent=percent, at_tokens=settings.compact_at_tokens
        )
        if limits is None or (size <= limits.due and not is_too_long):
            return None
        await record.with_retries(record.checkpoint)
        found = await self._read_context()
        plan = self._plan(found, limits, size, prompts=self._prompts, is_too_long=is_too_long)
        left = size if plan is None else plan.size
        if not is_too_long and left > limits.window:
            # The provider would refuse it.
            plan = self._plan(found, limits, size, prompts=self._prompts, is_too_long=True) or plan
        if plan is None:
            return None
        agent = self._target.agent
        done = await compaction.summarize(agent, found, plan, limits=limits, size=size)
        await record.compact(compaction.with_price(done, context.priced))
        return (await self._read_context()).fold.messages()

    async def _read_context(self) -> CurrentContext:
        context, session_id = self._context, self._begun.lease.session_id
        return await self._record.with_retries(
            lambda: context.store.read(
                compaction.read_session_context, session_id, profile=context.profile
            )
        )

    def _size(self, overhead: int) -> int:
        """Return how many tokens the context has now, as far as the provider has counted them, else estimated."""
        reported, added = self._record.tokens
        if reported:
            return reported + added
        if self._first_size is None:
            turn_input = self._input
            assert turn_input is not None
            self._first_size = compaction_rules.context_size(
                turn_input.context,
                reported=turn_input.head.context_tokens,
                reported_seq=turn_input.head.context_seq,
                overhead=overhead,
            )
        return self._first_size + added

    async def new_messages(self) -> Sequence[Chat]:
        """Return the messages that came since the turn began, if the settings or a command say that they steer it."""
        seqs = await self._record.take_new_messages()
        if not seqs:
            return ()
        self._prompts += seqs
        # As the context has them: with the name of who wrote each, if several people have spoken.
        fold = (await self._read_context()).fold
        return [chat for seq, chat in zip(fold.seqs, fold.messages(), strict=True) if seq in seqs]

    async def read_output(self, seq: int) -> str | None:
        """Return the tool output in an entry of the session, whole; None if there is none."""
        context = self._context
        return await context.store.read(
            read.read_tool_output, self._begun.lease.session_id, seq, profile=context.profile
        )

    async def read_output_files(self, seq: int) -> Sequence[Attachment]:
        """Return the files that belong to the tool output in an entry of the session."""
        context = self._context
        return await context.store.read(
            read.read_tool_files, self._begun.lease.session_id, seq, profile=context.profile
        )

    async def decide(self, calls: Sequence[ProposedCall]) -> Sequence[PolicyVerdict]:
        """Return what the policy says about tool calls."""
        context, asking = self._context, self._asking()
        found = policy.decide_by_settings(calls, asking=asking, context=context)
        if all(each.decision is not ToolDecision.ASK for each in found):
            return found  # nothing is read for what the settings decide alone
        return await self._record.with_retries(
            lambda: context.store.read(
                policy.decide,
                calls,
                asking=asking,
                context=context,
                session_no=self._begun.lease.session_no,
            )
        )

    def _asking(self) -> Asking:
        """Return for whom the turn asks: everybody whose messages it has."""
        target = self._target
        sources = (target.source, *target.sources, *self._record.steering_sources)
        return policy.asking_for(sources, target.agent.name)

    async def start_approved(self, name: str) -> bool:
        """Note that an approved call is started; return False if it was started before."""
        lease = self._begun.lease
        is_unknown = False

        async def write() -> bool:
            nonlocal is_unknown
            try:
                return await self._context.store.write(_start_approved, lease, name) or is_unknown
            except (RetryLater, StoreUnavailable) as error:
                is_unknown = is_unknown or error.committed == "unknown"
                raise

        return await self._record.with_retries(write)

    async def ask_now(self, question: NewQuestion, *, seconds: float) -> Question:
        """Ask people something, and wait for their decision while the turn keeps running."""
        record = self._record
        asked = await record.ask_now(question, seconds=seconds, asking=self._asking())
        decided: Question | None = None
        try:
            decided = await self._wait_for_decision(asked)
        finally:
            if decided is None:  # the turn is stopped: no tool waits for the answer any more
                await self._give_up(asked)
        await record.add_decision(decided)
        return decided

    async def directory(self) -> str | None:
        """Return the directory that an editor has opened the session for."""
        context, number = self._context, self._begun.lease.session_no
        return await self._record.with_retries(
            lambda: context.store.read(read.get_editor_directory, number)
        )

    async def kept_state(self) -> KeptState | None:
        """Return what this agent has kept with the session, or with the one that it was forked from."""
        context, lease, agent = self._context, self._begun.lease, self._target.agent.name

        def read_state(tx: Tx) -> KeptState | None:
            found = compaction.read_session_context(tx, lease.session_id, profile=context.profile)
            return kept.read(tx, lease, agent, found, profile=context.profile)

        return await self._record.with_retries(lambda: context.store.read(read_state))

    async def keep_state(
        self, data: Mapping[str, Any], *, native: NativeSession | None = None
    ) -> None:
        """Keep data with the session for later turns of this agent."""
        context, lease, agent = self._context, self._begun.lease, self._target.agent.name
        await self._record.with_retries(
            lambda: _wait_uncancellable(
                context.store.write(
                    kept.keep, lease, agent, data, native=native, profile=context.profile
                )
            )
        )

    async def _wait_for_decision(self, question: Question) -> Question:
        context = self._context

        def concerns(event: Any) -> bool:
            return isinstance(event, QuestionsChanged) and event.session_id == question.session_id

        signal = WakeSignal(context.store, concerns, seconds=context.settings.poll_seconds)
        try:
            while True:
                found = await self._record.with_retries(
                    lambda: context.store.read(
                        question_rows.get, question.id, profile=context.profile
                    )
                )
                if found is None:
                    raise NotFound(f"There is no question {question.id}.")
                if found.is_open and context.clock.now() >= found.expires_at:
                    found = await self._record.with_retries(
                        lambda: context.store.write(
                            questions.give_up,
                            question.id,
                            context=context,
                            moment=context.moment(),
                        )
                    )
                if not found.is_open:
                    return found
                await signal.wait()
        finally:
            signal.close()

    async def _give_up(self, question: Question) -> None:
        """Withdraw a question of this turn; if that is not possible now, whoever ends or continues the turn does it."""
        context = self._context
        try:
            await _wait_uncancellable(
                context.store.write(
                    questions.give_up, question.id, context=context, moment=context.moment()
                )
            )
        except SessionaryError as error:
            log.warning("the question %s was not withdrawn: %s", question.id, error)

    async def _withdraw_lost(self) -> None:
        """Withdraw the questions for whose answers a tool waited in the process that had the turn before."""
        resumption = self._begun.resumption
        for each in () if resumption is None else resumption.questions:
            if each.is_open:
                await self._give_up(each)

    async def _build_request(self) -> TurnRequest:
        context = self._context
        await self._withdraw_lost()
        turn_input = self._input
        if turn_input is None:
            turn_input = await context.store.read(
                read_turn_input, self._target.source, begun=self._begun, context=context
            )
            self._input = turn_input
        lease, chats = self._begun.lease, turn_input.context.messages()
        context.contexts.put(lease.session_no, turn_input.context, epoch=lease.epoch)
        self._has_title = turn_input.head.title is not None
        self._first_prompt = turn_input.head.preview or ""
        options = await self._read_options()
        prompt = context.system_prompt(self._target.agent.prompt, turn_input.prompt_context)
        self._system_prompt = "\n\n".join(filter(None, (prompt, options.instructions)))
        resumption = self._begun.resumption
        return TurnRequest(
            turn_id=lease.turn_id,
            session=turn_input.head,
            source=self._target.source,
            system_prompt=self._system_prompt,
            context=chats,
            blob=self._read_blob,
            settings={**turn_input.settings, **options.settings},
            resumed=0 if resumption is None else resumption.turn.resumed,
            steps=() if resumption is None else resumption.steps,
            unfinished=() if resumption is None else resumption.unfinished,
            questions=() if resumption is None else resumption.questions,
            services=self,
            options=options,
        )

    async def _read_options(self) -> TurnOptions:
        """Return what the program asks of this turn that has sent its message."""
        request = awaited_by(self._target.source)
        if request is None or request.options is None:
            return TurnOptions()
        return await self._context.store.read(
            turns.read_options, request.options, session_no=self._begun.lease.session_no
        )

    async def _read_blob(self, name: str) -> bytes:
        return await self._context.store.read(
            files.read_blob, name, session_no=self._begun.lease.session_no
        )


def _start_approved(tx: Tx, lease: Lease, name: str) -> bool:
    turns.get_stop_reason(tx, lease)  # raises `TurnLost` if another process has the turn
    return question_rows.start_call(tx, lease.turn_id, name)


def _set_title(
    tx: Tx, session_id: str, title: str | None, used: Usage | None, *, profile: str, moment: Moment
) -> None:
    head = read.get_head(tx, session_id, profile=profile)
    if title is not None:
        titles.name_automatically(tx, head, title)
    if used is not None:
        usage.record(tx, head.no, used, profile=profile, moment=moment)


def _describe(event: object) -> str:
    if isinstance(event, Step) and isinstance(event.message, Message):
        return f"a message of the {event.message.role}"
    return type(event).__name__
