"""`/arrivals`: a message from any program, and what became of it."""

import asyncio
from typing import Annotated

from fastapi import Path, Query, Request
from msgspec import Meta, Struct
from typing_extensions import TypedDict

from sessionary.actions import files, inbox
from sessionary.engine import intake
from sessionary.engine.intake import Submission, SubmissionResult
from sessionary.store.database import Tx
from sessionary.web.auth import ContextDep, ReaderReads, Writer
from sessionary.web.context import PREFIX, Caller
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
from sessionary.web.waits import (
    MAX_SECONDS,
    ArrivalDetail,
    ArrivalWaits,
    is_over,
    read_arrival,
)

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
    question_id: str | None
    """The question of a waiting turn that the message has answered: no turn begins with it."""


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
    submission = Submission(
        message_body,
        idempotency_key,
        begin=engine.turns.has_free_slot,
        by_program=not caller.may_approve,
    )
    moment = context.moment()

    def take(tx: Tx) -> SubmissionResult:
        files.keep_files(tx, message_body, written.files, profile=caller.profile, moment=moment)
        return intake.submit(tx, engine.context, source, submission, moment=moment)

    return await accepted(request, caller, take, _accepted)


@router.get("/arrivals/{arrival_id}")
async def get_arrival(
    arrival_id: ArrivalId,
    request: Request,
    reader: ReaderReads,
    wait: Annotated[
        float,
        Query(ge=0, le=MAX_SECONDS, description="Wait up to this many seconds for the outcome."),
    ] = 0,
) -> JsonAnswer[ArrivalDetail]:
    """Get a message that arrived.

    Its state, its session and turn, and the reply when it is there. With `wait` the answer comes as soon as the message
    was answered or refused, or its turn ended without a reply; when the time is over, it is the state until then. If
    people must answer something first, the answer comes at once with these `questions`.
    """
    known = checked_name(arrival_id, "arrival")

    def look(tx: Tx, caller: Caller) -> ArrivalDetail:
        return read_arrival(tx, known, profile=caller.profile)

    waits: ArrivalWaits = request.app.state.waits
    since = waits.changes.count
    caller, found = await reader.read(look)
    if wait and not is_over(found):
        gone = asyncio.ensure_future(until_gone(request.receive))
        try:
            outcome = await waits.wait(found, caller=caller, seconds=wait, since=since, gone=gone)
        finally:
            gone.cancel()
        found = outcome or (await reader.read(look))[1]
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
        inbox.rewrite(
            tx,
            known,
            message_body,
            profile=caller.profile,
            moment=moment,
            by_program=not caller.may_approve,
        )
        return answer(read_arrival(tx, known, profile=caller.profile))

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
        return answer(read_arrival(tx, known, profile=caller.profile))

    return await change(request, caller, apply)


def _accepted(done: SubmissionResult, question_id: str | None) -> ArrivalAccepted:
    return {
        "arrival_id": done.received.arrival_id,
        "session_id": done.session_id,
        "answer": done.received.answer,
        "question_id": question_id,
    }
