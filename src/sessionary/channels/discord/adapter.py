"""The Discord channel: the gateway in, REST out."""

import asyncio
import logging
import time
from collections import OrderedDict
from dataclasses import replace

from sessionary.channels.base import ChannelAdapter, PendingQueue, until_first_ends
from sessionary.channels.discord import inbound, outbound
from sessionary.channels.discord.client import DiscordClient, DiscordServers
from sessionary.channels.discord.inbound import DiscordMessage, DiscordOptions, Gap
from sessionary.channels.files import IncomingFile, OutgoingFile
from sessionary.config.secret import Secret
from sessionary.engine.commands import REGISTRY
from sessionary.engine.ports import Receive
from sessionary.errors import RetryLater, SessionaryError, StoreUnavailable, Unreachable
from sessionary.model.source import Channel, Source
from sessionary.model.turn import Delivery

# How much of what was missed is fetched: from this many channels, this many messages each.
MAX_CHATS = 200
MAX_MESSAGES = 500
# How far we have read is stored now and then: a message that is read twice is recognised by its id.
SAVE_SECONDS = 30.0
# Messages of different channels may overtake each other by a minute, in Discord's ids.
OVERLAP = 60_000 << 22
_MAX_HANDLED = 5000
COMING = "Received; the answer follows here."
logger = logging.getLogger(__name__)


class DiscordAdapter(ChannelAdapter):
    """One bot. Its messages come in order; one that cannot be stored now is tried again."""

    platform = inbound.PLATFORM
    options: DiscordOptions

    def __init__(
        self,
        token: Secret,
        options: DiscordOptions | None = None,
        *,
        servers: DiscordServers | None = None,
    ) -> None:
        super().__init__(options or DiscordOptions())
        self.capabilities = replace(outbound.CAPABILITIES, streams=self.options.stream)
        self._token = token
        self._servers = servers
        self._client: DiscordClient | None = None
        self._logging_in = asyncio.Lock()
        # Discord offers nothing twice: what is not stored yet outlives a failed run.
        self._events: PendingQueue[DiscordMessage | Gap] = PendingQueue(self.platform)
        # The id of the latest message that was handled: Discord's ids grow with time, everywhere.
        self._latest = 0
        self._position = 0
        self._saved_position = 0
        self._saved_at = float("-inf")
        self._handled: OrderedDict[str, None] = OrderedDict()

    async def run(self, receive: Receive) -> None:
        """Listen at the gateway until cancelled or refused."""

        async def handle(event: DiscordMessage | Gap) -> None:
            if isinstance(event, Gap):
                self.backoff.reset()
                await self._catch_up(client, receive)
            else:
                await self._handle(client, event, receive)
                await self._advance()

        with self.receiving(receive):
            client = await self._logged_in()
            await self._register_commands(client)
            listening = client.listen(self._events.put, lambda: self._events.put(Gap()))
            try:
                await until_first_ends(self._events.handle_all(handle), listening)
                raise RetryLater("Discord closed the connection.", after=1.0)
            finally:
                await self.close()
                try:
                    await self._save_position()
                except (RetryLater, StoreUnavailable) as error:
                    # Then a little more is read again, and recognised.
                    logger.warning("discord: how far it was read cannot be stored now: %s", error)

    async def _handle(
        self, client: DiscordClient, message: DiscordMessage, receive: Receive
    ) -> None:
        received = inbound.read(message, client.bot, self.options)
        if received is not None:
            is_offered = await self.admit(received, receive) is not None
            if message.is_command and is_offered:
                try:
                    await client.confirm(message, COMING)
                except SessionaryError as error:
                    logger.warning("discord: a slash command is not confirmed: %s", error)
        self._handled[message.message_id] = None
        if len(self._handled) > _MAX_HANDLED:
            self._handled.popitem(last=False)
        self._latest = max(self._latest, int(message.message_id))

    async def _catch_up(self, client: DiscordClient, receive: Receive) -> None:
        """Fetch what was written while nobody listened, where there is a conversation."""
        if self.services is None:
            return
        if self._position == 0:
            saved = await self.services.place()
            self._position = self._saved_position = int(saved) if saved and saved.isdigit() else 0
        if self._position == 0:  # nothing was ever read
            return
        after = max(0, self._position - OVERLAP)
        for channel in await self.services.chats(most=MAX_CHATS):
            try:
                missed = await client.missed(
                    outbound.target(channel), after=after, most=MAX_MESSAGES
                )
            except Unreachable as error:
                logger.warning("discord: missed messages in %s cannot be read: %s", channel, error)
                continue
            for message in missed:
                if message.message_id not in self._handled:
                    await self._handle(client, message, receive)
        # Not earlier: after a stop half-way the other channels have to be read from the same position.
        await self._advance()

    async def _advance(self) -> None:
        """Note that everything up to the latest message was handled."""
        self._position = max(self._position, self._latest)
        if time.monotonic() - self._saved_at >= SAVE_SECONDS:
            await self._save_position()

    async def _save_position(self) -> None:
        if self.services is not None and self._position != self._saved_position:
            await self.services.keep_place(str(self._position))
            self._saved_position, self._saved_at = self._position, time.monotonic()

    async def fetch_file(self, file: IncomingFile, source: Source) -> bytes:
        """Fetch a file."""
        return await (await self._logged_in()).fetch(file)

    def split(self, text: str) -> list[str]:
        """Split a text into messages that Discord accepts."""
        return outbound.split(text)

    async def send_text(self, delivery: Delivery, text: str, index: int) -> str:
        """Send a text."""
        client, to = await self._logged_in(), outbound.target(delivery.channel)
        return await client.post(to, text, nonce=outbound.nonce(delivery.id, index))

    async def send_file(self, delivery: Delivery, file: OutgoingFile, index: int) -> str:
        """Send a file."""
        client, to = await self._logged_in(), outbound.target(delivery.channel)
        return await client.post_file(to, file, nonce=outbound.nonce(delivery.id, index))

    async def edit_text(self, channel: Channel, message_id: str, text: str) -> None:
        """Replace the text of a message."""
        await (await self._logged_in()).edit(outbound.target(channel), message_id, text)

    async def show_partial(self, channel: Channel, message_id: str | None, text: str) -> str:
        """Write the beginning of a reply."""
        client, to = await self._logged_in(), outbound.target(channel)
        shown = outbound.preview_of(text)
        if message_id is None:
            # Without a nonce: two replies that begin alike are two messages.
            return await client.post(to, shown)
        await client.edit(to, message_id, shown)
        return message_id

    async def typing(self, channel: Channel) -> None:
        """Show that a reply is being written."""
        await (await self._logged_in()).typing(outbound.target(channel))

    async def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def check(self) -> str:
        """Log in; return who the bot is."""
        client = await self._logged_in()
        return f"Discord knows this bot as {client.name} (id {client.bot.id})."

    async def _logged_in(self) -> DiscordClient:
        async with self._logging_in:
            if self._client is None or self._client.is_closed:
                options = self.options
                reads = options.always or options.observe or bool(options.always_in)
                client = DiscordClient(
                    self._token.reveal(), reads_everything=reads, servers=self._servers
                )
                try:
                    await client.login()
                except BaseException:
                    await client.close()
                    raise
                self._client = client
            return self._client

    async def _register_commands(self, client: DiscordClient) -> None:
        if not self.options.commands:
            return
        try:
            await client.register([(each.name, each.help) for each in REGISTRY.values()])
        except SessionaryError as error:
            # Typed commands work without: the bot was invited without that scope.
            logger.warning("discord: slash commands cannot be registered: %s", error)
