"""`/access` and `/tokens`: who may reach the agent, and who may use this interface."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from sessionary.actions import access, credentials
from sessionary.actions.credentials import SECRET_BYTES
from sessionary.actions.requests import StoredResponse
from sessionary.clock import Moment
from sessionary.errors import BadInput, NotFound, RetryLater
from sessionary.model.access import Permit, Scope, Token
from sessionary.model.view import time_text
from sessionary.store.database import Tx
from sessionary.web.auth import Admin, ContextDep
from sessionary.web.context import PREFIX, Caller
from sessionary.web.openapi import request_body
from sessionary.web.problems import RequestRefused
from sessionary.web.requests import NewPermit, NewToken, read_body
from sessionary.web.responses import (
    answer,
    change,
    checked_name,
    checked_text,
    json_response,
    list_response,
)

router = APIRouter(prefix=PREFIX)


@router.get("/access", tags=["access"])
async def list_access(context: ContextDep, caller: Admin) -> Response:
    """Who was let in, and who waits to be."""
    given = await context.store.read(access.list_permits, profile=caller.profile)
    asked = await context.store.read(
        access.list_pairings, profile=caller.profile, now=context.clock.now()
    )
    waiting = [
        {
            "platform": platform,
            "person_id": person,
            "name": called,
            "asked_at": time_text(at),
            "expires_at": time_text(until),
        }
        for platform, person, called, at, until in asked
    ]
    return list_response(map(_permit, given), waiting=waiting)


@router.post("/access", status_code=201, tags=["access"], openapi_extra=request_body(NewPermit))
async def permit(request: Request, context: ContextDep, caller: Admin) -> Response:
    """Let someone in: by the code they were given, or by platform and id."""
    body, raw = await read_body(request, NewPermit)
    moment = context.moment()
    if body.code is not None:
        return await _approved(request, caller, raw, body.code, moment)
    platform, person = checked_text(body.platform, 100), checked_text(body.person_id, 500)
    if not platform or not person or not person.strip():
        raise BadInput("Send a `code`, or `platform` and `person_id`.")

    def apply(tx: Tx, /) -> StoredResponse:
        access.permit(
            tx, platform, person.strip(), profile=caller.profile, moment=moment, name=body.name
        )
        return answer(
            _permit(Permit(platform, person.strip(), body.name, moment.now, "owner")), 201
        )

    return await change(request, caller, raw, apply)


async def _approved(
    request: Request, caller: Caller, raw: bytes, code: str, moment: Moment
) -> Response:
    def apply(tx: Tx, /) -> StoredResponse:
        found = access.approve_pairing(tx, code, profile=caller.profile, moment=moment)
        # A wrong code is counted: what counts it must not be undone by refusing it here.
        return answer({}, 404) if found is None else answer(_permit(found), 201)

    try:
        response = await change(request, caller, raw, apply)
    except RetryLater as error:
        raise RequestRefused(429, str(error), after=error.after) from error
    if response.status_code == 404:
        raise NotFound("Nobody waits under that code.")
    return response


@router.delete("/access/{platform}/{person_id}", tags=["access"])
async def revoke(platform: str, person_id: str, request: Request, caller: Admin) -> Response:
    """Let a person in no longer."""
    where, who = checked_name(platform, "permit"), checked_name(person_id, "permit")

    def apply(tx: Tx, /) -> StoredResponse:
        if not access.revoke(tx, where, who, profile=caller.profile):
            raise NotFound("There is no such permit.")
        return answer({"platform": where, "person_id": who})

    return await change(request, caller, b"", apply)


@router.get("/tokens", tags=["tokens"])
async def list_tokens(context: ContextDep, caller: Admin) -> Response:
    """The tokens of programs; the tokens themselves are not kept."""
    return list_response(
        map(_token, await context.store.read(credentials.list_tokens, profile=caller.profile))
    )


@router.post("/tokens", status_code=201, tags=["tokens"], openapi_extra=request_body(NewToken))
async def add_token(request: Request, context: ContextDep, caller: Admin) -> Response:
    """Make a token; it is shown this once, and a repeated request makes another."""
    body, _ = await read_body(request, NewToken)
    secret = credentials.make_secret(context.rng(SECRET_BYTES))
    made = await context.store.write(
        credentials.add_token,
        secret,
        profile=caller.profile,
        scope=Scope(body.scope),
        moment=context.moment(),
        name=body.name,
    )
    return json_response(_token(made) | {"token": secret}, 201)


@router.delete("/tokens/{token_id}", tags=["tokens"])
async def revoke_token(
    token_id: str, request: Request, context: ContextDep, caller: Admin
) -> Response:
    """Revoke a token; streams that it opened are closed."""
    known, moment = checked_name(token_id, "token"), context.moment()

    def apply(tx: Tx, /) -> StoredResponse:
        return answer(
            _token(credentials.revoke_token(tx, known, profile=caller.profile, moment=moment))
        )

    return await change(request, caller, b"", apply)


def _permit(found: Permit) -> dict[str, Any]:
    return {
        "platform": found.platform,
        "person_id": found.person_id,
        "name": found.name,
        "given_at": time_text(found.given_at),
        "given_by": found.given_by,
    }


def _token(found: Token) -> dict[str, Any]:
    return {
        "id": found.id,
        "profile": found.profile,
        "name": found.name,
        "scope": found.scope,
        "created_at": time_text(found.created_at),
        "revoked_at": time_text(found.revoked_at),
    }
