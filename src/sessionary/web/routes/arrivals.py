"""`/arrivals`: a message from any program, and what became of it."""

import asyncio
from typing import Annotated

from fastapi import Path, Query, Request
from msgspec import Meta, Struct
from typing_extensions import TypedDict

from sessionary.actions import files, inbox
from sessionary.engine import intake
from sessionary.engine.intake import Submission, SubmissionResult
from sessionary.errors import NotFound
from sessionary.model import message
from sessionary.model.json_types import PartJson
from sessionary.model.message import Message
from sessionary.model.session import Segment
from sessionary.model.turn import Arrival, ArrivalState, TurnState
from sessionary.model.view import time_text
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals, entries, sessions, turns
from sessionary.web.auth import ContextDep, Reader, Writer
from sessionary.web.context import PREFIX
from sessionary.web.requests import MessageBody, Parts, SourceBody, Text, message_of, source_of
from sessionary.web.responses import (
    StoredAnswer,
    accepted,
    answer,
    change,
    checked_name,
    engine_for,
    json_response,
    stored_idempotency_key,
)
from sessionary.web.routing import Accepted, FromBody, JsonAnswer, api_router
from sessionary.web.stream import until_gone
from sessionary.web.waits import MAX_SECONDS, ArrivalWaits

router = api_router(prefix=PREFIX, tags=["arrivals"])
ArrivalId = Annotated[str, Path(description="The arrival's id.")]


class NewArrival(Struct, kw_only=True):
    """A message from any program: either `text` or `parts`. Unknown fields are ignored."""

    source: SourceBody
    text: Text = None
    parts: Parts = None
    platform_message_id: Annotated[
        str | int | None,
        Meta(description="The platform's id of the message. The same id twice is one arrival."),
    ] = None


class ArrivalAccepted(TypedDict):
    """A message that was stored."""

    arrival_id: str | None
    """Its id for `GET /arrivals/{arrival_id}`."""
    session_id: str | None
    """The session that contains the message; null for a command, and while the message waits for a turn."""
    answer: str | None
    """The result of a command; null for any other message."""


class ReplyInfo(TypedDict):
    """The reply to a message."""

    id: str
    """The entry's id."""
    seq: int
    text: str
    at: str


class ArrivalDetail(TypedDict):
    """A message that arrived, and what became of it."""

    id: str
    state: ArrivalState
    """`waiting` for a turn, `taken` by a turn or as a command, or `refused`."""
    reason: str | None
    """Why it was refused, or why its turn failed."""
    text: str
    parts: list[PartJson]
    received_at: str
    session_id: str | None
    """The session that contains it, once a turn has taken it."""
    seq: int | None
    """The number of its entry."""
    turn_id: str | None
    """The turn that took it."""
    turn_state: TurnState | None
    """How far that turn is."""
    reply: ReplyInfo | None
    """The reply, as soon as it is there."""


@router.post("/arrivals", status_code=202)
async def create_arrival(
    request: Request, context: ContextDep, caller: Writer, body: FromBody[NewArrival]
) -> Accepted[ArrivalAccepted]:
    """Send a message from any program.

    The message is durable when this answers. The agent answers in the current session of the source's conversation.
    The same `platform_message_id` twice is one arrival. `session_id` is null for a command, and while the message waits
    for a turn; `GET /arrivals/{arrival_id}` returns it once a turn has taken the message.
    """
    source = source_of(body.source, body.platform_message_id)
    written = message_of("user", body)
    message_body = written.message
    engine = engine_for(request, caller)
    # A platform's own id is the better key: another request may carry the same message.
    idempotency_key = None if source.platform_message_id else stored_idempotency_key(request)
    submission = Submission(message_body, idempotency_key, begin=engine.turns.has_free_slot)
    moment = context.moment()

    def take(tx: Tx) -> SubmissionResult:
        files.keep_files(tx, message_body, written.files, profile=caller.profile, moment=moment)
        return intake.submit(tx, engine.context, source, submission, moment=moment)

    return await accepted(request, caller, take, _accepted)


