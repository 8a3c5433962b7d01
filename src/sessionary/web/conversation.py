"""What happens in one session: reading, writing, asking, and the verbs."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from sessionary.actions import compact, new_message, read, retract, turns, uploads, usage
from sessionary.actions import sessions as verbs
from sessionary.actions.requests import StoredResponse
from sessionary.engine import asking
from sessionary.engine.asking import Accepted, Asking
from sessionary.errors import BadInput
from sessionary.model.entry import MAX_SEQ, Entry
from sessionary.model.session import SessionHead
from sessionary.model.usage import Usage
from sessionary.model.view import entry_json, head_json
from sessionary.store.database import Tx
from sessionary.web.answers import answer, change, idempotency_key_of, json_response, name
from sessionary.web.asking import accepted, engine_of
from sessionary.web.auth import EngineContext, Reader, Writer
from sessionary.web.bodies import (
    Compact,
    End,
    Fork,
    NewMessage,
    Nothing,
    Retract,
    Said,
    entry_number,
    message_of,
    read_body,
)
from sessionary.web.described import takes
from sessionary.web.parts import PREFIX, Caller
from sessionary.web.sessions import begun
from sessionary.web.shortening import shortened

router = APIRouter(prefix=f"{PREFIX}/sessions/{{session_id}}", tags=["conversation"])
Seq = Annotated[int | None, Field(ge=0, le=MAX_SEQ)]


class View(StrEnum):
    """For whom the entries are."""

    PEOPLE = "people"
    CONTEXT = "context"
    LOG = "log"


class Outputs(StrEnum):
    """How much of what tools said."""

    WHOLE = "whole"
    SHORT = "short"


class WindowWish(BaseModel):
    """Which entries, and how much of them."""

    before: Seq = None
    after: Seq = None
    around: Seq = None
    limit: int = Field(60, ge=1, le=1000)
    view: View = View.PEOPLE
    outputs: Outputs = Outputs.WHOLE

    def shown(self, entry: Entry) -> dict[str, Any]:
        """An entry as it was asked for."""
        made = entry_json(entry)
        return shortened(made) if self.outputs is Outputs.SHORT else made


@router.get("/entries")
async def window(
    session_id: str, parts: EngineContext, caller: Reader, wish: Annotated[WindowWish, Query()]
) -> Response:
    """A window of the transcript by `seq`, at its end by default; or what the model sees.

    The view `log` has what was taken back too, from `after` on. With `outputs=short` long outputs of
    tools are cut to their beginning, and say in `cut` how much there is.
    """
    known = name(session_id, "session")
    if wish.view is View.CONTEXT:
        chats = await parts.store.read(read.context, known, profile=caller.profile)
        return json_response({"items": chats, "next": None})
    if wish.view is View.LOG:
        return json_response(await parts.store.read(_raw, known, wish, profile=caller.profile))
    if len([each for each in (wish.before, wish.after, wish.around) if each is not None]) > 1:
        raise BadInput("Use one of `before`, `after` and `around`.")
    found = await parts.store.read(
        read.window,
        known,
        profile=caller.profile,
        limit=wish.limit,
        before=wish.before,
        after=wish.after,
        around=wish.around,
    )
    return json_response(
        {
            "items": [wish.shown(entry) for entry in found.entries],
            "next": None,
            "more_before": found.more_before,
            "more_after": found.more_after,
        }
    )


@router.post("/messages", status_code=201, openapi_extra=takes(NewMessage))
async def append(
    session_id: str, request: Request, parts: EngineContext, caller: Writer
) -> Response:
    """Add one message without running the agent."""
    known = name(session_id, "session")
    body, raw = await read_body(request, NewMessage)
    written = message_of(body.role, body)
    saying = new_message.NewMessage(written.message, idempotency_key=idempotency_key_of(request))
    moment = parts.moment()

    def act(tx: Tx, /) -> StoredResponse:
        read.head(tx, known, profile=caller.profile)
        uploads.accept(tx, saying.message, written.files, profile=caller.profile, moment=moment)
        done = new_message.append_to(tx, known, saying, profile=caller.profile, moment=moment)
        told = {"id": done.id, "session_id": done.session_id, "seq": done.seq}
        return answer(told, 201, session_id=done.session_id)

    return await change(request, caller, raw, act)


@router.post("/turns", status_code=202, openapi_extra=takes(Said))
async def ask(session_id: str, request: Request, parts: EngineContext, caller: Writer) -> Response:
    """A person's message: durable when this answers, then the agent runs.

    While a turn is running it waits: `session_id`, `turn_id` and `seq` are null, and `queued` says so.
    """
    known = name(session_id, "session")
    body, raw = await read_body(request, Said)
    engine = engine_of(request, caller)
    written = message_of("user", body)
    wish = Asking(written.message, idempotency_key_of(request), begin=engine.turns.has_room)
    moment = parts.moment()

    def take(tx: Tx) -> Accepted:
        uploads.accept(tx, wish.message, written.files, profile=caller.profile, moment=moment)
        return asking.ask(tx, engine.context, known, wish, moment=moment)

    return await accepted(request, caller, raw, take, begun)


@router.post("/fork", status_code=201, openapi_extra=takes(Fork, required=False))
async def fork(session_id: str, request: Request, parts: EngineContext, caller: Writer) -> Response:
    """Begin a session whose history is this one's up to an entry."""
    body, raw = await read_body(request, Fork)
    at, moment = entry_number(body.at, "at"), parts.moment()
    return await _verb(
        request,
        caller,
        (session_id, raw),
        lambda tx, id: verbs.fork(
            tx, id, profile=caller.profile, moment=moment, at_seq=at, title=body.title
        ),
        status=201,
    )


