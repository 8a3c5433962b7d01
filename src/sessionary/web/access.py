"""`/access` and `/tokens`: who may reach the agent, and who may use this interface."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from sessionary.actions import access, tokens
from sessionary.actions.access import Permit
from sessionary.actions.requests import StoredResponse
from sessionary.actions.tokens import SECRET_BYTES, Scope, Token
from sessionary.clock import Moment
from sessionary.errors import BadInput, NotFound, RetryLater
from sessionary.model.view import time_text
from sessionary.store.database import Tx
from sessionary.web.answers import answer, change, items, json_response, name, plain
from sessionary.web.auth import Admin, EngineContext
from sessionary.web.bodies import NewPermit, NewToken, read_body
from sessionary.web.described import takes
from sessionary.web.parts import PREFIX, Caller
from sessionary.web.problems import Refusal

router = APIRouter(prefix=PREFIX)


@router.get("/access", tags=["access"])
async def list_access(parts: EngineContext, caller: Admin) -> Response:
    """Who was let in, and who waits to be."""
    given = await parts.store.read(access.permits, profile=caller.profile)
    asked = await parts.store.read(access.pairings, profile=caller.profile, now=parts.clock.now())
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
    return items(map(_permit, given), waiting=waiting)


@router.post("/access", status_code=201, tags=["access"], openapi_extra=takes(NewPermit))
async def permit(request: Request, parts: EngineContext, caller: Admin) -> Response:
    """Let someone in: by the code they were given, or by platform and id."""
    body, raw = await read_body(request, NewPermit)
    moment = parts.moment()
    if body.code is not None:
        return await _approved(request, caller, raw, body.code, moment)
    platform, person = plain(body.platform, 100), plain(body.person_id, 500)
    if not platform or not person or not person.strip():
        raise BadInput("Send a `code`, or `platform` and `person_id`.")

    def act(tx: Tx, /) -> StoredResponse:
        access.permit(
            tx, platform, person.strip(), profile=caller.profile, moment=moment, name=body.name
        )
        return answer(
            _permit(Permit(platform, person.strip(), body.name, moment.now, "owner")), 201
        )

    return await change(request, caller, raw, act)


async def _approved(
    request: Request, caller: Caller, raw: bytes, code: str, moment: Moment
) -> Response:
    def act(tx: Tx, /) -> StoredResponse:
        found = access.approve(tx, code, profile=caller.profile, moment=moment)
        # A wrong code is counted: what counts it must not be undone by refusing it here.
        return answer({}, 404) if found is None else answer(_permit(found), 201)

    try:
        told = await change(request, caller, raw, act)
    except RetryLater as error:
        raise Refusal(429, str(error), after=error.after) from error
    if told.status_code == 404:
        raise NotFound("Nobody waits under that code.")
    return told


@router.delete("/access/{platform}/{person_id}", tags=["access"])
async def revoke(platform: str, person_id: str, request: Request, caller: Admin) -> Response:
    """Let a person in no longer."""
    where, who = name(platform, "permit"), name(person_id, "permit")

    def act(tx: Tx, /) -> StoredResponse:
        if not access.revoke(tx, where, who, profile=caller.profile):
            raise NotFound("There is no such permit.")
        return answer({"platform": where, "person_id": who})

    return await change(request, caller, b"", act)


@router.get("/tokens", tags=["tokens"])
async def list_tokens(parts: EngineContext, caller: Admin) -> Response:
    """The tokens of programs; the tokens themselves are not kept."""
    return items(map(_token, await parts.store.read(tokens.listing, profile=caller.profile)))


@router.post("/tokens", status_code=201, tags=["tokens"], openapi_extra=takes(NewToken))
async def add_token(request: Request, parts: EngineContext, caller: Admin) -> Response:
    """Make a token; it is shown this once, and a repeated request makes another."""
    body, _ = await read_body(request, NewToken)
    secret = tokens.secret(parts.rng(SECRET_BYTES))
    made = await parts.store.write(
        tokens.add,
        secret,
        profile=caller.profile,
        scope=Scope(body.scope),
        moment=parts.moment(),
        name=body.name,
    )
    return json_response(_token(made) | {"token": secret}, 201)


@router.delete("/tokens/{token_id}", tags=["tokens"])
async def revoke_token(
    token_id: str, request: Request, parts: EngineContext, caller: Admin
) -> Response:
    """Revoke a token; streams that it opened are closed."""
    known, moment = name(token_id, "token"), parts.moment()

    def act(tx: Tx, /) -> StoredResponse:
        return answer(_token(tokens.revoke(tx, known, profile=caller.profile, moment=moment)))

    return await change(request, caller, b"", act)


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
