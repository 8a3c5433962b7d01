"""Coming in with a browser: by a link that works once, or by a password."""

import asyncio
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from sessionary.actions import logins
from sessionary.actions.logins import Login
from sessionary.actions.requests import StoredResponse
from sessionary.errors import Conflict, RetryLater
from sessionary.model.view import time_text
from sessionary.store.database import Tx
from sessionary.web.answers import answer, change, items, json_response, name
from sessionary.web.auth import Admin, EngineContext, Reader, cookie_name, csrf_of
from sessionary.web.bodies import Password, PasswordChange, read_body, read_raw
from sessionary.web.described import PUBLIC, takes
from sessionary.web.gate import CLIENT
from sessionary.web.guesses import OTHER_WAY, Guesses
from sessionary.web.pages import login_page, own_place
from sessionary.web.parts import PREFIX, Caller, WebContext
from sessionary.web.problems import Refusal, refusal

router = APIRouter(prefix=PREFIX, tags=["login"])
pages = APIRouter(include_in_schema=False)
SECRET_BYTES = 32
SALT_BYTES = 16
_WRONG = "The password is wrong."
_KEPT_HEADERS = ("retry-after", "connection")


async def offer_link(parts: WebContext, address: str) -> str:
    """A link that lets one browser in, once, within a minute."""
    code = parts.rng(SECRET_BYTES).hex()
    await parts.store.write(logins.offer_link, code, profile=parts.profile, moment=parts.moment())
    return f"{address}/login?code={code}"


@pages.get("/login", openapi_extra=PUBLIC)
async def enter_by_link(
    request: Request,
    parts: EngineContext,
    code: str = "",
    place: Annotated[str, Query(alias="next")] = "/",
) -> Response:
    """Use a link up, or ask for the password."""
    if not code:
        return HTMLResponse(login_page(place=place))
    cookie = parts.rng(SECRET_BYTES).hex()
    found = await parts.store.write(logins.enter_by_link, code[:200], cookie, moment=parts.moment())
    if found is None:
        said = (
            "That link was used or is too old. Make a new one on the server's machine: "
            "sessionary password link"
        )
        return HTMLResponse(login_page(said), 403)
    _guesses(request).trust(_client(request))
    return _let_in(request, RedirectResponse("/", 303), cookie, found)


@pages.post("/login", openapi_extra=PUBLIC)
async def enter_by_form(request: Request, parts: EngineContext) -> Response:
    """The password from a page without scripts."""
    said = parse_qs((await read_raw(request)).decode("utf-8", "replace"))
    password, place = said.get("password", [""])[0], said.get("next", ["/"])[0]
    try:
        cookie, found = await _enter(request, parts, password)
    except Refusal as error:
        headers = refusal(error).headers
        kept = {name: headers[name] for name in _KEPT_HEADERS if name in headers}
        return HTMLResponse(login_page(error.detail, place), error.status, headers=kept)
    return _let_in(request, RedirectResponse(own_place(place), 303), cookie, found)


@router.post("/login", openapi_extra=PUBLIC | takes(Password))
async def enter_by_password(request: Request, parts: EngineContext) -> Response:
    """Come in with the password: sets the cookie, and says what to send with every change."""
    body, _ = await read_body(request, Password)
    cookie, found = await _enter(request, parts, body.password)
    return _let_in(request, json_response({"csrf": csrf_of(cookie)}), cookie, found)


@router.post("/logout")
async def leave(request: Request, parts: EngineContext, caller: Reader) -> Response:
    """Log this browser out."""
    if caller.is_browser:
        await parts.store.write(
            logins.end, caller.id, profile=caller.profile, moment=parts.moment()
        )
    response = json_response({})
    response.delete_cookie(cookie_name(request), path="/")
    return response


@router.get("/me")
async def me(request: Request, caller: Reader) -> Response:
    """Who asks, and for a browser what to send with every change."""
    cookie = request.cookies.get(cookie_name(request), "")
    csrf = csrf_of(cookie) if caller.is_browser else None
    return json_response({"profile": caller.profile, "scope": caller.scope, "csrf": csrf})


