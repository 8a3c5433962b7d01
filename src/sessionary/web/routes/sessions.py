"""`/sessions`: the list, and one session as a whole."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from msgspec import UNSET
from pydantic import BaseModel, Field
from starlette.responses import Response

from sessionary.actions import files
from sessionary.actions.requests import StoredResponse
from sessionary.actions.sessions import append, edit, holds, lists, log, overview, projects, read
from sessionary.actions.sessions.lists import SortOrder
from sessionary.actions.sessions.overview import Overview
from sessionary.clock import Moment
from sessionary.engine import intake
from sessionary.engine.intake import Submission, SubmissionResult
from sessionary.errors import BadInput, NotFound
from sessionary.model import message
from sessionary.model.session import Kind, Opening, SessionFolder, SessionHead
from sessionary.model.source import Source
from sessionary.model.view import head_json, hold_json, time_text, turn_json
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals, entries, sessions, turns
from sessionary.web import session_heads
from sessionary.web.auth import ContextDep, Reader, Writer
from sessionary.web.context import PREFIX
from sessionary.web.openapi import request_body
from sessionary.web.requests import (
    NewSession,
    SessionChange,
    TimeQuery,
    entry_number,
    message_of,
    parse_time,
    read_body,
    source_of,
)
from sessionary.web.responses import (
    JSON,
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

router = APIRouter(prefix=PREFIX, tags=["sessions"])
_QUEUED = 50


class SessionListQuery(BaseModel):
    """What narrows the list."""

    folder: SessionFolder | Literal["all"] = SessionFolder.CHATS
    source: list[str] = Field([], max_length=50)
    kind: Kind | None = None
    project: str | None = None
    model: str | None = None
    since: TimeQuery = None
    until: TimeQuery = None
    open: bool | None = None
    pinned: bool = False
    text: str | None = None
    read_only: bool | None = None
    label: str | None = None
    sort: SortOrder = SortOrder.ACTIVITY
    fields: str | None = Field(None, description="Names of a head's fields, with commas between.")
    limit: int = Field(30, ge=1, le=200)
    cursor: str | None = None


@router.get("/sessions")
async def list_sessions(
    context: ContextDep, caller: Reader, query: Annotated[SessionListQuery, Query()]
) -> Response:
    """A page of session heads, newest activity first or sorted otherwise; `all` is chats and automation.

    With `fields` a head has these alone, without those that are null, false, 0 or empty.
    """
    fields = None if query.fields is None else session_heads.parse_fields(query.fields)
    if query.folder == SessionFolder.GONE:
        raise BadInput("What was purged is in no list.")
    wanted = lists.SessionFilters(
        folder=SessionFolder.CHATS if query.folder == "all" else query.folder,
        and_automation=query.folder == "all",
        platforms=tuple(checked_text(each) or "" for each in query.source if each),
        kind=query.kind,
        project=checked_text(query.project),
        model=checked_text(query.model),
        since=parse_time(query.since),
        until=parse_time(query.until),
        is_open=query.open,
        pinned=query.pinned,
        text=checked_text(query.text),
        read_only=query.read_only,
        label=checked_text(query.label) or None,
        order=query.sort,
    )
    page = await context.store.read(
        session_heads.page,
        wanted,
        profile=caller.profile,
        limit=query.limit,
        cursor=query.cursor or None,
    )
    if fields is not None:
        page["items"] = [session_heads.select_fields(each, fields) for each in page["items"]]
    return json_response(page)


@router.post(
    "/sessions",
    status_code=201,
    openapi_extra=request_body(NewSession),
    responses={202: {"description": "The agent answers", "content": {JSON: {"schema": {}}}}},
)
async def open_session(request: Request, context: ContextDep, caller: Writer) -> Response:
    """Open a session with its first message; with `run` the agent answers it (202)."""
    body, raw = await read_body(request, NewSession)
    written = message_of(body.role, body)
    first_message = written.message
    source = Source("api") if body.source is None else source_of(body.source)
    opening = Opening(
        caller.profile,
        source if not body.run or body.source is not None else Source("web"),
        title=body.title,
        model=checked_text(body.model),
        settings=_settings(body),
        labels=tuple(body.labels),
    )
    moment, idempotency_key = context.moment(), stored_idempotency_key(request)
    if body.run:
        if body.role != "user":
            raise BadInput("The agent answers what a user says; nothing was written.")
        engine = engine_for(request, caller)

        def take(tx: Tx) -> SubmissionResult:
            files.keep_files(
                tx, first_message, written.files, profile=caller.profile, moment=moment
            )
            done = intake.submit_to_new_session(
                tx,
                engine.context,
                opening,
                Submission(first_message, idempotency_key),
                moment=moment,
            )
            if body.project is not None and done.received.new and done.session_id is not None:
                projects.move_session(tx, done.session_id, body.project, profile=caller.profile)
            return done

        return await accepted(request, caller, raw, take, accepted_json)

    def apply(tx: Tx, /) -> StoredResponse:
        files.keep_files(tx, first_message, written.files, profile=caller.profile, moment=moment)
        done = append.append_to_new_session(
            tx,
            opening,
            append.NewMessage(first_message, idempotency_key=idempotency_key),
            moment=moment,
        )
        found = edit.set_labels(tx, done.session_id, body.labels, profile=caller.profile)
        if body.project is not None:
            found = projects.move_session(tx, done.session_id, body.project, profile=caller.profile)
        return answer(head_json(found), 201, session_id=found.id)

    return await change(request, caller, raw, apply)


@router.get("/sessions/{session_id}")
async def show(session_id: str, context: ContextDep, caller: Reader) -> Response:
    """One session: its head, its draft, what waits for it, the turn that runs, its children, its holds."""
    known = checked_name(session_id, "session")
    now = context.clock.now()
    return json_response(await context.store.read(_show, known, profile=caller.profile, now=now))


@router.patch("/sessions/{session_id}", openapi_extra=request_body(SessionChange))
async def change_session(
    session_id: str, request: Request, context: ContextDep, caller: Writer
) -> Response:
    """Change what is named and nothing else, all of it or nothing."""
    known = checked_name(session_id, "session")
    body, raw = await read_body(request, SessionChange)
    moment = context.moment()

    def apply(tx: Tx, /) -> StoredResponse:
        head = _change(tx, known, body, profile=caller.profile, moment=moment)
        return answer(head_json(head), session_id=head.id)

    return await change(request, caller, raw, apply)


@router.delete("/sessions/{session_id}")
async def trash(session_id: str, request: Request, context: ContextDep, caller: Writer) -> Response:
    """Put a session and its subagents into the trash, from where they can come back for 30 days."""
    known, moment = checked_name(session_id, "session"), context.moment()

    def apply(tx: Tx, /) -> StoredResponse:
        head = edit.trash(tx, known, profile=caller.profile, moment=moment)
        return answer(head_json(head), session_id=head.id)

    return await change(request, caller, b"", apply)


def accepted_json(done: SubmissionResult) -> dict[str, object]:
    """What the asker of a turn is told; after a command, the session that the conversation is on now."""
    is_command = done.received.answer is not None
    response: dict[str, object] = {
        "session_id": done.current_session_id if is_command else done.session_id,
        "turn_id": done.turn_id,
        "seq": done.seq,
        "arrival_id": done.received.arrival_id,
        "queued": done.turn_id is None and done.received.answer is None,
    }
    return response if done.received.answer is None else response | {"answer": done.received.answer}


def _show(tx: Tx, id: str, *, profile: str, now: datetime) -> dict[str, Any]:
    position = entries.last_position(tx)
    head = read.get_head(tx, id, profile=profile)
    more = sessions.details(tx, head.no)
    running = (
        None if head.running_turn is None else turns.get(tx, head.running_turn, profile=profile)
    )
    return session_heads.heads_json(tx, [head])[0] | {
        "position": position,
        "draft": more.draft,
        "read_through": head.read_through,
        "workspace": more.workspace,
        "children": [child.id for child in read.list_children(tx, head)],
        "branches": [list(each) for each in read.list_retracted(tx, id, profile=profile)],
        "queued": _queued(tx, head),
        "holds": [
            hold_json(each.reason, each.until) for each in holds.list_holds(tx, head, now=now)
        ],
        "turn": None
        if running is None
        else turn_json(running[0]) | {"partial": running[0].partial},
    }


def _queued(tx: Tx, head: SessionHead) -> list[dict[str, Any]]:
    """What waits for the session under any of its keys, in the order of arrival."""
    waiting = [
        arrival
        for key in sessions.keys_of_session(tx, head.no)
        for arrival in arrivals.waiting(tx, key, profile=head.profile, limit=_QUEUED)
    ]
    return [
        {
            "id": each.id,
            "text": each.message.text,
            "parts": [message.to_json(one) for one in each.message.parts],
            "received_at": time_text(each.received_at),
        }
        for each in sorted(waiting, key=lambda arrival: arrival.no)
    ]


def _change(tx: Tx, id: str, body: SessionChange, *, profile: str, moment: Moment) -> SessionHead:
    head = log.lock_session(tx, id, profile=profile)
    if head.folder is SessionFolder.GONE:
        raise NotFound(f"There is no session {id}.")
    if body.title is not UNSET:
        edit.rename(tx, id, body.title or "", profile=profile)
    if body.pinned is not UNSET:
        edit.pin(tx, id, profile=profile, pinned=body.pinned)
    if body.archived is not UNSET:
        edit.archive(tx, id, profile=profile, archived=body.archived)
    if body.project is not UNSET:
        projects.move_session(tx, id, body.project or None, profile=profile)
    if body.labels is not UNSET:
        edit.set_labels(tx, id, body.labels, profile=profile)
    if body.draft is not UNSET:
        edit.set_draft(tx, id, body.draft, profile=profile, moment=moment)
    if body.read_through is not UNSET:
        through = entry_number(body.read_through, "read_through") or 0
        edit.mark_read(tx, id, through, profile=profile)
    return sessions.get_by_no(tx, head.no)


def _settings(body: NewSession) -> Mapping[str, Any] | None:
    """What the session's agent is asked to do otherwise; a model that is named answers."""
    named = {} if body.model is None else {"model": checked_text(body.model)}
    return {**(body.settings or {}), **named} or None


