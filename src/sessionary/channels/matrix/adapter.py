"""The Matrix channel: an account on a homeserver."""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from typing import Any

from sessionary.channels.base import ChannelAdapter
from sessionary.channels.files import FailureCounter, IncomingFile, OutgoingFile
from sessionary.channels.matrix import inbound, outbound
from sessionary.channels.matrix.client import MatrixClient
from sessionary.channels.matrix.inbound import Event, MatrixBot, MatrixOptions, MatrixRoom
from sessionary.engine.ports import Receive
from sessionary.errors import NotAllowed, RetryLater, Unreachable
from sessionary.model.source import Channel, Source
from sessionary.model.terminal import one_line
from sessionary.model.turn import Delivery

ENCRYPTED = (
    "This room is encrypted, and I cannot read encrypted messages. "
    "Please write to me in a room without encryption."
)
CHECK_SECONDS = 60.0
_MAX_PAGES = 20
_MAX_OWN = 5000
_PAIR = 2
logger = logging.getLogger(__name__)


class MatrixAdapter(ChannelAdapter):
    """Follows the rooms of an account, and writes there."""

    platform = inbound.PLATFORM
    capabilities = outbound.CAPABILITIES
    options: MatrixOptions

    def __init__(self, client: MatrixClient, options: MatrixOptions) -> None:
        super().__init__(options)
        self.client = client
        self._me = MatrixBot("")
        # What the homeserver keeps for us: how far we have read, and whom we told that we cannot read.
        self._state: dict[str, Any] = {}
        self._own: OrderedDict[str, None] = OrderedDict()
        self._failed_joins = FailureCounter()

    async def run(self, receive: Receive) -> None:
        """Receive messages until cancelled; the sync token is saved once they are durable."""
        with self.receiving(receive):
            self._me = MatrixBot(await self.client.who(), await self.client.name())
            self._state = await self.client.load_state()
            # A full sync repeats old messages: they are new only if there is no sync token yet.
            news = await self.client.full_sync()
            since = self._state.get("since")
            while True:
                if since is not None:
                    news = await self.client.sync(since)
                await self._handle(news, since, receive)
                await self._save_token(news.next_batch)
                since = news.next_batch
                self.backoff.reset()

    async def _handle(self, news: Any, since: str | None, receive: Receive) -> None:
        for room_id, invitation in news.rooms.invite.items():
            await self._consider_invitation(room_id, invitation)
        for room_id, joined in news.rooms.join.items():
            events = [event.source for event in joined.timeline.events]
            is_new = since is None or inbound.has_our_join(events, self._me)
            if joined.timeline.limited and not is_new and since is not None:
                missed = await self._missed(room_id, joined.timeline.prev_batch, since)
                events = missed + events
            for event in inbound.unread(events, self._me) if is_new else events:
                await self._handle_event(room_id, event, receive)

    async def _handle_event(self, room_id: str, event: Event, receive: Receive) -> None:
        if inbound.is_encrypted(event):
            await self._tell_once(room_id)
        message = inbound.read(event, self._me)
        if message is None:
            return
        known = self.client.room(room_id)
        room, name = MatrixRoom(room_id), None
        if known is not None:
            people = known.member_count + len(known.invited_users)
            room = MatrixRoom(room_id, known.display_name, known.topic, is_direct=people <= _PAIR)
            name = known.user_name(message.sender)
        is_reply_to_us = message.answers is not None and message.answers in self._own
        is_addressed = is_reply_to_us or inbound.is_addressed(message, room, self._me, self.options)
        received = inbound.received(message, room, self._me, name=name, is_addressed=is_addressed)
        if await self.admit(received, receive):
            with contextlib.suppress(RetryLater, Unreachable):
                await self.client.mark_read(room_id, message.event_id)

    async def fetch_file(self, file: IncomingFile, source: Source) -> bytes:
        """Fetch a file."""
        try:
            return await self.client.download(file.id)
        except (OSError, TimeoutError) as error:
            raise RetryLater(f"A file could not be fetched: {error}", after=1) from error

    async def _missed(self, room_id: str, start: str | None, since: str) -> list[Event]:
        """Return what was written in a room while we were away, if one sync cannot hold it."""
        found: list[Event] = []
        for _ in range(_MAX_PAGES):
            if not start:
                break
            try:
                page, start = await self.client.before(room_id, start, since)
            except Unreachable as error:
                logger.warning("matrix: missed messages in %s cannot be read: %s", room_id, error)
                break
            found += page
        return found[::-1]

    async def _consider_invitation(self, room_id: str, invitation: Any) -> None:
        """Join where people who may invite us want us; leave other invitations open."""
        inviter = next(
            (
                event.sender
                for event in invitation.invite_state
                if getattr(event, "membership", "") == "invite"
                and getattr(event, "state_key", "") == self._me.id
            ),
            "",
        )
        if not self.options.may_invite(inviter):
            logger.warning("matrix: an invitation of %s is left open", one_line(inviter, 100))
            return
        try:
            await self.client.join(room_id)
        except (Unreachable, RetryLater) as error:
            # The room may be on a server that is gone: nothing else must wait for it.
            if isinstance(error, RetryLater) and not self._failed_joins.is_hopeless(room_id):
                raise
            logger.warning("matrix: %s cannot be joined: %s", room_id, error)

    async def _tell_once(self, room_id: str) -> None:
        """Say once in a room that we cannot read its messages."""
        told = self._state.setdefault("told", [])
        if room_id in told:
            return
        transaction = f"sessionary-encrypted-{room_id[1:20]}"
        try:
            await self.client.send(room_id, outbound.notice_of(ENCRYPTED), transaction)
        except Unreachable as error:
            logger.info("matrix: %s cannot be told about encryption: %s", room_id, error)
        except (OSError, TimeoutError) as error:
            raise RetryLater(f"The homeserver cannot be reached: {error}", after=1) from error
        told.append(room_id)

    async def _save_token(self, since: str) -> None:
        """Save at the homeserver that everything up to here is durable."""
        if since != self._state.get("since"):
            self._state["since"] = since
            try:
                await self.client.save_state(self._state)
            except Unreachable as error:
                raise NotAllowed(f"The homeserver keeps nothing for us: {error}") from error

    def split(self, text: str) -> list[str]:
        """Split a text into events."""
        return outbound.split(text)

    async def send_text(self, delivery: Delivery, text: str, index: int) -> str:
        """Send a text."""
        content = outbound.content_of(text, delivery.channel.thread_id)
        return await self._send(delivery, content, index)

    async def send_file(self, delivery: Delivery, file: OutgoingFile, index: int) -> str:
        """Upload a file and send it."""
        url = await self.client.upload(file)
        content = outbound.file_content(file, url, delivery.channel.thread_id)
        return await self._send(delivery, content, index)

    async def _send(self, delivery: Delivery, content: dict[str, Any], index: int) -> str:
        transaction = outbound.transaction_id(delivery.id, index)
        event_id = await self.client.send(delivery.channel.chat_id, content, transaction)
        self._own[event_id] = None
        while len(self._own) > _MAX_OWN:
            self._own.popitem(last=False)
        return event_id

    async def typing(self, channel: Channel) -> None:
        """Show that a reply is being written."""
        await self.client.typing(channel.chat_id)

    async def close(self) -> None:
        """Close connections."""
        await self.client.close()

    async def check(self) -> str:
        """Return who the bot is, and where it is."""
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                user = await self.client.who()
                news = await self.client.full_sync()
        finally:
            await self.close()
        joined, asked = len(news.rooms.join), len(news.rooms.invite)
        return f"The bot is {user}; it is in {joined} rooms, and {asked} invitations wait."