@router.get("/logins")
async def list_logins(parts: EngineContext, caller: Admin) -> Response:
    """The browsers that are in."""
    found = await parts.store.read(logins.listing, profile=caller.profile, now=parts.clock.now())
    return items(
        {
            "id": each.id,
            "began_at": time_text(each.began_at),
            "expires_at": time_text(each.expires_at),
            "this": each.id == caller.id,
        }
        for each in found
    )


@router.delete("/logins/{login_id}")
async def end_login(
    login_id: str, request: Request, parts: EngineContext, caller: Admin
) -> Response:
    """Log a browser out; its streams are closed."""
    known, moment = name(login_id, "login"), parts.moment()

    def act(tx: Tx, /) -> StoredResponse:
        logins.end(tx, known, profile=caller.profile, moment=moment)
        return answer({"id": known})

    return await change(request, caller, b"", act)


@router.put("/password", openapi_extra=takes(PasswordChange))
async def set_password(request: Request, parts: EngineContext, caller: Admin) -> Response:
    """Set the password or take it away; every other browser is logged out."""
    body, _ = await read_body(request, PasswordChange)
    if parts.settings.password_hash is not None and caller.profile == parts.profile:
        raise Conflict("The password stands in the configuration; change it there.")
    kept = await parts.store.read(logins.password_of, profile=caller.profile)
    if kept is not None:
        await _check(request, parts, body.old or "", kept, profile=caller.profile, caller=caller)
    hashed = None
    if body.new is not None:
        salt = parts.rng(SALT_BYTES)
        hashed = await asyncio.to_thread(logins.hash_password, body.new, salt)
    but = caller.id if caller.is_browser else ""
    await parts.store.write(
        logins.set_password, hashed, profile=caller.profile, moment=parts.moment(), but=but
    )
    return json_response({"password": hashed is not None})


async def has_password(parts: WebContext) -> bool:
    """Whether a password was set, in the configuration or in the store."""
    return await _password(parts) is not None


async def _password(parts: WebContext) -> str | None:
    configured = parts.settings.password_hash
    return configured or await parts.store.read(logins.password_of, profile=parts.profile)


async def _enter(request: Request, parts: WebContext, password: str) -> tuple[str, Login]:
    kept = await _password(parts)
    if kept is None:
        raise Refusal(
            403,
            "No password is set; use the link that the server prints at its start, or make a new one "
            "on its machine: sessionary password link",
        )
    await _check(request, parts, password, kept, profile=parts.profile)
    cookie = parts.rng(SECRET_BYTES).hex()
    found = await parts.store.write(
        logins.enter, cookie, profile=parts.profile, moment=parts.moment()
    )
    return cookie, found


async def _check(
    request: Request,
    parts: WebContext,
    password: str,
    kept: str,
    *,
    profile: str,
    caller: Caller | None = None,
) -> None:
    """Compare a password, one guess at a time; each guess is counted before its answer."""
    guesses, address = _guesses(request), _client(request)
    guesses.check(address, now=parts.clock.now())
    async with guesses.turn(address):
        now = parts.clock.now()
        guesses.check(address, now=now)
        if caller is None and guesses.is_stranger(address):
            try:
                await parts.store.read(logins.check_guard, profile=profile, now=now)
            except RetryLater as error:
                raise Refusal(429, f"{error} Or: {OTHER_WAY}.", after=error.after) from error
        right = await asyncio.to_thread(logins.password_fits, password, kept)
        guesses.note(address, right=right, now=now)
        await parts.store.write(logins.count_guess, profile=profile, right=right, now=now)
    if not right:
        raise Refusal(401, _WRONG)


def _guesses(request: Request) -> Guesses:
    found: Guesses = request.app.state.guesses
    return found


def _client(request: Request) -> str:
    """The address that counts the guesses of this request."""
    return str(request.scope.get(CLIENT, ""))


def _let_in(request: Request, response: Response, cookie: str, login: Login) -> Response:
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
