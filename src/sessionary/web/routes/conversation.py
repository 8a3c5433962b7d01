"""One session: its entries, turns, commands and holds."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, Any

from fastapi import Path, Query, Request
from msgspec import Meta, Struct
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from sessionary.actions import files, turns
from sessionary.actions.sessions import append as append_action
from sessionary.actions.sessions import edit, holds, log, pins, read, revise
from sessionary.actions.sessions.holds import Hold
from sessionary.engine import intake
from sessionary.engine.intake import Submission, SubmissionResult
from sessionary.engine.turn import compaction
from sessionary.errors import BadInput, NotAllowed, NotFound
from sessionary.model.json_types import EntryJson, HoldInfo, PartJson, PinInfo, SessionSummary
from sessionary.model.message import MAX_SEQ, Entry, Role
from sessionary.model.session import SessionHead
from sessionary.model.view import entry_json, head_json, hold_json, pin_json
from sessionary.store.database import Tx
from sessionary.web.auth import ContextDep, Reader, Writer, context_of
from sessionary.web.context import PREFIX, Caller, WebContext
from sessionary.web.requests import (
    MessageBody,
    Parts,
    Seq,
    Text,
    message_of,
    parse_time,
)
from sessionary.web.responses import (
    StoredAnswer,
    accepted,
    answer,
    change,
    checked_name,
    checked_text,
    engine_for,
    json_response,
    stored_idempotency_key,
)
from sessionary.web.routes.sessions import SessionId, TurnAccepted, turn_accepted
from sessionary.web.routing import Accepted, FromBody, FromOptionalBody, JsonAnswer, api_router

router = api_router(prefix=f"{PREFIX}/sessions/{{session_id}}", tags=["conversation"])
MAX_REASON = 200
SeqInPath = Annotated[str, Path(description="The number of an entry.")]


class EntriesView(StrEnum):
    """For whom the entries are."""

    PEOPLE = "people"
    CONTEXT = "context"
    LOG = "log"


class OutputLength(StrEnum):
    """How much of tool outputs is returned."""

    WHOLE = "whole"
    SHORT = "short"


SeqQuery = Annotated[int | None, Field(ge=0, le=MAX_SEQ)]


class EntriesQuery(BaseModel):
    """Which entries, and how much of them."""

    before: SeqQuery = Field(None, description="Only entries before this `seq`.")
    after: SeqQuery = Field(None, description="Only entries after this `seq`.")
    around: SeqQuery = Field(None, description="Entries on both sides of this `seq`.")
    limit: int = Field(60, ge=1, le=1000, description="How many entries.")
    view: EntriesView = Field(
        EntriesView.PEOPLE,
        description="`people`: the transcript; `context`: what the model reads; `log`: everything that was written, "
        "retracted entries too, from `after` on.",
    )
    outputs: OutputLength = Field(
        OutputLength.WHOLE,
        description="`short`: only the first 40 lines of tool outputs over 16,000 characters, with `cut`.",
    )

    def shown(self, entry: Entry) -> EntryJson:
        """An entry as it was asked for."""
        made = entry_json(entry)
        return cut_outputs(made) if self.outputs is OutputLength.SHORT else made


class EntryPage(TypedDict):
    """A window of a session's entries, in order."""

    items: list[EntryJson]
    next: None
    more_before: bool
    """Whether there are entries before these."""
    more_after: bool
    """Whether there are entries after these."""


class ContextPage(TypedDict):
    """What the model reads (`view=context`): messages in the format of the OpenAI API."""

    items: list[dict[str, Any]]
    next: None


class RoundCount(TypedDict):
    """How many rounds a session has."""

    session_id: str
    rounds: int
    """How often one or more messages of users were followed by at least one of the assistant."""


class NewMessageBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """A message to append: either `text` or `parts`."""

    role: Annotated[Role, Meta(description="Who wrote the message.")]
    text: Text = None
    parts: Parts = None


class AppendedMessage(TypedDict):
    """A message that was appended."""

    id: str
    """The entry's id."""
    session_id: str
    seq: int
    """The entry's number in the session."""


class ForkBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """Where to fork, and the title of the new session."""

    at: Annotated[
        Seq | None, Meta(description="The last `seq` of the common history; by default the newest.")
    ] = None
    title: Annotated[str | None, Meta(description="The title of the new session.")] = None


class RetractBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """What to take back: either everything `after` an entry, or the last `rounds`."""

    after: Annotated[Seq | None, Meta(description="The last `seq` that remains.")] = None
    rounds: Annotated[
        Seq | None, Meta(description="How many rounds of prompt and reply to take back.")
    ] = None


class CompactBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """A summary, or what the agent shall pay attention to when it writes one."""

    summary: Annotated[
        str | None, Meta(description="The summary; without it the agent writes one.")
    ] = None
    through: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_SEQ)] | None,
        Meta(description="The last `seq` that the summary replaces; by default the newest."),
    ] = None
    focus: Annotated[
        str | None, Meta(description="What the agent's summary shall concentrate on.")
    ] = None


class ReasonBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """A reason, shown to people."""

    reason: Annotated[str | None, Meta(description="The reason, up to 200 characters.")] = None


class StopResult(TypedDict):
    """Whether there was a turn to stop."""

    stopping: bool


class NewHold(Struct, kw_only=True, forbid_unknown_fields=True):
    """A reason not to reset a session."""

    reason: Annotated[str, Meta(description="Why the session must not be reset.")]
    until: Annotated[
        str | None,
        Meta(description="When the hold ends (RFC 3339); without it, when it is released."),
    ] = None


class HoldPage(TypedDict):
    """The holds of a session."""

    items: list[HoldInfo]
    next: None


class PinPage(TypedDict):
    """The pinned messages of a session, in the order of its log."""

    items: list[PinInfo]
    next: None


@router.get("/entries")
async def list_entries(
    session_id: SessionId,
    context: ContextDep,
    caller: Reader,
    query: Annotated[EntriesQuery, Query()],
) -> JsonAnswer[EntryPage | ContextPage]:
    """Read a session's entries.

    A window of the transcript by `seq`: its end by default, or what is `before`, `after` or `around` an entry.
    """
    known = checked_name(session_id, "session")
    if query.view is EntriesView.CONTEXT:
        chats = await context.store.read(read.read_context, known, profile=caller.profile)
        return json_response(ContextPage(items=[dict(chat) for chat in chats], next=None))
    if query.view is EntriesView.LOG:
        return json_response(await context.store.read(_log, known, query, profile=caller.profile))
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
        EntryPage(
            items=[query.shown(entry) for entry in found.entries],
            next=None,
            more_before=found.more_before,
            more_after=found.more_after,
        )
    )


@router.get("/rounds")
async def count_rounds(
    session_id: SessionId,
    context: ContextDep,
    caller: Reader,
    since: Annotated[
        int, Query(ge=0, le=MAX_SEQ, description="Only what comes after this `seq`.")
    ] = 0,
) -> JsonAnswer[RoundCount]:
    """Count the rounds of a session.

    One or more messages of users, followed by at least one of the assistant, are one round. What was taken back is not
    counted.
    """
    known = checked_name(session_id, "session")
    found = await context.store.read(read.count_rounds, known, profile=caller.profile, since=since)
    return json_response(RoundCount(session_id=known, rounds=found))


@router.post("/messages", status_code=201)
async def append_message(
    session_id: SessionId,
    request: Request,
    context: ContextDep,
    caller: Writer,
    body: FromBody[NewMessageBody],
) -> JsonAnswer[AppendedMessage]:
    """Append a message.

    The agent does not run; use `POST /sessions/{session_id}/turns` for a message that it answers.
    """
    known = checked_name(session_id, "session")
    written = message_of(body.role, body)
    new_message = append_action.NewMessage(
        written.message, idempotency_key=stored_idempotency_key(request)
    )
    moment = context.moment()

    def apply(tx: Tx) -> StoredAnswer[AppendedMessage]:
        read.get_head(tx, known, profile=caller.profile)
        files.keep_files(
            tx, new_message.message, written.files, profile=caller.profile, moment=moment
        )
        done = append_action.append_to_session(
            tx, known, new_message, profile=caller.profile, moment=moment
        )
        told = AppendedMessage(id=done.id, session_id=done.session_id, seq=done.seq)
        return answer(told, 201, session_id=done.session_id)

    return await change(request, caller, apply)


