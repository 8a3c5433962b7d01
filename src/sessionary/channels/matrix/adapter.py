"""An account on a Matrix homeserver as a channel."""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from dataclasses import replace
from typing import Any

from sessionary.channels import files
from sessionary.channels.enclosures import Enclosure, Enclosures
from sessionary.channels.files import Failures, File
from sessionary.channels.matrix import inbound, outbound
from sessionary.channels.matrix.client import Client
from sessionary.channels.matrix.inbound import Event, Heard, Me, Room, Rules
from sessionary.channels.matrix.outbound import Post
from sessionary.channels.observed import Observed
from sessionary.channels.progress import Progress
from sessionary.engine.ports import DeliveryServices, Receive, Sent
from sessionary.errors import BadInput, NotAllowed, RetryLater, SessionaryError, Unreachable
from sessionary.model.message import Attachment, Message, Role
from sessionary.model.source import Channel
from sessionary.model.terminal import one_line
from sessionary.model.turn import Delivery

ENCRYPTED = (
    "This room is encrypted, and I cannot read encrypted messages. "
    "Please write to me in a room without encryption."
)
LONGEST_PAUSE = 60.0
_MOST_PAGES = 20
_MOST_OWN = 5000
_PAIR = 2
log = logging.getLogger("sessionary.matrix")


