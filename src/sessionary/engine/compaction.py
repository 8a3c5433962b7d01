"""Compaction: by command, or when a context has grown past its threshold."""

import asyncio
import logging

from sessionary.actions import compact, deliver, read, usage
from sessionary.clock import Moment
from sessionary.engine.context import EngineContext
from sessionary.errors import RetryLater, SessionaryError, StoreUnavailable
from sessionary.model.part import Text
from sessionary.model.session import SessionHead
from sessionary.model.source import Source
from sessionary.model.tokens import estimate
from sessionary.model.transcript import Chat
from sessionary.model.usage import Usage
from sessionary.store.database import Tx

TRIES = 600
NOT_COMPACTED = "The conversation was not compacted"
log = logging.getLogger("sessionary.compaction")


class Compactor:
    """Lets a summary stand for the beginning of a session, for the model."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context

    async def compact(
        self, session_id: str, *, focus: str | None, tell: Source | None = None
    ) -> str:
        """Summarize a session up to its end; what to tell the person."""
        text = f"{NOT_COMPACTED}: the server stopped. Send /compact to try again."
        try:
            text = await self._compacted(session_id, focus)
        except SessionaryError as error:
            text = f"{NOT_COMPACTED}: {error}"
        finally:
            # Whoever was told that they will be told is told, also when we are stopped.
            if tell is not None:
                await self._tell(tell, text)
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

    async def _tell(self, tell: Source, text: str) -> None:
        """Put it into the outbox; while the store is away it waits, but not for ever."""
        context = self._context
        for _ in range(TRIES):
            try:
                await context.store.write(
                    _tell, tell, text, context=context, moment=context.moment()
                )
            except (RetryLater, StoreUnavailable) as error:
                log.warning("what became of a compaction cannot be told now: %s", error)
                await asyncio.sleep(context.settings.poll_seconds)
            else:
                return

    def is_due(self, tokens: int) -> bool:
        """Whether a context has grown past the threshold."""
        limit = self._context.settings.compact_at_tokens
        return limit is not None and tokens > limit


def _compact(
    tx: Tx, head: SessionHead, summary: str, used: Usage | None, *, moment: Moment
) -> None:
    compact.compact(
        tx, head.id, summary, profile=head.profile, through=head.last_seq, at=moment.now
    )
    if used is not None:
        usage.record(tx, head.no, used, profile=head.profile, moment=moment)


def _read(tx: Tx, session_id: str, *, profile: str) -> tuple[SessionHead, list[Chat]]:
    return read.head(tx, session_id, profile=profile), read.context(tx, session_id, profile=profile)


def _tell(tx: Tx, source: Source, text: str, *, context: EngineContext, moment: Moment) -> None:
    channel = source.channel
    if channel is not None and channel.platform in context.deliverable:
        deliver.enqueue(tx, channel, (Text(text),), profile=context.profile, moment=moment)
