"""One session: its entries, turns, commands and holds."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from sessionary.actions import files, turns, usage
from sessionary.actions.requests import StoredResponse
from sessionary.actions.sessions import append as append_action
from sessionary.actions.sessions import edit, holds, log, read, revise
from sessionary.actions.sessions.holds import Hold
from sessionary.engine import intake
from sessionary.engine.intake import Submission, SubmissionResult
from sessionary.errors import BadInput
from sessionary.model.message import MAX_SEQ, Entry
from sessionary.model.session import SessionHead
from sessionary.model.usage import Usage
from sessionary.model.view import entry_json, head_json, hold_json
from sessionary.store.database import Tx
from sessionary.web.auth import ContextDep, Reader, Writer
from sessionary.web.context import PREFIX, Caller
from sessionary.web.openapi import request_body
from sessionary.web.requests import (
    Compact,
    EmptyBody,
    Fork,
    MessageBody,
    NewHold,
    NewMessageBody,
    ReasonBody,
    Retract,
    entry_number,
    message_of,
    parse_time,
    read_body,
)
from sessionary.web.responses import (
    accepted,
    answer,
    change,
    checked_name,
    checked_text,
    engine_for,
    json_response,
    list_response,
    stored_idempotency_key,
)
from sessionary.web.routes.sessions import accepted_json

router = APIRouter(prefix=f"{PREFIX}/sessions/{{session_id}}", tags=["conversation"])
Seq = Annotated[int | None, Field(ge=0, le=MAX_SEQ)]


class EntriesView(StrEnum):
    """For whom the entries are."""

    PEOPLE = "people"
    CONTEXT = "context"
    LOG = "log"


class OutputLength(StrEnum):
    """How much of tool outputs."""

    WHOLE = "whole"
    SHORT = "short"


class EntriesQuery(BaseModel):
    """Which entries, and how much of them."""

    before: Seq = None
    after: Seq = None
    around: Seq = None
    limit: int = Field(60, ge=1, le=1000)
    view: EntriesView = EntriesView.PEOPLE
    outputs: OutputLength = OutputLength.WHOLE

    def shown(self, entry: Entry) -> dict[str, Any]:
        """An entry as it was asked for."""
        made = entry_json(entry)
        return cut_outputs(made) if self.outputs is OutputLength.SHORT else made


@router.get("/entries")
async def window(
    session_id: str, context: ContextDep, caller: Reader, query: Annotated[EntriesQuery, Query()]
) -> Response:
    """A window of the transcript by `seq`, at its end by default; or what the model sees.

    The view `log` has what was taken back too, from `after` on. With `outputs=short` long outputs of
    tools are cut to their beginning, and say in `cut` how much there is.
    """
    known = checked_name(session_id, "session")
    if query.view is EntriesView.CONTEXT:
        chats = await context.store.read(read.read_context, known, profile=caller.profile)
        return json_response({"items": chats, "next": None})
    if query.view is EntriesView.LOG:
        return json_response(await context.store.read(_raw, known, query, profile=caller.profile))
    if len([each for each in (query.before, query.after, query.around) if each is not None]) > 1:
        raise BadInput("Use one of `before`, `after` and `around`.")
    found = await context.store.read(
        read.read_window,
        known,
        profile=caller.profile,
        limit=query.limit,
        before=query.before,
        after=query.after,
        around=query.around,
    )
    return json_response(
        {
            "items": [query.shown(entry) for entry in found.entries],
            "next": None,
            "more_before": found.more_before,
            "more_after": found.more_after,
        }
    )


@router.post("/messages", status_code=201, openapi_extra=request_body(NewMessageBody))
async def append(
    session_id: str, request: Request, context: ContextDep, caller: Writer
) -> Response:
    """Add one message without running the agent."""
    known = checked_name(session_id, "session")
    body, raw = await read_body(request, NewMessageBody)
    written = message_of(body.role, body)
    new_message = append_action.NewMessage(
        written.message, idempotency_key=stored_idempotency_key(request)
    )
    moment = context.moment()

    def apply(tx: Tx, /) -> StoredResponse:
        read.get_head(tx, known, profile=caller.profile)
        files.keep_files(
            tx, new_message.message, written.files, profile=caller.profile, moment=moment
        )
        done = append_action.append_to_session(
            tx, known, new_message, profile=caller.profile, moment=moment
        )
        told = {"id": done.id, "session_id": done.session_id, "seq": done.seq}
        return answer(told, 201, session_id=done.session_id)

    return await change(request, caller, raw, apply)


@router.post("/turns", status_code=202, openapi_extra=request_body(MessageBody))
async def ask(session_id: str, request: Request, context: ContextDep, caller: Writer) -> Response:
    """A person's message: durable when this answers, then the agent runs.

    While a turn is running it waits: `session_id`, `turn_id` and `seq` are null, and `queued` says so.
    """
    known = checked_name(session_id, "session")
    body, raw = await read_body(request, MessageBody)
    engine = engine_for(request, caller)
    written = message_of("user", body)
    query = Submission(
        written.message, stored_idempotency_key(request), begin=engine.turns.has_free_slot
    )
    moment = context.moment()

    def take(tx: Tx) -> SubmissionResult:
        files.keep_files(tx, query.message, written.files, profile=caller.profile, moment=moment)
        return intake.submit_to_session(tx, engine.context, known, query, moment=moment)

    return await accepted(request, caller, raw, take, accepted_json)


@router.post("/fork", status_code=201, openapi_extra=request_body(Fork, required=False))
async def fork(session_id: str, request: Request, context: ContextDep, caller: Writer) -> Response:
    """Begin a session whose history is this one's up to an entry."""
    body, raw = await read_body(request, Fork)
    at, moment = entry_number(body.at, "at"), context.moment()
    return await _verb(
        request,
        caller,
        (session_id, raw),
        lambda tx, id: edit.fork(
            tx, id, profile=caller.profile, moment=moment, at_seq=at, title=body.title
        ),
        status=201,
    )


