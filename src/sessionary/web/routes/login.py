"""Logging in with a browser: by a link that works once, or by a password, with limits for wrong ones."""

import asyncio
import ipaddress
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, TypeVar
from urllib.parse import parse_qs

from fastapi import Path, Query, Request
from msgspec import Meta, Struct
from starlette.responses import HTMLResponse, RedirectResponse, Response
from typing_extensions import TypedDict

from sessionary.actions import credentials
from sessionary.errors import Conflict, RetryLater
from sessionary.model.access import Login, Scope
from sessionary.model.view import time_text
from sessionary.store.database import Tx
from sessionary.web.auth import Admin, ContextDep, Reader, cookie_name, csrf_token
from sessionary.web.context import PREFIX, Caller, WebContext
from sessionary.web.middleware import CLIENT
from sessionary.web.openapi import PUBLIC
from sessionary.web.pages import login_page, own_path
from sessionary.web.problems import RequestRefused, refusal_response
from sessionary.web.requests import read_raw
from sessionary.web.responses import StoredAnswer, answer, change, checked_name, json_response
from sessionary.web.routing import FromBody, JsonAnswer, api_router

# Guesses of one address, and of all, that may wait for their answer at once.
MAX_OF_ADDRESS = 2
MAX_WAITING = 32
MAX_ADDRESSES = 10_000
FORGOTTEN_AFTER = timedelta(days=1)
OTHER_WAY = "on the server's machine `sessionary password link` makes a link that lets a browser in"
router = api_router(prefix=PREFIX, tags=["login"])
pages = api_router(include_in_schema=False)
SECRET_BYTES = 32
SALT_BYTES = 16
_WRONG = "The password is wrong."
_KEPT_HEADERS = ("retry-after", "connection")
R = TypeVar("R", bound=Response)


class PasswordLogin(Struct, kw_only=True, forbid_unknown_fields=True):
    """The password of the server."""

    password: Annotated[str, Meta(description="The password.")]


class PasswordChange(Struct, kw_only=True, forbid_unknown_fields=True):
    """A new password, and the old one if there is one."""

    new: Annotated[str | None, Meta(description="The new password; null removes it.")]
    old: Annotated[str | None, Meta(description="The password until now.")] = None


class CsrfToken(TypedDict):
    """What a browser sends with every change."""

    csrf: str
    """The value of the header `X-CSRF-Token`."""


class LoggedOut(TypedDict):
    """Nothing more to say."""


class CallerInfo(TypedDict):
    """Who is asking."""

    profile: str
    scope: Scope
    """What the caller may do."""
    csrf: str | None
    """For a browser: the value of the header `X-CSRF-Token`."""


class LoginInfo(TypedDict):
    """A browser that is logged in."""

    id: str
    began_at: str
    expires_at: str
    this: bool
    """Whether it is the browser that is asking."""


class LoginPage(TypedDict):
    """The browsers that are logged in."""

    items: list[LoginInfo]
    next: None


class EndedLogin(TypedDict):
    """A browser that was logged out."""

    id: str


class PasswordState(TypedDict):
    """Whether there is a password."""

    password: bool


@dataclass(frozen=True, slots=True)
class _Record:
    wrong: int
    at: datetime
    locked_until: datetime


class LoginAttempts:
    """What this server knows about who tries passwords. It forgets at its end.

    The store counts the wrong passwords of all addresses together, for guesses from many places.
    That count locks out only strangers: not this machine, and not an address that logged in before.
    """

    def __init__(self) -> None:
        self._records: OrderedDict[str, _Record] = OrderedDict()
        self._trusted: OrderedDict[str, None] = OrderedDict()
        self._waiting: list[str] = []
        self._one_at_a_time = asyncio.Lock()

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """Wait for the right to have one password compared, which takes long on purpose."""
        if self._waiting.count(address) >= MAX_OF_ADDRESS or len(self._waiting) >= MAX_WAITING:
            raise RequestRefused(
                429, f"Too many passwords are being tried at once; {OTHER_WAY}.", after=1
            )
        self._waiting.append(address)
        try:
            async with self._one_at_a_time:
                yield
        finally:
            self._waiting.remove(address)

    def check(self, address: str, *, now: datetime) -> None:
        """Refuse a guess of an address that has guessed wrong too often."""
        record = self._records.get(address)
        if record is not None and now < record.locked_until:
            wait = (record.locked_until - now).total_seconds()
            raise RequestRefused(
                429,
                f"Too many wrong passwords from this address; try again in {wait:.0f} s. "
                f"Or: {OTHER_WAY}.",
                after=wait,
            )

    def note(self, address: str, *, right: bool, now: datetime) -> None:
        """Count a guess; each wrong one after the fifth locks the address twice as long."""
        before = self._records.pop(address, None)
        if right:
            self.trust(address)
            return
        is_recent = before is not None and now - before.at < FORGOTTEN_AFTER
        wrong = 1 + (before.wrong if before is not None and is_recent else 0)
        self._records[address] = _Record(wrong, now, now + credentials.lock_duration(wrong))
        while len(self._records) > MAX_ADDRESSES:
            self._records.popitem(last=False)

    def trust(self, address: str) -> None:
        """Someone logged in from there."""
        self._trusted[address] = None
        self._trusted.move_to_end(address)
        while len(self._trusted) > MAX_ADDRESSES:
            self._trusted.popitem(last=False)

    def is_stranger(self, address: str) -> bool:
        """Whether nobody is known to have logged in from there, and it is another machine."""
        try:
            is_local = ipaddress.ip_address(address).is_loopback
        except ValueError:  # a socket in the file system
            is_local = True
        return not is_local and address not in self._trusted


