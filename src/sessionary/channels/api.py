"""The channel for programs: messages come in over HTTP; replies are kept, or called back with a signature."""

import asyncio
import hashlib
import hmac
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from sessionary.channels import callback
from sessionary.channels.base import ChannelAdapter, ChannelOptions
from sessionary.channels.callback import address_to_call
from sessionary.channels.registry import ChannelKind
from sessionary.clock import Clock, SystemClock
from sessionary.config.engine import ChannelTable
from sessionary.config.secret import Secret
from sessionary.config.setting import Setting, ValueKind
from sessionary.engine.ports import Adapter, Capabilities, Receive, Sent
from sessionary.errors import BadInput, RetryLater, Unreachable
from sessionary.model import codec
from sessionary.model import message as parts_of
from sessionary.model.turn import Delivery
from sessionary.model.view import time_text

PLATFORM = "api"
MIN_SECRET_BYTES = 16
_GONE = (404, 410)
_CONNECT_WAIT_SECONDS = 10.0
_WAIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings(ChannelTable):
    """Where replies are posted; without an address they are kept."""

    callback_url: Annotated[
        str | None,
        ValueKind(
            "an address to call back, such as https://host/path",
            address_to_call,
            short="address",
            schema={"type": "string", "format": "uri"},
        ),
        Setting("where replies are posted", example="https://example.org/answers"),
    ] = None
    secret: Annotated[
        Secret | None, Setting("what call-backs are signed with", example="API_SECRET")
    ] = None


class ApiAdapter(ChannelAdapter):
    """Programs write by `POST /arrivals`; their replies are in the log, and may be called back."""

    platform = PLATFORM
    capabilities = Capabilities(longest_text=1_000_000)

    def __init__(
        self, clock: Clock, *, callback_url: str | None = None, secret: bytes = b""
    ) -> None:
        super().__init__(ChannelOptions())
        self._clock = clock
        self._url = (
            None if callback_url is None else callback.check_address(callback_url, "callback_url")
        )
        self._secret = secret
        if self._url is not None and len(secret) < MIN_SECRET_BYTES:
            raise BadInput(
                f"A call-back address needs a secret of at least {MIN_SECRET_BYTES} bytes."
            )

    async def check(self) -> str:
        """Return where replies go; nothing is called."""
        where = "are kept for GET" if self._url is None else f"are called back to {self._host}"
        return f"Programs write by POST /api/v1/arrivals; answers {where}."

    async def run(self, receive: Receive) -> None:
        """Wait until cancelled: messages come in by the HTTP interface."""
        await asyncio.Event().wait()

    async def send(self, delivery: Delivery) -> Sent:
        """Call the program back; without an address the reply is already there for `GET`."""
        if self._url is None:
            return Sent()
        headers, body = call_for(
            delivery, secret=self._secret, at=int(self._clock.now().timestamp())
        )
        try:
            status, wait = await asyncio.to_thread(callback.post, self._url, headers, body)
        except RetryLater as error:
            raise RetryLater(str(error), after=_CONNECT_WAIT_SECONDS) from error
        if 200 <= status < 300:
            return Sent(delivery.id)
        if status in _GONE:
            raise Unreachable(f"{self._host} answered {status}", self._host)
        wait = _WAIT_SECONDS if wait is None else wait
        raise RetryLater(f"{self._host} answered {status}", after=wait)

    @property
    def _host(self) -> str:
        return urlsplit(self._url or "").hostname or ""


def call_for(delivery: Delivery, *, secret: bytes, at: int) -> tuple[dict[str, str], bytes]:
    """Return headers and body of the call-back; the delivery's id is the same in every attempt."""
    body = codec.encode(
        {
            "delivery_id": delivery.id,
            "session_id": delivery.session_id,
            "turn_id": delivery.turn_id,
            "profile": delivery.profile,
            "channel": str(delivery.channel),
            "chat_id": delivery.channel.chat_id,
            "thread_id": delivery.channel.thread_id,
            "text": parts_of.text_of(delivery.parts),
            "parts": [parts_of.to_json(part) for part in delivery.parts],
            "created_at": time_text(delivery.created_at),
            "attempt": delivery.attempts,
            "maybe_twice": delivery.maybe_twice,
        }
    ).encode("utf-8")
    mac = hmac.new(secret, str(at).encode() + b"." + body, hashlib.sha256)
    headers = {
        "Content-Type": "application/json",
        "X-Sessionary-Timestamp": str(at),
        "X-Sessionary-Delivery": delivery.id,
        "X-Sessionary-Signature": f"sha256={mac.hexdigest()}",
    }
    return headers, body


def create(settings: ApiSettings) -> Adapter:
    """Return the adapter that `[channels.api]` describes."""
    secret = b"" if settings.secret is None else settings.secret.reveal().encode()
    return ApiAdapter(SystemClock(), callback_url=settings.callback_url, secret=secret)


CHANNEL = ChannelKind(
    name="api",
    title="API",
    settings=ApiSettings,
    create=create,
    documentation="docs/http.md",
)