@router.post("/retract", openapi_extra=takes(Retract))
async def take_back(
    session_id: str, request: Request, parts: EngineContext, caller: Writer
) -> Response:
    """Take back what was said after an entry, or the last rounds; nothing is deleted."""
    body, raw = await read_body(request, Retract)
    if (body.after is None) == (body.rounds is None):
        raise BadInput("Say either `after` which entry, or how many `rounds`.")
    after, rounds = entry_number(body.after, "after"), entry_number(body.rounds, "rounds")
    at = parts.clock.now()

    def act(tx: Tx, id: str) -> SessionHead:
        if rounds is not None:
            return retract.undo(tx, id, profile=caller.profile, rounds=rounds, at=at)
        return retract.retract(tx, id, profile=caller.profile, after=after or 0, at=at)

    return await _verb(request, caller, (session_id, raw), act)


@router.post("/compact", openapi_extra=takes(Compact, required=False))
async def compact_session(
    session_id: str, request: Request, parts: EngineContext, caller: Writer
) -> Response:
    """Let a summary stand for the beginning, for the model; without one the agent makes it."""
    body, raw = await read_body(request, Compact)
    known = name(session_id, "session")
    head = await parts.store.read(read.head, known, profile=caller.profile)
    text, through = body.summary, entry_number(body.through, "through", least=1) or head.last_seq
    used: Usage | None = None
    if text is None:
        engine = engine_of(request, caller)
        agent = engine.context.agent_for(head.source, None)
        context = await parts.store.read(read.context, known, profile=caller.profile)
        text, used = await agent.summarizer.summarize(context, focus=body.focus)
        used, through = used and engine.context.priced(used), head.last_seq
    summary, moment = text, parts.moment()

    def act(tx: Tx, id: str) -> SessionHead:
        if used is not None:
            usage.record(tx, head.no, used, profile=caller.profile, moment=moment)
        return compact.compact(
            tx, id, summary, profile=caller.profile, through=through, at=moment.now
        )

    return await _verb(request, caller, (session_id, raw), act)


@router.post("/end", openapi_extra=takes(End, required=False))
async def end(session_id: str, request: Request, parts: EngineContext, caller: Writer) -> Response:
    """Close the session; the first reason wins."""
    body, raw = await read_body(request, End)
    moment, reason = parts.moment(), _reason(body, "closed")
    return await _verb(
        request,
        caller,
        (session_id, raw),
        lambda tx, id: verbs.end(tx, id, profile=caller.profile, moment=moment, reason=reason),
    )


@router.post("/reopen", openapi_extra=takes(Nothing, required=False))
async def reopen(session_id: str, request: Request, caller: Writer) -> Response:
    """Let the session go on."""
    _, raw = await read_body(request, Nothing)
    return await _verb(
        request,
        caller,
        (session_id, raw),
        lambda tx, id: verbs.reopen(tx, id, profile=caller.profile),
    )


@router.post("/restore", openapi_extra=takes(Nothing, required=False))
async def restore(session_id: str, request: Request, caller: Writer) -> Response:
    """Take the session out of the trash."""
    _, raw = await read_body(request, Nothing)
    return await _verb(
        request,
        caller,
        (session_id, raw),
        lambda tx, id: verbs.restore(tx, id, profile=caller.profile),
    )


@router.post("/stop", openapi_extra=takes(End, required=False))
async def stop(session_id: str, request: Request, caller: Writer) -> Response:
    """Ask the turn that runs, in whatever process, to stop."""
    body, raw = await read_body(request, End)
    known, reason = name(session_id, "session"), _reason(body, "stopped by you")

    def act(tx: Tx, /) -> StoredResponse:
        head = verbs.lock_session(tx, known, profile=caller.profile)
        stopping = turns.ask_to_stop(tx, head.no, reason=reason)
        return answer({"stopping": stopping}, session_id=head.id)

    return await change(request, caller, raw, act)


def _raw(tx: Tx, id: str, wish: WindowWish, *, profile: str) -> dict[str, Any]:
    after, head = wish.after or 0, read.head(tx, id, profile=profile)
    raw = read.log_of(tx, id, profile=profile, after=after, limit=wish.limit)
    return {
        "items": [wish.shown(entry) for entry in raw],
        "next": None,
        "more_before": after > 0,
        "more_after": bool(raw) and raw[-1].seq < head.last_seq,
    }


async def _verb(
    request: Request,
    caller: Caller,
    asked: tuple[str, bytes],
    act: Callable[[Tx, str], SessionHead],
    *,
    status: int = 200,
) -> Response:
    """Do something with the session that was named, and show its head then."""
    session_id, raw = asked
    known = name(session_id, "session")

    def done(tx: Tx, /) -> StoredResponse:
        head = act(tx, known)
        return answer(head_json(head), status, session_id=head.id)

    return await change(request, caller, raw, done)


def _reason(body: End, default: str) -> str:
    given = " ".join((body.reason or "").split())
    if len(given) > 200:
        raise BadInput("A reason has at most 200 characters.")
    return given or default