@router.get("/arrivals/{arrival_id}")
async def get_arrival(
    arrival_id: ArrivalId,
    request: Request,
    context: ContextDep,
    caller: Reader,
    wait: Annotated[
        float,
        Query(ge=0, le=MAX_SECONDS, description="Wait up to this many seconds for the outcome."),
    ] = 0,
) -> JsonAnswer[ArrivalDetail]:
    """Get a message that arrived.

    Its state, its session and turn, and the reply when it is there. With `wait` the answer comes as soon as the message
    was answered or refused, or its turn ended without a reply; when the time is over, it is the state until then.
    """
    known = checked_name(arrival_id, "arrival")
    found = await context.store.read(_look, known, profile=caller.profile)
    if wait and (
        found["state"] is ArrivalState.WAITING or found["turn_state"] is TurnState.RUNNING
    ):
        waits: ArrivalWaits = request.app.state.waits
        gone = asyncio.ensure_future(until_gone(request.receive))
        try:
            await waits.wait(known, profile=caller.profile, seconds=wait, gone=gone)
        finally:
            gone.cancel()
        found = await context.store.read(_look, known, profile=caller.profile)
    return json_response(found)


@router.patch("/arrivals/{arrival_id}")
async def edit_arrival(
    arrival_id: ArrivalId,
    request: Request,
    context: ContextDep,
    caller: Writer,
    body: FromBody[MessageBody],
) -> JsonAnswer[ArrivalDetail]:
    """Change a message that waits.

    Only a message that was sent with `POST /sessions/{session_id}/turns`, and only until a turn takes it (409 after).
    """
    known = checked_name(arrival_id, "arrival")
    written, moment = message_of("user", body), context.moment()
    message_body = written.message

    def apply(tx: Tx) -> StoredAnswer[ArrivalDetail]:
        files.keep_files(tx, message_body, written.files, profile=caller.profile, moment=moment)
        inbox.rewrite(tx, known, message_body, profile=caller.profile, moment=moment)
        return answer(_look(tx, known, profile=caller.profile))

    return await change(request, caller, apply)


@router.delete("/arrivals/{arrival_id}")
async def withdraw_arrival(
    arrival_id: ArrivalId, request: Request, caller: Writer
) -> JsonAnswer[ArrivalDetail]:
    """Withdraw a message that waits.

    Possible until a turn takes it (409 after).
    """
    known = checked_name(arrival_id, "arrival")

    def apply(tx: Tx) -> StoredAnswer[ArrivalDetail]:
        inbox.withdraw(tx, known, profile=caller.profile)
        return answer(_look(tx, known, profile=caller.profile))

    return await change(request, caller, apply)


def _accepted(done: SubmissionResult) -> ArrivalAccepted:
    return {
        "arrival_id": done.received.arrival_id,
        "session_id": done.session_id,
        "answer": done.received.answer,
    }


def _look(tx: Tx, id: str, *, profile: str) -> ArrivalDetail:
    found = arrivals.get(tx, id, profile=profile)
    if found is None:
        raise NotFound(f"There is no arrival {id}.")
    turn = None if found.turn_id is None else turns.get(tx, found.turn_id, profile=profile)
    reply = None if turn is None else _reply(tx, found, session_no=turn[1])
    return {
        "id": found.id,
        "state": found.state,
        "reason": found.reason if turn is None else turn[0].reason or found.reason,
        "text": found.message.text,
        "parts": [message.to_json(each) for each in found.message.parts],
        "received_at": time_text(found.received_at),
        "session_id": found.session_id,
        "seq": found.seq,
        "turn_id": found.turn_id,
        "turn_state": None if turn is None else turn[0].state,
        "reply": reply,
    }


def _reply(tx: Tx, found: Arrival, *, session_no: int) -> ReplyInfo | None:
    seq = entries.reply_of_turn(tx, session_no, found.turn_id)
    if seq is None:
        return None
    head = sessions.get_by_no(tx, session_no)
    (entry,) = entries.read(tx, Segment(session_no, head.id, seq, seq), limit=1)
    message_body = entry.body
    assert isinstance(message_body, Message)
    return {"id": entry.id, "seq": seq, "text": message_body.text, "at": time_text(entry.at)}
