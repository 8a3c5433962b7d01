"""The few pages that work without scripts."""

from html import escape

_FRAME = (
    "<!doctype html>\n"
    '<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    '<link rel="icon" href="/icon.svg"><link rel="stylesheet" href="/login.css"></head>\n'
    "<body><main>{body}</main></body></html>\n"
)
_NOT_BUILT = (
    "<h1>Sessionary</h1>"
    "<p>The server is running, but this checkout has no workbench yet: "
    "run <code>./dev setup</code> and start it again.</p>"
    '<p>Programs use the HTTP interface: <a href="/login">log in</a>, then read '
    '<a href="/api/v1/openapi.json">its description</a>.</p>'
)
_LOGIN = (
    "<h1>Log in to Sessionary</h1>{notice}"
    '<form method="post" action="/login">'
    '<input type="hidden" name="next" value="{next_path}">'
    '<label>Password <input type="password" name="password" autocomplete="current-password" '
    'required autofocus></label> <button type="submit">Log in</button></form>'
    "<p>Or open the link that the server printed when it started.</p>"
)


def not_built() -> str:
    """Shown instead of the workbench while it is not built."""
    return _FRAME.format(title="Sessionary", body=_NOT_BUILT)


def no_page() -> str:
    """Shown for an address that does not exist."""
    body = '<h1>There is no such page.</h1><p><a href="/">Go to your conversations</a></p>'
    return _FRAME.format(title="No such page", body=body)


def login_page(notice: str = "", next_path: str = "/") -> str:
    """The form for the password, perhaps with a notice; a login leads to `next_path`."""
    note = f'<p role="alert">{escape(notice)}</p>' if notice else ""
    body = _LOGIN.format(notice=note, next_path=escape(own_path(next_path)))
    return _FRAME.format(title="Log in to Sessionary", body=body)


def own_path(text: str) -> str:
    """A path of ours; an address of anyone else becomes the front page."""
    is_ours = text.startswith("/") and text[1:2] not in ("/", "\\") and text.isprintable()
    return text if is_ours and text.isascii() and len(text) < 2000 else "/"
