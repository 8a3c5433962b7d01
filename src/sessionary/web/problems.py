"""Errors as `application/problem+json`: one place, one form, nothing of the inside."""

import logging
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Literal, NotRequired

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response
from typing_extensions import TypedDict

from sessionary.errors import Ambiguous, BadInput, RetryLater, SessionaryError
from sessionary.model import codec
from sessionary.web import pages
from sessionary.web.context import HEADERS

MEDIA_TYPE = "application/problem+json"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_NAMES = {
    400: "bad-request",
    401: "not-authenticated",
    403: "not-allowed",
    404: "not-found",
    405: "method-not-allowed",
    408: "too-slow",
    413: "too-large",
    415: "wrong-media-type",
    421: "wrong-host",
    429: "too-many",
    503: "retry-later",
}
# The framework's own words, and what helps more.
_DETAILS = {
    "Not Found": "There is no such path; /api/v1/openapi.json lists them all.",
    "Method Not Allowed": "This path does not take that method; /api/v1/openapi.json says which.",
}
_UNREAD = (408, 413)
_SHOWN = 5
log = logging.getLogger(__name__)


class Problem(TypedDict):
    """An error: what happened, what is safe, what to do."""

    type: str
    """The kind of problem, for example `urn:sessionary:problem:not-found`. It does not change."""
    title: str
    """The kind in words."""
    status: int
    """The HTTP status."""
    detail: str
    """One line that says what happened and what to do."""
    committed: NotRequired[Literal["no", "unknown"]]
    """For a change: whether it was made. After `unknown`, repeat the request with the same key."""
    candidates: NotRequired[list[str]]
    """What an ambiguous name may mean."""


class RequestRefused(Exception):
    """A request that is refused before it reaches an action: the status says why."""

    def __init__(
        self, status: int, detail: str, *, after: float | None = None, close: bool = False
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.after = after
        self.close = close or status in _UNREAD


def problem(
    status: int, kind: str, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any
) -> Response:
    """A problem as a response."""
    body = {
        "type": f"urn:sessionary:problem:{kind}",
        "title": kind.replace("-", " ").capitalize(),
        "status": status,
        "detail": detail,
        **more,
    }
    return Response(
        codec.encode(body).encode("utf-8"), status, headers=headers, media_type=MEDIA_TYPE
    )


def refusal_response(error: RequestRefused, *, is_write: bool = False) -> Response:
    """A refusal as a response."""
    headers: dict[str, str] = {}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.close:
        headers["Connection"] = "close"  # what is still to come is not wanted
    if error.after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.after)))
    more: dict[str, Any] = {"committed": "no"} if is_write else {}
    return problem(error.status, _NAMES[error.status], error.detail, headers=headers, **more)


def raw_refusal_response(error: RequestRefused) -> bytes:
    """A refusal as the wire has it, for a connection that has no request to answer."""
    response = refusal_response(error)
    status = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n".encode()
    head = b"".join(name + b": " + value + b"\r\n" for name, value in response.raw_headers)
    return status + head + b"\r\n" + bytes(response.body)


def install(app: FastAPI) -> None:
    """Let every error of the application end here."""
    app.add_exception_handler(SessionaryError, _handle_sessionary_error)
    app.add_exception_handler(RequestRefused, _handle_refusal)
    app.add_exception_handler(HTTPException, _handle_http_exception)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    app.add_exception_handler(Exception, _handle_unexpected)


async def _handle_sessionary_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, SessionaryError)
    more: dict[str, Any] = {}
    headers: dict[str, str] = {}
    if _is_write(request):
        more["committed"] = error.committed
    if isinstance(error, Ambiguous):
        more["candidates"] = list(error.candidates)
    if isinstance(error, RetryLater):
        headers["Retry-After"] = str(max(1, math.ceil(error.after)))
    if error.http_status >= 500:
        log.warning("%s %s: %s", request.method, request.url.path, error)
    return problem(error.http_status, error.kind, str(error), headers=headers, **more)


async def _handle_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestRefused)
    return refusal_response(error, is_write=_is_write(request))


async def _handle_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404 and _wants_html(request):
        return HTMLResponse(pages.no_page(), 404)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(sorted(_methods(request.app, request.url.path)))
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=headers)
    kind = _NAMES.get(error.status_code, "error")
    more: dict[str, Any] = {"committed": "no"} if _is_write(request) else {}
    detail = _DETAILS.get(str(error.detail), str(error.detail))
    return problem(error.status_code, kind, detail, headers=headers, **more)


async def _handle_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [
        f"{'.'.join(str(place) for place in each['loc'])}: {each['msg']}"
        for each in error.errors()[:_SHOWN]
    ]
    more: dict[str, Any] = {"committed": "no"} if _is_write(request) else {}
    return problem(BadInput.http_status, BadInput.kind, "; ".join(found), **more)


async def _handle_unexpected(request: Request, error: Exception) -> Response:
    """What nobody foresaw: recorded here, and shown to nobody."""
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    more: dict[str, Any] = {"committed": "unknown"} if _is_write(request) else {}
    return problem(
        500, "error", "Something went wrong here; the log says what.", headers=HEADERS, **more
    )


def _methods(app: FastAPI, path: str) -> set[str]:
    """Every method that a path takes: the framework names only those of the first route it finds."""
    found = {"OPTIONS"}
    for route in iter_route_contexts(app.routes):
        if route.methods and route.path_regex.match(path):
            found |= route.methods
    return found


def _wants_html(request: Request) -> bool:
    """Whether someone typed an address, and no program asked."""
    accepted = request.headers.get("accept", "")
    return request.method == "GET" and "text/html" in accepted


def _is_write(request: Request) -> bool:
    return request.method not in SAFE