@router.post("/retract", openapi_extra=request_body(Retract))
async def take_back(
    session_id: str, request: Request, context: ContextDep, caller: Writer
) -> Response:
    """Take back what was said after an entry, or the last rounds; nothing is deleted."""
    body, raw = await read_body(request, Retract)
    if (body.after is None) == (body.rounds is None):
        raise BadInput("Say either `after` which entry, or how many `rounds`.")
    after, rounds = entry_number(body.after, "after"), entry_number(body.rounds, "rounds")
    at = context.clock.now()

    def apply(tx: Tx, id: str) -> SessionHead:
        if rounds is not None:
            return revise.undo(tx, id, profile=caller.profile, rounds=rounds, at=at)
        return revise.retract(tx, id, profile=caller.profile, after=after or 0, at=at)

    return await _verb(request, caller, (session_id, raw), apply)


@router.post("/compact", openapi_extra=request_body(Compact, required=False))
async def compact_session(
    session_id: str, request: Request, context: ContextDep, caller: Writer
) -> Response:
    """Let a summary stand for the beginning, for the model; without one the agent makes it."""
    body, raw = await read_body(request, Compact)
    known = checked_name(session_id, "session")
    head = await context.store.read(read.get_head, known, profile=caller.profile)
    text, through = body.summary, entry_number(body.through, "through", least=1) or head.last_seq
    used: Usage | None = None
    if text is None:
        engine = engine_for(request, caller)
        agent = engine.context.agent_for(head.source, None)
        messages = await context.store.read(read.read_context, known, profile=caller.profile)
        text, used = await agent.summarizer.summarize(messages, focus=body.focus)
        used, through = used and engine.context.priced(used), head.last_seq
    summary, moment = text, context.moment()

    def apply(tx: Tx, id: str) -> SessionHead:
        if used is not None:
            usage.record(tx, head.no, used, profile=caller.profile, moment=moment)
        return revise.compact(
            tx, id, summary, profile=caller.profile, through=through, at=moment.now
        )

    return await _verb(request, caller, (session_id, raw), apply)


@router.post("/end", openapi_extra=request_body(ReasonBody, required=False))
async def end(session_id: str, request: Request, context: ContextDep, caller: Writer) -> Response:
    """Close the session; the first reason wins."""
    body, raw = await read_body(request, ReasonBody)
    moment, reason = context.moment(), _reason(body, "closed")
    return await _verb(
        request,
        caller,
        (session_id, raw),
        lambda tx, id: edit.end(tx, id, profile=caller.profile, moment=moment, reason=reason),
    )


@router.post("/reopen", openapi_extra=request_body(EmptyBody, required=False))
async def reopen(session_id: str, request: Request, caller: Writer) -> Response:
    """Let the session go on."""
    _, raw = await read_body(request, EmptyBody)
    return await _verb(
        request,
        caller,
        (session_id, raw),
        lambda tx, id: edit.reopen(tx, id, profile=caller.profile),
    )


@router.post("/restore", openapi_extra=request_body(EmptyBody, required=False))
async def restore(session_id: str, request: Request, caller: Writer) -> Response:
    """Take the session out of the trash."""
    _, raw = await read_body(request, EmptyBody)
    return await _verb(
        request,
        caller,
        (session_id, raw),
        lambda tx, id: edit.restore(tx, id, profile=caller.profile),
    )