@router.get("/sessions/{session_id}/overview")
async def show_overview(session_id: str, context: ContextDep, caller: Reader) -> Response:
    """What was asked, which files were touched, how full the context is, and the family."""
    known = checked_name(session_id, "session")
    engine = context.engine
    is_ours = engine is not None and engine.context.profile == caller.profile
    threshold = (
        engine.context.settings.compact_at_tokens if engine is not None and is_ours else None
    )

    def look(tx: Tx) -> dict[str, Any]:
        found = overview.overview(tx, known, profile=caller.profile)
        return _overview(tx, found, threshold)

    return json_response(await context.store.read(look))


@router.get("/sessions/{session_id}/children")
async def list_children(session_id: str, context: ContextDep, caller: Reader) -> Response:
    """The sessions that came from this one: forks, continuations, subagents."""
    known = checked_name(session_id, "session")
    return list_response(
        await context.store.read(session_heads.children, known, profile=caller.profile)
    )


def _overview(tx: Tx, found: Overview, threshold: int | None) -> dict[str, Any]:
    return {
        "prompts": [
            {"seq": each.seq, "text": each.text, "at": time_text(each.at)} for each in found.prompts
        ],
        "files": [
            {"path": each.path, "changed": each.changed, "seq": each.seq} for each in found.files
        ],
        "context": {
            "used": sum(found.sizes.values()),
            "by_kind": dict(found.sizes),
            "compacts_at": threshold,
            "status": "estimate",
        },
        "ancestors": session_heads.heads_json(tx, found.ancestors),
        "children": session_heads.heads_json(tx, found.children),
    }


@router.get("/sources")
async def list_sources(
    context: ContextDep,
    caller: Reader,
    folder: SessionFolder | Literal["all"] = SessionFolder.CHATS,
) -> Response:
    """Sessions of a folder by source, and by folder; a count that equals `most` means that many or more."""
    if folder == SessionFolder.GONE:
        raise BadInput("What was purged is in no list.")
    folders = (
        (SessionFolder.CHATS, SessionFolder.AUTOMATION)
        if folder == "all"
        else (SessionFolder(folder),)
    )
    found = await context.store.read(lists.count_sessions, folders, profile=caller.profile)
    sources = sorted(found.sources.items(), key=lambda each: (-each[1], each[0]))
    return list_response(
        ({"platform": platform, "sessions": number} for platform, number in sources),
        folders={str(folder): number for folder, number in found.folders.items()},
        most=lists.MAX_COUNT,
    )


@router.get("/models")
async def list_models(context: ContextDep, caller: Reader) -> Response:
    """Every model that a session of this profile has, purged sessions aside."""
    found = await context.store.read(lists.list_models, profile=caller.profile)
    return list_response({"model": each} for each in found)
