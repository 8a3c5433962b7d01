"""`/push`: browsers that are notified of questions, also when no tab is open."""

import hashlib
from enum import StrEnum
from typing import Annotated, Literal

from fastapi import Path, Request
from msgspec import Meta, Struct
from typing_extensions import TypedDict

from sessionary.actions import push
from sessionary.errors import Conflict
from sessionary.model.push import (
    LONGEST_ENDPOINT,
    NewSubscription,
    PushSubscription,
    browser_label,
)
from sessionary.model.view import time_text
from sessionary.store.database import Tx
from sessionary.web.auth import Admin, ContextDep, context_of
from sessionary.web.context import PREFIX, BrowserPush, Caller
from sessionary.web.responses import (
    StoredAnswer,
    answer,
    change,
    checked_name,
    checked_text,
    json_response,
)
from sessionary.web.routing import FromBody, JsonAnswer, api_router

router = api_router(prefix=PREFIX, tags=["push"])
SubscriptionId = Annotated[str, Path(description="The subscription's id.")]
_LONGEST_KEY = 200
_LONGEST_LABEL = 100


class PushLanguage(StrEnum):
    """A language of the workbench."""

    ENGLISH = "en"
    GERMAN = "de"
    RUSSIAN = "ru"
    CHINESE = "zh-Hans"


class PushSubscriptionInfo(TypedDict):
    """A browser that is notified of questions."""

    id: str
    label: str
    """Which browser it is, for people."""
    language: str
    endpoint_sha256: str
    """The SHA-256 of its endpoint, in hexadecimal: a browser finds itself by it."""
    created_at: str
    succeeded_at: str | None
    """When its push service last accepted a notification."""
    failures: int
    """How many were not accepted since then."""
    problem: str | None
    """Why the last one was not."""


PushReason = Literal["extra_missing", "no_agent"]


class PushState(TypedDict):
    """Whether browsers can be notified, and which are."""

    available: bool
    reason: PushReason | None
    """Why not: `extra_missing`, the server lacks `sessionary[push]`; `no_agent`, no agent runs for this profile."""
    public_key: str | None
    """What a browser subscribes with: `applicationServerKey`."""
    items: list[PushSubscriptionInfo]


class BrowserKeys(Struct, kw_only=True, forbid_unknown_fields=True):
    """The keys of a `PushSubscription`."""

    p256dh: Annotated[str, Meta(max_length=_LONGEST_KEY, description="The browser's public key.")]
    auth: Annotated[str, Meta(max_length=_LONGEST_KEY, description="The browser's secret.")]


class NewPushSubscription(Struct, kw_only=True, forbid_unknown_fields=True):
    """A browser to notify: what its `PushSubscription` contains."""

    endpoint: Annotated[
        str,
        Meta(max_length=LONGEST_ENDPOINT, description="Where its push service takes messages."),
    ]
    keys: BrowserKeys
    language: Annotated[PushLanguage, Meta(description="The language of the notifications.")] = (
        PushLanguage.ENGLISH
    )
    label: Annotated[
        str | None,
        Meta(description="Which browser it is; by default from the header `User-Agent`."),
    ] = None


class RemovedSubscription(TypedDict):
    """A browser that is notified no more."""

    id: str


class PushTest(TypedDict):
    """A notification that was put into the outbox."""

    delivery_id: str
    """Its delivery; `GET /deliveries` says what became of it."""


@router.get("/push")
async def get_push(context: ContextDep, caller: Admin) -> JsonAnswer[PushState]:
    """Get the browsers that are notified.

    And the key to subscribe with, or why browsers cannot be notified. The first such request makes the key.
    """
    found = await context.store.read(push.list_subscriptions, caller.profile)
    reason: PushReason | None = None
    if context.push is None:
        reason = "extra_missing"
    elif context.engine is None or context.engine.context.profile != caller.profile:
        reason = "no_agent"
    public_key = None
    if context.push is not None and reason is None:
        public_key = await context.push.public_key()
    state = PushState(
        available=reason is None,
        reason=reason,
        public_key=public_key,
        items=[_subscription_json(each) for each in found],
    )
    return json_response(state)


@router.post("/push/subscriptions", status_code=201)
async def subscribe_browser(
    request: Request, context: ContextDep, caller: Admin, body: FromBody[NewPushSubscription]
) -> JsonAnswer[PushSubscriptionInfo]:
    """Subscribe a browser.

    From now on it is notified of the questions of the profile, until the login that subscribed it is ended, or the
    token revoked. A browser that is subscribed already keeps its id. The address must be one of a known push service
    (422).
    """
    service, moment = _service(request, caller), context.moment()
    label = checked_text(body.label, _LONGEST_LABEL)
    new = NewSubscription(
        endpoint=body.endpoint,
        p256dh=body.keys.p256dh,
        auth=body.keys.auth,
        label=label or browser_label(request.headers.get("user-agent", "")),
        language=body.language,
        origin=request.scope["sessionary.origin"],
    )
    await service.check_subscription(new)

    def apply(tx: Tx) -> StoredAnswer[PushSubscriptionInfo]:
        made = push.subscribe(tx, new, profile=caller.profile, moment=moment, login_id=caller.id)
        return answer(_subscription_json(made), 201)

    return await change(request, caller, apply)


@router.delete("/push/subscriptions/{subscription_id}")
async def remove_subscription(
    subscription_id: SubscriptionId, request: Request, caller: Admin
) -> JsonAnswer[RemovedSubscription]:
    """Remove a browser.

    It is notified no more.
    """
    known = checked_name(subscription_id, "subscription")

    def apply(tx: Tx) -> StoredAnswer[RemovedSubscription]:
        push.remove(tx, known, profile=caller.profile)
        return answer(RemovedSubscription(id=known))

    return await change(request, caller, apply)


@router.post("/push/subscriptions/{subscription_id}/test")
async def send_test_notification(
    subscription_id: SubscriptionId, request: Request, context: ContextDep, caller: Admin
) -> JsonAnswer[PushTest]:
    """Send a test.

    The browser shows a notification that says that it works.
    """
    known, moment = checked_name(subscription_id, "subscription"), context.moment()
    _service(request, caller)

    def apply(tx: Tx) -> StoredAnswer[PushTest]:
        delivery_id = push.send_test(tx, known, profile=caller.profile, moment=moment)
        return answer(PushTest(delivery_id=delivery_id))

    return await change(request, caller, apply)


def _service(request: Request, caller: Caller) -> BrowserPush:
    """What notifies browsers of this profile's questions."""
    context = context_of(request)
    if context.push is None:
        raise Conflict(
            "Notifications of browsers need an extra on the server: install sessionary[push]. "
            "Nothing was changed."
        )
    if context.engine is None or context.engine.context.profile != caller.profile:
        raise Conflict("No agent is attached here; nothing was written.")
    return context.push


def _subscription_json(found: PushSubscription) -> PushSubscriptionInfo:
    return {
        "id": found.id,
        "label": found.label,
        "language": found.language,
        "endpoint_sha256": hashlib.sha256(found.endpoint.encode()).hexdigest(),
        "created_at": time_text(found.created_at),
        "succeeded_at": time_text(found.succeeded_at),
        "failures": found.failures,
        "problem": found.problem,
    }
