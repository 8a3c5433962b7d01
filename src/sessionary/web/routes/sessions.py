"""`/sessions`: the list, and one session as a whole."""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import Path, Query, Request
from msgspec import UNSET, Meta, Struct, UnsetType
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from sessionary.actions import files
from sessionary.actions.sessions import (
    append,
    choice,
    edit,
    holds,
    lists,
    log,
    overview,
    pins,
    projects,
    read,
)
from sessionary.actions.sessions.lists import SortOrder
from sessionary.actions.sessions.overview import Overview
from sessionary.clock import Moment
from sessionary.engine import intake
from sessionary.engine.intake import Submission, SubmissionResult
from sessionary.engine.turn.compaction import limits_of
from sessionary.errors import BadInput, NotFound
from sessionary.model import message
from sessionary.model.choice import CHOICES, ChoiceChange, clean
from sessionary.model.json_types import (
    HoldInfo,
    ListedSession,
    PartJson,
    PinInfo,
    SessionSummary,
    TurnInfo,
)
from sessionary.model.message import MAX_SEQ, Role
from sessionary.model.session import Kind, Opening, SessionFolder, SessionHead
from sessionary.model.source import Source
from sessionary.model.view import head_json, hold_json, pin_json, time_text, turn_json
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals, entries, sessions, turns
from sessionary.web import session_heads
from sessionary.web.auth import ContextDep, Reader, Writer
from sessionary.web.context import PREFIX, Caller, WebContext
from sessionary.web.requests import (
    CursorQuery,
    Json,
    Parts,
    SourceBody,
    Text,
    TimeQuery,
    message_of,
    parse_time,
    source_of,
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
from sessionary.web.routing import Accepted, FromBody, JsonAnswer, api_router
from sessionary.web.session_heads import SessionListPage, SessionRowPage

router = api_router(prefix=PREFIX, tags=["sessions"])
_QUEUED = 50
SessionId = Annotated[str, Path(description="The session's id.")]
Folder = SessionFolder | Literal["all"]
FolderQuery = Annotated[
    Folder,
    Field(
        description="`chats`, `automation` (jobs and subagents), `all` (both), `archive`, `trash`."
    ),
]


class SessionListQuery(BaseModel):
    """Filters of the list."""

    folder: FolderQuery = SessionFolder.CHATS
    source: list[str] = Field([], max_length=50, description="Only these platforms; repeatable.")
    kind: Kind | None = Field(None, description="Only this kind of session.")
    project: str | None = Field(None, description="Only this project, by name.")
    model: str | None = Field(None, description="Only sessions with this model.")
    since: TimeQuery = Field(None, description="Only sessions active at or after this time.")
    until: TimeQuery = Field(None, description="Only sessions active before this time.")
    open: bool | None = Field(None, description="Only sessions that are open, or that have ended.")
    pinned: bool = Field(False, description="Only pinned sessions.")
    text: str | None = Field(
        None, description="Only sessions whose title or preview contains this."
    )
    read_only: bool | None = Field(None, description="Only sessions that are read-only, or not.")
    label: str | None = Field(None, description="Only sessions with this label.")
    sort: SortOrder = Field(SortOrder.ACTIVITY, description="The order.")
    limit: int = Field(30, ge=1, le=200, description="How many sessions a page has.")
    cursor: CursorQuery = None

    def filters(self) -> lists.SessionFilters:
        """The same for the store."""
        if self.folder == SessionFolder.GONE:
            raise BadInput("Purged sessions are in no list.")
        return lists.SessionFilters(
            folder=SessionFolder.CHATS if self.folder == "all" else self.folder,
            and_automation=self.folder == "all",
            platforms=tuple(checked_text(each) or "" for each in self.source if each),
            kind=self.kind,
            project=checked_text(self.project),
            model=checked_text(self.model),
            since=parse_time(self.since),
            until=parse_time(self.until),
            is_open=self.open,
            pinned=self.pinned,
            text=checked_text(self.text),
            read_only=self.read_only,
            label=checked_text(self.label) or None,
            order=self.sort,
        )


class SessionRowsQuery(SessionListQuery):
    """Filters of the list, and the fields of its rows."""

    fields: str = Field(description="The fields to return, separated by commas: `id,title,…`.")


class NewSession(Struct, kw_only=True, forbid_unknown_fields=True):
    """A new session with its first message: either `text` or `parts`."""

    text: Text = None
    parts: Parts = None
    role: Annotated[Role, Meta(description="Who wrote the message.")] = Role.USER
    title: Annotated[str | None, Meta(description="The title of the session.")] = None
    model: Annotated[
        str | None, Meta(description="The model that shall answer in this session.")
    ] = None
    agent: Annotated[
        str | None, Meta(description="The agent that shall answer in this session.")
    ] = None
    persona: Annotated[str | None, Meta(description="The persona of the agent.")] = None
    tools: Annotated[
        list[str] | None,
        Meta(description="Names or patterns of the tools that the agent may use; null: all."),
    ] = None
    settings: Annotated[
        Json | None, Meta(description="Model settings of this session, which override the agent's.")
    ] = None
    labels: Annotated[list[str], Meta(description="Labels of the session.")] = []
    project: Annotated[str | None, Meta(description="The name of a project to put it in.")] = None
    source: SourceBody | None = None
    run: Annotated[bool, Meta(description="Whether the agent answers the message (202).")] = False


class SessionChange(Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields to change; fields that are left out stay as they are."""

    title: Annotated[str | UnsetType | None, Meta(description="A new title; null removes it.")] = (
        UNSET
    )
    pinned: Annotated[bool | UnsetType, Meta(description="Pin it to the top of lists.")] = UNSET
    archived: Annotated[bool | UnsetType, Meta(description="Move it to the archive.")] = UNSET
    project: Annotated[
        str | UnsetType | None, Meta(description="Move it to this project; null: to none.")
    ] = UNSET
    agent: Annotated[
        str | UnsetType | None, Meta(description="The agent that answers; null: the default.")
    ] = UNSET
    model: Annotated[
        str | UnsetType | None,
        Meta(description="One of the agent's models; null: the agent's own."),
    ] = UNSET
    persona: Annotated[
        str | UnsetType | None, Meta(description="The agent's persona; null: none.")
    ] = UNSET
    tools: Annotated[
        list[str] | UnsetType | None,
        Meta(description="Names or patterns of the tools that the agent may use; null: all."),
    ] = UNSET
    labels: Annotated[list[str] | UnsetType, Meta(description="All of its labels.")] = UNSET
    draft: Annotated[str | UnsetType, Meta(description="Text that was typed and not sent yet.")] = (
        UNSET
    )
    read_through: (
        Annotated[int, Meta(ge=0, le=MAX_SEQ, description="The last `seq` that was read.")]
        | UnsetType
    ) = UNSET


class TurnAccepted(TypedDict):
    """A message was stored. While a turn is running it waits (`queued`), and the ids are null."""

    session_id: str | None
    """The session that contains the message; after a command or an answer, the conversation's current session."""
    turn_id: str | None
    """The turn that answers it."""
    seq: int | None
    """The number of its entry."""
    arrival_id: str | None
    """Its id for `GET /arrivals/{arrival_id}`."""
    queued: bool
    """Whether it waits for a running turn to end."""
    answer: str | None
    """The result of a command; null for any other message."""
    question_id: str | None
    """The question of a waiting turn that the message has answered: no turn begins with it."""


class QueuedMessage(TypedDict):
    """A message that waits for the running turn to end."""

    arrival_id: str
    text: str
    parts: list[PartJson]
    received_at: str


class TurnInProgress(TurnInfo):
    """The turn that is running, with the text so far."""

    partial: str | None
    """The text that was last saved of the unfinished reply."""


class SessionDetail(ListedSession):
    """A session with its draft, its queue and its running turn."""

    position: int
    """Listen to `GET /events?after=` from here on to miss no change after this was read."""
    draft: str | None
    """Text that was typed and not sent yet."""
    read_through: int
    """The last `seq` that was read."""
    workspace: Any
    """The working directory and its facts, as the agent's tool recorded them."""
    children: list[str]
    """The ids of its forks, continuations and subagents."""
    branches: list[tuple[int, int]]
    """The first and last `seq` of each stretch that was retracted."""
    queued: list[QueuedMessage]
    """Messages that wait for the running turn to end."""
    holds: list[HoldInfo]
    """Why it is not reset automatically now."""
    pins: list[PinInfo]
    """Its pinned messages."""
    turn: TurnInProgress | None
    """The running turn."""


class PromptInfo(TypedDict):
    """A user message, shortened."""

    seq: int
    text: str
    at: str


class FileInfo(TypedDict):
    """A file that tools mentioned."""

    path: str
    changed: bool
    """Whether a tool wrote it."""
    seq: int
    """The last entry that mentions it."""


class ContextSize(TypedDict):
    """How large the model's context is, in tokens."""

    used: int
    by_kind: dict[str, int]
    """The tokens of the system prompt, user messages, replies, tools and reasoning."""
    compacts_at: int | None
    """The size at which the context is compacted; null if it is not."""
    status: Literal["estimate"]


class ContextLimits(NamedTuple):
    """How many tokens a model reads at once, and at how many a context is compacted; None: unknown, or not at all."""

    window: int | None = None
    threshold: int | None = None


class SessionOverview(TypedDict):
    """What a session is about, and where it comes from."""

    prompts: list[PromptInfo]
    files: list[FileInfo]
    context: ContextSize
    ancestors: list[ListedSession]
    children: list[ListedSession]


class ChildrenPage(TypedDict):
    """The sessions that came from another."""

    items: list[ListedSession]
    next: None


class SourceCount(TypedDict):
    """How many sessions a platform has."""

    platform: str
    sessions: int


class SourcePage(TypedDict):
    """Sessions by platform and by folder. A count that equals `most` means that many or more."""

    items: list[SourceCount]
    next: None
    folders: dict[str, int]
    """How many sessions each folder has."""
    most: int
    """Counting stops here."""


class ModelName(TypedDict):
    """A model."""

    model: str


class ModelPage(TypedDict):
    """The models that sessions use."""

    items: list[ModelName]
    next: None


class AgentInfo(TypedDict):
    """A configured agent."""

    name: str
    kind: str
    model: str | None
    """Its own model; null if it picks one itself."""
    models: list[str]
    """The models that a session may choose, its own first."""
    window: int | None
    """How many tokens its model reads; null while that is not known."""
    tools: list[str] | None
    """The names of its tools; null while they are not known."""
    default: bool
    """Whether it answers if a session has chosen none."""


class PersonaInfo(TypedDict):
    """A configured persona."""

    name: str
    title: str | None


class AgentPage(TypedDict):
    """What a session may choose from."""

    items: list[AgentInfo]
    next: None
    personas: list[PersonaInfo]


async def _page(context: WebContext, caller: Caller, query: SessionListQuery) -> SessionListPage:
    return await context.store.read(
        session_heads.page,
        query.filters(),
        profile=caller.profile,
        limit=query.limit,
        cursor=query.cursor or None,
        now=context.clock.now(),
    )


@router.get("/sessions")
async def list_sessions(
    context: ContextDep, caller: Reader, query: Annotated[SessionListQuery, Query()]
) -> JsonAnswer[SessionListPage]:
    """List sessions.

    Newest activity first, unless `sort` says otherwise. The first page of a list of chats counts the automation and
    archived sessions that match the filters but are not listed.
    """
    return json_response(await _page(context, caller, query))


@router.get("/session-rows")
async def list_session_rows(
    context: ContextDep, caller: Reader, query: Annotated[SessionRowsQuery, Query()]
) -> JsonAnswer[SessionRowPage]:
    """List sessions with chosen fields only.

    The same list as `GET /sessions`, for clients that show many rows: each item has the fields named in `fields`,
    without those that are null, false, 0 or empty.
    """
    fields = session_heads.parse_fields(query.fields)
    return json_response(session_heads.select_fields(await _page(context, caller, query), fields))


@router.post("/sessions", status_code=201)
async def create_session(
    request: Request, context: ContextDep, caller: Writer, body: FromBody[NewSession]
) -> JsonAnswer[SessionSummary] | Accepted[TurnAccepted]:
    """Create a session with its first message.

    With `run` the agent answers the message, and the status is 202.
    """
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
        chosen=_opening_choice(request, caller, body, source),
    )
    moment, idempotency_key = context.moment(), stored_idempotency_key(request)
    if body.run:
        if body.role != Role.USER:
            raise BadInput("The agent answers messages of the role user; nothing was written.")
        engine = engine_for(request, caller)

        def take(tx: Tx) -> SubmissionResult:
            files.keep_files(
                tx, first_message, written.files, profile=caller.profile, moment=moment
            )
            done = intake.submit_to_new_session(
                tx,
                engine.context,
                opening,
                Submission(first_message, idempotency_key, by_program=not caller.may_approve),
                moment=moment,
            )
            if body.project is not None and done.received.new and done.session_id is not None:
                projects.move_session(tx, done.session_id, body.project, profile=caller.profile)
            return done

        return await accepted(request, caller, take, turn_accepted)

    def apply(tx: Tx) -> StoredAnswer[SessionSummary]:
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
        return answer(head_json(found, now=moment.now), 201, session_id=found.id)

    return await change(request, caller, apply)


@router.get("/sessions/{session_id}")
async def get_session(
    session_id: SessionId, context: ContextDep, caller: Reader
) -> JsonAnswer[SessionDetail]:
    """Get a session.

    With its draft, the messages that wait, the running turn, its children and its holds.
    """
    known = checked_name(session_id, "session")
    now = context.clock.now()
    return json_response(await context.store.read(_show, known, profile=caller.profile, now=now))


@router.patch("/sessions/{session_id}")
async def update_session(
    session_id: SessionId,
    request: Request,
    context: ContextDep,
    caller: Writer,
    body: FromBody[SessionChange],
) -> JsonAnswer[SessionSummary]:
    """Change a session.

    Changes the given fields and nothing else: all of them or none. A change of the agent, model, persona or tools is
    recorded in the log, with the name of the token or «The owner»; while a turn is running, it takes effect with the
    next one.
    """
    known, moment = checked_name(session_id, "session"), context.moment()
    given = {name: getattr(body, name) for name in CHOICES}
    chosen = {name: value for name, value in given.items() if value is not UNSET}
    catalog = engine_for(request, caller).context.catalog if chosen else None

    def apply(tx: Tx) -> StoredAnswer[SessionSummary]:
        head = _change(tx, known, body, profile=caller.profile, moment=moment)
        if chosen:
            head = choice.choose(tx, head, chosen, by=caller.person, moment=moment, catalog=catalog)
        return answer(head_json(head, now=moment.now), session_id=head.id)

    return await change(request, caller, apply)


@router.delete("/sessions/{session_id}")
async def trash_session(
    session_id: SessionId, request: Request, context: ContextDep, caller: Writer
) -> JsonAnswer[SessionSummary]:
    """Move a session to the trash.

    Its subagents go with it. It can be restored for 30 days.
    """
    known, moment = checked_name(session_id, "session"), context.moment()

    def apply(tx: Tx) -> StoredAnswer[SessionSummary]:
        head = edit.trash(tx, known, profile=caller.profile, moment=moment)
        return answer(head_json(head, now=moment.now), session_id=head.id)

    return await change(request, caller, apply)


def turn_accepted(done: SubmissionResult, question_id: str | None) -> TurnAccepted:
    """What the sender of a message is told; after a command, the session that the conversation is on now."""
    is_done = done.received.answer is not None or question_id is not None
    return {
        "session_id": done.current_session_id if is_done else done.session_id,
        "turn_id": done.turn_id,
        "seq": done.seq,
        "arrival_id": done.received.arrival_id,
        "queued": done.turn_id is None and not is_done,
        "answer": done.received.answer,
        "question_id": question_id,
    }


def _show(tx: Tx, id: str, *, profile: str, now: datetime) -> SessionDetail:
    position = entries.last_position(tx)
    head = read.get_head(tx, id, profile=profile)
    more = sessions.details(tx, head.no)
    running = (
        None if head.running_turn is None else turns.get(tx, head.running_turn, profile=profile)
    )
    return {
        **session_heads.heads_json(tx, [head], now=now)[0],
        "position": position,
        "draft": more.draft,
        "read_through": head.read_through,
        "workspace": more.workspace,
        "children": [child.id for child in read.list_children(tx, head)],
        "branches": read.list_retracted(tx, id, profile=profile),
        "queued": _queued(tx, head),
        "holds": [
            hold_json(each.reason, each.until) for each in holds.list_holds(tx, head, now=now)
        ],
        "pins": [
            pin_json(each) for each in pins.list_pinned_messages(tx, head.id, profile=profile)
        ],
        "turn": None
        if running is None
        else {**turn_json(running[0], now=now), "partial": running[0].partial},
    }


def _queued(tx: Tx, head: SessionHead) -> list[QueuedMessage]:
    """What waits for the session under any of its keys, in the order of arrival."""
    waiting = [
        arrival
        for key in sessions.keys_of_session(tx, head.no)
        for arrival in arrivals.waiting(tx, key, profile=head.profile, limit=_QUEUED)
    ]
    return [
        {
            "arrival_id": each.id,
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
        edit.mark_read(tx, id, body.read_through, profile=profile)
    return sessions.get_by_no(tx, head.no)


def _opening_choice(
    request: Request, caller: Caller, body: NewSession, source: Source
) -> ChoiceChange:
    """What was chosen for a new session, and who did. A model alone is added by `intake`, if the agent answers."""
    given = {"agent": body.agent, "persona": body.persona, "tools": body.tools}
    chosen = {name: value for name, value in given.items() if value is not None}
    if not chosen:
        return ChoiceChange({}, caller.person)
    if body.model is not None:
        chosen["model"] = body.model
    catalog = engine_for(request, caller).context.catalog
    checked = catalog.check({}, clean(chosen), platform=source.platform)
    return ChoiceChange(checked, caller.person)


def _settings(body: NewSession) -> Mapping[str, Any] | None:
    """What the session's agent is asked to do otherwise; a model that is named answers."""
    named = {} if body.model is None else {"model": checked_text(body.model)}
    return {**(body.settings or {}), **named} or None


@router.get("/sessions/{session_id}/overview")
async def get_session_overview(
    session_id: SessionId, context: ContextDep, caller: Reader
) -> JsonAnswer[SessionOverview]:
    """Get an overview of a session.

    All prompts, shortened; the files that tools mentioned; the size of the context; ancestors and children.
    """
    known = checked_name(session_id, "session")
    head = await context.store.read(read.get_head, known, profile=caller.profile)
    limits = await context_limits(context, caller, head, head.model)
    now = context.clock.now()

    def look(tx: Tx) -> SessionOverview:
        found = overview.overview(tx, known, profile=caller.profile)
        return _overview(tx, found, limits.threshold, now=now)

    return json_response(await context.store.read(look))


async def context_limits(
    context: WebContext, caller: Caller, head: SessionHead, model: str | None
) -> ContextLimits:
    """The window of a session's model, and when its context is compacted, if an agent is attached here."""
    engine = context.engine
    if engine is None or engine.context.profile != caller.profile:
        return ContextLimits()
    agent = engine.context.agent_of(head)
    # In a thread: the table of models takes 0.3 s to load.
    window = await asyncio.to_thread(agent.window, model)
    limits = limits_of(agent, model, engine.context)
    return ContextLimits(window, None if limits is None else limits.threshold)


@router.get("/sessions/{session_id}/children")
async def list_session_children(
    session_id: SessionId, context: ContextDep, caller: Reader
) -> JsonAnswer[ChildrenPage]:
    """List the sessions that came from a session.

    Its forks, continuations and subagents.
    """
    known = checked_name(session_id, "session")
    found = await context.store.read(
        session_heads.children, known, profile=caller.profile, now=context.clock.now()
    )
    return json_response(ChildrenPage(items=found, next=None))


def _overview(tx: Tx, found: Overview, threshold: int | None, *, now: datetime) -> SessionOverview:
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
        "ancestors": session_heads.heads_json(tx, found.ancestors, now=now),
        "children": session_heads.heads_json(tx, found.children, now=now),
    }


@router.get("/sources")
async def list_sources(
    context: ContextDep, caller: Reader, folder: FolderQuery = SessionFolder.CHATS
) -> JsonAnswer[SourcePage]:
    """Count sessions by platform.

    The platforms of the sessions in a folder, and how many sessions each folder has.
    """
    if folder == SessionFolder.GONE:
        raise BadInput("Purged sessions are in no list.")
    folders = (
        (SessionFolder.CHATS, SessionFolder.AUTOMATION)
        if folder == "all"
        else (SessionFolder(folder),)
    )
    found = await context.store.read(lists.count_sessions, folders, profile=caller.profile)
    sources = sorted(found.sources.items(), key=lambda each: (-each[1], each[0]))
    return json_response(
        SourcePage(
            items=[{"platform": platform, "sessions": number} for platform, number in sources],
            next=None,
            folders={str(folder): number for folder, number in found.folders.items()},
            most=lists.MAX_COUNT,
        )
    )


@router.get("/models")
async def list_models(context: ContextDep, caller: Reader) -> JsonAnswer[ModelPage]:
    """List models.

    Every model that sessions of the profile use.
    """
    found = await context.store.read(lists.list_models, profile=caller.profile)
    return json_response(ModelPage(items=[{"model": each} for each in found], next=None))


@router.get("/agents")
async def list_agents(context: ContextDep, caller: Reader) -> JsonAnswer[AgentPage]:
    """List agents.

    The agents, models and personas that a session may choose. Empty if no agent is attached here.
    """
    engine = context.engine
    if engine is None or engine.context.profile != caller.profile:
        return json_response(AgentPage(items=[], next=None, personas=[]))
    catalog = engine.context.catalog
    return json_response(
        AgentPage(
            items=[
                {
                    "name": each.name,
                    "kind": each.kind,
                    "model": each.model,
                    "models": list(each.models),
                    "window": each.window or catalog.known_window(each.name),
                    "tools": None
                    if (tools := catalog.known_tools(each.name)) is None
                    else list(tools),
                    "default": each.name == catalog.default_agent("web"),
                }
                for each in catalog.agents.values()
            ],
            next=None,
            personas=[
                {"name": each.name, "title": each.title} for each in catalog.personas.values()
            ],
        )
    )