@router.post("/turns", status_code=202)
async def start_turn(
    session_id: SessionId,
    request: Request,
    context: ContextDep,
    caller: Writer,
    body: FromBody[MessageBody],
) -> Accepted[TurnAccepted]:
    """Send a message to the agent.

    The message is durable when this answers; then the agent runs. While another turn is running the message waits:
    `queued` is true, and `session_id`, `turn_id` and `seq` are null. A `/command` is executed, and `answer` is its
    result. If a budget is used up, the answer is 403 with its name, and the message is not stored.
    """
    known = checked_name(session_id, "session")
    engine = engine_for(request, caller)
    written = message_of("user", body)
    query = Submission(
        written.message,
        stored_idempotency_key(request),
        begin=engine.turns.has_free_slot,
        by_program=not caller.may_approve,
    )
    moment = context.moment()

    def take(tx: Tx) -> SubmissionResult:
        files.keep_files(tx, query.message, written.files, profile=caller.profile, moment=moment)
        result = intake.submit_to_session(tx, engine.context, known, query, moment=moment)
        if result.start.refusal is not None:
            raise NotAllowed(result.start.refusal)
        return result

    return await accepted(request, caller, take, turn_accepted)


@router.post("/fork", status_code=201)
async def fork_session(
    session_id: SessionId,
    request: Request,
    context: ContextDep,
    caller: Writer,
    body: FromOptionalBody[ForkBody],
) -> JsonAnswer[SessionSummary]:
    """Fork a session.

    Creates a session whose history is this one's up to an entry. Nothing is copied.
    """
    moment = context.moment()
    return await _edit(
        request,
        caller,
        session_id,
        lambda tx, id: edit.fork(
            tx, id, profile=caller.profile, moment=moment, at_seq=body.at, title=body.title
        ),
        status=201,
    )


@router.post("/retract")
async def retract_entries(
    session_id: SessionId,
    request: Request,
    context: ContextDep,
    caller: Writer,
    body: FromBody[RetractBody],
) -> JsonAnswer[SessionSummary]:
    """Take back the end of a session.

    Retracts everything after an entry, or the last rounds. Nothing is deleted: the retracted branch stays reachable.
    """
    if (body.after is None) == (body.rounds is None):
        raise BadInput("Send either `after` or `rounds`; nothing was changed.")
    at = context.clock.now()

    def apply(tx: Tx, id: str) -> SessionHead:
        if body.rounds is not None:
            return revise.undo(tx, id, profile=caller.profile, rounds=body.rounds, at=at)
        return revise.retract(tx, id, profile=caller.profile, after=body.after or 0, at=at)

    return await _edit(request, caller, session_id, apply)


@router.post("/compact")
async def compact_session(
    session_id: SessionId,
    request: Request,
    context: ContextDep,
    caller: Writer,
    body: FromOptionalBody[CompactBody],
) -> JsonAnswer[SessionSummary]:
    """Compact a session's context.

    For the model a summary replaces the beginning of the session; people still read and search all of it. Without
    a `summary` the agent writes one.
    """
    known = checked_name(session_id, "session")
    head = await context.store.read(read.get_head, known, profile=caller.profile)
    moment = context.moment()
    if body.summary is not None:
        given, through = body.summary, body.through or head.last_seq
        return await _edit(
            request,
            caller,
            session_id,
            lambda tx, id: revise.compact(
                tx, id, given, profile=caller.profile, through=through, at=moment.now
            ),
        )
    engine = engine_for(request, caller)
    agent = engine.context.agent_of(head)
    found = await context.store.read(compaction.read_session_context, known, profile=caller.profile)
    done = await compaction.summarize_as_asked(agent, found, focus=body.focus)
    priced = compaction.with_price(done, engine.context.priced)
    spending = compaction.spending_of(
        head.source,
        agent,
        known,
        known=engine.context.settings.budgets,
        profile=caller.profile,
        now=moment.now,
        deliverable=engine.context.deliverable,
    )
    return await _edit(
        request,
        caller,
        session_id,
        lambda tx, id: (
            compaction.store_compaction(
                tx, id, priced, profile=caller.profile, moment=moment, spending=spending
            ).head
        ),
    )


