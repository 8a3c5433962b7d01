"""The Discord channel: the gateway in, REST out. The only module that uses discord.py."""

import asyncio
import contextlib
import hashlib
import io
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import aiohttp
import yarl

with warnings.catch_warnings():
    # Its voice module imports `audioop`, which is deprecated; we do not use it.
    warnings.simplefilter("ignore", DeprecationWarning)
    import discord

from sessionary.channels.base import (
    ChannelAdapter,
    PendingQueue,
    answer_lost,
    button_labels,
    is_about_question,
    until_first_ends,
    utf16_units,
)
from sessionary.channels.discord import inbound
from sessionary.channels.discord.inbound import (
    DiscordBot,
    DiscordMessage,
    DiscordOptions,
    DiscordPlace,
    Gap,
)
from sessionary.channels.files import (
    BYTES,
    FileRefused,
    IncomingFile,
    LatestDict,
    OutgoingFile,
)
from sessionary.config.secret import Secret
from sessionary.engine.commands import REGISTRY
from sessionary.engine.ports import Capabilities, Receive
from sessionary.errors import (
    NotAllowed,
    NotFound,
    RetryLater,
    SessionaryError,
    StoreUnavailable,
    Unreachable,
)
from sessionary.model.question import APPROVE, DENY, Card
from sessionary.model.source import Channel, Source
from sessionary.model.turn import Delivery

__all__ = ("DiscordAdapter", "DiscordServers", "discord")

AGAIN_SECONDS = 5.0
BLOCKED_SECONDS = 60.0
GUILD_SECONDS = 5.0
# Discord waits three seconds for the reply to a button. If the answer is not stored after this time, the person is
# shown that it is being worked on, and Discord waits for a quarter of an hour.
DEFER_SECONDS = 1.5
LONGEST_AWAY = timedelta(days=1)
_BUCKET_SECONDS = 30.0
_SPOKEN = (discord.MessageType.default, discord.MessageType.reply)
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _TOO_MANY = 401, 403, 404, 429
_BAD_REQUEST, _SERVER_FAULT = 400, 500
_TOO_LARGE, _FILE_TOO_LARGE, _LACKS_PERMISSIONS = 413, 40005, 50013
_WRONG_TOKEN, _WRONG_INTENTS = 4004, 4013
_LONGEST_DESCRIPTION = 100
TOKEN_REFUSED = (
    "Discord refuses the bot's token. Make a new one in the developer portal (Bot, Reset Token) "
    "and put it where token_env or token_file of [channels.discord] says."
)
INTENTS_REFUSED = (
    "Discord does not let this bot read messages. Switch on «Message Content Intent» in the "
    'developer portal (Bot, Privileged Gateway Intents), or set answer = "mentioned" and '
    "observe = false in [channels.discord]."
)
# It would warn at every start that voice is not supported.
discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False

# How much of what was missed is fetched: from this many channels, this many messages each.
MAX_CHATS = 200
MAX_MESSAGES = 500
# How far we have read is stored now and then: a message that is read twice is recognised by its id.
SAVE_SECONDS = 30.0
# Messages of different channels may overtake each other by a minute, in Discord's ids.
OVERLAP = 60_000 << 22
_MAX_HANDLED = 5000
COMING = "Received; the answer follows here."
LONGEST = 2000
_NONCE_LENGTH = 25
_NOBODY = discord.AllowedMentions.none()
_STYLES = {APPROVE: discord.ButtonStyle.success, DENY: discord.ButtonStyle.danger}
CAPABILITIES = Capabilities(
    # Ten messages: the adapter splits between code fences, so a delivery may be longer than one message.
    longest_text=10 * LONGEST,
    shows_typing=True,
    ids_needed_for_mentions=True,
    buttons=True,
    edits=True,
    notes=(
        "You are on Discord. You see only what is said to you here.",
        "You cannot search the history, pin, manage channels or roles, or list members.",
        "Mention a person by writing <@id> with their user id; @everyone and roles are not rung.",
        "Markdown works: bold, italics, lists, quotes, `code` and fenced code. Tables do not.",
    ),
)
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DiscordServers:
    """Addresses to use instead of Discord's own: a proxy, or a fake."""

    rest: str | None = None
    gateway: str | None = None


@dataclass(frozen=True, slots=True)
class DiscordPress:
    """Somebody pressed a button. `told` is set to what they are told, once their answer is durable."""

    source: Source
    data: str
    told: asyncio.Future[str]


DiscordEvent = DiscordMessage | DiscordPress | Gap


