"""What a turn is for, and what its people are sent when it ends."""

from collections.abc import Sequence
from dataclasses import dataclass

from sessionary.actions.turns import TurnReply
from sessionary.engine import notices
from sessionary.engine.context import EngineContext
from sessionary.engine.pieces import for_platform
from sessionary.engine.ports import Agent
from sessionary.model.part import Attachment, Part, Text
from sessionary.model.schedule import SILENT
from sessionary.model.source import Channel, Source
from sessionary.model.turn import TurnState


@dataclass(frozen=True, slots=True)
class TurnTarget:
    """What a turn is for: who asked, where the answer goes, which agent takes it."""

    source: Source
    agent: Agent
    to: Channel | None
    scopes: tuple[str, ...] = ()
    is_job: bool = False

    def replies(
        self,
        state: TurnState,
        reason: str | None,
        said: str,
        files: Sequence[Attachment],
        *,
        context: EngineContext,
    ) -> tuple[TurnReply, ...]:
        """What is delivered: the answer with its files, or why there is none."""
        if self.to is None or reason == notices.NEWER_MESSAGE:
            return ()
        if state is not TurnState.DONE:
            said, files = self._failure(state, reason), ()
        elif self.is_job and said.strip() == SILENT:
            return ()
        said = said or ("" if files else notices.NOTHING_SAID)
        pieces = for_platform(said, self.to.platform, context)
        *first, last = [(Text(text),) if text else () for text in pieces]
        # What the agent gives out goes with its last words.
        said_last: tuple[Part, ...] = (*last, *files)
        return tuple(TurnReply(self.to, each) for each in (*first, said_last))

    def _failure(self, state: TurnState, reason: str | None) -> str:
        if self.is_job:
            return notices.run_failed(self.source.chat_name or "", reason)
        return notices.unfinished(state, reason)
