"""Authentication: tokens, logins, and the scope that a route needs."""

import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request

from sessionary.actions import credentials
from sessionary.errors import BadInput
from sessionary.model.access import Scope
from sessionary.web.connections import CONNECTION, LimitedConnection
from sessionary.web.context import Caller, WebContext
from sessionary.web.problems import SAFE, RequestRefused

CSRF_HEADER = "X-CSRF-Token"
IDEMPOTENCY_HEADER = "Idempotency-Key"
IDEMPOTENCY_KEY = re.compile("[A-Za-z0-9._-]+")
MAX_IDEMPOTENCY_KEY = 200
_BEARER = "bearer "
_MAX_SECRET = 200


def context_of(request: Request) -> WebContext:
    """The context of the application that a request came to."""
    found: WebContext = request.app.state.context
    return found


def cookie_name(request: Request) -> str:
    """The cookie's name has the port: cookies of two servers on one machine must not collide."""
    return f"sessionary_{request.url.port or 'web'}"


def csrf_token(cookie: str) -> str:
    """The token that our pages send besides the cookie, because other sites cannot read it."""
    return hashlib.sha256(f"sessionary csrf {cookie}".encode()).hexdigest()


def require_scope(scope: Scope) -> Callable[[Request], Awaitable[Caller]]:
    """A dependency that admits callers with this scope, and marks its route as not public."""

    async def caller(request: Request) -> Caller:
        found = await identify(request)
        connection: LimitedConnection | None = request.scope.get(CONNECTION)
        if connection is not None:
            connection.name_caller(found.id)
        if not found.scope.allows(scope):
            raise RequestRefused(403, f"This needs the scope {scope}; the token has {found.scope}.")
        if request.method not in SAFE:
            idempotency_key(request)
        return found

    caller.__dict__["scope"] = scope
    return caller


async def identify(request: Request) -> Caller:
    """Find the caller by a bearer token or a cookie; refuse anything else."""
    context = context_of(request)
    header = request.headers.get("authorization")
    if header is not None:
        token = header[len(_BEARER) :].strip() if header.lower().startswith(_BEARER) else ""
        if token and len(token) <= _MAX_SECRET:
            found = await context.store.read(credentials.find_token, token)
            if found is not None:
                return Caller(found.profile, found.scope, found.id)
        raise RequestRefused(401, "The token is not valid.")
    cookie = request.cookies.get(cookie_name(request))
    if not cookie or len(cookie) > _MAX_SECRET:
        raise RequestRefused(401, "A token or a login is needed.")
    login = await context.store.read(credentials.find_login, cookie, now=context.clock.now())
    if login is None:
        raise RequestRefused(401, "The login is over.")
    if request.method not in SAFE:
        given = request.headers.get(CSRF_HEADER, "").encode()
        if not hmac.compare_digest(given, csrf_token(cookie).encode()):
            raise RequestRefused(403, f"The header {CSRF_HEADER} is missing or wrong.")
    return Caller(login.profile, Scope.ADMIN, login.id, is_browser=True)


def idempotency_key(request: Request) -> str | None:
    """The request's idempotency key, or None; refuse a malformed one."""
    key = request.headers.get(IDEMPOTENCY_HEADER)
    # An empty key would be shared by all callers: the second would get the answer of the first.
    if key is not None and (
        len(key) > MAX_IDEMPOTENCY_KEY or IDEMPOTENCY_KEY.fullmatch(key) is None
    ):
        raise BadInput(
            f"{IDEMPOTENCY_HEADER} has 1 to {MAX_IDEMPOTENCY_KEY} letters, digits, dots, hyphens and "
            "underscores; nothing was written."
        )
    return key


async def is_still_valid(context: WebContext, caller: Caller) -> bool:
    """Whether a caller's token or login is still valid."""
    if caller.is_browser:
        return await context.store.read(
            credentials.is_valid_login, caller.id, now=context.clock.now()
        )
    return await context.store.read(credentials.is_valid_token, caller.id)


ContextDep = Annotated[WebContext, Depends(context_of)]
read_access = Depends(require_scope(Scope.READ))
Reader = Annotated[Caller, read_access]
Writer = Annotated[Caller, Depends(require_scope(Scope.WRITE))]
Admin = Annotated[Caller, Depends(require_scope(Scope.ADMIN))]
