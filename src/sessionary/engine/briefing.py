"""What an agent is told at the beginning of a turn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sessionary.actions import access, read
from sessionary.actions.routing import Route
from sessionary.engine.context import EngineContext
from sessionary.model import transcript
from sessionary.model.prompt import PromptContext
from sessionary.model.reset import ResetReason
from sessionary.model.session import SessionHead
from sessionary.model.source import Source
from sessionary.model.transcript import Chat
from sessionary.store.database import Tx


@dataclass(frozen=True, slots=True)
class TurnInput:
    """The session, what was said in it, where it takes place, and how it is to be answered."""

    head: SessionHead
    context: list[Chat]
    surroundings: PromptContext
    settings: Mapping[str, Any]


def read_turn_input(tx: Tx, source: Source, *, route: Route, context: EngineContext) -> TurnInput:
    """What the agent is told, as of the turn's beginning."""
    head = read.head(tx, route.session_id, profile=context.profile)
    log = read.since_compaction(tx, head)
    adapter = context.adapters.get(source.platform)
    notes = adapter.capabilities.notes if adapter is not None else ()
    redacts = adapter is None or not adapter.capabilities.ids_needed_for_mentions
    surroundings = PromptContext(
        source=source,
        shared=transcript.named_from(log) is not None,
        platform_notes=notes,
        connected=context.deliverable,
        homes=frozenset(access.homes(tx, profile=context.profile)),
        redact=context.redact_people and redacts,
        reset=_reset_reason(route),
    )
    return TurnInput(head, transcript.context(log), surroundings, read.settings(tx, head))


def _reset_reason(route: Route) -> ResetReason | None:
    """Why the session before this one was over: the agent is told once, in the first turn."""
    told = route.opened and route.reset_from is not None and route.reason in set(ResetReason)
    return ResetReason(str(route.reason)) if told else None