async def offer_link(context: WebContext, address: str) -> str:
    """A link that lets one browser in, once, within a minute."""
    code = context.rng(SECRET_BYTES).hex()
    await context.store.write(
        credentials.add_login_link, code, profile=context.profile, moment=context.moment()
    )
    return f"{address}/login?code={code}"


@pages.get("/login", openapi_extra=PUBLIC)
async def log_in_by_link(
    request: Request,
    context: ContextDep,
    code: str = "",
    place: Annotated[str, Query(alias="next")] = "/",
) -> Response:
    """Use a link up, or ask for the password."""
    if not code:
        return HTMLResponse(login_page(next_path=place))
    cookie, moment = context.rng(SECRET_BYTES).hex(), context.moment()
    found = None
    # Anyone can ask for this page: only a valid code may cost a write.
    if await context.store.read(credentials.is_login_link, code[:200], now=moment.now):
        found = await context.store.write(
            credentials.log_in_by_link, code[:200], cookie, moment=moment
        )
    if found is None:
        notice = (
            "That link was used or is too old. Make a new one on the server's machine: "
            "sessionary password link"
        )
        return HTMLResponse(login_page(notice), 403)
    _login_attempts(request).trust(_client(request))
    return _set_login_cookie(request, RedirectResponse("/", 303), cookie, found)


@pages.post("/login", openapi_extra=PUBLIC)
async def log_in_by_form(request: Request, context: ContextDep) -> Response:
    """The password from a page without scripts."""
    form = parse_qs((await read_raw(request)).decode("utf-8", "replace"))
    password, place = form.get("password", [""])[0], form.get("next", ["/"])[0]
    try:
        cookie, found = await _log_in(request, context, password)
    except RequestRefused as error:
        headers = refusal_response(error).headers
        kept = {name: headers[name] for name in _KEPT_HEADERS if name in headers}
        return HTMLResponse(login_page(error.detail, place), error.status, headers=kept)
    return _set_login_cookie(request, RedirectResponse(own_path(place), 303), cookie, found)


@router.post("/login", openapi_extra=PUBLIC)
async def log_in(
    request: Request, context: ContextDep, body: FromBody[PasswordLogin]
) -> JsonAnswer[CsrfToken]:
    """Log in with the password.

    Sets the login cookie, and returns the CSRF token to send with every change.
    """
    cookie, found = await _log_in(request, context, body.password)
    response = json_response(CsrfToken(csrf=csrf_token(cookie)))
    return _set_login_cookie(request, response, cookie, found)


@router.post("/logout")
async def log_out(request: Request, context: ContextDep, caller: Reader) -> JsonAnswer[LoggedOut]:
    """Log out.

    Ends the login of this browser. A token stays valid.
    """
    if caller.is_browser:
        await context.store.write(
            credentials.end_login, caller.id, profile=caller.profile, moment=context.moment()
        )
    response = json_response(LoggedOut())
    response.delete_cookie(cookie_name(request), path="/")
    return response


@router.get("/me")
async def get_me(request: Request, caller: Reader) -> JsonAnswer[CallerInfo]:
    """Get the caller.

    The profile and the scope of the token or login, and for a browser the CSRF token to send with every change.
    """
    cookie = request.cookies.get(cookie_name(request), "")
    csrf = csrf_token(cookie) if caller.is_browser else None
    return json_response(CallerInfo(profile=caller.profile, scope=caller.scope, csrf=csrf))


