"""Discord as a channel: the gateway in, REST out."""

import asyncio
import logging

from sessionary.channels.discord import inbound, outbound
from sessionary.channels.discord.bookmark import Bookmark
from sessionary.channels.discord.client import Servers, Wire
from sessionary.channels.discord.inbound import Gap, Heard, Rules
from sessionary.channels.discord.outbound import Post
from sessionary.channels.enclosures import Enclosures
from sessionary.channels.files import Failures, fetched
from sessionary.channels.growing import Growing
from sessionary.channels.observed import Observed
from sessionary.channels.progress import Progress
from sessionary.config.secret import Secret
from sessionary.engine.commands import REGISTRY
from sessionary.engine.ports import DeliveryServices, Receive, Sent
from sessionary.errors import BadInput, RetryLater, SessionaryError, StoreUnavailable, Unreachable
from sessionary.model.message import Attachment
from sessionary.model.source import Channel
from sessionary.model.turn import Delivery

# How much of what was missed is asked for: in so many channels, so many messages in each.
MOST_CHATS = 200
MOST_MESSAGES = 500
COMING = "Received; the answer follows here."
log = logging.getLogger("sessionary.channels.discord")


class DiscordAdapter:
    """One bot. Its messages come in order; one that cannot be stored now is tried again."""

    platform = inbound.PLATFORM
    capabilities = outbound.CAPABILITIES

    def __init__(
        self, token: Secret, rules: Rules | None = None, *, servers: Servers | None = None
    ) -> None:
        self._token = token
        self._rules = rules or Rules()
        self._servers = servers
        self._wire: Wire | None = None
        self._logging_in = asyncio.Lock()
        # Discord offers nothing twice: what was heard and not yet stored outlives a failed run.
        self._heard: asyncio.Queue[Heard | Gap] = asyncio.Queue()
        self._pending: Heard | Gap | None = None
        self._bookmark = Bookmark()
        self._observed = Observed()
        self._progress = Progress()
        self._failures = Failures()
        self._enclosures = Enclosures(self._rules.largest_sent)
        self._growing = Growing(self._put, pause_of=lambda _: self._rules.show_seconds)

    def attach(self, desk: DeliveryServices) -> None:
        """Know where the bytes of files are, and how far Discord was read."""
        self._enclosures.desk = self._bookmark.desk = desk

    async def run(self, receive: Receive) -> None:
        """Listen at the gateway until cancelled or refused."""
        wire = await self._logged_in()
        await self._offer_commands(wire)
        listening = asyncio.ensure_future(
            wire.listen(self._heard.put_nowait, lambda: self._heard.put_nowait(Gap()))
        )
        taking = asyncio.ensure_future(self._take_in(wire, receive))
        try:
            await asyncio.wait({listening, taking}, return_when=asyncio.FIRST_COMPLETED)
            for task in (taking, listening):
                if task.done():
                    task.result()
            raise RetryLater("Discord closed the connection.", after=1.0)
        finally:
            listening.cancel()
            taking.cancel()
            await asyncio.gather(listening, taking, return_exceptions=True)
            await self._hang_up()
            await self._keep_bookmark()

    async def send(self, delivery: Delivery) -> Sent:
        """Write a delivery's messages; after a failure the next try goes on where this stopped."""
        wire = await self._logged_in()
        sent = self._progress.sent(delivery.id)
        for post in outbound.posts(delivery)[len(sent) :]:
            grown = None if sent else await self._grown(wire, delivery, post)
            sent.append(grown or await self._post(wire, delivery, post))
        self._progress.finish(delivery.id)
        return Sent(sent[-1])

    async def edit(self, channel: Channel, message_id: str, text: str) -> None:
        """Put another text into a message of ours, as far as it fits into one."""
        wire = await self._logged_in()
        first = outbound.pieces_of(text)[0]
        await wire.edit(outbound.target(channel), message_id, first)

    async def show(self, channel: Channel, turn_id: str, text: str) -> None:
        """Let the answer grow in the channel, where that is wanted."""
        if self._rules.stream:
            await self._growing.show(channel, turn_id, text)

    async def typing(self, channel: Channel) -> None:
        """Show that an answer is being written; it matters to nobody when that fails."""
        try:
            wire = await self._logged_in()
            await wire.typing(outbound.target(channel))
        except SessionaryError as error:
            log.debug("discord does not show typing: %s", error)

    async def close(self) -> None:
        """Hang up."""
        await self._hang_up()

    async def who(self) -> str:
        """The bot's name, if Discord takes its token."""
        wire = await self._logged_in()
        return f"{wire.name} (id {wire.me.id})"

    async def _post(self, wire: Wire, delivery: Delivery, post: Post) -> str:
        to, said = outbound.target(delivery.channel), post.said
        if isinstance(said, Attachment):
            return await self._enclosures.hand_over(
                delivery,
                said,
                give=lambda file: wire.post_file(to, file, nonce=post.nonce),
                say=lambda words: wire.post(to, words, nonce=post.nonce),
            )
        return await wire.post(to, said, nonce=post.nonce)

    async def _grown(self, wire: Wire, delivery: Delivery, post: Post) -> str | None:
        """Make the first message of a delivery the last edit of the one that grew, if one did."""
        to, said = outbound.target(delivery.channel), post.said
        if isinstance(said, Attachment):
            return None
        return await self._growing.finish(
            delivery.turn_id, lambda number: wire.edit(to, number, said)
        )

    async def _put(self, channel: Channel, number: str | None, text: str) -> str:
        wire, to = await self._logged_in(), outbound.target(channel)
        shown = outbound.preview_of(text)
        if number is None:
            # Without a nonce: two answers that begin alike are two messages.
            return await wire.post(to, shown)
        await wire.edit(to, number, shown)
        return number

    async def _logged_in(self) -> Wire:
        async with self._logging_in:
            if self._wire is None or self._wire.is_closed:
                rules = self._rules
                reads = rules.always or rules.observe or bool(rules.always_in)
                wire = Wire(self._token.reveal(), reads_everything=reads, servers=self._servers)
                try:
                    await wire.login()
                except BaseException:
                    await wire.close()
                    raise
                self._wire = wire
            return self._wire

    async def _hang_up(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()

    async def _offer_commands(self, wire: Wire) -> None:
        if not self._rules.commands:
            return
        try:
            await wire.register([(each.name, each.help) for each in REGISTRY.values()])
        except SessionaryError as error:
            # Typed commands work without: the bot was invited without that scope.
            log.warning("discord has no slash commands from us: %s", error)

    async def _take_in(self, wire: Wire, receive: Receive) -> None:
        while True:
            if self._pending is None:
                self._pending = await self._heard.get()
            try:
                if isinstance(self._pending, Gap):
                    await self._catch_up(wire, receive)
                else:
                    await self._take(wire, self._pending, receive)
                    self._bookmark.note(self._pending.message_id)
                    await self._bookmark.move()
            except (RetryLater, StoreUnavailable) as error:
                log.warning("a message from discord cannot be stored now: %s", error)
                await asyncio.sleep(getattr(error, "after", 1.0))
                continue
            self._pending = None

    async def _keep_bookmark(self) -> None:
        try:
            await self._bookmark.keep()
        except (RetryLater, StoreUnavailable) as error:
            # Then a little more is read again, and recognised.
            log.warning("how far discord was read cannot be stored now: %s", error)

    async def _catch_up(self, wire: Wire, receive: Receive) -> None:
        """Take in what was said while nobody listened, where we have a conversation."""
        after, desk = await self._bookmark.begin(), self._bookmark.desk
        if after is None or desk is None:
            return
        for channel in await desk.chats(most=MOST_CHATS):
            try:
                missed = await wire.missed(
                    outbound.target(channel), after=after, most=MOST_MESSAGES
                )
            except Unreachable as error:
                log.warning("what was said meanwhile in %s cannot be read: %s", channel, error)
                continue
            for heard in missed:
                if not self._bookmark.has_taken(heard.message_id):
                    await self._take(wire, heard, receive)
                    self._bookmark.note(heard.message_id)
        # Not before: whoever stops half-way has to read the other channels from the same place.
        await self._bookmark.move()

    async def _take(self, wire: Wire, heard: Heard, receive: Receive) -> None:
        try:
            await self._take_in_one(wire, heard, receive)
        except BadInput as error:
            log.warning("a message from discord cannot be stored: %s", error)

    async def _take_in_one(self, wire: Wire, heard: Heard, receive: Receive) -> None:
        me = wire.me
        if inbound.is_ignored(heard, me):
            return
        source, where = inbound.source_of(heard), heard.place.channel_id
        if not inbound.is_addressed(heard, me, self._rules):
            if self._rules.observe and await receive.admits(source):
                self._observed.note(where, source.speaker or "", heard.text, id=heard.message_id)
            return
        known = heard.files if heard.files and await receive.admits(source) else ()
        parts, files = await fetched(known, self._rules.largest_file, wire.fetch, self._failures)
        said = inbound.message_of(heard, me, parts)
        await self._observed.give(where, said, lambda whole: receive(source, whole, files=files))
        if heard.is_command:
            await self._confirm(wire, heard)

    async def _confirm(self, wire: Wire, heard: Heard) -> None:
        try:
            await wire.confirm(heard, COMING)
        except SessionaryError as error:
            log.warning("discord was not told that a slash command came: %s", error)
