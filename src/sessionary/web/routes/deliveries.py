"""`/deliveries`: the outbox, and what to do with what could not be delivered."""

from typing import Annotated

from fastapi import Path, Query, Request
from msgspec import Meta, Struct
from typing_extensions import TypedDict

from sessionary.actions import outbox
from sessionary.model.json_types import DeliveryDetail, DeliverySummary
from sessionary.model.source import Channel
from sessionary.model.turn import DeliveryState
from sessionary.model.view import delivery_detail_json, delivery_json
from sessionary.store.database import Tx
from sessionary.web.auth import Admin, ContextDep, Reader, Writer
from sessionary.web.context import PREFIX
from sessionary.web.requests import CursorQuery
from sessionary.web.responses import (
    StoredAnswer,
    answer,
    change,
    checked_name,
    checked_text,
    engine_for,
    json_response,
)
from sessionary.web.routing import FromBody, FromOptionalBody, JsonAnswer, api_router

router = api_router(prefix=f"{PREFIX}/deliveries", tags=["deliveries"])
DeliveryId = Annotated[str, Path(description="The delivery's id.")]


class DeliveryListPage(TypedDict):
    """A page of the outbox."""

    items: list[DeliverySummary]
    next: str | None
    """The cursor of the next page; null on the last."""


class RedirectDelivery(Struct, kw_only=True, forbid_unknown_fields=True):
    """Another channel for a delivery."""

    channel: Annotated[str, Meta(description="`platform:chat` or `platform:chat:thread`.")]


class AbandonDelivery(Struct, kw_only=True, forbid_unknown_fields=True):
    """Why a delivery is abandoned."""

    reason: Annotated[str | None, Meta(description="The reason, shown to people.")] = None


@router.get("")
async def list_deliveries(
    context: ContextDep,
    caller: Reader,
    *,
    state: Annotated[
        DeliveryState | None, Query(description="Only deliveries in this state.")
    ] = None,
    channel: Annotated[
        str | None, Query(description="Only this platform, or `platform:chat[:thread]`.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="How many a page has.")] = 50,
    cursor: CursorQuery = None,
) -> JsonAnswer[DeliveryListPage]:
    """List deliveries.

    The outbox, newest first.
    """
    page = await context.store.read(
        outbox.list_deliveries,
        profile=caller.profile,
        limit=limit,
        state=state,
        channel=checked_text(channel) or None,
        cursor=checked_text(cursor) or None,
    )
    items = [delivery_json(each) for each in page.items]
    return json_response(DeliveryListPage(items=items, next=page.next))


@router.get("/{delivery_id}")
async def get_delivery(
    delivery_id: DeliveryId, context: ContextDep, caller: Reader
) -> JsonAnswer[DeliveryDetail]:
    """Get a delivery.

    With its parts.
    """
    known = checked_name(delivery_id, "delivery")
    found = await context.store.read(outbox.find, known, profile=caller.profile)
    return json_response(delivery_detail_json(found))


@router.post("/{delivery_id}/retry")
async def retry_delivery(
    delivery_id: DeliveryId,
    request: Request,
    context: ContextDep,
    caller: Writer,
) -> JsonAnswer[DeliverySummary]:
    """Retry a delivery.

    Sends a waiting or abandoned delivery as soon as possible, under the same id.
    """
    known, moment = checked_name(delivery_id, "delivery"), context.moment()

    def apply(tx: Tx) -> StoredAnswer[DeliverySummary]:
        done = outbox.retry(tx, known, profile=caller.profile, moment=moment)
        return answer(delivery_json(done), session_id=done.session_id)

    return await change(request, caller, apply)


@router.post("/{delivery_id}/redirect", status_code=201)
async def redirect_delivery(
    delivery_id: DeliveryId,
    request: Request,
    context: ContextDep,
    caller: Admin,
    body: FromBody[RedirectDelivery],
) -> JsonAnswer[DeliverySummary]:
    """Send a delivery to another channel.

    For a waiting or abandoned delivery; returns the new one. The channel is a chat of a configured platform where
    someone has talked with the agent, or a home channel.
    """
    known, moment = checked_name(delivery_id, "delivery"), context.moment()
    target = Channel.parse(checked_text(body.channel) or "")
    platforms = engine_for(request, caller).context.deliverable

    def apply(tx: Tx) -> StoredAnswer[DeliverySummary]:
        made = outbox.redirect(
            tx, known, target, profile=caller.profile, moment=moment, platforms=platforms
        )
        return answer(delivery_json(made), 201, session_id=made.session_id)

    return await change(request, caller, apply)


@router.post("/{delivery_id}/abandon")
async def abandon_delivery(
    delivery_id: DeliveryId,
    request: Request,
    context: ContextDep,
    caller: Writer,
    body: FromOptionalBody[AbandonDelivery],
) -> JsonAnswer[DeliverySummary]:
    """Abandon a delivery.

    A waiting delivery is not sent, and the next one for its channel follows.
    """
    known, moment = checked_name(delivery_id, "delivery"), context.moment()
    reason = checked_text(body.reason) or outbox.GIVEN_UP

    def apply(tx: Tx) -> StoredAnswer[DeliverySummary]:
        done = outbox.abandon_by_owner(
            tx, known, profile=caller.profile, moment=moment, reason=reason
        )
        return answer(delivery_json(done), session_id=done.session_id)

    return await change(request, caller, apply)
