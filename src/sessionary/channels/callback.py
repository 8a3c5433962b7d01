"""Posting to a program's address: one address, no redirects, bounded time and answer."""

import http.client
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

from sessionary.errors import BadInput, RetryLater, SessionaryError

POST_SECONDS = 20.0
MAX_WAIT_SECONDS = 86_400.0
_MAX_ANSWER = 64 * 1024


def address_to_call(url: str) -> str:
    """Return an http or https address as it is; raise ValueError if it is not one."""
    found = urlsplit(url)
    is_web = found.scheme in ("http", "https") and found.hostname and found.port != 0
    if not is_web or found.username is not None:
        raise ValueError(url)
    return url


def check_address(url: str, setting: str) -> str:
    """Return an http or https address as it is; raise `BadInput` if it is not one."""
    try:
        return address_to_call(url)
    except ValueError as error:
        raise BadInput(
            f"{setting} = {url!r} is no address to call back: write https://host/path."
        ) from error


def post(url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, float | None]:
    """Post a body; return the status, and the seconds of `Retry-After`. It blocks: call it in a thread.

    `RetryLater` of 0 seconds means that nothing was sent; any other error, that it may have been.
    """
    where = urlsplit(url)
    host = where.hostname or ""
    connection = (
        http.client.HTTPConnection(host, where.port, timeout=POST_SECONDS)
        if where.scheme == "http"
        else http.client.HTTPSConnection(
            host, where.port, timeout=POST_SECONDS, context=ssl.create_default_context()
        )
    )
    try:
        try:
            connection.connect()
        except OSError as error:
            raise RetryLater(f"{host} cannot be reached: {error}.", after=0.0) from error
        path = f"{where.path or '/'}{'?' if where.query else ''}{where.query}"
        try:
            connection.request("POST", path, body, dict(headers))
            answer = connection.getresponse()
            answer.read(_MAX_ANSWER)
        except (OSError, http.client.HTTPException) as error:
            raise SessionaryError(
                f"{host} did not answer: {error!r}.", committed="unknown"
            ) from error
    finally:
        connection.close()
    wait = answer.getheader("Retry-After")
    if wait is None or not wait.isdecimal():
        return answer.status, None
    return answer.status, min(float(wait), MAX_WAIT_SECONDS)