@router.post("/end")
async def end_session(
    session_id: SessionId,
    request: Request,
    context: ContextDep,
    caller: Writer,
    body: FromOptionalBody[ReasonBody],
) -> JsonAnswer[SessionSummary]:
    """End a session.

    A session that has ended already keeps its first reason.
    """
    moment, reason = context.moment(), _reason(body, "closed")
    return await _edit(
        request,
        caller,
        session_id,
        lambda tx, id: edit.end(tx, id, profile=caller.profile, moment=moment, reason=reason),
    )


@router.post("/reopen")
async def reopen_session(
    session_id: SessionId,
    request: Request,
    caller: Writer,
) -> JsonAnswer[SessionSummary]:
    """Reopen a session.

    A session that has ended can be continued.
    """
    return await _edit(
        request, caller, session_id, lambda tx, id: edit.reopen(tx, id, profile=caller.profile)
    )


@router.post("/restore")
async def restore_session(
    session_id: SessionId,
    request: Request,
    caller: Writer,
) -> JsonAnswer[SessionSummary]:
    """Restore a session from the trash.

    Subagents that went to the trash with it come back too.
    """
    return await _edit(
        request, caller, session_id, lambda tx, id: edit.restore(tx, id, profile=caller.profile)
    )


@router.post("/stop")
async def stop_turn(
    session_id: SessionId,
    request: Request,
    caller: Writer,
    body: FromOptionalBody[ReasonBody],
) -> JsonAnswer[StopResult]:
    """Stop the running turn.

    Asks the process that runs the turn, here or on another machine, to stop it. What was written so far is kept.
    """
    known, reason = checked_name(session_id, "session"), _reason(body, "stopped by you")

    def apply(tx: Tx) -> StoredAnswer[StopResult]:
        head = log.lock_session(tx, known, profile=caller.profile)
        stopping = turns.ask_to_stop(tx, head.no, reason=reason)
        return answer(StopResult(stopping=stopping), session_id=head.id)

    return await change(request, caller, apply)


def _log(tx: Tx, id: str, query: EntriesQuery, *, profile: str) -> EntryPage:
    after, head = query.after or 0, read.get_head(tx, id, profile=profile)
    found = read.read_log(tx, id, profile=profile, after=after, limit=query.limit)
    return {
        "items": [query.shown(entry) for entry in found],
        "next": None,
        "more_before": after > 0,
        "more_after": bool(found) and found[-1].seq < head.last_seq,
    }


async def _edit(
    request: Request,
    caller: Caller,
    session_id: str,
    apply: Callable[[Tx, str], SessionHead],
    *,
    status: int = 200,
) -> JsonAnswer[SessionSummary]:
    """Change a session, and return it as it is then."""
    known, now = checked_name(session_id, "session"), context_of(request).clock.now()

    def done(tx: Tx) -> StoredAnswer[SessionSummary]:
        head = apply(tx, known)
        return answer(head_json(head, now=now), status, session_id=head.id)

    return await change(request, caller, done)


def _reason(body: ReasonBody, default: str) -> str:
    given = " ".join((body.reason or "").split())
    if len(given) > MAX_REASON:
        raise BadInput(f"A reason has at most {MAX_REASON} characters.")
    return given or default


SHOWN_LINES = 40
SHOWN_CHARACTERS = 16_000


def cut_outputs(entry: EntryJson) -> EntryJson:
    """The entry with the beginning of each long output; `cut` says how much there is."""
    if entry["kind"] != "message" or not any(_is_long(part) for part in entry["parts"]):
        return entry
    return {
        **entry,
        "parts": [_cut(part) if _is_long(part) else part for part in entry["parts"]],
    }


def _is_long(part: PartJson) -> bool:
    return part.get("type") == "tool_result" and len(_text(part.get("content"))) > SHOWN_CHARACTERS


