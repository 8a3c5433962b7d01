"""The only module of this channel that touches the wire: one address, no redirects, bounded."""

import asyncio
import http.client
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

from sessionary.errors import NotAllowed, RetryLater, SessionaryError, Unreachable

SECONDS = 20.0
_MOST_ANSWER = 64 * 1024
_TOO_MANY, _UNAVAILABLE = 429, 503
_REFUSED = (401, 403)


async def post(url: str, headers: Mapping[str, str], body: bytes) -> None:
    """Post a body; an error says whether it can have arrived."""
    await asyncio.to_thread(_post, url, headers, body)


def _post(url: str, headers: Mapping[str, str], body: bytes) -> None:
    where = urlsplit(url)
    connection = _connect(url)
    try:
        try:
            connection.connect()
        except OSError as error:
            # Nothing was sent: when to try again is for the caller to say.
            raise RetryLater(f"{where.hostname} cannot be reached: {error}.", after=0.0) from error
        path = f"{where.path or '/'}{'?' if where.query else ''}{where.query}"
        try:
            connection.request("POST", path, body, dict(headers))
            answer = connection.getresponse()
            answer.read(_MOST_ANSWER)
        except (OSError, http.client.HTTPException) as error:
            said = f"{where.hostname} did not answer: {error!r}."
            raise SessionaryError(said, committed="unknown") from error
    finally:
        connection.close()
    _judge(answer.status, answer.getheader("Retry-After"), str(where.hostname))


def _connect(url: str) -> http.client.HTTPConnection:
    where = urlsplit(url)
    host, port = where.hostname or "", where.port
    if where.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=SECONDS)
    context = ssl.create_default_context()
    return http.client.HTTPSConnection(host, port, timeout=SECONDS, context=context)


def _judge(status: int, retry_after: str | None, host: str) -> None:
    if 200 <= status < 300:
        return
    said = f"{host} answered {status}"
    if status in _REFUSED:
        raise NotAllowed(f"{said}: it does not know our signature. Compare the secrets.")
    if status in (_TOO_MANY, _UNAVAILABLE):
        wait = float(retry_after) if retry_after is not None and retry_after.isdecimal() else 0.0
        raise RetryLater(f"{said}.", after=min(wait, 86_400.0))
    if status >= 500:
        raise SessionaryError(f"{said}.", committed="unknown")
    raise Unreachable(f"{said}.", host)
