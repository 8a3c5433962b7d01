"""The e-mail channel: a mailbox."""

import asyncio
import logging

from sessionary.channels.base import ChannelAdapter, attachments_of
from sessionary.channels.email import EmailSettings, inbound, outbound
from sessionary.channels.email.imap import ImapConnection, MailAccount, Mailbox, MailServer
from sessionary.channels.email.inbound import IgnoredMail, Mail, MailRules
from sessionary.channels.email.outbound import MailSender, MailThread
from sessionary.channels.files import LatestDict, OutgoingFile, not_sent_too_large
from sessionary.engine.ports import Receive, Sent
from sessionary.errors import BadInput, SessionaryError
from sessionary.model.question import edit_of
from sessionary.model.source import Channel
from sessionary.model.terminal import one_line
from sessionary.model.turn import Delivery

MAX_THREADS = 1000
# Of a larger mail only this much is fetched until it is known that its sender may write to the agent.
_BEGINNING_BYTES = 64 * 1024
_MAX_LOOKUP = 20
_LOOKUP_SECONDS = 10.0
_IMAP_PORTS = {"tls": 993, "starttls": 143, "none": 143}
_SMTP_PORTS = {"tls": 465, "starttls": 587, "none": 25}
logger = logging.getLogger(__name__)


class EmailAdapter(ChannelAdapter):
    """Receives mails by IMAP, sends replies by SMTP."""

    platform = inbound.PLATFORM
    capabilities = outbound.CAPABILITIES
    options: EmailSettings

    def __init__(self, settings: EmailSettings) -> None:
        super().__init__(settings)
        imap, smtp = settings.imap_security, settings.smtp_security
        self.account = MailAccount(
            address=settings.address,
            user=settings.user or settings.address,
            password=settings.password,
            imap=MailServer(settings.imap_host, settings.imap_port or _IMAP_PORTS[imap], imap),
            smtp=MailServer(settings.smtp_host, settings.smtp_port or _SMTP_PORTS[smtp], smtp),
            folder=settings.folder,
        )
        self._rules = MailRules(settings.address, settings.authserv_id, settings.largest_file)
        self._threads: LatestDict[tuple[str, str], MailThread] = LatestDict(MAX_THREADS)

    async def run(self, receive: Receive) -> None:
        """Receive new mails until cancelled; each is marked as seen once it is durable."""
        mailbox = Mailbox(self.account)
        with self.receiving(receive):
            try:
                await mailbox.open()
                while True:
                    for uid in await mailbox.do(ImapConnection.unseen):
                        await self._handle(mailbox, uid, receive)
                    self.backoff.reset()
                    await mailbox.do(
                        ImapConnection.wait,
                        idle_seconds=self.options.idle_seconds,
                        poll_seconds=self.options.poll_seconds,
                    )
            finally:
                await mailbox.close()

    async def _handle(self, mailbox: Mailbox, uid: int, receive: Receive) -> None:
        mail = await self._read(mailbox, uid, receive)
        if mail is None:
            return
        if isinstance(mail, IgnoredMail):
            logger.warning("email: mail %d is ignored: %s", uid, mail.reason)
        else:
            await self._store(mail, receive)
        await mailbox.do(ImapConnection.mark_seen, uid)

    async def _store(self, mail: Mail, receive: Receive) -> None:
        message, files = inbound.message_of(mail)
        # Before it is stored: the reply may be quick.
        self._remember(mail)
        try:
            arrival_id = await receive(inbound.source_of(mail), message, files=files)
        except BadInput as error:
            # It would be refused forever, and everything after it would wait.
            logger.warning("email: a mail cannot be stored: %s", error)
            arrival_id = ""
        if not arrival_id:
            self._threads.pop((mail.sender, mail.root), None)

    async def _read(
        self, mailbox: Mailbox, uid: int, receive: Receive
    ) -> Mail | IgnoredMail | None:
        mail: Mail | IgnoredMail | None = None
        largest = self.options.largest_mail
        for limit in sorted({min(_BEGINNING_BYTES, largest), largest}):
            fetched = await mailbox.do(ImapConnection.fetch, uid, limit)
            if fetched is None:
                return None
            cut_from = fetched.size if fetched.is_cut else None
            mail = inbound.read(fetched.raw, self._rules, cut_from=cut_from)
            if not fetched.is_cut or isinstance(mail, IgnoredMail):
                return mail
            if not await receive.admits(inbound.source_of(mail)):
                return mail
        return mail

    async def send(self, delivery: Delivery) -> Sent:
        """Send a mail, below the one that it answers. A mail that was sent cannot be edited."""
        edit = edit_of(delivery.parts)
        if edit is not None and not edit.instead:
            return Sent(None)
        texts = [piece for piece in self.pieces(delivery) if isinstance(piece, str)]
        thread = await self._thread(delivery.channel)
        sender = MailSender(self.account.address, self.options.name)
        files = await self._files(delivery)
        mail = outbound.compose(delivery, "\n\n".join(texts), sender, thread, files)
        to = delivery.channel.chat_id
        await outbound.send(self.account, mail, to=to, channel=str(delivery.channel))
        return Sent(str(mail["Message-ID"]))

    async def _files(self, delivery: Delivery) -> list[OutgoingFile | str]:
        """Return the files of a delivery, as many as one mail may have."""
        found: list[OutgoingFile | str] = []
        limit = left = self.options.largest_sent
        for file in attachments_of(delivery.parts):
            each = await self.open_file(delivery, file)
            size = len(each.data) if isinstance(each, OutgoingFile) else 0
            found.append(each if size <= left else not_sent_too_large(file, limit))
            left -= size if size <= left else 0
        return found

    async def check(self) -> str:
        mailbox = Mailbox(self.account)
        try:
            count = await mailbox.open()
            can_idle = await mailbox.do(lambda connection: connection.can_idle)
            how = "tells of new mail by itself" if can_idle else "is asked for new mail"
        finally:
            await mailbox.close()
        await outbound.check_smtp(self.account)
        where = f"{self.account.address}: {self.account.folder}"
        return f"{where} holds {count} mails; the server {how}; sending works."

    def _remember(self, mail: Mail) -> None:
        """Remember what a reply in this thread has to name."""
        thread = MailThread(mail.subject, (*mail.references, mail.message_id))
        self._threads[mail.sender, mail.root] = thread

    async def _thread(self, channel: Channel) -> MailThread:
        if channel.thread_id is None:
            return MailThread()
        known = self._threads.get((channel.chat_id, channel.thread_id))
        if known is not None:
            return known
        try:
            async with asyncio.timeout(_LOOKUP_SECONDS):
                return await self._look_up(channel.chat_id, channel.thread_id)
        except (SessionaryError, TimeoutError) as error:
            # The root alone puts the reply into its thread; only the subject is missing.
            logger.warning("email: a thread is not in the mailbox: %s", one_line(str(error)))
            return MailThread()

    async def _look_up(self, person: str, root: str) -> MailThread:
        """Find a thread from before we were started in the mailbox."""
        mailbox = Mailbox(self.account)
        try:
            await mailbox.open()
            headers = await mailbox.do(ImapConnection.headers, root, _MAX_LOOKUP)
        finally:
            await mailbox.close()
        for header in reversed(headers):
            mail = inbound.read(header, self._rules)
            if isinstance(mail, Mail) and mail.sender == person and mail.root == root:
                self._remember(mail)
                return self._threads[person, root]
        return MailThread()
