"""`/deliveries`: the outbox, and what to do with what could not be delivered."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from sessionary.actions import deliver
from sessionary.actions.requests import StoredResponse
from sessionary.model.delivery import DeliveryState
from sessionary.model.place import Channel
from sessionary.model.view import delivery_json
from sessionary.store.database import Tx
from sessionary.web.answers import answer, change, items, json_response, name, plain
from sessionary.web.asking import engine_of
from sessionary.web.auth import Admin, EngineContext, Reader, Writer
from sessionary.web.bodies import AbandonDelivery, Nothing, RedirectDelivery, read_body
from sessionary.web.described import takes
from sessionary.web.parts import PREFIX

router = APIRouter(prefix=f"{PREFIX}/deliveries", tags=["deliveries"])


@router.get("")
async def list_deliveries(
    parts: EngineContext,
    caller: Reader,
    *,
    state: DeliveryState | None = None,
    channel: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    cursor: str | None = None,
) -> Response:
    """The outbox, newest first. `channel` is a platform, or `platform:chat[:thread]`."""
    page = await parts.store.read(
        deliver.listing,
        profile=caller.profile,
        limit=limit,
        state=state,
        channel=plain(channel) or None,
        cursor=plain(cursor) or None,
    )
    return items(map(delivery_json, page.items), page.next)


@router.get("/{delivery_id}")
async def show(delivery_id: str, parts: EngineContext, caller: Reader) -> Response:
    """One delivery with its parts."""
    known = name(delivery_id, "delivery")
    found = await parts.store.read(deliver.find, known, profile=caller.profile)
    return json_response(delivery_json(found, whole=True))


@router.post("/{delivery_id}/retry", openapi_extra=takes(Nothing, required=False))
async def retry(
    delivery_id: str, request: Request, parts: EngineContext, caller: Writer
) -> Response:
    """Send what waits or was abandoned as soon as possible, under the same id."""
    known, moment = name(delivery_id, "delivery"), parts.moment()
    _, raw = await read_body(request, Nothing)

    def act(tx: Tx, /) -> StoredResponse:
        done = deliver.retry(tx, known, profile=caller.profile, moment=moment)
        return answer(delivery_json(done), session_id=done.session_id)

    return await change(request, caller, raw, act)


@router.post("/{delivery_id}/redirect", status_code=201, openapi_extra=takes(RedirectDelivery))
async def redirect(
    delivery_id: str, request: Request, parts: EngineContext, caller: Admin
) -> Response:
    """Send what waits or was abandoned to another channel instead; the new delivery.

    The channel is one of a configured platform where someone has talked with the agent, or a home channel.
    """
    known, moment = name(delivery_id, "delivery"), parts.moment()
    body, raw = await read_body(request, RedirectDelivery)
    target = Channel.parse(plain(body.channel) or "")
    platforms = engine_of(request, caller).context.deliverable

    def act(tx: Tx, /) -> StoredResponse:
        made = deliver.redirect(
            tx, known, target, profile=caller.profile, moment=moment, platforms=platforms
        )
        return answer(delivery_json(made), 201, session_id=made.session_id)

    return await change(request, caller, raw, act)


@router.post("/{delivery_id}/abandon", openapi_extra=takes(AbandonDelivery, required=False))
async def abandon(
    delivery_id: str, request: Request, parts: EngineContext, caller: Writer
) -> Response:
    """Give up what waits: it is not sent, and the next for its channel goes on."""
    known, moment = name(delivery_id, "delivery"), parts.moment()
    body, raw = await read_body(request, AbandonDelivery)
    reason = plain(body.reason) or deliver.GIVEN_UP

    def act(tx: Tx, /) -> StoredResponse:
        done = deliver.abandon_by_owner(
            tx, known, profile=caller.profile, moment=moment, reason=reason
        )
        return answer(delivery_json(done), session_id=done.session_id)

    return await change(request, caller, raw, act)
