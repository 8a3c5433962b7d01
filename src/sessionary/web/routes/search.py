"""`/search`, `/usage` and `/budgets`: messages found by text, sums of tokens and cost, and their limits."""

from enum import StrEnum
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from sessionary.actions import budgets, usage
from sessionary.actions.budgets import Budgets
from sessionary.actions.search import search
from sessionary.actions.search.search import result_json
from sessionary.actions.sessions import read
from sessionary.engine.context import EngineContext
from sessionary.engine.turn.budgets import model_scopes, scopes_in_session
from sessionary.model.access import BudgetStatus
from sessionary.model.json_types import BudgetInfo, SearchPage, UsageTotals
from sessionary.model.session import SessionHead
from sessionary.model.source import at_session
from sessionary.model.view import budget_json, usage_json
from sessionary.store.database import Tx
from sessionary.web.auth import ContextDep, Reader
from sessionary.web.context import PREFIX
from sessionary.web.requests import CursorQuery, TimeQuery, parse_time
from sessionary.web.responses import checked_name, checked_text, json_response
from sessionary.web.routing import JsonAnswer, api_router

router = api_router(prefix=PREFIX)


class SearchSort(StrEnum):
    """The order of hits."""

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
    """What to find, and where."""

    q: str = Field(
        description='Words, `"a phrase"`, `-without`, `prefix*`, `OR`, and the filters `role:`, `source:`, `in:`, '
        "`before:`, `after:`, `session:`, `tool:`."
    )
    sort: SearchSort = Field(SearchSort.RELEVANCE, description="The order of hits.")
    limit: int = Field(20, ge=1, le=200, description="How many hits a page has.")
    cursor: CursorQuery = None
    all_hits: bool = Field(False, description="All hits, not only the best of each session.")
    steps: bool = Field(False, description="Also search tool output and reasoning.")
    session_id: str | None = Field(None, description="Only in this session.")
    source: str | None = Field(None, description="Only in sessions of this platform.")
    person: str | None = Field(None, description="Only what this person wrote, by name or id.")
    project: str | None = Field(None, description="Only in sessions of this project, by name.")
    since: TimeQuery = Field(None, description="Only messages at or after this time.")
    until: TimeQuery = Field(None, description="Only messages before this time.")


class UsageReport(TypedDict):
    """Tokens and cost by group."""

    items: list[UsageTotals]
    next: None


class BudgetList(TypedDict):
    """The budgets of a profile."""

    items: list[BudgetInfo]
    next: None


@router.get("/search", tags=["search"])
async def search_messages(
    context: ContextDep, caller: Reader, query: Annotated[SearchQuery, Query()]
) -> JsonAnswer[SearchPage]:
    """Search messages.

    Finds messages by any text: the best hit of each session, with a snippet in which matches are marked. Whatever a
    person types is a legal query.
    """
    options = search.SearchOptions(
        sort=query.sort,
        limit=query.limit,
        cursor=query.cursor or None,
        all_hits=query.all_hits,
        steps=query.steps,
        session=checked_text(query.session_id) or None,
        source=checked_text(query.source) or None,
        person=checked_text(query.person) or None,
        project=checked_text(query.project) or None,
        since=parse_time(query.since),
        until=parse_time(query.until),
    )
    words = checked_text(query.q, 10_000) or ""
    now = context.clock.now()
    found = await context.store.search(
        search.search, words, profile=caller.profile, options=options, now=now
    )
    return json_response(result_json(found, now=now))


@router.get("/usage", tags=["usage"])
async def get_usage(
    context: ContextDep,
    caller: Reader,
    *,
    by: Annotated[UsageGroup, Query(description="By what usage is summed.")] = UsageGroup.DAY,
    since: Annotated[TimeQuery, Query(description="Only calls at or after this time.")] = None,
    until: Annotated[TimeQuery, Query(description="Only calls before this time.")] = None,
) -> JsonAnswer[UsageReport]:
    """Report tokens and cost.

    Sums by day, model, provider, source, project or session. Calls without a known price are counted apart.
    """
    rows = await context.store.read(
        usage.sum_usage,
        by,
        profile=caller.profile,
        since=parse_time(since),
        until=parse_time(until),
    )
    return json_response(UsageReport(items=[usage_json(row) for row in rows], next=None))


@router.get("/budgets", tags=["usage"])
async def get_budgets(
    context: ContextDep,
    caller: Reader,
    session_id: Annotated[
        str | None,
        Query(description="Only the budgets that a message to this session counts against."),
    ] = None,
) -> JsonAnswer[BudgetList]:
    """List the budgets.

    Every budget of the settings with what was used of it in the current day or month, those nearest to their limit
    first. A budget for each person, channel, schedule, session, agent or model is listed once for each that has used
    something, at most 200. With `session_id`, only those that a message to `POST /sessions/{session_id}/turns` counts
    against: if one of them is used up, it is refused.
    """
    engine, now = context.engine, context.clock.now()
    known = {} if engine is None else engine.context.settings.budgets
    named = None if session_id is None else checked_name(session_id, "session")

    def look(tx: Tx) -> list[BudgetStatus]:
        chosen = known
        if named is not None:
            head = read.get_head(tx, named, profile=caller.profile)
            is_served = engine is not None and engine.context.profile == caller.profile
            chosen = _budgets_of(head, engine.context) if engine and is_served else {}
        return budgets.list_status(tx, chosen, profile=caller.profile, now=now)

    found = await context.store.read(look)
    return json_response(BudgetList(items=[budget_json(each) for each in found], next=None))


def _budgets_of(head: SessionHead, engine: EngineContext) -> Budgets:
    """The budgets that a message counts against which is sent to a session by its id; each by its own scope."""
    known, agent = engine.settings.budgets, engine.agent_of(head)
    scopes = (
        *scopes_in_session(known, (at_session(head.id),), agent=agent, head=head),
        *model_scopes(known, agent=agent, head=head),
    )
    found = {scope: budgets.budget_of(scope, known) for scope in scopes}
    return {scope: budget for scope, budget in found.items() if budget is not None}