class MatrixAdapter:
    """Follows the rooms of an account, and writes there."""

    platform = inbound.PLATFORM
    capabilities = outbound.CAPABILITIES

    def __init__(self, client: Client, rules: Rules) -> None:
        self.client = client
        self.rules = rules
        self._me = Me("")
        self._state: dict[str, Any] = {}
        self._observed = Observed()
        self._progress = Progress()
        self._enclosures = Enclosures(rules.largest_sent)
        self._own: OrderedDict[str, None] = OrderedDict()
        self._failures = 0
        self._lost = Failures()
        self._closed = Failures()

    def attach(self, desk: DeliveryServices) -> None:
        """Know where the bytes of files are."""
        self._enclosures.desk = desk

    async def run(self, receive: Receive) -> None:
        """Take messages in until cancelled; our place is moved once they are durable."""
        try:
            self._me = Me(await self.client.who(), await self.client.name())
            self._state = await self.client.state()
            # A homeserver repeats old messages when it is asked for people and names: what it
            # says now is news only to who has no place yet.
            news = await self.client.look_around()
            since = self._state.get("since")
            while True:
                if since is not None:
                    news = await self.client.sync(since)
                await self._take_in_all(news, since, receive)
                await self._move_to(news.next_batch)
                since, self._failures = news.next_batch, 0
        except RetryLater as error:
            self._failures += 1
            pause = min(LONGEST_PAUSE, error.after * 2.0 ** min(self._failures - 1, 10))
            raise RetryLater(str(error), after=pause) from error

    async def send(self, delivery: Delivery) -> Sent:
        """Send a delivery, in as many messages as it needs."""
        sent = self._progress.sent(delivery.id)
        for post in outbound.posts(delivery)[len(sent) :]:
            content = await self._content(delivery, post)
            room = delivery.channel.chat_id
            sent.append(await self.client.send(room, content, post.transaction))
            self._note_own(sent[-1])
        self._progress.finish(delivery.id)
        return Sent(sent[-1])

    async def typing(self, channel: Channel) -> None:
        """Show that an answer is being written; it matters to nobody when that fails."""
        with contextlib.suppress(SessionaryError):
            await self.client.typing(channel.chat_id)

    async def close(self) -> None:
        """Let go of connections."""
        await self.client.close()

    async def _content(self, delivery: Delivery, post: Post) -> dict[str, Any]:
        thread = delivery.channel.thread_id

        async def give(file: Enclosure) -> dict[str, Any]:
            return outbound.file_content(file, await self.client.upload(file), thread)

        async def say(words: str) -> dict[str, Any]:
            return outbound.content_of(words, thread)

        if isinstance(post.said, Attachment):
            return await self._enclosures.hand_over(delivery, post.said, give=give, say=say)
        return await say(post.said)

    async def _take_in_all(self, news: Any, since: str | None, receive: Receive) -> None:
        for room_id, invitation in news.rooms.invite.items():
            await self._consider(room_id, invitation)
        for room_id, joined in news.rooms.join.items():
            events = [event.source for event in joined.timeline.events]
            is_new = since is None or inbound.joined_itself(events, self._me)
            if joined.timeline.limited and not is_new and since is not None:
                events = await self._gap(room_id, joined.timeline.prev_batch, since) + events
            for event in inbound.fresh(events, self._me) if is_new else events:
                await self._take_in(room_id, event, receive)

    async def _take_in(self, room_id: str, event: Event, receive: Receive) -> None:
        if inbound.is_encrypted(event):
            await self._tell_once(room_id)
        heard = inbound.read(event, self._me)
        if heard is None:
            return
        room = self._room(room_id)
        source = inbound.source_of(heard, room, self._name(room_id, heard.sender))
        place = str(source.channel)
        is_answer = heard.answers is not None and heard.answers in self._own
        if not is_answer and not inbound.is_addressed(heard, room, self._me, self.rules):
            if self.rules.observe and await receive.admits(source):
                speaker = source.speaker or heard.sender
                self._observed.note(place, speaker, heard.words, id=heard.event_id)
            return
        is_known = heard.file is None or await receive.admits(source)
        said, held = await self._message(heard if is_known else replace(heard, file=None))
        try:
            taken = await self._observed.give(
                place, said, lambda whole: receive(source, whole, files=held)
            )
        except BadInput as error:
            # It would be refused for ever, and everything after it would wait.
            log.warning("matrix: a message cannot be stored: %s", error)
            return
        if taken:
            with contextlib.suppress(RetryLater, Unreachable):
                await self.client.read_up_to(room_id, heard.event_id)

    async def _message(self, heard: Heard) -> tuple[Message, tuple[bytes, ...]]:
        said = Message(
            Role.USER, inbound.parts_of(heard, self._me), platform_message_id=heard.event_id
        )
        if heard.file is None:
            return said, ()
        largest = self.rules.largest_file
        parts, held = await files.fetched([heard.file], largest, self._fetch, self._lost)
        return replace(said, parts=(*said.parts, *parts)), held

    async def _fetch(self, file: File) -> bytes:
        try:
            return await self.client.download(file.url)
        except (OSError, TimeoutError) as error:
            raise RetryLater(f"A file could not be fetched: {error}", after=1) from error

    async def _gap(self, room_id: str, start: str | None, since: str) -> list[Event]:
        """What was said in a room while we were away for longer than one answer can hold."""
        found: list[Event] = []
        for _ in range(_MOST_PAGES):
            if not start:
                break
            try:
                page, start = await self.client.before(room_id, start, since)
            except Unreachable as error:
                log.warning("matrix: what was said before in %s cannot be read: %s", room_id, error)
                break
            found += page
        return found[::-1]

    async def _consider(self, room_id: str, invitation: Any) -> None:
        """Go where people who may invite us want us; leave other invitations open."""
        inviter = next(
            (
                event.sender
                for event in invitation.invite_state
                if getattr(event, "membership", "") == "invite"
                and getattr(event, "state_key", "") == self._me.id
            ),
            "",
        )
        if not self.rules.may_invite(inviter):
            log.warning("matrix: an invitation of %s is left open", one_line(inviter, 100))
            return
        try:
            await self.client.join(room_id)
        except (Unreachable, RetryLater) as error:
            # The room may be on a server that is gone: nothing else must wait for it.
            if isinstance(error, RetryLater) and not self._closed.is_hopeless(room_id):
                raise
            log.warning("matrix: %s cannot be joined: %s", room_id, error)

    async def _tell_once(self, room_id: str) -> None:
        """One clear word in a room whose messages we cannot read."""
        told = self._state.setdefault("told", [])
        if room_id in told:
            return
        notice = outbound.notice_of(ENCRYPTED)
        with contextlib.suppress(Unreachable):
            await self._send_notice(room_id, notice)
        told.append(room_id)

    async def _send_notice(self, room_id: str, notice: dict[str, Any]) -> None:
        try:
            await self.client.send(room_id, notice, f"sessionary-encrypted-{room_id[1:20]}")
        except (OSError, TimeoutError) as error:
            raise RetryLater(f"The homeserver cannot be reached: {error}", after=1) from error

    async def _move_to(self, since: str) -> None:
        """What came up to here is durable: the homeserver keeps our place for us."""
        if since != self._state.get("since"):
            self._state["since"] = since
            try:
                await self.client.remember(self._state)
            except Unreachable as error:
                raise NotAllowed(f"The homeserver keeps nothing for us: {error}") from error

    def _room(self, room_id: str) -> Room:
        known = self.client.room(room_id)
        if known is None:
            return Room(room_id)
        people = known.member_count + len(known.invited_users)
        return Room(room_id, known.display_name, known.topic, is_direct=people <= _PAIR)

    def _name(self, room_id: str, person: str) -> str | None:
        known = self.client.room(room_id)
        return None if known is None else known.user_name(person)

    def _note_own(self, event_id: str) -> None:
        self._own[event_id] = None
        while len(self._own) > _MOST_OWN:
            self._own.popitem(last=False)


async def who(adapter: MatrixAdapter) -> str:
    """Who the bot is, and where it is."""
    try:
        async with asyncio.timeout(60):
            user = await adapter.client.who()
            news = await adapter.client.look_around()
    finally:
        await adapter.close()
    joined, asked = len(news.rooms.join), len(news.rooms.invite)
    return f"The bot is {user}; it is in {joined} rooms, and {asked} invitations wait."
