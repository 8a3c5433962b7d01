"""The adapter of the platform `api`: answers are kept for whoever asks, or called back."""

import asyncio
import http.client

from sessionary.channels.api.client import Address, post
from sessionary.channels.api.outbound import call_for
from sessionary.clock import Clock
from sessionary.engine.ports import Capabilities, Receive, Sent
from sessionary.errors import BadInput, RetryLater, SessionaryError
from sessionary.model.source import Channel
from sessionary.model.turn import Delivery

PLATFORM = "api"
LONGEST_TEXT = 1_000_000
SHORTEST_SECRET = 16


class ApiAdapter:
    """Programs write by `POST /arrivals`; their answers wait in the log, and may be called back."""

    platform = PLATFORM
    capabilities = Capabilities(longest_text=LONGEST_TEXT)

    def __init__(
        self, clock: Clock, *, callback_url: str | None = None, secret: bytes = b""
    ) -> None:
        self._clock = clock
        self._address = None if callback_url is None else Address.parse(callback_url)
        self._secret = secret
        if self._address is not None and len(secret) < SHORTEST_SECRET:
            raise BadInput(
                f"A call-back address needs a secret of at least {SHORTEST_SECRET} bytes."
            )

    @property
    def where(self) -> str:
        """Where answers go, in words."""
        if self._address is None:
            return "are kept for GET"
        return f"are called back to {self._address.host}"

    async def run(self, receive: Receive) -> None:
        """Messages come in through the HTTP interface; here is nothing to wait for."""
        await asyncio.Event().wait()

    async def send(self, delivery: Delivery) -> Sent:
        """Call the program back; without an address the answer is there for `GET` already."""
        if self._address is None:
            return Sent()
        at = int(self._clock.now().timestamp())
        call = call_for(delivery, secret=self._secret, at=at)
        try:
            await asyncio.to_thread(post, self._address, call)
        except ConnectionRefusedError as error:
            raise RetryLater("The program does not listen.", after=10) from error
        except (OSError, http.client.HTTPException) as error:
            said = f"The call-back was cut: {type(error).__name__}."
            raise SessionaryError(said, committed="unknown") from error
        return Sent(delivery.id)

    async def typing(self, channel: Channel) -> None:
        """Programs do not watch."""

    async def close(self) -> None:
        """Nothing is held."""