@router.post("/stop", openapi_extra=request_body(ReasonBody, required=False))
async def stop(session_id: str, request: Request, caller: Writer) -> Response:
    """Ask the turn that runs, in whatever process, to stop."""
    body, raw = await read_body(request, ReasonBody)
    known, reason = checked_name(session_id, "session"), _reason(body, "stopped by you")

    def apply(tx: Tx, /) -> StoredResponse:
        head = log.lock_session(tx, known, profile=caller.profile)
        stopping = turns.ask_to_stop(tx, head.no, reason=reason)
        return answer({"stopping": stopping}, session_id=head.id)

    return await change(request, caller, raw, apply)


def _raw(tx: Tx, id: str, query: EntriesQuery, *, profile: str) -> dict[str, Any]:
    after, head = query.after or 0, read.get_head(tx, id, profile=profile)
    raw = read.read_log(tx, id, profile=profile, after=after, limit=query.limit)
    return {
        "items": [query.shown(entry) for entry in raw],
        "next": None,
        "more_before": after > 0,
        "more_after": bool(raw) and raw[-1].seq < head.last_seq,
    }


async def _verb(
    request: Request,
    caller: Caller,
    asked: tuple[str, bytes],
    apply: Callable[[Tx, str], SessionHead],
    *,
    status: int = 200,
) -> Response:
    """Do something with the session that was named, and show its head then."""
    session_id, raw = asked
    known = checked_name(session_id, "session")

    def done(tx: Tx, /) -> StoredResponse:
        head = apply(tx, known)
        return answer(head_json(head), status, session_id=head.id)

    return await change(request, caller, raw, done)


def _reason(body: ReasonBody, default: str) -> str:
    given = " ".join((body.reason or "").split())
    if len(given) > 200:
        raise BadInput("A reason has at most 200 characters.")
    return given or default


SHOWN_LINES = 40
SHOWN_CHARACTERS = 16_000
Json = dict[str, Any]


def cut_outputs(entry: Json) -> Json:
    """The entry with the beginning of each long output; `cut` says how much there is."""
    if not any(_is_long(part) for part in entry.get("parts", ())):
        return entry
    return entry | {"parts": [_cut(part) if _is_long(part) else part for part in entry["parts"]]}


def _is_long(part: Any) -> bool:
    if not isinstance(part, dict) or part.get("type") != "tool_result":
        return False
    return len(_text(part.get("content"))) > SHOWN_CHARACTERS


def _cut(part: Json) -> Json:
    text = _text(part["content"])
    lines = text.removesuffix("\n").split("\n")
    shown = "\n".join(lines[:SHOWN_LINES])[:SHOWN_CHARACTERS]
    return part | {"content": shown, "cut": {"lines": len(lines), "characters": len(text)}}


def _text(content: Any) -> str:
    """An output as a page shows it: a text, or blocks of text one under the other."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [each.get("text") if isinstance(each, dict) else None for each in content]
    if not texts or not all(isinstance(each, str) for each in texts):
        return ""
    return "\n".join(str(each) for each in texts)


@router.get("/holds")
async def list_holds(session_id: str, context: ContextDep, caller: Reader) -> Response:
    """Why the session is not reset by its policy now."""
    known = checked_name(session_id, "session")

    def look(tx: Tx) -> list[Hold]:
        head = read.get_head(tx, known, profile=caller.profile)
        return holds.list_holds(tx, head, now=context.clock.now())

    return list_response([_hold(each) for each in await context.store.read(look)])


@router.post("/holds", status_code=201, openapi_extra=request_body(NewHold))
async def hold(session_id: str, request: Request, context: ContextDep, caller: Writer) -> Response:
    """Keep the session from being reset by its policy, until a time or until this is released.

    The same reason again sets another end.
    """
    known, moment = checked_name(session_id, "session"), context.moment()
    body, raw = await read_body(request, NewHold)
    until = parse_time(body.until)

    def apply(tx: Tx, /) -> StoredResponse:
        made = holds.add_hold(
            tx, known, body.reason, profile=caller.profile, moment=moment, until=until
        )
        return answer(_hold(made), 201, session_id=known)

    return await change(request, caller, raw, apply)


@router.delete("/holds")
async def release(
    session_id: str,
    request: Request,
    context: ContextDep,
    caller: Writer,
    reason: str | None = None,
) -> Response:
    """Release the hold with this reason, or without one all of them; those that were there."""
    known, moment = checked_name(session_id, "session"), context.moment()
    wanted = checked_text(reason)

    def apply(tx: Tx, /) -> StoredResponse:
        gone = holds.release_hold(tx, known, wanted, profile=caller.profile, moment=moment)
        return answer({"items": [_hold(each) for each in gone], "next": None}, session_id=known)

    return await change(request, caller, b"", apply)


def _hold(hold: Hold) -> dict[str, Any]:
    return hold_json(hold.reason, hold.until)
