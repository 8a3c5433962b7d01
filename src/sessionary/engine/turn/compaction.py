"""Compaction: older messages of a session are replaced, in what the model is given, with a summary of them.

A session is compacted when a person asks for it, after a turn that has come near the model's window, and during a turn
before a model call that would not fit.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from sessionary.actions.budgets import Budgets
from sessionary.actions.sessions import read, revise
from sessionary.clock import Moment
from sessionary.engine import notices
from sessionary.engine.context import EngineContext
from sessionary.engine.ports import Agent
from sessionary.engine.turn import budgets
from sessionary.engine.turn.budgets import Spending
from sessionary.errors import Conflict, RetryLater, SessionaryError, StoreUnavailable
from sessionary.model import compaction, transcript
from sessionary.model.compaction import CompactionLimits, CompactionPlan
from sessionary.model.message import Compaction
from sessionary.model.session import SessionHead
from sessionary.model.source import Source
from sessionary.model.tokens import estimate
from sessionary.model.transcript import ContextFold, chat_tokens
from sessionary.model.turn import Lease
from sessionary.model.usage import Usage
from sessionary.store.database import Tx

# How many times to try to enqueue the outcome of a compaction while the store is unavailable.
NOTIFY_TRIES = 600
NOT_COMPACTED = "The conversation was not compacted"
# What a person asks for is compacted also if the model's window is unknown.
USUAL_WINDOW = 32_000
# A shorter conversation, in tokens, is not compacted: the summary would hardly be shorter.
SHORTEST = 300
log = logging.getLogger(__name__)


class CompactionRequest(Struct, frozen=True):
    """A session to compact, what the summary should focus on, and whom to tell the outcome."""

    session_id: str
    focus: str | None = None
    notify: Source | None = None


class CurrentContext(Struct, frozen=True):
    """A session's context now, the compaction in effect, and the sizes of the messages that were pinned."""

    head: SessionHead
    fold: ContextFold
    current: Compaction | None
    pinned: Mapping[int, int]


class CompactedContext(Struct, frozen=True):
    """How a context was compacted: the entry that says so, what the summary used, the sizes before and after.

    `last_seq` is the last entry of the log when it was read.
    """

    compaction: Compaction
    used: Usage | None
    size_before: int
    size_after: int
    last_seq: int


class StoredCompaction(Struct, frozen=True):
    """The session after a compaction, and why its turn must end now if the summary used up a budget."""

    head: SessionHead
    used_up: str | None


def limits_of(agent: Agent, model: str | None, context: EngineContext) -> CompactionLimits | None:
    """Return the limits for an agent's model; None if its window is unknown, or compaction is off."""
    settings = context.settings
    return compaction.limits_for(
        agent.window(model),
        percent=settings.compact_at_percent,
        at_tokens=settings.compact_at_tokens,
    )


def read_session_context(tx: Tx, session_id: str, *, profile: str) -> CurrentContext:
    """Read a session's context as it is now."""
    head = read.get_head(tx, session_id, profile=profile)
    found = read.read_since_compaction(tx, head)
    marks = transcript.marks_of(found)
    return CurrentContext(
        head,
        transcript.fold_context(found, last_seq=head.last_seq),
        transcript.compaction_in_effect(marks),
        read.measure_pinned(tx, head, marks),
    )


async def summarize(
    agent: Agent,
    found: CurrentContext,
    plan: CompactionPlan,
    *,
    limits: CompactionLimits,
    size: int,
    focus: str | None = None,
) -> CompactedContext:
    """Carry out a plan: have the agent summarize what is replaced, if anything is."""
    used = None
    summary, size_after = "" if found.current is None else found.current.summary, plan.size
    if plan.replaced:
        older = found.fold.chats[: plan.replaced]
        summary, used = await agent.summarizer.summarize(older, focus=focus, limits=limits)
        size_after += estimate(summary)
    named = found.fold.speakers.named_from
    made = Compaction(
        summary,
        plan.through,
        names_speakers=named is not None and named <= plan.through,
        kept=plan.kept,
        shortened=plan.shortened,
        longest_output=plan.longest_output if plan.shortened else 0,
    )
    return CompactedContext(made, used, size, size_after, found.head.last_seq)


async def summarize_as_asked(
    agent: Agent, found: CurrentContext, *, focus: str | None
) -> CompactedContext:
    """Compact a session because someone asked for it, also if it is far from the model's window.

    Raises `Conflict` as `plan_as_asked` does.
    """
    plan, size = plan_as_asked(agent, found), _size(found)
    limits = CompactionLimits(_window(agent, found), 0)
    done = await summarize(agent, found, plan, limits=limits, size=size, focus=focus)
    # The system prompt and the tools are read with each call too, if one was counted.
    overhead = max(0, read_size(found) - size)
    return replace(done, size_after=done.size_after + overhead)


