"""The webhook channel: signed requests in, signed call-backs out."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

from sessionary.channels import callback
from sessionary.channels.base import ChannelAdapter, attachments_of
from sessionary.channels.webhook import messages
from sessionary.channels.webhook.settings import WebhookSettings
from sessionary.engine.ports import Capabilities, Receive, Sent
from sessionary.errors import BadInput, NotAllowed, RetryLater, SessionaryError, Unreachable
from sessionary.model.turn import Delivery

_REFUSED = (401, 403)
_RETRY = (429, 503)
logger = logging.getLogger(__name__)


class WebhookAdapter(ChannelAdapter):
    """Any program that can sign a request; the form of its bodies is configured."""

    platform = "webhook"
    capabilities = Capabilities(longest_text=1_000_000)
    options: WebhookSettings

    def __init__(self, settings: WebhookSettings, now: Callable[[], float] = time.time) -> None:
        super().__init__(settings)
        self._now = now
        self.webhook = self.handle_webhook

    async def run(self, receive: Receive) -> None:
        """Accept requests until cancelled."""
        with self.receiving(receive):
            await asyncio.Event().wait()

    async def handle_webhook(self, headers: Mapping[str, str], body: bytes) -> int:
        """Handle a request: it must have a recent signature, and is answered when it is durable."""
        problem = messages.signature_problem(self.options, headers, body, self._now())
        if problem is not None:
            logger.warning("webhook: a request was refused: %s", problem)
            return HTTPStatus.UNAUTHORIZED

        async def handle(receive: Receive) -> None:
            await receive(*messages.read(body, self.options.fields))

        try:
            return await self.handle_post(handle)
        except BadInput as error:
            logger.warning("webhook: a signed request cannot be used: %s", error)
            return HTTPStatus.UNPROCESSABLE_ENTITY

    async def send(self, delivery: Delivery) -> Sent:
        """Call the program back."""
        url = self.options.call_back
        if url is None:
            raise Unreachable("No call_back is configured; the answer is in the session.")
        files = [await self.open_file(delivery, each) for each in attachments_of(delivery.parts)]
        body = messages.body_of(delivery, files)
        headers = messages.sign(self.options, body, self._now())
        headers |= {"content-type": "application/json", "x-sessionary-delivery": delivery.id}
        try:
            status, wait = await asyncio.to_thread(callback.post, url, headers, body)
            _check(status, wait or 0.0, urlsplit(url).hostname or url)
        except RetryLater as error:
            raise self.retry_later(delivery, error) from error
        return Sent(delivery.id)

    async def check(self) -> str:
        """Return what is expected of requests; nothing is sent, because a program would take it for real."""
        options = self.options
        signed = "its time and its body" if options.signs_time else "its body"
        url = options.call_back
        to = "nowhere (set call_back)" if url is None else urlsplit(url).hostname or url
        return (
            f"Requests come to /api/v1/channels/webhook/webhook with {options.signature_header}: "
            f"{options.signature_prefix}<hex of HMAC-SHA256 over {signed}>. Answers go to {to}."
        )


def _check(status: int, wait: float, host: str) -> None:
    if 200 <= status < 300:
        return
    answer = f"{host} answered {status}"
    if status in _REFUSED:
        raise NotAllowed(f"{answer}: it does not know our signature. Compare the secrets.")
    if status in _RETRY:
        raise RetryLater(f"{answer}.", after=wait)
    if status >= 500:
        raise SessionaryError(f"{answer}.", committed="unknown")
    raise Unreachable(f"{answer}.", host)
