"""`/events`: one stream for each browser; it resumes, and a slow one harms nobody."""

import re
from typing import Annotated

from fastapi import APIRouter, Header, Request
from starlette.responses import Response

from hansard.actions import read
from hansard.errors import BadInput
from hansard.web.answers import name
from hansard.web.auth import Parts, Reader
from hansard.web.problems import Refusal
from hansard.web.stream import EventStream, Streams

router = APIRouter(tags=["events"])
MOST_TOPICS = 50
_NUMBER = re.compile(r"^\d{1,18}$")


@router.get("/events", responses={200: {"content": {"text/event-stream": {}}}})
async def listen(
    request: Request,
    parts: Parts,
    caller: Reader,
    *,
    topics: str = "list",
    after: str | None = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """What changes, as it changes: `list`, and `session:ID` for each session that is watched.

    Each event that is kept has an `id`; who comes back with it, as `Last-Event-ID` or `after`,
    gets what came since. An event `resync` means: read the list and the windows again.
    """
    wanted = [each for each in topics.split(",") if each]
    if not wanted or len(wanted) > MOST_TOPICS:
        raise BadInput(f"Name 1 to {MOST_TOPICS} topics: list, session:ID.")
    sessions = [each.removeprefix("session:") for each in wanted if each != "list"]
    for each, topic in zip(sessions, (each for each in wanted if each != "list"), strict=True):
        if not topic.startswith("session:"):
            raise BadInput(f"There is no topic {topic[:60]!r}; use list and session:ID.")
        await parts.store.read(read.head, name(each, "session"), profile=caller.profile)
    streams: Streams = request.app.state.streams
    if len(streams) >= parts.settings.limits.streams:
        raise Refusal(503, "Too many streams are open.", after=5)
    return EventStream(
        parts,
        caller,
        streams,
        shows_list="list" in wanted,
        sessions=frozenset(sessions),
        after=_position(last_event_id or after),
    )


def _position(text: str | None) -> int | None:
    if text is None:
        return None
    if not _NUMBER.match(text):
        raise BadInput("That position is not one of ours; begin again without it.")
    return int(text)