class DiscordAdapter(ChannelAdapter):
    """One bot. Its messages come in order; one that cannot be stored now is tried again."""

    platform = inbound.PLATFORM
    options: DiscordOptions
    longest_message = LONGEST
    # Discord accepts 80 characters; a telephone shows fewer.
    longest_label = 40
    measure = staticmethod(utf16_units)

    def __init__(
        self,
        token: Secret,
        options: DiscordOptions | None = None,
        *,
        servers: DiscordServers | None = None,
    ) -> None:
        super().__init__(options or DiscordOptions())
        self.capabilities = replace(CAPABILITIES, streams=self.options.stream)
        self._token = token
        self._servers = servers
        self._client: _GatewayClient | None = None
        self._logging_in = asyncio.Lock()
        # Discord offers nothing twice: what is not stored yet outlives a failed run.
        self._events: PendingQueue[DiscordEvent] = PendingQueue(self.platform)
        # The id of the latest message that was handled: Discord's ids grow with time, everywhere.
        self._latest = 0
        self._position = 0
        self._saved_position = 0
        self._saved_at = float("-inf")
        self._handled: LatestDict[str, None] = LatestDict(_MAX_HANDLED)

    async def run(self, receive: Receive) -> None:
        async def handle(event: DiscordEvent) -> None:
            match event:
                case Gap():
                    self.backoff.reset()
                    await self._catch_up(client, receive)
                case DiscordPress(source, data, told):
                    text = (await self.press(source, data, receive)).text
                    # It is cancelled if the connection is closed on which the person could be told.
                    if not told.done():
                        told.set_result(text)
                case _:
                    await self._handle(client, event, receive)
                    await self._advance()

        with self.receiving(receive):
            client = await self._logged_in()
            await self._register_commands(client)
            try:
                await until_first_ends(self._events.handle_all(handle), client.listen())
                raise RetryLater("Discord closed the connection.", after=1.0)
            finally:
                await self.close()
                try:
                    await self._save_position()
                except (RetryLater, StoreUnavailable) as error:
                    # Then a little more is read again, and recognised.
                    logger.warning("discord: how far it was read cannot be stored now: %s", error)

    async def _handle(
        self, client: "_GatewayClient", message: DiscordMessage, receive: Receive
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
        self._latest = max(self._latest, int(message.message_id))

    async def _catch_up(self, client: "_GatewayClient", receive: Receive) -> None:
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
                missed = await client.missed(target(channel), after=after, most=MAX_MESSAGES)
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
        try:
            with _translate_errors(f"the file {file.name}"):
                return await (await self._logged_in()).http.get_from_cdn(file.id)
        except NotAllowed as error:  # it is not about our token, which is not needed for files
            raise NotFound(f"Discord does not give out the file {file.name}.") from error

    # Sending.

    async def send_text(self, delivery: Delivery, text: str, index: int) -> str:
        return await self._send(delivery, text, index)

    async def send_card(self, delivery: Delivery, text: str, card: Card, index: int) -> str:
        return await self._send(delivery, text, index, view=_buttons(card, self.longest_label))

    async def _send(self, delivery: Delivery, text: str, index: int, **more: Any) -> str:
        place = await self._place(delivery.channel)
        if is_about_question(delivery):
            more["allowed_mentions"] = _NOBODY
        # For a nonce that was used lately Discord returns the earlier message.
        with _translate_errors(target(delivery.channel)):
            return str((await place.send(text, nonce=nonce(delivery.id, index), **more)).id)

    async def send_file(self, delivery: Delivery, file: OutgoingFile, index: int) -> str:
        place = await self._place(delivery.channel)
        given = discord.File(io.BytesIO(file.data), filename=file.name)
        try:
            with _translate_errors(target(delivery.channel)):
                return str((await place.send(file=given, nonce=nonce(delivery.id, index))).id)
        except Unreachable as error:
            cause = error.__cause__
            # It is too large for this server, or the bot may not attach files there.
            if isinstance(cause, discord.HTTPException) and (
                cause.status == _TOO_LARGE or cause.code in (_FILE_TOO_LARGE, _LACKS_PERMISSIONS)
            ):
                raise FileRefused(cause.text or "Discord does not take it") from error
            raise

    async def edit_text(self, channel: Channel, message_id: str, text: str) -> None:
        place = await self._place(channel)
        with _translate_errors(target(channel)):
            await place.get_partial_message(_snowflake(message_id)).edit(content=text)

    async def edit_card(self, channel: Channel, message_id: str, text: str) -> None:
        place = await self._place(channel)
        message = place.get_partial_message(_snowflake(message_id))
        with _translate_errors(target(channel)):
            await message.edit(content=text, view=None, allowed_mentions=_NOBODY)

    async def show_partial(self, channel: Channel, message_id: str | None, text: str) -> str:
        if message_id is None:
            place = await self._place(channel)
            # Without a nonce: two replies that begin alike are two messages.
            with _translate_errors(target(channel)):
                return str((await place.send(text)).id)
        await self.edit_text(channel, message_id, text)
        return message_id

    async def typing(self, channel: Channel) -> None:
        place = await self._place(channel)
        with _translate_errors(target(channel)):
            await place.typing()

    async def _place(self, channel: Channel) -> discord.PartialMessageable:
        client = await self._logged_in()
        return client.get_partial_messageable(_snowflake(target(channel)))

    # The connection.

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None and not client.is_closed():
            await client.close()

    async def check(self) -> str:
        client = await self._logged_in()
        return f"Discord knows this bot as {client.user} (id {client.bot.id})."

    async def _logged_in(self) -> "_GatewayClient":
        async with self._logging_in:
            if self._client is None or self._client.is_closed():
                _use_servers(self._servers or DiscordServers())
                options = self.options
                reads = options.always or options.observe or bool(options.always_in)
                client = _GatewayClient(_intents(reads_everything=reads), self._events.put)
                try:
                    with _translate_errors("the bot's account"):
                        await client.login(self._token.reveal())
                except BaseException:
                    await client.close()
                    raise
                self._client = client
            return self._client

    async def _register_commands(self, client: "_GatewayClient") -> None:
        if not self.options.commands:
            return
        try:
            wanted = [_command(each.name, each.help) for each in REGISTRY.values()]
            with _translate_errors("the slash commands"):
                assert client.application_id is not None, "not logged in"
                await client.http.bulk_upsert_global_commands(client.application_id, payload=wanted)
        except SessionaryError as error:
            # Typed commands work without: the bot was invited without that scope.
            logger.warning("discord: slash commands cannot be registered: %s", error)


def target(channel: Channel) -> str:
    """Return the id that Discord has for a channel: a thread is a channel of its own."""
    return channel.thread_id or channel.chat_id


def nonce(delivery_id: str, index: int) -> str:
    """Return the nonce of a piece, the same in every attempt: Discord accepts it once within some minutes."""
    return hashlib.sha256(f"{delivery_id}/{index}".encode()).hexdigest()[:_NONCE_LENGTH]


class _GatewayClient(discord.Client):
    """One login; it cannot be used after `close`. `put` gets every event."""

    def __init__(self, intents: discord.Intents, put: Callable[[DiscordEvent], None]) -> None:
        super().__init__(
            intents=intents,
            # Only people who are mentioned are notified, not those who are answered.
            allowed_mentions=discord.AllowedMentions(
                everyone=False, roles=False, users=True, replied_user=False
            ),
            max_messages=None,
            member_cache_flags=discord.MemberCacheFlags.none(),
            chunk_guilds_at_startup=False,
            guild_ready_timeout=0,
        )
        self._put = put
        self.interactions: dict[str, discord.Interaction] = {}
        self._told: set[asyncio.Future[str]] = set()
        _raise_rate_limits(self.http)

    async def on_connect(self) -> None:
        # Not after a resumed connection: there the gateway sends what was missed. And not when the library is
        # ready: messages may come before that, and what was missed must come before them.
        self._put(Gap())

    async def on_message(self, message: discord.Message) -> None:
        if message.type in _SPOKEN:
            self._put(_message(message))

    async def on_raw_message_edit(self, payload: discord.RawMessageUpdateEvent) -> None:
        # It has the id of the original: new only if that was not received.
        await self.on_message(payload.message)

    async def on_interaction(self, interaction: discord.Interaction) -> None:
        if interaction.type is discord.InteractionType.application_command:
            self.interactions[str(interaction.id)] = interaction
            self._put(_command_message(interaction))
        elif interaction.type is discord.InteractionType.component:
            try:
                await self._handle_press(interaction)
            except SessionaryError as error:
                # The answer is stored, or will be; the message with the buttons shows it too.
                logger.warning("discord: the outcome of a button is not shown: %s", error)

    async def _handle_press(self, interaction: discord.Interaction) -> None:
        """Queue the press of a button, and tell the person what became of it; only they see that."""
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._told.add(told)
        told.add_done_callback(self._told.discard)
        source = inbound.source_of(_interaction_message(interaction, ""))
        self._put(DiscordPress(source, str(dict(interaction.data or {}).get("custom_id")), told))
        await asyncio.wait({told}, timeout=DEFER_SECONDS)
        with _translate_errors("a button"):
            if told.done():
                text = await told
                await interaction.response.send_message(
                    text, ephemeral=True, allowed_mentions=_NOBODY
                )
                return
            await interaction.response.defer(ephemeral=True, thinking=True)
            text = await told
            if not interaction.is_expired():
                await interaction.edit_original_response(content=text, allowed_mentions=_NOBODY)

    async def close(self) -> None:
        # They wait for what they tell on this connection. The presses themselves are queued, and outlive it.
        for told in tuple(self._told):
            told.cancel()
        await super().close()

    @property
    def bot(self) -> DiscordBot:
        """The bot's own ids; known after `login`."""
        assert self.user is not None, "not logged in"
        roles = (guild.self_role for guild in self.guilds)
        ids = frozenset(str(role.id) for role in roles if role is not None)
        return DiscordBot(str(self.user.id), ids)

    async def listen(self) -> None:
        """Receive until the connection is refused; the library reconnects by itself."""
        with _translate_errors("the gateway"):
            await self.connect(reconnect=True)

    async def confirm(self, message: DiscordMessage, text: str) -> None:
        """Answer a slash command; only its author sees that."""
        found = self.interactions.pop(message.message_id, None)
        if found is not None:
            with _translate_errors("a slash command"):
                await found.response.send_message(text, ephemeral=True)

    async def missed(self, channel_id: str, *, after: int, most: int) -> list[DiscordMessage]:
        """Return the newest messages of a channel after an id, in order."""
        since = max(after, discord.utils.time_snowflake(discord.utils.utcnow() - LONGEST_AWAY))
        with _translate_errors(channel_id):
            channel = await self.fetch_channel(_snowflake(channel_id))
            # The library does not know it for a direct chat.
            last = getattr(channel, "last_message_id", sys.maxsize) or 0
            if not isinstance(channel, discord.abc.Messageable) or last <= since:
                return []
            await _wait_for_guild(getattr(channel, "guild", None))
            found: list[discord.Message] = []
            async for each in channel.history(limit=most):
                if each.id <= since:
                    break
                found.append(each)
        return [_message(each) for each in reversed(found) if each.type in _SPOKEN]


@contextlib.contextmanager
def _translate_errors(where: str) -> Iterator[None]:
    """Raise the library's errors as ours."""
    try:
        yield
    except discord.RateLimited as error:
        raise RetryLater("Discord asks us to wait.", after=error.retry_after) from error
    except discord.LoginFailure as error:
        raise NotAllowed(TOKEN_REFUSED) from error
    except discord.PrivilegedIntentsRequired as error:
        raise NotAllowed(INTENTS_REFUSED) from error
    except discord.ConnectionClosed as error:
        raise _closed_error(error.code) from error
    except discord.HTTPException as error:
        raise _http_error(error, where) from error
    except aiohttp.ClientConnectorError as error:
        raise RetryLater("Discord cannot be reached.", after=AGAIN_SECONDS) from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise answer_lost("Discord", error) from error


def _use_servers(servers: DiscordServers) -> None:
    """Set the addresses, which the library keeps in classes: they hold for the whole process."""
    if servers.rest is not None:
        discord.http.Route.BASE = servers.rest
    if servers.gateway is not None:
        discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(servers.gateway)


def _closed_error(code: int) -> SessionaryError:
    if code == _WRONG_TOKEN:
        return NotAllowed(TOKEN_REFUSED)
    if code == _WRONG_INTENTS:
        return NotAllowed(INTENTS_REFUSED)
    return RetryLater(f"Discord closed the connection ({code}).", after=AGAIN_SECONDS)


def _http_error(error: discord.HTTPException, where: str) -> SessionaryError:
    why = f"{error.text or error.response.reason} ({error.code})"
    if error.status == _UNAUTHORIZED:
        return NotAllowed(TOKEN_REFUSED)
    if error.status == _TOO_MANY:
        given = error.response.headers.get("Retry-After", "")
        after = float(given) if given.isdigit() else BLOCKED_SECONDS
        return RetryLater("Discord asks us to wait.", after=after)
    if error.status == _FORBIDDEN:
        return Unreachable(
            f"Discord does not let the bot write to {where}: {why}. Give it the permissions "
            "View Channel, Read Message History and Send Messages (in Threads) there.",
            where,
        )
    if error.status == _NOT_FOUND:
        return Unreachable(f"Discord does not know {where}: {why}.", where)
    if _BAD_REQUEST <= error.status < _SERVER_FAULT:
        return Unreachable(f"Discord does not take this: {why}.", where)
    return SessionaryError(f"Discord failed with status {error.status}.", committed="unknown")


def _raise_rate_limits(http: discord.http.HTTPClient) -> None:
    """Make a 429 an error: the outbox stores when to try again, and other channels go on.

    The pauses that the library derives from the headers of earlier answers are seconds: it may wait for them.
    """
    find = http.get_ratelimit

    def get_ratelimit(key: str) -> discord.http.Ratelimit:
        found = find(key)
        found._max_ratelimit_timeout = _BUCKET_SECONDS
        return found

    http.max_ratelimit_timeout = 0.001
    http.get_ratelimit = get_ratelimit  # type: ignore[method-assign]


def _intents(*, reads_everything: bool) -> discord.Intents:
    intents = discord.Intents.none()
    intents.guilds = intents.guild_messages = intents.dm_messages = True
    # A privilege: without it we can read direct messages, and messages that mention us.
    intents.message_content = reads_everything
    return intents


async def _wait_for_guild(guild: discord.Guild | None) -> None:
    """Wait a limited time until the gateway has sent the names and roles of a server."""
    until = time.monotonic() + GUILD_SECONDS
    while guild is not None and guild.unavailable and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


def _buttons(card: Card, longest: int) -> discord.ui.View:
    """Return a button for each option of a card; the library puts five into a row."""
    view = discord.ui.View(timeout=None)
    for number, label in enumerate(button_labels(card, longest), 1):
        style = _STYLES.get(card.options[number - 1], discord.ButtonStyle.secondary)
        view.add_item(discord.ui.Button(label=label, custom_id=card.button(number), style=style))
    # Otherwise the library would keep it in memory to call it back: we read the presses ourselves.
    view.stop()
    return view


def _message(message: discord.Message) -> DiscordMessage:
    reference = message.reference
    replied = None if reference is None else reference.resolved
    is_reply = reference is not None and reference.type is discord.MessageReferenceType.reply
    named = [each.id for each in message.mentions]
    mentions = [*named, *message.raw_mentions, *message.raw_role_mentions]
    # A forwarded message has nothing of its own.
    forwarded = message.message_snapshots
    texts = [message.content, *(each.content for each in forwarded)]
    files = [*message.attachments, *(file for each in forwarded for file in each.attachments)]
    return DiscordMessage(
        message_id=str(message.id),
        text="\n".join(each for each in texts if each),
        author_id=str(message.author.id),
        author_name=message.author.display_name,
        author_is_bot=message.author.bot,
        mentions=frozenset(str(each) for each in mentions),
        replies_to=str(replied.author.id) if isinstance(replied, discord.Message) else None,
        replied_id=str(reference.message_id) if reference is not None and is_reply else None,
        files=tuple(_file(each) for each in files),
        place=_read_place(message.channel, message.guild),
        is_forwarded=bool(forwarded),
    )


def _command_message(interaction: discord.Interaction) -> DiscordMessage:
    data = dict(interaction.data or {})
    options = data.get("options")
    given = [str(each.get("value", "")) for each in options] if isinstance(options, list) else []
    return _interaction_message(interaction, " ".join([f"/{data.get('name', '')}", *given]).strip())


def _interaction_message(interaction: discord.Interaction, text: str) -> DiscordMessage:
    return DiscordMessage(
        message_id=str(interaction.id),
        text=text,
        author_id=str(interaction.user.id),
        author_name=interaction.user.display_name,
        is_command=True,
        place=_read_place(interaction.channel, interaction.guild, str(interaction.channel_id)),
    )


def _read_place(channel: object, guild: discord.Guild | None, id: str = "") -> DiscordPlace:
    parent = channel.parent_id if isinstance(channel, discord.Thread) else None
    return DiscordPlace(
        channel_id=str(getattr(channel, "id", id)),
        channel_name=getattr(channel, "name", None),
        topic=getattr(channel, "topic", None),
        parent_id=None if parent is None else str(parent),
        guild_id=None if guild is None else str(guild.id),
        guild_name=None if guild is None else guild.name,
    )


def _file(found: discord.Attachment) -> IncomingFile:
    return IncomingFile(found.url, found.filename, found.content_type or BYTES, found.size)


def _command(name: str, help: str) -> dict[str, object]:
    words = {"type": 3, "name": "words", "description": "name, number or words", "required": False}
    return {
        "name": name,
        "type": 1,
        "description": help[:_LONGEST_DESCRIPTION],
        "options": [words],
    }


def _snowflake(id: str) -> int:
    if not (id.isascii() and id.isdigit()):
        raise Unreachable(f"{id[:64]!r} is not an id of Discord.", id)
    return int(id)