@router.get("/logins")
async def list_logins(context: ContextDep, caller: Admin) -> JsonAnswer[LoginPage]:
    """List logins.

    The browsers that are logged in.
    """
    found = await context.store.read(
        credentials.list_logins, profile=caller.profile, now=context.clock.now()
    )
    items: list[LoginInfo] = [
        {
            "id": each.id,
            "began_at": time_text(each.began_at),
            "expires_at": time_text(each.expires_at),
            "this": each.id == caller.id,
        }
        for each in found
    ]
    return json_response(LoginPage(items=items, next=None))


@router.delete("/logins/{login_id}")
async def end_login(
    login_id: Annotated[str, Path(description="The login's id.")],
    request: Request,
    context: ContextDep,
    caller: Admin,
) -> JsonAnswer[EndedLogin]:
    """Log a browser out.

    Its event streams are closed.
    """
    known, moment = checked_name(login_id, "login"), context.moment()

    def apply(tx: Tx) -> StoredAnswer[EndedLogin]:
        credentials.end_login(tx, known, profile=caller.profile, moment=moment)
        return answer(EndedLogin(id=known))

    return await change(request, caller, apply)


@router.put("/password")
async def set_password(
    request: Request, context: ContextDep, caller: Admin, body: FromBody[PasswordChange]
) -> JsonAnswer[PasswordState]:
    """Set or remove the password.

    Every other browser is logged out.
    """
    if context.settings.password_hash is not None and caller.profile == context.profile:
        raise Conflict("The password stands in the configuration; change it there.")
    kept = await context.store.read(credentials.get_password_hash, profile=caller.profile)
    if kept is not None:
        await _check(request, context, body.old or "", kept, profile=caller.profile, caller=caller)
    hashed = None
    if body.new is not None:
        salt = context.rng(SALT_BYTES)
        hashed = await asyncio.to_thread(credentials.hash_password, body.new, salt)
    but = caller.id if caller.is_browser else ""
    await context.store.write(
        credentials.set_password, hashed, profile=caller.profile, moment=context.moment(), but=but
    )
    return json_response(PasswordState(password=hashed is not None))


async def has_password(context: WebContext) -> bool:
    """Whether a password was set, in the configuration or in the store."""
    return await _password(context) is not None


async def _password(context: WebContext) -> str | None:
    configured = context.settings.password_hash
    if configured is not None:
        return configured.reveal()
    return await context.store.read(credentials.get_password_hash, profile=context.profile)


async def _log_in(request: Request, context: WebContext, password: str) -> tuple[str, Login]:
    kept = await _password(context)
    if kept is None:
        raise RequestRefused(
            403,
            "No password is set; use the link that the server prints at its start, or make a new one "
            "on its machine: sessionary password link",
        )
    await _check(request, context, password, kept, profile=context.profile)
    cookie = context.rng(SECRET_BYTES).hex()
    found = await context.store.write(
        credentials.log_in, cookie, profile=context.profile, moment=context.moment()
    )
    return cookie, found


async def _check(
    request: Request,
    context: WebContext,
    password: str,
    kept: str,
    *,
    profile: str,
    caller: Caller | None = None,
) -> None:
    """Compare a password, one guess at a time; each guess is counted before its answer."""
    attempts, address = _login_attempts(request), _client(request)
    attempts.check(address, now=context.clock.now())
    async with attempts.turn(address):
        now = context.clock.now()
        attempts.check(address, now=now)
        if caller is None and attempts.is_stranger(address):
            try:
                await context.store.read(credentials.check_login_guard, profile=profile, now=now)
            except RetryLater as error:
                raise RequestRefused(429, f"{error} Or: {OTHER_WAY}.", after=error.after) from error
        right = await asyncio.to_thread(credentials.is_password, password, kept)
        attempts.note(address, right=right, now=now)
        await context.store.write(credentials.count_guess, profile=profile, right=right, now=now)
    if not right:
        raise RequestRefused(401, _WRONG)


def _login_attempts(request: Request) -> LoginAttempts:
    found: LoginAttempts = request.app.state.login_attempts
    return found


def _client(request: Request) -> str:
    """The address that counts the guesses of this request."""
    return str(request.scope.get(CLIENT, ""))


def _set_login_cookie(request: Request, response: R, cookie: str, login: Login) -> R:
    response.set_cookie(
        cookie_name(request),
        cookie,
        max_age=int((login.expires_at - login.began_at).total_seconds()),
        path="/",
        secure=str(request.scope.get("sessionary.origin", "")).startswith("https:"),
        httponly=True,
        samesite="strict",
    )
    return response
