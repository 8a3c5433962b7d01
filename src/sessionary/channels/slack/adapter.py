"""Slack as a channel: Socket Mode or the Events API in, the Web API out."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from sessionary.channels.enclosures import Enclosures
from sessionary.channels.files import Failures, fetched
from sessionary.channels.growing import Growing
from sessionary.channels.observed import Observed
from sessionary.channels.progress import Progress
from sessionary.channels.slack import inbound, outbound, signature
from sessionary.channels.slack.client import Account, Envelope, Wire
from sessionary.channels.slack.inbound import Heard, Names, Rules
from sessionary.channels.slack.outbound import Post
from sessionary.config.secret import Secret
from sessionary.engine.ports import DeliveryServices, Receive, Sent
from sessionary.errors import BadInput, RetryLater, StoreUnavailable
from sessionary.model.message import Attachment
from sessionary.model.source import Channel
from sessionary.model.turn import Delivery

STEADY_SECONDS = 10.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE = 0.1, 30.0
_OK, _BAD, _NOT_SIGNED, _LATER = 200, 400, 401, 503
log = logging.getLogger("sessionary.channels.slack")


@dataclass(frozen=True, slots=True)
class Keys:
    """The app's secrets: an app-level token for the socket, or a signing secret for events."""

    token: Secret
    app_token: Secret | None = None
    signing_secret: Secret | None = None


