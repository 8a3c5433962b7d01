"""A mailbox as a channel."""

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass

from sessionary.channels.email import client, inbound, outbound
from sessionary.channels.email.client import Account, Mailbox
from sessionary.channels.email.inbound import Ignored, Mail, Rules
from sessionary.channels.email.outbound import Identity, Thread
from sessionary.channels.enclosures import Enclosure, Enclosures, files_of, too_large
from sessionary.engine.ports import DeliveryServices, Receive, Sent
from sessionary.errors import BadInput, RetryLater, SessionaryError
from sessionary.model.source import Channel
from sessionary.model.terminal import one_line
from sessionary.model.turn import Delivery

MOST_THREADS = 1000
LONGEST_PAUSE = 60.0
_SMALL = 64 * 1024
_LOOKED_AT = 20
_LOOK_SECONDS = 10.0
log = logging.getLogger("sessionary.email")


@dataclass(frozen=True, slots=True)
class Options:
    """How often to look, and how much to take."""

    rules: Rules
    name: str | None = None
    largest_mail: int = inbound.DEFAULT_LARGEST_MAIL
    largest_sent: int = outbound.DEFAULT_LARGEST_SENT
    idle_seconds: float = 240.0
    poll_seconds: float = 30.0


class EmailAdapter:
    """Takes mails in by IMAP, sends answers by SMTP."""

    platform = inbound.PLATFORM
    capabilities = outbound.CAPABILITIES

    def __init__(self, account: Account, options: Options) -> None:
        self.account = account
        self.options = options
        self._threads: OrderedDict[tuple[str, str], Thread] = OrderedDict()
        self._enclosures = Enclosures(options.largest_sent)
        self._failures = 0

    def attach(self, desk: DeliveryServices) -> None:
        """Know where the bytes of files are."""
        self._enclosures.desk = desk

    async def run(self, receive: Receive) -> None:
        """Take new mails in until cancelled; each is marked as seen once it is durable."""
        mailbox = Mailbox(self.account)
        try:
            await mailbox.open()
            while True:
                for uid in await mailbox.unseen():
                    await self._take_in(mailbox, uid, receive)
                self._failures = 0
                await mailbox.wait(
                    idle_seconds=self.options.idle_seconds, poll_seconds=self.options.poll_seconds
                )
        except RetryLater as error:
            self._failures += 1
            pause = min(LONGEST_PAUSE, error.after * 2.0 ** min(self._failures - 1, 10))
            raise RetryLater(str(error), after=pause) from error
        finally:
            await mailbox.close()

    async def send(self, delivery: Delivery) -> Sent:
        """Send a mail, below the one that it answers."""
        thread = await self._thread(delivery.channel)
        me = Identity(self.account.address, self.options.name)
        mail = outbound.compose(delivery, me, thread, await self._files(delivery))
        to = delivery.channel.chat_id
        await client.send(self.account, mail, to=to, channel=str(delivery.channel))
        return Sent(str(mail["Message-ID"]))

    async def typing(self, channel: Channel) -> None:
        """Nobody watches a mail being written."""

    async def close(self) -> None:
        """Nothing is held between two runs."""

    async def _files(self, delivery: Delivery) -> list[Enclosure | str]:
        """The files of a delivery, as many as one mail may hold."""
        found: list[Enclosure | str] = []
        left = self._enclosures.largest
        for file in files_of(delivery.parts):
            each = await self._enclosures.find(delivery, file)
            size = len(each.data) if isinstance(each, Enclosure) else 0
            found.append(each if size <= left else too_large(file, self._enclosures.largest))
            left -= size if size <= left else 0
        return found

    async def _take_in(self, mailbox: Mailbox, uid: int, receive: Receive) -> None:
        mail = await self._read(mailbox, uid, receive)
        if mail is None:
            return
        if isinstance(mail, Ignored):
            log.warning("email: mail %d is not taken in: %s", uid, mail.reason)
        else:
            await self._give(mail, receive)
        await mailbox.mark_seen(uid)

    async def _give(self, mail: Mail, receive: Receive) -> None:
        said, files = inbound.message_of(mail)
        # Before it is taken in: the answer may be quick.
        self._remember(mail)
        try:
            taken = await receive(inbound.source_of(mail), said, files=files)
        except BadInput as error:
            # It would be refused for ever, and everything after it would wait.
            log.warning("email: a mail cannot be stored: %s", error)
            taken = ""
        if not taken:
            self._threads.pop((mail.sender, mail.root), None)

    async def _read(self, mailbox: Mailbox, uid: int, receive: Receive) -> Mail | Ignored | None:
        """A mail; of a large one only the beginning until it is known that its sender may enter."""
        mail: Mail | Ignored | None = None
        for largest in sorted({min(_SMALL, self.options.largest_mail), self.options.largest_mail}):
            fetched = await mailbox.fetch(uid, largest)
            if fetched is None:
                return None
            cut_from = fetched.size if fetched.is_cut else None
            mail = inbound.read(fetched.raw, self.options.rules, cut_from=cut_from)
            if not fetched.is_cut or isinstance(mail, Ignored):
                return mail
            if not await receive.admits(inbound.source_of(mail)):
                return mail
        return mail

    def _remember(self, mail: Mail) -> None:
        """Know what an answer in this thread has to name."""
        place = (mail.sender, mail.root)
        self._threads[place] = Thread(mail.subject, (*mail.references, mail.message_id))
        self._threads.move_to_end(place)
        while len(self._threads) > MOST_THREADS:
            self._threads.popitem(last=False)

    async def _thread(self, channel: Channel) -> Thread:
        if channel.thread_id is None:
            return Thread()
        known = self._threads.get((channel.chat_id, channel.thread_id))
        if known is not None:
            return known
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                return await self._look_up(channel.chat_id, channel.thread_id)
        except (SessionaryError, TimeoutError) as error:
            # The root alone puts the answer into its thread; only the subject is missing.
            log.warning("email: a thread was not found in the mailbox: %s", one_line(str(error)))
            return Thread()

    async def _look_up(self, person: str, root: str) -> Thread:
        """What a thread of the time before we were started is about: the mailbox has it."""
        mailbox = Mailbox(self.account)
        try:
            await mailbox.open()
            heads = await mailbox.heads(root, _LOOKED_AT)
        finally:
            await mailbox.close()
        for head in reversed(heads):
            mail = inbound.read(head, self.options.rules)
            if isinstance(mail, Mail) and mail.sender == person and mail.root == root:
                self._remember(mail)
                return self._threads[person, root]
        return Thread()


async def who(adapter: EmailAdapter) -> str:
    """Enter both servers; who we are there."""
    mailbox = Mailbox(adapter.account)
    try:
        count = await mailbox.open()
        how = "tells of new mail by itself" if mailbox.can_idle else "is asked for new mail"
    finally:
        await mailbox.close()
    await client.check_smtp(adapter.account)
    folder = adapter.account.folder
    return (
        f"{adapter.account.address}: {folder} holds {count} mails; the server {how}; sending works."
    )
