"""The few pages that work without scripts."""

from html import escape

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from hansard.web.described import PUBLIC

router = APIRouter(include_in_schema=False)
_FRAME = (
    "<!doctype html>\n"
    '<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    '<meta name="viewport" content="width=device-width"></head>\n'
    "<body><main>{body}</main></body></html>\n"
)
_FRONT = (
    "<h1>Hansard</h1>"
    "<p>The server is running. The workbench is not part of this version yet; "
    "programs use the HTTP interface.</p>"
    '<p><a href="/login">Log in</a>, then read '
    '<a href="/api/v1/openapi.json">the description of the interface</a>.</p>'
)
_LOGIN = (
    "<h1>Log in to Hansard</h1>{said}"
    '<form method="post" action="/login">'
    '<label>Password <input type="password" name="password" autocomplete="current-password" '
    'required autofocus></label> <button type="submit">Log in</button></form>'
    "<p>Or open the link that the server printed when it started.</p>"
)


@router.get("/", openapi_extra=PUBLIC)
async def front() -> Response:
    """A plain page until the workbench is there."""
    return HTMLResponse(_FRAME.format(title="Hansard", body=_FRONT))


def login_page(said: str = "") -> str:
    """The form for the password, perhaps with what went wrong."""
    note = f'<p role="alert">{escape(said)}</p>' if said else ""
    return _FRAME.format(title="Log in to Hansard", body=_LOGIN.format(said=note))
