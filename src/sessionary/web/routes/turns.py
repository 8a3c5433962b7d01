"""The turns of sessions, what the model was sent in them, and how large a session's context is now."""

from typing import Annotated

from fastapi import Path, Query
from typing_extensions import TypedDict

from sessionary.actions.sessions import model_calls
from sessionary.model.json_types import ContextInfo, ModelCallInfo, SentContextInfo, TurnSummary
from sessionary.web.auth import ContextDep, Reader
from sessionary.web.context import PREFIX
from sessionary.web.requests import CursorQuery
from sessionary.web.responses import checked_name, json_response
from sessionary.web.routes.sessions import SessionId, context_limits
from sessionary.web.routing import JsonAnswer, api_router

router = api_router(prefix=PREFIX, tags=["conversation"])
TurnId = Annotated[str, Path(description="The turn's id.")]
_MOST_CALLS = 1_000_000


class TurnListPage(TypedDict):
    """A page of a session's turns."""

    items: list[TurnSummary]
    next: str | None
    """The cursor of the next page; null on the last."""


class ModelCallPage(TypedDict):
    """The model calls of a turn, oldest first."""

    items: list[ModelCallInfo]
    next: None


@router.get("/sessions/{session_id}/turns")
async def list_turns(
    session_id: SessionId,
    context: ContextDep,
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=200, description="How many turns a page has.")] = 50,
    cursor: Annotated[CursorQuery, Query(description="Where the last page ended.")] = None,
) -> JsonAnswer[TurnListPage]:
    """List a session's turns.

    Newest first. A turn that another process has continued says how often and why.
    """
    known, now = checked_name(session_id, "session"), context.clock.now()
    found = await context.store.read(
        model_calls.list_turns, known, profile=caller.profile, limit=limit, cursor=cursor or None
    )
    items = [model_calls.listed_turn_json(each, now=now) for each in found.items]
    return json_response(TurnListPage(items=items, next=found.next))


@router.get("/turns/{turn_id}/calls")
async def list_model_calls(
    turn_id: TurnId, context: ContextDep, caller: Reader
) -> JsonAnswer[ModelCallPage]:
    """List a turn's model calls.

    Each with the entry of its answer. The last call of a turn that is running or has failed may have no answer.
    """
    known = checked_name(turn_id, "turn")
    found = await context.store.read(model_calls.list_calls, known, profile=caller.profile)
    return json_response(
        ModelCallPage(items=[model_calls.call_json(each) for each in found], next=None)
    )


@router.get("/turns/{turn_id}/context")
async def get_sent_context(
    turn_id: TurnId,
    context: ContextDep,
    caller: Reader,
    call: Annotated[
        int | None,
        Query(ge=1, le=_MOST_CALLS, description="The number of the call; by default the last."),
    ] = None,
) -> JsonAnswer[SentContextInfo]:
    """Get what the model was sent.

    The system prompt, the tools and the messages of one call of a turn, made again from the log by the same rules as
    when it was sent: what was compacted, what was shortened, and the tokens by kind.
    """
    known, now = checked_name(turn_id, "turn"), context.clock.now()
    found = await context.store.read(
        model_calls.read_sent_context, known, profile=caller.profile, number=call
    )
    return json_response(model_calls.sent_context_json(found, now=now))


@router.get("/sessions/{session_id}/context")
async def get_session_context(
    session_id: SessionId, context: ContextDep, caller: Reader
) -> JsonAnswer[ContextInfo]:
    """Get the size of a session's context.

    How many tokens the next model call would send, by kind; the model's window, the size at which the context is
    compacted, and the compaction in effect. `GET /sessions/{session_id}/entries?view=context` returns the messages.
    """
    known = checked_name(session_id, "session")
    found = await context.store.read(model_calls.measure_context, known, profile=caller.profile)
    limits = await context_limits(context, caller, found.head, found.model)
    return json_response(
        model_calls.context_json(found, window=limits.window, threshold=limits.threshold)
    )
