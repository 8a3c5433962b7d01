"""The Slack channel: Socket Mode or the Events API in, the Web API out."""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from sessionary.channels.base import ChannelAdapter, PendingQueue, until_first_ends
from sessionary.channels.files import IncomingFile, OutgoingFile
from sessionary.channels.slack import inbound, outbound
from sessionary.channels.slack.client import SlackAccount, SlackClient, SocketEnvelope
from sessionary.channels.slack.inbound import SlackMessage, SlackNames, SlackOptions
from sessionary.config.secret import Secret
from sessionary.engine.ports import Receive
from sessionary.errors import RetryLater
from sessionary.model.source import Channel, Source
from sessionary.model.turn import Delivery

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SlackKeys:
    """The app's secrets: an app-level token for the socket, or a signing secret for events."""

    token: Secret
    app_token: Secret | None = None
    signing_secret: Secret | None = None


class SlackAdapter(ChannelAdapter):
    """One app in one workspace."""

    platform = inbound.PLATFORM
    options: SlackOptions

    def __init__(
        self,
        keys: SlackKeys,
        options: SlackOptions | None = None,
        *,
        client: SlackClient | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(options or SlackOptions())
        self.capabilities = replace(outbound.CAPABILITIES, streams=self.options.stream)
        self._keys = keys
        app_token = None if keys.app_token is None else keys.app_token.reveal()
        self._client = client or SlackClient(keys.token.reveal(), app_token=app_token)
        self._now = now
        self._account: SlackAccount | None = None
        self._envelopes: PendingQueue[SocketEnvelope] = PendingQueue(self.platform)
        # Without a secret nothing may be posted to us.
        if keys.signing_secret is not None:
            self.webhook = self.handle_webhook

    async def run(self, receive: Receive) -> None:
        """Receive messages until cancelled or refused."""

        async def handle(envelope: SocketEnvelope) -> None:
            await self._handle(_read(envelope), receive)
            await envelope.acknowledge()

        with self.receiving(receive):
            self._account = await self._client.account()
            if self._keys.app_token is None:
                await asyncio.Event().wait()  # they come by the webhook
            await until_first_ends(
                self._envelopes.handle_all(handle),
                self.stay_connected(lambda: self._client.listen(self._envelopes.put)),
            )

    async def _handle(self, message: SlackMessage | None, receive: Receive) -> None:
        if self._account is None:
            raise RetryLater("It is not known yet who the bot is.")
        bot_id = self._account.bot_id
        if message is None or inbound.is_ignored(message, bot_id):
            return
        if not self.options.observe and not inbound.is_addressed(message, bot_id, self.options):
            return  # not worth looking up names for
        names = await self._names(message)
        await self.admit(inbound.received(message, bot_id, self.options, names), receive)

    async def _names(self, message: SlackMessage) -> SlackNames:
        person = await self._client.person(message.user_id)
        profile = person.get("profile") or {}
        user = profile.get("display_name") or person.get("real_name") or person.get("name")
        if message.is_direct:
            return SlackNames(user)
        chat = await self._client.chat(message.channel_id)
        return SlackNames(user, chat.get("name"), (chat.get("topic") or {}).get("value"))

    async def handle_webhook(self, headers: Mapping[str, str], body: bytes) -> int | str:
        """Handle a request of the Events API."""
        assert self._keys.signing_secret is not None
        secret = self._keys.signing_secret.reveal()
        problem = inbound.signature_problem(secret, headers, body, now=self._now())
        if problem is not None:
            logger.warning("slack: a request was refused: %s", problem)
            return HTTPStatus.UNAUTHORIZED
        payload = _payload(body)
        if payload is None:
            return HTTPStatus.BAD_REQUEST
        if payload.get("type") == "url_verification":
            return str(payload.get("challenge", ""))
        is_event = payload.get("type") == "event_callback"
        message = inbound.read_event(payload) if is_event else inbound.read_command(payload)
        return await self.handle_post(lambda receive: self._handle(message, receive))

    async def fetch_file(self, file: IncomingFile, source: Source) -> bytes:
        """Fetch a file."""
        return await self._client.fetch(file)

    def split(self, text: str) -> list[str]:
        """Split a text into messages that Slack accepts."""
        return outbound.split(text)

    async def send_text(self, delivery: Delivery, text: str, index: int) -> str:
        """Send a text."""
        channel = delivery.channel
        post = outbound.post_of(text)
        return await self._client.post(channel.chat_id, post, thread=channel.thread_id)

    async def send_file(self, delivery: Delivery, file: OutgoingFile, index: int) -> str:
        """Share a file."""
        channel = delivery.channel
        return await self._client.upload(channel.chat_id, file, thread=channel.thread_id)

    async def edit_text(self, channel: Channel, message_id: str, text: str) -> None:
        """Replace the text of a message."""
        await self._client.edit(channel.chat_id, message_id, outbound.post_of(text))

    async def show_partial(self, channel: Channel, message_id: str | None, text: str) -> str:
        """Write the beginning of a reply, without formatting."""
        shown = outbound.preview_of(text)
        if message_id is None:
            return await self._client.post(channel.chat_id, shown, thread=channel.thread_id)
        await self._client.edit(channel.chat_id, message_id, shown)
        return message_id

    async def close(self) -> None:
        """Close connections."""
        await self._client.close()

    async def check(self) -> str:
        """Show the tokens; return who the bot is."""
        account = await self._client.account()
        if self._keys.app_token is not None:
            await self._client.socket_address()
        return f"Slack knows this bot as {account.name} (id {account.bot_id}) in {account.team}."


def _read(envelope: SocketEnvelope) -> SlackMessage | None:
    match envelope.kind:
        case "events_api":
            return inbound.read_event(envelope.payload)
        case "slash_commands":
            return inbound.read_command(envelope.payload)
        case _:
            return None


def _payload(body: bytes) -> dict[str, Any] | None:
    """Decode a body: an event is JSON, a slash command is a form."""
    try:
        if not body.lstrip().startswith(b"{"):
            return dict(parse_qsl(body.decode(), strict_parsing=True))
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
