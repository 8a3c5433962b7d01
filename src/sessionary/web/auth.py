"""Who asks: one function, the same for every path."""

import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request

from sessionary.actions import credentials
from sessionary.actions.credentials import Scope
from sessionary.errors import BadInput
from sessionary.web.connections import CONNECTION, LimitedConnection
from sessionary.web.context import Caller, WebContext
from sessionary.web.problems import SAFE, RequestRefused

CSRF_HEADER = "X-CSRF-Token"
IDEMPOTENCY_HEADER = "Idempotency-Key"
IDEMPOTENCY_KEY = re.compile("[A-Za-z0-9._-]+")
MAX_IDEMPOTENCY_KEY = 200
_BEARER = "bearer "
_LONGEST = 200


def context_of(request: Request) -> WebContext:
    """The parts of the application that a request came to."""
    found: WebContext = request.app.state.context
    return found


def cookie_name(request: Request) -> str:
    """A cookie knows no ports: its name does, so that two servers on one machine do not quarrel."""
    return f"sessionary_{request.url.port or 'web'}"


def csrf_token(cookie: str) -> str:
    """What a page of ours must say besides its cookie; only it can read it."""
    return hashlib.sha256(f"sessionary csrf {cookie}".encode()).hexdigest()


def require_scope(scope: Scope) -> Callable[[Request], Awaitable[Caller]]:
    """A dependency that lets in who may do this much; it marks its route as closed to others."""

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
    """The caller behind a bearer token or a cookie; anything else is refused alike."""
    context = context_of(request)
    header = request.headers.get("authorization")
    if header is not None:
        token = header[len(_BEARER) :].strip() if header.lower().startswith(_BEARER) else ""
        if token and len(token) <= _LONGEST:
            found = await context.store.read(credentials.find_token, token)
            if found is not None:
                return Caller(found.profile, found.scope, found.id)
        raise RequestRefused(401, "The token is not valid.")
    cookie = request.cookies.get(cookie_name(request))
    if not cookie or len(cookie) > _LONGEST:
        raise RequestRefused(401, "A token or a login is needed.")
    login = await context.store.read(credentials.find_login, cookie, now=context.clock.now())
    if login is None:
        raise RequestRefused(401, "The login is over.")
    if request.method not in SAFE:
        said = request.headers.get(CSRF_HEADER, "").encode()
        if not hmac.compare_digest(said, csrf_token(cookie).encode()):
            raise RequestRefused(403, f"The header {CSRF_HEADER} is missing or wrong.")
    return Caller(login.profile, Scope.ADMIN, login.id, is_browser=True)


def idempotency_key(request: Request) -> str | None:
    """The request's idempotency key, or None; one that is not as the description says is refused."""
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
    """Whether a caller's token or login goes on."""
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
