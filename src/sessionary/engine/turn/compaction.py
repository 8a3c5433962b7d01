"""Compaction: by command, or when a context has grown past its threshold."""

import asyncio
import logging
from dataclasses import dataclass

from sessionary.actions import outbox, usage
from sessionary.actions.sessions import read, revise
from sessionary.clock import Moment
from sessionary.engine.context import EngineContext
from sessionary.errors import RetryLater, SessionaryError, StoreUnavailable
from sessionary.model.message import Text
from sessionary.model.session import SessionHead
from sessionary.model.source import Source
from sessionary.model.tokens import estimate
from sessionary.model.transcript import Chat
from sessionary.model.usage import Usage
from sessionary.store.database import Tx

# How often the outcome is offered to a store that is away.
NOTIFY_TRIES = 600
NOT_COMPACTED = "The conversation was not compacted"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """A session to compact, what the summary should keep, and who is told of the outcome."""

    session_id: str
    focus: str | None = None
    notify: Source | None = None


class Compactor:
    """Replaces the beginning of a session, as the model reads it, by a summary."""

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
        task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[str]") -> None:
        self.running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a compaction was not finished", exc_info=task.exception())

    async def compact(
        self, session_id: str, *, focus: str | None, notify: Source | None = None
    ) -> str:
        """Summarize a session up to its end; return the text for the person who asked."""
        text = f"{NOT_COMPACTED}: the server stopped. Send /compact to try again."
        try:
            text = await self._compacted(session_id, focus)
        except SessionaryError as error:
            text = f"{NOT_COMPACTED}: {error}"
        finally:
            # /compact promises a notice; it is also due when the server stops.
            if notify is not None:
                await self._notify(notify, text)
        return text

    async def _compacted(self, session_id: str, focus: str | None) -> str:
        context = self._context
        head, chat = await context.store.read(_read, session_id, profile=context.profile)
        agent = context.agent_for(head.source, None)
        summary, used = await agent.summarizer.summarize(chat, focus=focus)
        await context.store.write(
            _compact,
            head,
            summary,
            None if used is None else context.priced(used),
            moment=context.moment(),
        )
        return f"Compacted: {estimate(chat):,} tokens became {estimate(summary):,}."

    async def _notify(self, source: Source, text: str) -> None:
        """Enqueue the outcome for a person; retry a limited number of times while the store is away."""
        context = self._context
        for _ in range(NOTIFY_TRIES):
            try:
                await context.store.write(
                    _enqueue, source, text, context=context, moment=context.moment()
                )
            except (RetryLater, StoreUnavailable) as error:
                log.warning("the outcome of a compaction cannot be enqueued now: %s", error)
                await asyncio.sleep(context.settings.poll_seconds)
            else:
                return

    def is_due(self, tokens: int) -> bool:
        """Return whether a context has grown past the threshold."""
        limit = self._context.settings.compact_at_tokens
        return limit is not None and tokens > limit


def _compact(
    tx: Tx, head: SessionHead, summary: str, used: Usage | None, *, moment: Moment
) -> None:
    revise.compact(tx, head.id, summary, profile=head.profile, through=head.last_seq, at=moment.now)
    if used is not None:
        usage.record(tx, head.no, used, profile=head.profile, moment=moment)


def _read(tx: Tx, session_id: str, *, profile: str) -> tuple[SessionHead, list[Chat]]:
    return read.head(tx, session_id, profile=profile), read.context(tx, session_id, profile=profile)


def _enqueue(tx: Tx, source: Source, text: str, *, context: EngineContext, moment: Moment) -> None:
    channel = source.channel
    if channel is not None and channel.platform in context.deliverable:
        outbox.enqueue(tx, channel, (Text(text),), profile=context.profile, moment=moment)
