"""Who may use the MCP server over HTTP: programs with a token of `sessionary tokens add`."""

import json
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sessionary.actions import credentials
from sessionary.actions.credentials import Scope as TokenScope
from sessionary.actions.credentials import Token
from sessionary.errors import NotAllowed, SessionaryError
from sessionary.store.database import Store

_BEARER = "bearer "
_LONGEST = 200


class TokenGuard:
    """Lets a request pass that has a good token of the profile that is served."""

    def __init__(self, app: ASGIApp, store: Store, *, profile: str) -> None:
        self._app = app
        self._store = store
        self._profile = profile

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            token = await self._token(Headers(scope=scope))
        except SessionaryError as error:
            await _refusal(error.http_status, str(error))(scope, receive, send)
            return
        if token is None:
            told = "A token is needed: Authorization: Bearer TOKEN, of `sessionary tokens add`."
            await _refusal(401, told)(scope, receive, send)
        elif token.profile != self._profile:
            await _refusal(403, "The token is of another profile.")(scope, receive, send)
        else:
            # The library lets a session go on only with the token that began it.
            known = AccessToken(token="", client_id=token.id, scopes=[token.scope])
            await self._app({**scope, "user": AuthenticatedUser(known)}, receive, send)

    async def _token(self, headers: Headers) -> Token | None:
        header = headers.get("authorization", "")
        secret = header[len(_BEARER) :].strip() if header.lower().startswith(_BEARER) else ""
        if not secret or len(secret) > _LONGEST:
            return None
        return await self._store.read(credentials.find_token, secret)


def check_may_write(request: Any) -> None:
    """Refuse a write of a caller over HTTP whose token only reads; `request` is the HTTP request."""
    user = None if request is None else request.scope.get("user")
    scopes = user.scopes if isinstance(user, AuthenticatedUser) else []
    if not any(TokenScope(each).allows(TokenScope.WRITE) for each in scopes):
        raise NotAllowed(
            "This tool needs a token with the scope write (sessionary tokens add --scope write); "
            "nothing was written."
        )


def _refusal(status: int, detail: str) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": detail}}
    return Response(json.dumps(body), status, headers=headers, media_type="application/json")
