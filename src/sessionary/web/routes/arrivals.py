"""`/arrivals`: a message from any program, and what became of it."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from sessionary.actions import files, inbox
from sessionary.actions.requests import StoredResponse
from sessionary.engine import intake
from sessionary.engine.intake import Submission, SubmissionResult
from sessionary.errors import NotFound
from sessionary.model import message
from sessionary.model.message import Message
from sessionary.model.session import Segment
from sessionary.model.turn import Arrival
from sessionary.model.view import time_text
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals, entries, sessions, turns
from sessionary.web.auth import ContextDep, Reader, Writer
from sessionary.web.context import PREFIX
from sessionary.web.openapi import request_body
from sessionary.web.requests import MessageBody, NewArrival, message_of, read_body, source_of
from sessionary.web.responses import (
    accepted,
    answer,
    change,
    checked_name,
    engine_for,
    json_response,
    stored_idempotency_key,
)

router = APIRouter(prefix=PREFIX, tags=["arrivals"])


@router.post("/arrivals", status_code=202, openapi_extra=request_body(NewArrival))
async def receive(request: Request, context: ContextDep, caller: Writer) -> Response:
    """Take a message in; durable when this answers. The same message id twice is one arrival.

    `session_id` names the session that contains the message. It is null while the message waits for a turn, and for a
    command; `GET /arrivals/{arrival_id}` has it as soon as a turn has taken the message.
    """
    body, raw = await read_body(request, NewArrival)
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

    return await accepted(request, caller, raw, take, _accepted_json)


@router.get("/arrivals/{arrival_id}")
async def look(arrival_id: str, context: ContextDep, caller: Reader) -> Response:
    """What became of an arrival, and the reply when it is there."""
    known = checked_name(arrival_id, "arrival")
    return json_response(await context.store.read(_look, known, profile=caller.profile))


@router.patch("/arrivals/{arrival_id}", openapi_extra=request_body(MessageBody))
async def rewrite(
    arrival_id: str, request: Request, context: ContextDep, caller: Writer
) -> Response:
    """Put other words into a message of yours that waits for its turn."""
    known = checked_name(arrival_id, "arrival")
    body, raw = await read_body(request, MessageBody)
    written, moment = message_of("user", body), context.moment()
    message_body = written.message

    def apply(tx: Tx, /) -> StoredResponse:
        files.keep_files(tx, message_body, written.files, profile=caller.profile, moment=moment)
        inbox.rewrite(tx, known, message_body, profile=caller.profile, moment=moment)
        return answer(_look(tx, known, profile=caller.profile))

    return await change(request, caller, raw, apply)


@router.delete("/arrivals/{arrival_id}")
async def withdraw(arrival_id: str, request: Request, caller: Writer) -> Response:
    """Take a message back that waits for its turn."""
    known = checked_name(arrival_id, "arrival")

    def apply(tx: Tx, /) -> StoredResponse:
        inbox.withdraw(tx, known, profile=caller.profile)
        return answer(_look(tx, known, profile=caller.profile))

    return await change(request, caller, b"", apply)


def _accepted_json(done: SubmissionResult) -> dict[str, object]:
    response: dict[str, object] = {
        "arrival_id": done.received.arrival_id,
        "session_id": done.session_id,
    }
    return response if done.received.answer is None else response | {"answer": done.received.answer}


def _look(tx: Tx, id: str, *, profile: str) -> dict[str, Any]:
    found = arrivals.get(tx, id, profile=profile)
    if found is None:
        raise NotFound(f"There is no arrival {id}.")
    turn = None if found.turn_id is None else turns.get(tx, found.turn_id, profile=profile)
    reply = None if turn is None else _reply(tx, found, session_no=turn[1])
    return {
        "id": found.id,
        "arrival_id": found.id,
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


def _reply(tx: Tx, found: Arrival, *, session_no: int) -> dict[str, Any] | None:
    seq = entries.reply_of_turn(tx, session_no, found.turn_id)
    if seq is None:
        return None
    head = sessions.get_by_no(tx, session_no)
    (entry,) = entries.read(tx, Segment(session_no, head.id, seq, seq), limit=1)
    message_body = entry.body
    assert isinstance(message_body, Message)
    return {"id": entry.id, "seq": seq, "text": message_body.text, "at": time_text(entry.at)}
