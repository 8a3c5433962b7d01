"""`/bindings`: the current session of each chat."""

from datetime import datetime
from typing import Annotated

from fastapi import Query, Request
from msgspec import Meta, Struct
from typing_extensions import TypedDict

from sessionary.actions.sessions import read, routing
from sessionary.actions.sessions.routing import Binding, NextReset
from sessionary.model.json_types import PolicyInfo, SessionSummary
from sessionary.model.record import ExportOptions, head_within
from sessionary.model.redact import Redactor, is_redacted_key
from sessionary.model.session import SessionHead
from sessionary.model.source import SessionKey
from sessionary.model.view import head_json, policy_json, time_text
from sessionary.store.database import Tx
from sessionary.store.tables import meta
from sessionary.web.auth import ContextDep, Reader, Writer
from sessionary.web.context import PREFIX
from sessionary.web.requests import CursorQuery
from sessionary.web.responses import (
    StoredAnswer,
    answer,
    change,
    checked_name,
    checked_text,
    json_response,
)
from sessionary.web.routing import FromBody, JsonAnswer, api_router

router = api_router(prefix=PREFIX, tags=["bindings"])


class LastResetInfo(TypedDict):
    """The last time that a chat was reset."""

    session_id: str
    """The session that ended."""
    reason: str
    at: str


class BindingInfo(TypedDict):
    """A chat, its current session, and when that is reset."""

    key: str
    """The key of the conversation."""
    session: SessionSummary
    bound_at: str
    """Since when the chat is on this session."""
    policy: PolicyInfo
    resets_at: str | None
    """When it is reset if nobody writes; null if it is not reset automatically."""
    held: bool
    """Whether a running turn or a hold prevents a reset."""
    last_reset: LastResetInfo | None


class BindingPage(TypedDict):
    """A page of bindings."""

    items: list[BindingInfo]
    next: str | None
    """The cursor of the next page; null on the last."""


class BindingChange(Struct, kw_only=True, forbid_unknown_fields=True):
    """A chat, and the session to switch it to."""

    key: Annotated[str, Meta(description="The key of the conversation.")]
    session_id: Annotated[
        str | None,
        Meta(description="The session to switch to; without it the next message opens a new one."),
    ] = None


class BindingChanged(TypedDict):
    """What a change of a binding did."""

    key: str
    session: SessionSummary | None
    """The session that the chat is on now; null after a reset."""
    ended_session_id: str | None
    """The session that a reset ended; null if there was none."""


@router.get("/bindings")
async def list_bindings(
    context: ContextDep,
    caller: Reader,
    *,
    limit: Annotated[int, Query(ge=1, le=1000, description="How many chats a page has.")] = 100,
    cursor: CursorQuery = None,
    redact: Annotated[
        bool, Query(description="Hide ids, phone numbers and addresses of people.")
    ] = False,
) -> JsonAnswer[BindingPage]:
    """List chats and their current sessions.

    With the reset policy of each, when it resets, and why it last did. `redact` hides people's ids and numbers in
    sources, titles, previews, keys and cursors; `POST /bindings` accepts a redacted key. Sessions that were opened
    in the workbench are not listed.
    """

    def look(tx: Tx) -> BindingPage:
        after = checked_text(cursor)
        if after is not None and is_redacted_key(after):
            after = routing.find_redacted_key(tx, after, profile=caller.profile)
        page = routing.list_bindings(
            tx, profile=caller.profile, limit=limit, cursor=after, chats_only=True
        )
        now = context.clock.now()
        redactor = Redactor(meta.redaction_salt(tx)) if redact else None
        items = [
            _binding(
                each,
                routing.get_next_reset(tx, each.session, context.policies, now=now),
                redactor,
                now=now,
            )
            for each in page.items
        ]
        following = redactor.key(page.next) if redactor and page.next else page.next
        return {"items": items, "next": following}

    return json_response(await context.store.read(look))


@router.post("/bindings")
async def change_binding(
    request: Request, context: ContextDep, caller: Writer, body: FromBody[BindingChange]
) -> JsonAnswer[BindingChanged]:
    """Switch or reset a chat.

    With `session_id` the chat continues in that session; without it the next message opens a new session.
    """
    moment, is_redacted = context.moment(), is_redacted_key(body.key)
    given = None if is_redacted else SessionKey.parse(body.key)
    if given is not None and given.profile != caller.profile:
        given = SessionKey.parse(f"{caller.profile}/{body.key.partition('/')[2]}")

    def apply(tx: Tx) -> StoredAnswer[BindingChanged]:
        key = given or SessionKey.parse(
            routing.find_redacted_key(tx, body.key, profile=caller.profile)
        )
        shown = body.key if is_redacted else str(key)
        if body.session_id is None:
            ended = routing.reset(tx, key, moment=moment)
            ended_id = None if ended is None else ended.id
            return answer(BindingChanged(key=shown, session=None, ended_session_id=ended_id))
        target = read.get_head(tx, checked_name(body.session_id, "session"), profile=caller.profile)
        head = routing.switch(tx, key, target, moment=moment)
        session = (
            _redacted(head, Redactor(meta.redaction_salt(tx)), now=moment.now)
            if is_redacted
            else head_json(head, now=moment.now)
        )
        changed = BindingChanged(key=shown, session=session, ended_session_id=None)
        return answer(changed, session_id=head.id)

    return await change(request, caller, apply)


def _binding(
    found: Binding, next_reset: NextReset, redactor: Redactor | None, *, now: datetime
) -> BindingInfo:
    last, head = next_reset.last_reset, found.session
    return {
        "key": redactor.key(found.key) if redactor else found.key,
        "session": _redacted(head, redactor, now=now) if redactor else head_json(head, now=now),
        "bound_at": time_text(found.bound_at),
        "policy": policy_json(next_reset.policy),
        "resets_at": time_text(next_reset.resets_at),
        "held": next_reset.held,
        "last_reset": None
        if last is None
        else {"session_id": last.session_id, "reason": last.reason, "at": time_text(last.at)},
    }


def _redacted(head: SessionHead, redactor: Redactor, *, now: datetime) -> SessionSummary:
    """A head without what leads to people: ids, numbers and addresses, in its texts too."""
    shown = head_json(head_within(head, ExportOptions(redact=True, salt=redactor.salt)), now=now)
    return {**shown, "key": None if head.key is None else redactor.key(head.key)}
