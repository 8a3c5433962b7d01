"""The one place that calls a program back: one address, no redirects, bounded time and answer."""

import http.client
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from sessionary.channels.api.outbound import Call
from sessionary.errors import BadInput, RetryLater, Unreachable

SECONDS = 20.0
MOST_ANSWER = 64 * 1024
_SCHEMES = {"http": 80, "https": 443}
_GONE = (404, 410)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a program wants its answers: from the configuration, never from a request."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Read an http or https address."""
        try:
            found = urlsplit(url)
            port = found.port
        except ValueError as error:
            raise BadInput(f"{url!r} is no address to call back.") from error
        if found.scheme not in _SCHEMES or not found.hostname or found.username is not None:
            raise BadInput(f"{url!r} is no address to call back: write https://host/path.")
        path = f"{found.path or '/'}{'?' if found.query else ''}{found.query}"
        return cls(found.scheme, found.hostname, port or _SCHEMES[found.scheme], path)


def post(address: Address, call: Call) -> int:
    """Send a call and read its answer; the status. What failed before an answer came is unclear."""
    connection = _connect(address)
    try:
        connection.request("POST", address.path, call.body, call.headers)
        answer = connection.getresponse()
        answer.read(MOST_ANSWER)
    finally:
        connection.close()
    return _judged(answer.status, answer.getheader("Retry-After"), address)


def _connect(address: Address) -> http.client.HTTPConnection:
    if address.scheme == "http":
        return http.client.HTTPConnection(address.host, address.port, timeout=SECONDS)
    context = ssl.create_default_context()
    return http.client.HTTPSConnection(address.host, address.port, timeout=SECONDS, context=context)


def _judged(status: int, retry_after: str | None, address: Address) -> int:
    if 200 <= status < 300:
        return status
    said = f"{address.host} answered {status}"
    if status in _GONE:
        raise Unreachable(said, address.host)
    wait = float(retry_after) if retry_after is not None and retry_after.isdecimal() else 30.0
    raise RetryLater(said, after=min(wait, 86_400.0))
