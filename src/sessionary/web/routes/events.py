"""`/events`: changes as server-sent events."""

import re
from typing import Annotated, Literal

from fastapi import Header, Query, Request
from starlette.responses import Response
from typing_extensions import TypedDict

from sessionary.actions.sessions import read
from sessionary.errors import BadInput
from sessionary.model.access import Scope
from sessionary.model.json_types import EntryJson, ListedSession
from sessionary.web.auth import ContextDep, Reader
from sessionary.web.context import PREFIX, Caller
from sessionary.web.problems import RequestRefused
from sessionary.web.responses import checked_name
from sessionary.web.routes.imports import ImportJob, import_json, jobs_of
from sessionary.web.routing import Streamed, api_router
from sessionary.web.stream import (
    ChangedJobs,
    ClosedStream,
    DamagedEntry,
    EventStream,
    EventStreams,
    GoneSession,
    NoData,
    TurnProgress,
)

router = api_router(prefix=PREFIX, tags=["events"])
MAX_TOPICS = 50
_PLAIN = ("list", "imports")
_TOPICS = "list, session:ID, imports"
_NUMBER = re.compile(r"^\d{1,18}$")


class PositionEvent(TypedDict):
    """`hello`: the stream has begun. `resync`: something was missed; read the list and the open sessions again."""

    event: Literal["hello", "resync"]
    id: str
    data: NoData


class HeadEvent(TypedDict):
    """A session that changed."""

    event: Literal["head"]
    id: str
    data: ListedSession


class GoneEvent(TypedDict):
    """A session was purged."""

    event: Literal["gone"]
    id: str
    data: GoneSession


class EntryEvent(TypedDict):
    """A new entry of a watched session."""

    event: Literal["entry"]
    id: str
    data: EntryJson


class DamagedEvent(TypedDict):
    """An entry of a watched session cannot be read; the stream continues."""

    event: Literal["damaged"]
    id: str
    data: DamagedEntry


class TurnEvent(TypedDict):
    """Live progress of a turn of a watched session. It is not stored: its content is in the entry that follows."""

    event: Literal["so_far", "began", "delta", "thinking", "step", "ended", "lost"]
    data: TurnProgress


class ImportEvent(TypedDict):
    """The state of an import."""

    event: Literal["import"]
    data: ImportJob


class ClosedEvent(TypedDict):
    """The token or login is no longer valid; the stream ends."""

    event: Literal["closed"]
    data: ClosedStream


StreamEvent = (
    PositionEvent
    | HeadEvent
    | GoneEvent
    | EntryEvent
    | DamagedEvent
    | TurnEvent
    | ImportEvent
    | ClosedEvent
)


@router.get("/events", response_class=Response)
async def stream_events(
    request: Request,
    context: ContextDep,
    caller: Reader,
    *,
    topics: Annotated[
        str,
        Query(
            description="What to listen to, separated by commas: `list`, `session:ID`, `imports`."
        ),
    ] = "list",
    after: Annotated[
        str | None,
        Query(description="The `id` of an event, or a `position`: what came since is sent first."),
    ] = None,
    last_event_id: Annotated[
        str | None, Header(description="The same as `after`; browsers send it when they reconnect.")
    ] = None,
) -> Streamed[StreamEvent]:
    """Listen to changes.

    Server-sent events: `list` sends every session that changes, `session:ID` also the entries of that session and the
    progress of its turn, `imports` the progress of imports. Events with an `id` are durable: a client that
    reconnects with it gets what it missed. After `resync`, read the list and the open sessions again.
    """
    wanted = [each for each in topics.split(",") if each]
    if not wanted or len(wanted) > MAX_TOPICS:
        raise BadInput(f"Name 1 to {MAX_TOPICS} topics: {_TOPICS}.")
    sessions = []
    for topic in wanted:
        if topic in _PLAIN:
            continue
        if not topic.startswith("session:"):
            raise BadInput(f"There is no topic {topic[:60]!r}; use {_TOPICS}.")
        sessions.append(checked_name(topic.removeprefix("session:"), "session"))
        await context.store.read(read.get_head, sessions[-1], profile=caller.profile)
    streams: EventStreams = request.app.state.streams
    return EventStream(
        context,
        caller,
        streams,
        shows_list="list" in wanted,
        sessions=frozenset(sessions),
        after=_position(last_event_id or after),
        imports=_imports(request, caller) if "imports" in wanted else None,
    )


def _imports(request: Request, caller: Caller) -> ChangedJobs:
    if not caller.scope.allows(Scope.ADMIN):
        raise RequestRefused(403, f"The topic imports needs the scope {Scope.ADMIN}.")
    jobs = jobs_of(request, caller)

    def changed_since(seen: int) -> tuple[list[ImportJob], int]:
        changed, version = jobs.changed_since(seen)
        return [import_json(each) for each in changed], version

    return changed_since


def _position(text: str | None) -> int | None:
    if text is None:
        return None
    if not _NUMBER.match(text):
        raise BadInput("That position is not one of ours; begin again without it.")
    return int(text)
