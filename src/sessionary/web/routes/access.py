"""`/access` and `/tokens`: who may write to the agent, and which programs may use this interface."""

from typing import Annotated

from fastapi import Path, Request
from msgspec import Meta, Struct
from typing_extensions import TypedDict

from sessionary.actions import access, credentials
from sessionary.actions.credentials import SECRET_BYTES
from sessionary.clock import Moment
from sessionary.errors import BadInput, NotFound, RetryLater
from sessionary.model.access import Permit, Scope
from sessionary.model.json_types import PermitInfo, TokenInfo
from sessionary.model.view import permit_json, time_text, token_json
from sessionary.store.database import Tx
from sessionary.web.auth import Admin, ContextDep
from sessionary.web.context import PREFIX, Caller
from sessionary.web.problems import RequestRefused
from sessionary.web.responses import (
    StoredAnswer,
    answer,
    change,
    checked_name,
    checked_text,
    json_response,
)
from sessionary.web.routing import FromBody, JsonAnswer, api_router

router = api_router(prefix=PREFIX)


class PairingInfo(TypedDict):
    """A person who asked for access and was given a code."""

    platform: str
    person_id: str
    name: str | None
    asked_at: str
    expires_at: str
    """Until when the code is valid."""


class AccessPage(TypedDict):
    """The people who may write to the agent, and those who asked."""

    items: list[PermitInfo]
    next: None
    waiting: list[PairingInfo]
    """People who asked for access."""


class NewPermit(Struct, kw_only=True, forbid_unknown_fields=True):
    """A person to allow: either by `code`, or by `platform` and `person_id`."""

    code: Annotated[str | None, Meta(description="The pairing code that the person was given.")] = (
        None
    )
    platform: Annotated[str | None, Meta(description="The platform.")] = None
    person_id: Annotated[str | None, Meta(description="The platform's id of the person.")] = None
    name: Annotated[str | None, Meta(description="A name to show.")] = None


class RevokedPermit(TypedDict):
    """A person who may no longer write to the agent."""

    platform: str
    person_id: str


class NewToken(Struct, kw_only=True, forbid_unknown_fields=True):
    """A token for a program."""

    scope: Annotated[
        Scope, Meta(description="What it may do; each scope includes the ones before it.")
    ] = Scope.READ
    name: Annotated[str, Meta(description="What the token is for.")] = ""


class CreatedToken(TokenInfo):
    """A new token, with its secret."""

    token: str
    """The token itself. It is shown this once."""


class TokenPage(TypedDict):
    """The tokens of a profile, revoked ones too."""

    items: list[TokenInfo]
    next: None


@router.get("/access", tags=["access"])
async def list_access(context: ContextDep, caller: Admin) -> JsonAnswer[AccessPage]:
    """List who may write to the agent.

    And who has asked for access. People whom the configuration allows are not listed.
    """
    given = await context.store.read(access.list_permits, profile=caller.profile)
    asked = await context.store.read(
        access.list_pairings, profile=caller.profile, now=context.clock.now()
    )
    waiting: list[PairingInfo] = [
        {
            "platform": each.platform,
            "person_id": each.person_id,
            "name": each.name,
            "asked_at": time_text(each.asked_at),
            "expires_at": time_text(each.expires_at),
        }
        for each in asked
    ]
    items = [permit_json(each) for each in given]
    return json_response(AccessPage(items=items, next=None, waiting=waiting))


@router.post("/access", status_code=201, tags=["access"])
async def allow_person(
    request: Request, context: ContextDep, caller: Admin, body: FromBody[NewPermit]
) -> JsonAnswer[PermitInfo]:
    """Allow a person to write to the agent.

    By the pairing code that they were given, or by platform and id.
    """
    moment = context.moment()
    if body.code is not None:
        return await _approved(request, caller, body.code, moment)
    platform, person = checked_text(body.platform, 100), checked_text(body.person_id, 500)
    if not platform or not person or not person.strip():
        raise BadInput("Send a `code`, or `platform` and `person_id`.")

    def apply(tx: Tx) -> StoredAnswer[PermitInfo]:
        access.permit(
            tx, platform, person.strip(), profile=caller.profile, moment=moment, name=body.name
        )
        permit = Permit(platform, person.strip(), body.name, moment.now, "owner")
        return answer(permit_json(permit), 201)

    return await change(request, caller, apply)


async def _approved(
    request: Request, caller: Caller, code: str, moment: Moment
) -> JsonAnswer[PermitInfo]:
    def apply(tx: Tx) -> StoredAnswer[PermitInfo]:
        found = access.approve_pairing(tx, code, profile=caller.profile, moment=moment)
        # A wrong code is counted: what counts it must not be undone by refusing it here.
        return StoredAnswer(404, "{}") if found is None else answer(permit_json(found), 201)

    try:
        response = await change(request, caller, apply)
    except RetryLater as error:
        raise RequestRefused(429, str(error), after=error.after) from error
    if response.status_code == 404:
        raise NotFound("Nobody was given that code, or it has expired.")
    return response


@router.delete("/access/{platform}/{person_id}", tags=["access"])
async def revoke_person(
    platform: Annotated[str, Path(description="The platform.")],
    person_id: Annotated[str, Path(description="The platform's id of the person.")],
    request: Request,
    caller: Admin,
) -> JsonAnswer[RevokedPermit]:
    """Withdraw a person's access.

    Their sessions stay.
    """
    where, who = checked_name(platform, "permit"), checked_name(person_id, "permit")

    def apply(tx: Tx) -> StoredAnswer[RevokedPermit]:
        if not access.revoke(tx, where, who, profile=caller.profile):
            raise NotFound("There is no such permit.")
        return answer(RevokedPermit(platform=where, person_id=who))

    return await change(request, caller, apply)


@router.get("/tokens", tags=["tokens"])
async def list_tokens(context: ContextDep, caller: Admin) -> JsonAnswer[TokenPage]:
    """List tokens.

    Only their hashes are stored, so the tokens themselves cannot be shown again.
    """
    found = await context.store.read(credentials.list_tokens, profile=caller.profile)
    return json_response(TokenPage(items=[token_json(each) for each in found], next=None))


@router.post("/tokens", status_code=201, tags=["tokens"])
async def create_token(
    context: ContextDep, caller: Admin, body: FromBody[NewToken]
) -> JsonAnswer[CreatedToken]:
    """Create a token.

    It is shown this once. A repeated request creates another one, even with the same idempotency key.
    """
    secret = credentials.make_secret(context.rng(SECRET_BYTES))
    made = await context.store.write(
        credentials.add_token,
        secret,
        profile=caller.profile,
        scope=body.scope,
        moment=context.moment(),
        name=body.name,
    )
    created: CreatedToken = {**token_json(made), "token": secret}
    return json_response(created, 201)


@router.delete("/tokens/{token_id}", tags=["tokens"])
async def revoke_token(
    token_id: Annotated[str, Path(description="The token's id.")],
    request: Request,
    context: ContextDep,
    caller: Admin,
) -> JsonAnswer[TokenInfo]:
    """Revoke a token.

    Event streams that it opened are closed.
    """
    known, moment = checked_name(token_id, "token"), context.moment()

    def apply(tx: Tx) -> StoredAnswer[TokenInfo]:
        gone = credentials.revoke_token(tx, known, profile=caller.profile, moment=moment)
        return answer(token_json(gone))

    return await change(request, caller, apply)
