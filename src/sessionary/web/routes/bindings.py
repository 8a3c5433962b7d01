"""`/bindings`: which chat is on which session."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from sessionary.actions.requests import StoredResponse
from sessionary.actions.sessions import read, routing
from sessionary.actions.sessions.routing import Binding, NextReset
from sessionary.model.record import ExportOptions, head_within
from sessionary.model.redact import Redactor, is_redacted_key
from sessionary.model.session import SessionHead
from sessionary.model.source import SessionKey
from sessionary.model.view import head_json, policy_json, time_text
from sessionary.store.database import Tx
from sessionary.store.tables import meta
from sessionary.web.auth import ContextDep, Reader, Writer
from sessionary.web.context import PREFIX
from sessionary.web.openapi import request_body
from sessionary.web.requests import BindingChange, read_body
from sessionary.web.responses import answer, change, checked_name, checked_text, list_response

router = APIRouter(prefix=PREFIX)


@router.get("/bindings", tags=["bindings"])
async def list_bindings(
    context: ContextDep,
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
            )
            for each in page.items
        ]
        return items, redactor.key(page.next) if redactor and page.next else page.next

    shown, following = await context.store.read(look)
    return list_response(shown, following)


@router.post("/bindings", tags=["bindings"], openapi_extra=request_body(BindingChange))
async def bind(request: Request, context: ContextDep, caller: Writer) -> Response:
    """Point a key at another session; without one the next message opens a new session."""
    body, raw = await read_body(request, BindingChange)
    moment, is_redacted = context.moment(), is_redacted_key(body.key)
    given = None if is_redacted else SessionKey.parse(body.key)
    if given is not None and given.profile != caller.profile:
        given = SessionKey.parse(f"{caller.profile}/{body.key.partition('/')[2]}")

    def apply(tx: Tx, /) -> StoredResponse:
        key = given or SessionKey.parse(
            routing.find_redacted_key(tx, body.key, profile=caller.profile)
        )
        shown = body.key if is_redacted else str(key)
        if body.session_id is None:
            ended = routing.reset(tx, key, moment=moment)
            return answer({"key": shown, "ended": None if ended is None else ended.id})
        target = read.get_head(tx, checked_name(body.session_id, "session"), profile=caller.profile)
        head = routing.switch(tx, key, target, moment=moment)
        shown_session = (
            _redacted(head, Redactor(meta.redaction_salt(tx))) if is_redacted else head_json(head)
        )
        return answer({"key": shown, "session": shown_session}, session_id=head.id)

    return await change(request, caller, raw, apply)


def _binding(found: Binding, next_reset: NextReset, redactor: Redactor | None) -> dict[str, Any]:
    last = next_reset.last_reset
    return {
        "key": redactor.key(found.key) if redactor else found.key,
        "session": _redacted(found.session, redactor) if redactor else head_json(found.session),
        "bound_at": time_text(found.bound_at),
        "policy": policy_json(next_reset.policy),
        "resets_at": time_text(next_reset.resets_at),
        "held": next_reset.held,
        "last_reset": None
        if last is None
        else {"session_id": last.session_id, "reason": last.reason, "at": time_text(last.at)},
    }


def _redacted(head: SessionHead, redactor: Redactor) -> dict[str, Any]:
    """A head without what leads to people: ids, numbers and addresses, in its texts too."""
    shown = head_json(head_within(head, ExportOptions(redact=True, salt=redactor.salt)))
    return shown | {"key": None if head.key is None else redactor.key(head.key)}
