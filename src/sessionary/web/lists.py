"""`/search`, `/usage`, `/bindings`: what there is, seen from several sides."""

from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from sessionary.actions import bindings, read, routing, usage
from sessionary.actions.bindings import Binding, NextReset
from sessionary.actions.requests import StoredResponse
from sessionary.actions.search import search
from sessionary.actions.search.search import found_json
from sessionary.model.extent import Extent, head_within
from sessionary.model.key import SessionKey
from sessionary.model.redact import is_redacted_key, redact_key
from sessionary.model.session import SessionHead
from sessionary.model.view import head_json, policy_json, time_text, usage_json
from sessionary.store.database import Tx
from sessionary.web.answers import answer, change, items, json_response, name, plain
from sessionary.web.auth import EngineContext, Reader, Writer
from sessionary.web.bodies import BindingChange, read_body
from sessionary.web.described import takes
from sessionary.web.parts import PREFIX
from sessionary.web.times import TimeQuery, parse_time

router = APIRouter(prefix=PREFIX)


class Sort(StrEnum):
    """In which order hits come."""

    RELEVANCE = "relevance"
    NEWEST = "newest"


class Group(StrEnum):
    """By what usage is summed."""

    DAY = "day"
    MODEL = "model"
    PROVIDER = "provider"
    SOURCE = "source"
    PROJECT = "project"
    SESSION = "session"


class SearchWish(BaseModel):
    """What to find, and how the answer shall look."""

    q: str
    sort: Sort = Sort.RELEVANCE
    limit: int = Field(20, ge=1, le=200)
    cursor: str | None = None
    all_hits: bool = False
    steps: bool = False
    session: str | None = None
    source: str | None = None


@router.get("/search", tags=["search"])
async def find(
    parts: EngineContext, caller: Reader, asked: Annotated[SearchWish, Query()]
) -> Response:
    """Find messages by whatever a person types."""
    wish = search.Wish(
        sort=asked.sort,
        limit=asked.limit,
        cursor=asked.cursor or None,
        all_hits=asked.all_hits,
        steps=asked.steps,
        session=plain(asked.session) or None,
        source=plain(asked.source) or None,
    )
    words = plain(asked.q, 10_000) or ""
    found = await parts.store.search(
        search.search, words, profile=caller.profile, wish=wish, now=parts.clock.now()
    )
    return json_response(found_json(found))


@router.get("/usage", tags=["usage"])
async def report(
    parts: EngineContext,
    caller: Reader,
    *,
    by: Group = Group.DAY,
    since: TimeQuery = None,
    until: TimeQuery = None,
) -> Response:
    """Tokens and cost, summed."""
    rows = await parts.store.read(
        usage.report, by, profile=caller.profile, since=parse_time(since), until=parse_time(until)
    )
    return items(map(usage_json, rows))


@router.get("/bindings", tags=["bindings"])
async def list_bindings(
    parts: EngineContext,
    caller: Reader,
    *,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: str | None = None,
    redact: bool = False,
) -> Response:
    """Which chat is on which session, when it resets and why it last did.

    Who names a session in the workbench is left out. `redact` hides people's ids and numbers, in keys
    and cursors too; `POST /bindings` takes such a key as it takes the whole one.
    """

    def look(tx: Tx) -> tuple[list[dict[str, Any]], str | None]:
        after = plain(cursor)
        if after is not None and is_redacted_key(after):
            after = bindings.key_behind(tx, after, profile=caller.profile)
        page = bindings.listing(
            tx, profile=caller.profile, limit=limit, cursor=after, chats_only=True
        )
        now = parts.clock.now()
        told = [
            _binding(
                each, bindings.next_reset(tx, each.session, parts.policies, now=now), redact=redact
            )
            for each in page.items
        ]
        return told, redact_key(page.next) if redact and page.next is not None else page.next

    shown, following = await parts.store.read(look)
    return items(shown, following)


@router.post("/bindings", tags=["bindings"], openapi_extra=takes(BindingChange))
async def bind(request: Request, parts: EngineContext, caller: Writer) -> Response:
    """Point a key at another session, or without one let it begin anew."""
    body, raw = await read_body(request, BindingChange)
    moment, is_redacted = parts.moment(), is_redacted_key(body.key)
    given = None if is_redacted else SessionKey.parse(body.key)
    if given is not None and given.profile != caller.profile:
        given = SessionKey.parse(f"{caller.profile}/{body.key.partition('/')[2]}")

    def act(tx: Tx, /) -> StoredResponse:
        key = given or SessionKey.parse(bindings.key_behind(tx, body.key, profile=caller.profile))
        shown = body.key if is_redacted else str(key)
        if body.session_id is None:
            ended = routing.reset(tx, key, moment=moment)
            return answer({"key": shown, "ended": None if ended is None else ended.id})
        target = read.head(tx, name(body.session_id, "session"), profile=caller.profile)
        head = routing.switch(tx, key, target, moment=moment)
        told = _redacted(head) if is_redacted else head_json(head)
        return answer({"key": shown, "session": told}, session_id=head.id)

    return await change(request, caller, raw, act)


def _binding(found: Binding, next_reset: NextReset, *, redact: bool) -> dict[str, Any]:
    last = next_reset.last_reset
    return {
        "key": redact_key(found.key) if redact else found.key,
        "session": _redacted(found.session) if redact else head_json(found.session),
        "bound_at": time_text(found.bound_at),
        "policy": policy_json(next_reset.policy),
        "resets_at": time_text(next_reset.resets_at),
        "held": next_reset.held,
        "last_reset": None
        if last is None
        else {"session_id": last.session_id, "reason": last.reason, "at": time_text(last.at)},
    }


def _redacted(head: SessionHead) -> dict[str, Any]:
    """A head without what leads to people: ids, numbers and addresses, in its texts too."""
    shown = head_json(head_within(head, Extent(redact=True)))
    return shown | {"key": None if head.key is None else redact_key(head.key)}
