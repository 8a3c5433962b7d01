"""The wire to signal-cli's daemon: JSON-RPC, over a socket or over HTTP."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from sessionary.channels.signal import outbound
from sessionary.errors import BadInput, RetryLater, SessionaryError

CALL_SECONDS = 40.0
AWAY_SECONDS = 5.0
Json = dict[str, Any]


class Daemon(Protocol):
    """A running signal-cli. Errors are ours already: see `outbound.error_of`."""

    async def call(self, method: str, params: Mapping[str, Any], *, chat: str = "") -> Any:
        """Ask for something; its result."""

    def notifications(self) -> AsyncGenerator[Json, None]:
        """Messages as they come, until the connection ends: then `RetryLater`.

        Asking for the next one says that the last one is durable.
        """

    async def close(self) -> None:
        """Let go of connections."""


def address_of(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of the daemon."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadInput(f"[channels.signal]: {url!r} is no address.") from error
    if parts.scheme not in ("tcp", "http", "https") or not parts.hostname:
        raise BadInput(
            f"[channels.signal]: address must be http://host:port or tcp://host:port, not {url!r}."
        )
    ports = {"tcp": 7583, "http": 8080, "https": 443}
    return parts.scheme, parts.hostname, port or ports[parts.scheme]


def away(error: BaseException | None = None) -> RetryLater:
    """Nobody answers at the daemon's address; nothing was sent."""
    why = "" if error is None else f" ({type(error).__name__})"
    return RetryLater(f"signal-cli's daemon is not there{why}", after=AWAY_SECONDS)


def lost(error: BaseException | None = None) -> SessionaryError:
    """The connection broke before an answer came; whether a message went out is not known."""
    why = "" if error is None else f": {type(error).__name__}"
    return SessionaryError(f"signal-cli's answer got lost{why}", committed="unknown")


def decoded(line: bytes | str) -> Json:
    """A JSON object; anything else is an empty one."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def result_of(answer: Json, *, chat: str) -> Any:
    """The result of a call, or its error as ours."""
    error = answer.get("error")
    if isinstance(error, dict):
        raise outbound.error_of(error, chat=chat)
    return answer.get("result")
