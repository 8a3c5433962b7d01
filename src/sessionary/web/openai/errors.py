"""Errors as OpenAI's clients expect them: `{"error": {"message", "type", "param", "code"}}`."""

import math
import re
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sessionary.errors import RetryLater, SessionaryError
from sessionary.model import codec
from sessionary.web.context import HEADERS
from sessionary.web.problems import MEDIA_TYPE
from sessionary.web.routes import traces
from sessionary.web.routing import JSON

PREFIX = "/v1/"
# These are not OpenAI's.
_OTHERS = frozenset({traces.PATH, traces.LOGS_PATH})
# OpenAI's clients know these types and codes.
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}
_CODES = {
    "not-authenticated": "invalid_api_key",
    "not-allowed": "insufficient_permissions",
    "budget-used-up": "insufficient_quota",
    "too-many": "rate_limit_exceeded",
    "retry-later": "server_busy",
    "store-unavailable": "server_unavailable",
    "bad-input": "invalid_value",
    "bad-request": "invalid_value",
    "session-busy": "conversation_locked",
    "error": "server_error",
}
_PARAMS = {"response-in-progress": "previous_response_id"}
# Nobody reads it, but the metrics count it.
_CLIENT_GONE = 499
_QUERY = re.compile(r"query\.(\w+): ")
_DETAILS = {
    404: "OpenAI's interface has no such path here.",
    405: "OpenAI's interface does not take that method for this path here.",
}
_NO_PATH = "There is no such path"
_STATUSES = {"budget-used-up": 429, "bad-input": 400}


class ApiError(Exception):
    """An error with what OpenAI's clients read: a status, a message, a type, a code, and the parameter that is wrong.

    `retry` tells the client whether to send the request again by itself; None leaves that to the client.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        after: float | None = None,
        retry: bool | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.after = after
        self.retry = retry
        self.more = dict(more or {})

    @property
    def body(self) -> dict[str, Any]:
        """The error as JSON, also for an event in a stream that has begun."""
        error = {
            "message": str(self),
            "type": error_type(self.status, self.code),
            "param": self.param,
            "code": self.code,
        }
        return {"error": error | self.more}

    def response(self) -> Response:
        """The error as a response."""
        headers = {"Cache-Control": "no-store"}
        if self.after is not None:
            headers["Retry-After"] = str(max(1, math.ceil(self.after)))
        if self.retry is not None:
            headers["X-Should-Retry"] = "true" if self.retry else "false"
        return Response(
            codec.encode(self.body).encode(), self.status, headers=headers, media_type=JSON
        )


class ClientGone(Exception):
    """The client has disconnected: nobody reads the answer."""


def error_type(status: int, code: str | None) -> str:
    """The type that OpenAI's interface has for a status."""
    if code == "insufficient_quota":
        return code
    if status >= 500:
        return "server_error"
    return _TYPES.get(status, "invalid_request_error")


def api_error(error: SessionaryError) -> ApiError:
    """Return one of our errors as OpenAI's clients expect it."""
    code = _CODES.get(error.kind, error.kind.replace("-", "_"))
    status = _STATUSES.get(error.kind, _status(error.http_status))
    return ApiError(
        status,
        str(error),
        code=code,
        param=_PARAMS.get(error.kind),
        after=error.after if isinstance(error, RetryLater) else None,
        retry=False if status == 429 else None,
    )


def is_openai(path: str) -> bool:
    """Whether a path belongs to OpenAI's interface."""
    return path.startswith(PREFIX) and path not in _OTHERS


def install(app: FastAPI) -> None:
    """Let the errors of these routes end here."""
    app.add_exception_handler(ApiError, _handle)
    app.add_exception_handler(ClientGone, _handle_gone)


async def _handle_gone(_: Request, __: Exception) -> Response:
    return Response(status_code=_CLIENT_GONE)


async def _handle(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


def _status(status: int) -> int:
    # OpenAI has no 422.
    return 400 if status == 422 else status


class OpenAIErrors:
    """Turns the problems of our other layers, such as a refused token or body, into OpenAI's form on its paths."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_openai(scope["path"]):
            await self._app(scope, receive, send)
            return
        held: Message | None = None
        body = b""

        async def convert(message: Message) -> None:
            nonlocal held, body
            if message["type"] == "http.response.start":
                if Headers(raw=message["headers"]).get("content-type") == MEDIA_TYPE:
                    held = message
                    return
            elif held is not None and message["type"] == "http.response.body":
                body += message.get("body", b"")
                if message.get("more_body"):
                    return
                for each in _converted(held, body):
                    await send(each)
                return
            await send(message)

        await self._app(scope, receive, convert)


def _converted(start: Message, body: bytes) -> list[Message]:
    problem = codec.decode(body)
    kind = str(problem["type"]).rpartition(":")[2]
    status = _STATUSES.get(kind, _status(start["status"]))
    code = _CODES.get(kind, kind.replace("-", "_"))
    # Of several parameters in the query that are wrong, the first is named.
    wrong = _QUERY.match(problem["detail"])
    detail: str = problem["detail"]
    if status == 405 or detail.startswith(_NO_PATH):
        detail = _DETAILS[status]
    detail = detail.removeprefix("query.")
    error = ApiError(status, detail, code=code, param=None if wrong is None else wrong[1])
    made = codec.encode(error.body).encode()
    headers = MutableHeaders(raw=list(start["headers"]))
    headers["content-type"] = JSON
    headers["content-length"] = str(len(made))
    for name, value in HEADERS.items():
        headers.setdefault(name, value)
    return [
        {**start, "status": status, "headers": headers.raw},
        {"type": "http.response.body", "body": made},
    ]
