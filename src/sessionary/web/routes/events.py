"""`/events`: one stream for each browser; it resumes, and a slow one harms nobody."""

import re
from typing import Annotated

from fastapi import APIRouter, Header, Request
from starlette.responses import Response

from sessionary.actions.sessions import read
from sessionary.errors import BadInput
from sessionary.model.access import Scope
from sessionary.web.auth import ContextDep, Reader
from sessionary.web.context import PREFIX, Caller
from sessionary.web.jobs import BackgroundJobs
from sessionary.web.openapi import response_content
from sessionary.web.problems import RequestRefused
from sessionary.web.responses import checked_name
from sessionary.web.routes.imports import jobs_of
from sessionary.web.stream import EventStream, EventStreams

router = APIRouter(prefix=PREFIX, tags=["events"])
MAX_TOPICS = 50
_PLAIN = ("list", "imports")
_TOPICS = "list, session:ID, imports"
_NUMBER = re.compile(r"^\d{1,18}$")


@router.get("/events", response_class=Response, responses=response_content("text/event-stream"))
async def listen(
    request: Request,
    context: ContextDep,
    caller: Reader,
    *,
    topics: str = "list",
    after: str | None = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """What changes, as it changes: `list`, `session:ID` for each session that is watched, `imports`.

    Each event that is kept has an `id`; who comes back with it, as `Last-Event-ID` or `after`,
    gets what came since. An event `resync` means: read the list and the windows again.
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


def _imports(request: Request, caller: Caller) -> BackgroundJobs:
    if not caller.scope.allows(Scope.ADMIN):
        raise RequestRefused(403, f"The topic imports needs the scope {Scope.ADMIN}.")
    return jobs_of(request, caller)


def _position(text: str | None) -> int | None:
    if text is None:
        return None
    if not _NUMBER.match(text):
        raise BadInput("That position is not one of ours; begin again without it.")
    return int(text)
