"""Compaction: by command, or when a context has grown past its threshold."""

from hansard.actions import compact, deliver, read, usage
from hansard.clock import Occasion
from hansard.engine.parts import Parts
from hansard.errors import HansardError
from hansard.model.part import Text
from hansard.model.place import Source
from hansard.model.session import SessionHead
from hansard.model.tokens import estimate
from hansard.model.transcript import Chat
from hansard.model.usage import Usage
from hansard.store.database import Tx


class Compactor:
    """Lets a summary stand for the beginning of a session, for the model."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def compact(
        self, session_id: str, *, focus: str | None, tell: Source | None = None
    ) -> str:
        """Summarize a session up to its end; what to tell the person."""
        parts = self._parts
        head, context = await parts.store.read(_read, session_id, profile=parts.profile)
        try:
            agent = parts.agent_for(head.source, None)
            summary, used = await agent.summarizer.summarize(context, focus=focus)
            await parts.store.write(
                _compact,
                head,
                summary,
                None if used is None else parts.priced(used),
                when=parts.occasion(),
            )
            text = f"Compacted: {estimate(context):,} tokens became {estimate(summary):,}."
        except HansardError as error:
            text = f"The conversation was not compacted: {error}"
        if tell is not None:
            await parts.store.write(_tell, tell, text, parts=parts, when=parts.occasion())
        return text

    def is_due(self, tokens: int) -> bool:
        """Whether a context has grown past the threshold."""
        limit = self._parts.settings.compact_at_tokens
        return limit is not None and tokens > limit


def _compact(
    tx: Tx, head: SessionHead, summary: str, used: Usage | None, *, when: Occasion
) -> None:
    compact.compact(tx, head.id, summary, profile=head.profile, through=head.last_seq, at=when.now)
    if used is not None:
        usage.record(tx, head.no, used, profile=head.profile, when=when)


def _read(tx: Tx, session_id: str, *, profile: str) -> tuple[SessionHead, list[Chat]]:
    return read.head(tx, session_id, profile=profile), read.context(tx, session_id, profile=profile)


def _tell(tx: Tx, source: Source, text: str, *, parts: Parts, when: Occasion) -> None:
    channel = source.channel
    if channel is not None and channel.platform in parts.deliverable:
        deliver.enqueue(tx, channel, (Text(text),), profile=parts.profile, when=when)
