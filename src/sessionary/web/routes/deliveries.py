"""`/deliveries`: the outbox, and what to do with what could not be delivered."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from sessionary.actions import outbox
from sessionary.actions.requests import StoredResponse
from sessionary.model.source import Channel
from sessionary.model.turn import DeliveryState
from sessionary.model.view import delivery_json
from sessionary.store.database import Tx
from sessionary.web.auth import Admin, ContextDep, Reader, Writer
from sessionary.web.context import PREFIX
from sessionary.web.openapi import request_body
from sessionary.web.requests import AbandonDelivery, EmptyBody, RedirectDelivery, read_body
from sessionary.web.responses import (
    answer,
    change,
    checked_name,
    checked_text,
    engine_for,
    json_response,
    list_response,
)

router = APIRouter(prefix=f"{PREFIX}/deliveries", tags=["deliveries"])


@router.get("")
async def list_deliveries(
    context: ContextDep,
    caller: Reader,
    *,
    state: DeliveryState | None = None,
    channel: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    cursor: str | None = None,
) -> Response:
    """The outbox, newest first. `channel` is a platform, or `platform:chat[:thread]`."""
    page = await context.store.read(
        outbox.list_deliveries,
        profile=caller.profile,
        limit=limit,
        state=state,
        channel=checked_text(channel) or None,
        cursor=checked_text(cursor) or None,
    )
    return list_response(map(delivery_json, page.items), page.next)


@router.get("/{delivery_id}")
async def show(delivery_id: str, context: ContextDep, caller: Reader) -> Response:
    """One delivery with its parts."""
    known = checked_name(delivery_id, "delivery")
    found = await context.store.read(outbox.find, known, profile=caller.profile)
    return json_response(delivery_json(found, whole=True))


@router.post("/{delivery_id}/retry", openapi_extra=request_body(EmptyBody, required=False))
async def retry(
    delivery_id: str, request: Request, context: ContextDep, caller: Writer
) -> Response:
    """Send what waits or was abandoned as soon as possible, under the same id."""
    known, moment = checked_name(delivery_id, "delivery"), context.moment()
    _, raw = await read_body(request, EmptyBody)

    def apply(tx: Tx, /) -> StoredResponse:
        done = outbox.retry(tx, known, profile=caller.profile, moment=moment)
        return answer(delivery_json(done), session_id=done.session_id)

    return await change(request, caller, raw, apply)


@router.post(
    "/{delivery_id}/redirect", status_code=201, openapi_extra=request_body(RedirectDelivery)
)
async def redirect(
    delivery_id: str, request: Request, context: ContextDep, caller: Admin
) -> Response:
    """Send what waits or was abandoned to another channel instead; the new delivery.

    The channel is one of a configured platform where someone has talked with the agent, or a home channel.
    """
    known, moment = checked_name(delivery_id, "delivery"), context.moment()
    body, raw = await read_body(request, RedirectDelivery)
    target = Channel.parse(checked_text(body.channel) or "")
    platforms = engine_for(request, caller).context.deliverable

    def apply(tx: Tx, /) -> StoredResponse:
        made = outbox.redirect(
            tx, known, target, profile=caller.profile, moment=moment, platforms=platforms
        )
        return answer(delivery_json(made), 201, session_id=made.session_id)

    return await change(request, caller, raw, apply)


@router.post("/{delivery_id}/abandon", openapi_extra=request_body(AbandonDelivery, required=False))
async def abandon(
    delivery_id: str, request: Request, context: ContextDep, caller: Writer
) -> Response:
    """Give up what waits: it is not sent, and the next for its channel goes on."""
    known, moment = checked_name(delivery_id, "delivery"), context.moment()
    body, raw = await read_body(request, AbandonDelivery)
    reason = checked_text(body.reason) or outbox.GIVEN_UP

    def apply(tx: Tx, /) -> StoredResponse:
        done = outbox.abandon_by_owner(
            tx, known, profile=caller.profile, moment=moment, reason=reason
        )
        return answer(delivery_json(done), session_id=done.session_id)

    return await change(request, caller, raw, apply)