class SlackAdapter:
    """One app in one workspace."""

    platform = inbound.PLATFORM
    capabilities = outbound.CAPABILITIES

    def __init__(
        self,
        keys: Keys,
        rules: Rules | None = None,
        *,
        wire: Wire | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._keys = keys
        self._rules = rules or Rules()
        app_token = None if keys.app_token is None else keys.app_token.reveal()
        self._wire = wire or Wire(keys.token.reveal(), app_token=app_token)
        self._now = now
        self._account: Account | None = None
        self._receive: Receive | None = None
        self._heard: asyncio.Queue[Envelope] = asyncio.Queue()
        self._pending: Envelope | None = None
        self._observed = Observed()
        self._progress = Progress()
        self._failures = Failures()
        self._enclosures = Enclosures(self._rules.largest_sent)
        self._growing = Growing(self._put, pause_of=lambda _: self._rules.show_seconds)
        # Without a secret there is no door.
        by_post = keys.signing_secret is not None
        self.webhook: Callable[[Mapping[str, str], bytes], Awaitable[int | str]] | None
        self.webhook = self._webhook if by_post else None

    def attach(self, desk: DeliveryServices) -> None:
        """Know where the bytes of files are."""
        self._enclosures.desk = desk

    async def run(self, receive: Receive) -> None:
        """Take messages in until cancelled or refused."""
        self._account = await self._wire.account()
        self._receive = receive
        try:
            if self._keys.app_token is None:
                await asyncio.Event().wait()  # they come by the webhook
            await self._listen(receive)
        finally:
            self._receive = None

    async def send(self, delivery: Delivery) -> Sent:
        """Write a delivery's messages; after a failure the next try goes on where this stopped."""
        sent = self._progress.sent(delivery.id)
        for post in outbound.posts(delivery)[len(sent) :]:
            grown = None if sent else await self._grown(delivery, post)
            sent.append(grown or await self._post(delivery, post))
        self._progress.finish(delivery.id)
        return Sent(sent[-1])

    async def edit(self, channel: Channel, message_id: str, text: str) -> None:
        """Put another text into a message of ours, as far as it fits into one."""
        await self._wire.edit(channel.chat_id, message_id, outbound.posts_of(text)[0])

    async def show(self, channel: Channel, turn_id: str, text: str) -> None:
        """Let the answer grow in the channel, where that is wanted."""
        if self._rules.stream:
            await self._growing.show(channel, turn_id, text)

    async def typing(self, channel: Channel) -> None:
        """Slack has nothing for that."""

    async def close(self) -> None:
        """Let go of connections."""
        await self._wire.close()

    async def who(self) -> str:
        """The bot's name and workspace, if Slack takes its tokens."""
        account = await self._wire.account()
        if self._keys.app_token is not None:
            await self._wire.socket_address()
        return f"{account.name} (id {account.me.user_id}) in {account.team}"

    async def _post(self, delivery: Delivery, post: Post | Attachment) -> str:
        chat, thread = delivery.channel.chat_id, delivery.channel.thread_id
        if isinstance(post, Attachment):
            return await self._enclosures.hand_over(
                delivery,
                post,
                give=lambda file: self._wire.upload(chat, file, thread=thread),
                say=lambda said: self._wire.post(chat, outbound.posts_of(said)[0], thread=thread),
            )
        return await self._wire.post(chat, post, thread=thread)

    async def _grown(self, delivery: Delivery, post: Post | Attachment) -> str | None:
        """Make the first message of a delivery the last edit of the one that grew, if one did."""
        chat = delivery.channel.chat_id
        if isinstance(post, Attachment):
            return None
        return await self._growing.finish(
            delivery.turn_id, lambda number: self._wire.edit(chat, number, post)
        )

    async def _put(self, channel: Channel, number: str | None, text: str) -> str:
        shown = outbound.preview_of(text)
        if number is None:
            return await self._wire.post(channel.chat_id, shown, thread=channel.thread_id)
        await self._wire.edit(channel.chat_id, number, shown)
        return number

    async def _listen(self, receive: Receive) -> None:
        taking = asyncio.ensure_future(self._take_in(receive))
        listening = asyncio.ensure_future(self._connected())
        try:
            await asyncio.wait({taking, listening}, return_when=asyncio.FIRST_COMPLETED)
            for task in (taking, listening):
                if task.done():
                    task.result()
        finally:
            taking.cancel()
            listening.cancel()
            await asyncio.gather(taking, listening, return_exceptions=True)

    async def _connected(self) -> None:
        pause = 0.0
        while True:
            began = time.monotonic()
            await self._wire.listen(self._heard.put_nowait)
            # A connection that was good for a while is made again at once; one that is hung up
            # on at once would be asked for without end.
            is_short = time.monotonic() - began < STEADY_SECONDS
            pause = min(max(2 * pause, FIRST_PAUSE_SECONDS), LONGEST_PAUSE) if is_short else 0.0
            await asyncio.sleep(pause)

    async def _take_in(self, receive: Receive) -> None:
        """One after the other, each acknowledged when it is durable."""
        while True:
            if self._pending is None:
                self._pending = await self._heard.get()
            try:
                await self._take(_read(self._pending), receive)
            except (RetryLater, StoreUnavailable) as error:
                log.warning("a message from slack cannot be stored now: %s", error)
                await asyncio.sleep(getattr(error, "after", 1.0))
                continue
            except BadInput as error:
                # It would be refused for ever.
                log.warning("a message from slack cannot be stored: %s", error)
            envelope, self._pending = self._pending, None
            await envelope.acknowledge()

    async def _observe(self, heard: Heard, receive: Receive) -> None:
        """Remember a line that was not for the agent, unless a stranger wrote it."""
        names = await self._names(heard)
        if await receive.admits(inbound.source_of(heard, self._rules, names)):
            speaker, words = names.user or heard.user_id, inbound.as_typed(heard.text)
            self._observed.note(heard.room, speaker, words, id=heard.id)

    async def _take(self, heard: Heard | None, receive: Receive) -> None:
        account, rules = self._account, self._rules
        assert account is not None, "not running"
        if heard is None or inbound.is_ignored(heard, account.me):
            return
        if not inbound.is_addressed(heard, account.me, rules):
            if rules.observe:
                await self._observe(heard, receive)
            return
        source = inbound.source_of(heard, rules, await self._names(heard))
        known = heard.files if heard.files and await receive.admits(source) else ()
        parts, files = await fetched(known, rules.largest_file, self._wire.fetch, self._failures)
        said = inbound.message_of(heard, account.me, parts)
        await self._observed.give(
            heard.room, said, lambda whole: receive(source, whole, files=files)
        )

    async def _names(self, heard: Heard) -> Names:
        person = await self._wire.person(heard.user_id)
        profile = person.get("profile") or {}
        user = profile.get("display_name") or person.get("real_name") or person.get("name")
        if heard.is_direct:
            return Names(user)
        chat = await self._wire.chat(heard.channel_id)
        return Names(user, chat.get("name"), (chat.get("topic") or {}).get("value"))

    async def _webhook(self, headers: Mapping[str, str], body: bytes) -> int | str:
        """One request of the Events API, answered only when its message is durable."""
        assert self._keys.signing_secret is not None
        secret = self._keys.signing_secret.reveal()
        wrong = signature.problem(secret, headers, body, now=self._now())
        if wrong is not None:
            log.warning("slack: a request was refused: %s", wrong)
            return _NOT_SIGNED
        payload = _payload(body)
        if payload is None:
            return _BAD
        if payload.get("type") == "url_verification":
            return str(payload.get("challenge", ""))
        if self._receive is None:
            return _LATER
        is_event = payload.get("type") == "event_callback"
        heard = inbound.read_event(payload) if is_event else inbound.read_command(payload)
        try:
            await self._take(heard, self._receive)
        except (RetryLater, StoreUnavailable) as error:
            log.warning("slack: a message could not be stored and comes again: %s", error)
            return _LATER
        except BadInput as error:
            log.warning("slack: a message cannot be stored: %s", error)
        return _OK


def _read(envelope: Envelope) -> Heard | None:
    match envelope.kind:
        case "events_api":
            return inbound.read_event(envelope.payload)
        case "slash_commands":
            return inbound.read_command(envelope.payload)
        case _:
            return None


def _payload(body: bytes) -> dict[str, Any] | None:
    """A verified body: an event is JSON, a slash command a form."""
    try:
        if not body.lstrip().startswith(b"{"):
            return dict(parse_qsl(body.decode(), strict_parsing=True))
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
