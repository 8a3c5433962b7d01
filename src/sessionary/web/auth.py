"""Authentication: tokens, logins, and the scope that a route needs."""

import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from sessionary.actions import credentials
from sessionary.errors import BadInput
from sessionary.model.access import Scope
from sessionary.store.database import Tx
from sessionary.web.connections import CONNECTION, LimitedConnection
from sessionary.web.context import Caller, WebContext
from sessionary.web.problems import SAFE, RequestRefused

CSRF_HEADER = "X-CSRF-Token"
IDEMPOTENCY_HEADER = "Idempotency-Key"
IDEMPOTENCY_KEY = re.compile("[A-Za-z0-9._-]+")
MAX_IDEMPOTENCY_KEY = 200
_BEARER = "bearer "
_MAX_SECRET = 200
T = TypeVar("T")


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
        _name_caller(request, found)
        if not found.scope.allows(scope):
            raise RequestRefused(403, f"This needs the scope {scope}; the token has {found.scope}.")
        if request.method not in SAFE:
            idempotency_key(request)
        return found

    caller.__dict__["scope"] = scope
    return caller


@dataclass(frozen=True, slots=True)
class Credential:
    """What a request shows: a program's token, or the cookie of a browser's login."""

    secret: str
    is_browser: bool = False


def credential_of(request: Request) -> Credential:
    """The bearer token or the cookie of a request; refuse a request without either."""
    header = request.headers.get("authorization")
    if header is not None:
        token = header[len(_BEARER) :].strip() if header.lower().startswith(_BEARER) else ""
        if token and len(token) <= _MAX_SECRET:
            return Credential(token)
        raise RequestRefused(401, "The token is not valid.")
    cookie = request.cookies.get(cookie_name(request))
    if not cookie or len(cookie) > _MAX_SECRET:
        raise RequestRefused(401, "A token or a login is needed.")
    return Credential(cookie, is_browser=True)


def find_caller(tx: Tx, shown: Credential, *, now: datetime) -> Caller:
    """The caller whose token or login is valid at this moment; refuse anything else."""
    if shown.is_browser:
        login = credentials.find_login(tx, shown.secret, now=now)
        if login is None:
            raise RequestRefused(401, "The login is over.")
        return Caller(login.profile, Scope.ADMIN, login.id, is_browser=True)
    token = credentials.find_token(tx, shown.secret)
    if token is None:
        raise RequestRefused(401, "The token is not valid.")
    return Caller(token.profile, token.scope, token.id, name=token.name)


async def identify(request: Request) -> Caller:
    """Find the caller by a bearer token or a cookie; refuse anything else."""
    context = context_of(request)
    shown = credential_of(request)
    caller = await context.store.read(find_caller, shown, now=context.clock.now())
    if caller.is_browser and request.method not in SAFE:
        given = request.headers.get(CSRF_HEADER, "").encode()
        if not hmac.compare_digest(given, csrf_token(shown.secret).encode()):
            raise RequestRefused(403, f"The header {CSRF_HEADER} is missing or wrong.")
    return caller


class CallerReads:
    """Reads for the caller of a request, whom the same transaction finds.

    One way to the store's threads and back instead of two: 0.1 ms of CPU. Only for requests that change nothing: a
    stranger must not begin a write transaction, nor have a body read. Nothing is kept from one request to the next, so
    a token that is revoked, by whatever process, is refused from the next read on.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._shown = credential_of(request)

    async def read(self, action: Callable[[Tx, Caller], T]) -> tuple[Caller, T]:
        """Find the caller and run an action for them, on one snapshot."""
        context = context_of(self._request)
        caller, found = await context.store.read(
            _read_for_caller, self._shown, action, now=context.clock.now()
        )
        _name_caller(self._request, caller)
        return caller, found


def _read_for_caller(
    tx: Tx, shown: Credential, action: Callable[[Tx, Caller], T], *, now: datetime
) -> tuple[Caller, T]:
    # Every known caller may read: that is the least scope.
    caller = find_caller(tx, shown, now=now)
    return caller, action(tx, caller)


def _name_caller(request: Request, caller: Caller) -> None:
    connection: LimitedConnection | None = request.scope.get(CONNECTION)
    if connection is not None:
        connection.name_caller(caller.id)


async def _caller_reads(request: Request) -> CallerReads:
    return CallerReads(request)


_caller_reads.__dict__["scope"] = Scope.READ


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


def has_access(tx: Tx, caller: Caller, *, now: datetime) -> bool:
    """Whether a caller's token or login is valid at this moment."""
    if caller.is_browser:
        return credentials.is_valid_login(tx, caller.id, now=now)
    return credentials.is_valid_token(tx, caller.id)


async def is_still_valid(context: WebContext, caller: Caller) -> bool:
    """Whether a caller's token or login is still valid."""
    return await context.store.read(has_access, caller, now=context.clock.now())


async def _context(request: Request) -> WebContext:
    """The context as a dependency. FastAPI runs one that is not a coroutine in a thread: 0.2 ms of CPU a request."""
    return context_of(request)


ContextDep = Annotated[WebContext, Depends(_context)]
read_access = Depends(require_scope(Scope.READ))
Reader = Annotated[Caller, read_access]
ReaderReads = Annotated[CallerReads, Depends(_caller_reads)]
Writer = Annotated[Caller, Depends(require_scope(Scope.WRITE))]
Admin = Annotated[Caller, Depends(require_scope(Scope.ADMIN))]
