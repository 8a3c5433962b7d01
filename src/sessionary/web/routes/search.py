"""`/search` and `/usage`: messages found by text, and sums of tokens and cost."""

from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from sessionary.actions import usage
from sessionary.actions.search import search
from sessionary.actions.search.search import result_json
from sessionary.model.view import usage_json
from sessionary.web.auth import ContextDep, Reader
from sessionary.web.context import PREFIX
from sessionary.web.requests import TimeQuery, parse_time
from sessionary.web.responses import checked_text, json_response, list_response

router = APIRouter(prefix=PREFIX)


class SearchSort(StrEnum):
    """In which order hits come."""

    RELEVANCE = "relevance"
    NEWEST = "newest"


class UsageGroup(StrEnum):
    """By what usage is summed."""

    DAY = "day"
    MODEL = "model"
    PROVIDER = "provider"
    SOURCE = "source"
    PROJECT = "project"
    SESSION = "session"


class SearchQuery(BaseModel):
    """What to find, and how the answer shall look."""

    q: str
    sort: SearchSort = SearchSort.RELEVANCE
    limit: int = Field(20, ge=1, le=200)
    cursor: str | None = None
    all_hits: bool = False
    steps: bool = False
    session: str | None = None
    source: str | None = None


@router.get("/search", tags=["search"])
async def find(
    context: ContextDep, caller: Reader, asked: Annotated[SearchQuery, Query()]
) -> Response:
    """Find messages by whatever a person types."""
    options = search.SearchOptions(
        sort=asked.sort,
        limit=asked.limit,
        cursor=asked.cursor or None,
        all_hits=asked.all_hits,
        steps=asked.steps,
        session=checked_text(asked.session) or None,
        source=checked_text(asked.source) or None,
    )
    words = checked_text(asked.q, 10_000) or ""
    found = await context.store.search(
        search.search, words, profile=caller.profile, options=options, now=context.clock.now()
    )
    return json_response(result_json(found))


@router.get("/usage", tags=["usage"])
async def report(
    context: ContextDep,
    caller: Reader,
    *,
    by: UsageGroup = UsageGroup.DAY,
    since: TimeQuery = None,
    until: TimeQuery = None,
) -> Response:
    """Tokens and cost, summed."""
    rows = await context.store.read(
        usage.sum_usage,
        by,
        profile=caller.profile,
        since=parse_time(since),
        until=parse_time(until),
    )
    return list_response(map(usage_json, rows))
