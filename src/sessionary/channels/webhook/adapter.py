"""The channel itself: signed requests in, signed call-backs out."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from sessionary.channels.enclosures import Enclosures, files_of
from sessionary.channels.webhook import client, inbound, outbound, signing
from sessionary.channels.webhook.settings import WebhookSettings
from sessionary.engine.ports import Capabilities, DeliveryServices, Receive, Sent
from sessionary.errors import BadInput, RetryLater, StoreUnavailable, Unreachable
from sessionary.model.source import Channel
from sessionary.model.turn import Delivery

LONGEST_PAUSE_SECONDS = 300.0
_LONGEST_TEXT = 1_000_000
_OK, _NOT_SIGNED, _NOT_USABLE, _LATER = 200, 401, 422, 503
log = logging.getLogger("sessionary.webhook")


class WebhookAdapter:
    """Any program that can sign a request; what its bodies look like is configured."""

    platform = "webhook"
    capabilities = Capabilities(longest_text=_LONGEST_TEXT)

    def __init__(self, settings: WebhookSettings, now: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self._now = now
        self._receive: Receive | None = None
        self._enclosures = Enclosures(settings.largest_sent)

    def attach(self, desk: DeliveryServices) -> None:
        """Know where the bytes of files are."""
        self._enclosures.desk = desk

    async def run(self, receive: Receive) -> None:
        """Let requests in until cancelled."""
        self._receive = receive
        try:
            await asyncio.Event().wait()
        finally:
            self._receive = None

    async def webhook(self, headers: Mapping[str, str], body: bytes) -> int:
        """One request: believed only with a fresh signature, answered only when it is durable."""
        problem = signing.problem(self.settings, headers, body, self._now())
        if problem is not None:
            log.warning("webhook: a request was refused: %s", problem)
            return _NOT_SIGNED
        if self._receive is None:
            return _LATER
        try:
            source, said = inbound.read(body, self.settings.fields)
            await self._receive(source, said)
        except BadInput as error:
            log.warning("webhook: a signed request cannot be used: %s", error)
            return _NOT_USABLE
        except (RetryLater, StoreUnavailable) as error:
            log.warning("webhook: a message could not be kept: %s", error)
            return _LATER
        return _OK

    async def send(self, delivery: Delivery) -> Sent:
        """Call the program back."""
        url = self.settings.call_back
        if url is None:
            raise Unreachable("No call_back is configured; the answer is in the session.")
        files = [await self._enclosures.find(delivery, each) for each in files_of(delivery.parts)]
        body = outbound.body_of(delivery, files)
        headers = signing.sign(self.settings, body, self._now())
        headers |= {"content-type": "application/json", "x-sessionary-delivery": delivery.id}
        try:
            await client.post(url, headers, body)
        except RetryLater as error:
            pause = self.settings.pause_seconds * 2.0 ** min(delivery.attempts, 10)
            wait = error.after or min(pause, LONGEST_PAUSE_SECONDS)
            raise RetryLater(str(error), after=wait) from error
        return Sent(delivery.id)

    async def typing(self, channel: Channel) -> None:
        """Programs do not look."""

    async def close(self) -> None:
        """Nothing is held."""