def plan_as_asked(agent: Agent, found: CurrentContext) -> CompactionPlan:
    """Return how to compact a session because someone asked for it.

    About a third of it stays word for word, or less if it is long. Raises `Conflict` if it is too short for that, or a
    turn is running: only that turn may write to the log.
    """
    if found.head.running:
        raise Conflict(
            "A turn is running in this session; nothing was changed. Wait for it or stop it."
        )
    size = _size(found)
    plan = None
    if size >= SHORTEST:
        limits = CompactionLimits(min(_window(agent, found), 5 * size // 3), 0)
        plan = _plan(found, limits, size)
    if plan is None or not plan.replaced:
        raise Conflict("This conversation is short enough as it is; nothing was changed.")
    return plan


def store_compaction(
    tx: Tx,
    session_id: str,
    done: CompactedContext,
    *,
    profile: str,
    moment: Moment,
    spending: Spending,
    lease: Lease | None = None,
) -> StoredCompaction:
    """Append a compaction to the log, and count what its summary used.

    Raises `Conflict` if something was taken back or compacted since the context was read: the summary may hold it.
    """
    head = revise.store_compaction(
        tx,
        session_id,
        done.compaction,
        done.used,
        profile=profile,
        moment=moment,
        lease=lease,
        context_tokens=done.size_after,
        last_seq=done.last_seq,
    )
    used_up = None
    if done.used is not None:
        used_up = budgets.count_summary(
            tx, done.used, spending, profile=profile, moment=moment, lease=lease
        )
    return StoredCompaction(head, used_up)


def spending_of(
    source: Source,
    agent: Agent,
    session_id: str,
    *,
    known: Budgets,
    profile: str,
    now: datetime,
    deliverable: frozenset[str] = frozenset(),
) -> Spending:
    """Return against what a summary is counted that someone has asked for."""
    scopes = budgets.scopes_of(source) + budgets.turn_scopes(
        known, profile=profile, agent=agent.name, session_id=session_id
    )
    to = source.channel if source.platform in deliverable else None
    return Spending(scopes, now, known, to, deliverable)


class Compactor:
    """Compacts sessions when people ask for it."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        # The compactions that commands have started.
        self.running: set[asyncio.Task[str]] = set()

    def start(self, request: CompactionRequest) -> None:
        """Compact a session in the background."""
        task = asyncio.create_task(
            self.compact(request.session_id, focus=request.focus, notify=request.notify)
        )
        self.running.add(task)
        task.add_done_callback(self._on_finished)

    def _on_finished(self, task: "asyncio.Task[str]") -> None:
        self.running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a compaction failed", exc_info=task.exception())

    async def compact(
        self, session_id: str, *, focus: str | None, notify: Source | None = None
    ) -> str:
        """Compact a session as it is now; return the outcome as a text for the person who asked."""
        text = f"{NOT_COMPACTED}: the server stopped. Send /compact to try again."
        try:
            text = await self._compact_as_asked(session_id, focus, notify)
        except SessionaryError as error:
            text = f"{NOT_COMPACTED}. {error}"
            log.warning("session %s was not compacted: %s", session_id, error)
        finally:
            # /compact promises to report the outcome, also when the server stops.
            if notify is not None:
                await self._notify(notify, text)
        return text

    async def _compact_as_asked(
        self, session_id: str, focus: str | None, asked_by: Source | None
    ) -> str:
        context = self._context
        found = await context.store.read(read_session_context, session_id, profile=context.profile)
        agent = context.agent_of(found.head)
        done = await summarize_as_asked(agent, found, focus=focus)
        source = asked_by or found.head.source
        await context.store.write(
            store_compaction,
            session_id,
            with_price(done, context.priced),
            profile=context.profile,
            moment=context.moment(),
            spending=spending_of(
                source,
                agent,
                session_id,
                known=context.settings.budgets,
                profile=context.profile,
                now=context.clock.now(),
                deliverable=context.deliverable,
            ),
        )
        after = await context.store.read(read_session_context, session_id, profile=context.profile)
        before, now = done.size_before, _size(after)
        if now >= before:
            return (
                f"Compacted, but it did not become shorter: about {before:,} tokens became {now:,}."
            )
        return f"Compacted: about {before:,} tokens became {now:,}."

    async def _notify(self, source: Source, text: str) -> None:
        """Enqueue the outcome for a person; retry up to NOTIFY_TRIES times while the store is unavailable."""
        context = self._context
        for _ in range(NOTIFY_TRIES):
            try:
                await context.store.write(
                    notices.send, context, source, text, moment=context.moment()
                )
            except (RetryLater, StoreUnavailable) as error:
                log.warning("the outcome of a compaction cannot be enqueued now: %s", error)
                await asyncio.sleep(context.settings.poll_seconds)
            else:
                return


def with_price(done: CompactedContext, priced: Callable[[Usage], Usage | None]) -> CompactedContext:
    """Return a compaction with the price of its summary."""
    return done if done.used is None else replace(done, used=priced(done.used))


def read_size(found: CurrentContext) -> int:
    """Return how many tokens a session's context has now, as far as the provider has counted them, else estimated."""
    head = found.head
    return compaction.context_size(
        found.fold, reported=head.context_tokens, reported_seq=head.context_seq
    )


def _size(found: CurrentContext) -> int:
    """Return how many tokens the messages of a context have, estimated."""
    return sum(map(chat_tokens, found.fold.chats))


def _window(agent: Agent, found: CurrentContext) -> int:
    return agent.window(found.head.model) or USUAL_WINDOW


def _plan(found: CurrentContext, limits: CompactionLimits, size: int) -> CompactionPlan | None:
    return compaction.plan_compaction(
        found.fold, limits=limits, size=size, current=found.current, pinned=found.pinned
    )