def _cut(part: PartJson) -> dict[str, Any]:
    text = _text(part.get("content"))
    lines = text.removesuffix("\n").split("\n")
    shown = "\n".join(lines[:SHOWN_LINES])[:SHOWN_CHARACTERS]
    return {**part, "content": shown, "cut": {"lines": len(lines), "characters": len(text)}}


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
async def list_holds(
    session_id: SessionId, context: ContextDep, caller: Reader
) -> JsonAnswer[HoldPage]:
    """List a session's holds.

    Why its reset policy does not reset it now.
    """
    known = checked_name(session_id, "session")

    def look(tx: Tx) -> list[Hold]:
        head = read.get_head(tx, known, profile=caller.profile)
        return holds.list_holds(tx, head, now=context.clock.now())

    found = await context.store.read(look)
    return json_response(_hold_page(found))


@router.post("/holds", status_code=201)
async def add_hold(
    session_id: SessionId,
    request: Request,
    context: ContextDep,
    caller: Writer,
    body: FromBody[NewHold],
) -> JsonAnswer[HoldInfo]:
    """Hold a session.

    Its reset policy does not reset it until a time, or until the hold is released. Repeating a reason changes the end
    of that hold.
    """
    known, moment = checked_name(session_id, "session"), context.moment()
    until = parse_time(body.until)

    def apply(tx: Tx) -> StoredAnswer[HoldInfo]:
        made = holds.add_hold(
            tx, known, body.reason, profile=caller.profile, moment=moment, until=until
        )
        return answer(hold_json(made.reason, made.until), 201, session_id=known)

    return await change(request, caller, apply)


@router.delete("/holds")
async def release_holds(
    session_id: SessionId,
    request: Request,
    context: ContextDep,
    caller: Writer,
    reason: Annotated[
        str | None, Query(description="Only the hold with this reason; without it, all of them.")
    ] = None,
) -> JsonAnswer[HoldPage]:
    """Release holds of a session.

    Returns the holds that were released.
    """
    known, moment = checked_name(session_id, "session"), context.moment()
    wanted = checked_text(reason)

    def apply(tx: Tx) -> StoredAnswer[HoldPage]:
        gone = holds.release_hold(tx, known, wanted, profile=caller.profile, moment=moment)
        return answer(_hold_page(gone), session_id=known)

    return await change(request, caller, apply)


def _hold_page(found: Sequence[Hold]) -> HoldPage:
    return {"items": [hold_json(each.reason, each.until) for each in found], "next": None}


@router.post("/pins/{seq}")
async def pin_message(
    session_id: SessionId, seq: SeqInPath, request: Request, context: ContextDep, caller: Writer
) -> JsonAnswer[PinPage]:
    """Pin a message.

    The model reads it word for word also after a compaction. A session has at most 20 pins; the change is recorded in
    its log.
    """
    return await _change_pins(request, context, caller, session_id, seq, pins.pin_message)


@router.delete("/pins/{seq}")
async def unpin_message(
    session_id: SessionId, seq: SeqInPath, request: Request, context: ContextDep, caller: Writer
) -> JsonAnswer[PinPage]:
    """Unpin a message.

    A later compaction summarizes it like any other message.
    """
    return await _change_pins(request, context, caller, session_id, seq, pins.unpin_message)


async def _change_pins(
    request: Request,
    context: WebContext,
    caller: Caller,
    session_id: str,
    seq: str,
    change_pin: Callable[..., SessionHead],
) -> JsonAnswer[PinPage]:
    """Pin or unpin a message, and return what is pinned then."""
    known, moment = checked_name(session_id, "session"), context.moment()
    if not seq.isascii() or not seq.isdigit() or len(seq) > len(str(MAX_SEQ)):
        raise NotFound(f"There is no entry {seq[:20]!a}.")

    def apply(tx: Tx) -> StoredAnswer[PinPage]:
        head = change_pin(tx, known, int(seq), profile=caller.profile, by=None, moment=moment)
        pinned = pins.list_pinned_messages(tx, head.id, profile=caller.profile)
        page = PinPage(items=[pin_json(each) for each in pinned], next=None)
        return answer(page, session_id=head.id)

    return await change(request, caller, apply)
