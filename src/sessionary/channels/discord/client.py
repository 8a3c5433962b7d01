"""The only module that uses discord.py: its calls, and its errors as ours."""

import asyncio
import contextlib
import io
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import aiohttp
import yarl

with warnings.catch_warnings():
    # Its voice module imports `audioop`, which is deprecated; we do not use it.
    warnings.simplefilter("ignore", DeprecationWarning)
    import discord

from sessionary.channels.discord.inbound import DiscordBot, DiscordMessage, DiscordPlace
from sessionary.channels.files import BYTES, FileRefused, IncomingFile, OutgoingFile
from sessionary.errors import NotAllowed, NotFound, RetryLater, SessionaryError, Unreachable

__all__ = ("DiscordClient", "DiscordServers", "discord")

AGAIN_SECONDS = 5.0
BLOCKED_SECONDS = 60.0
GUILD_SECONDS = 5.0
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

OnMessage = Callable[[DiscordMessage], None]


@dataclass(frozen=True, slots=True)
class DiscordServers:
    """Addresses to use instead of Discord's own: a proxy, or a fake."""

    rest: str | None = None
    gateway: str | None = None


class DiscordClient:
    """One login; it cannot be used after `close`."""

    def __init__(
        self, token: str, *, reads_everything: bool, servers: DiscordServers | None = None
    ) -> None:
        self._token = token
        _use_servers(servers or DiscordServers())
        self._client = _GatewayClient(_intents(reads_everything=reads_everything))

    @property
    def bot(self) -> DiscordBot:
        """The bot's own ids; known after `login`."""
        user = self._client.user
        assert user is not None, "not logged in"
        roles = (guild.self_role for guild in self._client.guilds)
        return DiscordBot(
            str(user.id), frozenset(str(role.id) for role in roles if role is not None)
        )

    @property
    def name(self) -> str:
        """The bot's name; known after `login`."""
        return str(self._client.user)

    @property
    def is_closed(self) -> bool:
        """Whether the connection was closed."""
        return self._client.is_closed()

    async def login(self) -> None:
        """Log in; from now on messages can be sent."""
        with _translate_errors("the bot's account"):
            await self._client.login(self._token)

    async def listen(self, handle: OnMessage, on_begin: Callable[[], None]) -> None:
        """Call `handle` with every message until the connection is refused; the library reconnects by itself.

        `on_begin` is called when a connection begins that does not resume an earlier one.
        """
        self._client.handle, self._client.on_begin = handle, on_begin
        with _translate_errors("the gateway"):
            await self._client.connect(reconnect=True)

    async def register(self, commands: Sequence[tuple[str, str]]) -> None:
        """Register slash commands by their names and descriptions."""
        wanted = [_command(name, help) for name, help in commands]
        with _translate_errors("the slash commands"):
            http, id = self._client.http, self._client.application_id
            assert id is not None, "not logged in"
            await http.bulk_upsert_global_commands(id, payload=wanted)

    async def confirm(self, message: DiscordMessage, text: str) -> None:
        """Answer a slash command; only its author sees that."""
        found = self._client.interactions.pop(message.message_id, None)
        if found is not None:
            with _translate_errors("a slash command"):
                await found.response.send_message(text, ephemeral=True)

    async def post(self, channel_id: str, text: str, *, nonce: str | None = None) -> str:
        """Send a message; return its id. For a nonce that was used lately it is the earlier message's."""
        with _translate_errors(channel_id):
            place = self._place(channel_id)
            sent = await (place.send(text) if nonce is None else place.send(text, nonce=nonce))
        return str(sent.id)

    async def post_file(self, channel_id: str, file: OutgoingFile, *, nonce: str) -> str:
        """Send a file; return the message's id."""
        given = discord.File(io.BytesIO(file.data), filename=file.name)
        try:
            with _translate_errors(channel_id):
                sent = await self._place(channel_id).send(file=given, nonce=nonce)
        except Unreachable as error:
            cause = error.__cause__
            if isinstance(cause, discord.HTTPException) and _is_about_file(cause):
                raise FileRefused(cause.text or "Discord does not take it") from error
            raise
        return str(sent.id)

    async def edit(self, channel_id: str, message_id: str, text: str) -> None:
        """Replace the text of a message of ours."""
        with _translate_errors(channel_id):
            message = self._place(channel_id).get_partial_message(_snowflake(message_id))
            await message.edit(content=text)

    async def typing(self, channel_id: str) -> None:
        """Show the typing indicator for some seconds."""
        with _translate_errors(channel_id):
            await self._place(channel_id).typing()

    async def missed(self, channel_id: str, *, after: int, most: int) -> list[DiscordMessage]:
        """Return the newest messages of a channel after an id, in order."""
        since = max(after, discord.utils.time_snowflake(discord.utils.utcnow() - LONGEST_AWAY))
        with _translate_errors(channel_id):
            channel = await self._client.fetch_channel(_snowflake(channel_id))
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

    async def fetch(self, file: IncomingFile) -> bytes:
        """Return the bytes of a file."""
        try:
            with _translate_errors(f"the file {file.name}"):
                return await self._client.http.get_from_cdn(file.id)
        except NotAllowed as error:  # it is not about our token, which is not needed for files
            raise NotFound(f"Discord does not give out the file {file.name}.") from error

    async def close(self) -> None:
        """Close the connection."""
        if not self._client.is_closed():
            await self._client.close()

    def _place(self, channel_id: str) -> discord.PartialMessageable:
        return self._client.get_partial_messageable(_snowflake(channel_id))


class _GatewayClient(discord.Client):
    def __init__(self, intents: discord.Intents) -> None:
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
        self.handle: OnMessage = lambda _: None
        self.on_begin: Callable[[], None] = lambda: None
        self.interactions: dict[str, discord.Interaction] = {}
        _raise_rate_limits(self.http)

    async def on_connect(self) -> None:
        # Not after a resumed connection: there the gateway sends what was missed. And not when the library is
        # ready: messages may come before that, and what was missed must come before them.
        self.on_begin()

    async def on_message(self, message: discord.Message) -> None:
        if message.type in _SPOKEN:
            self.handle(_message(message))

    async def on_raw_message_edit(self, payload: discord.RawMessageUpdateEvent) -> None:
        # It has the id of the original: new only if that was not received.
        await self.on_message(payload.message)

    async def on_interaction(self, interaction: discord.Interaction) -> None:
        if interaction.type is discord.InteractionType.application_command:
            self.interactions[str(interaction.id)] = interaction
            self.handle(_command_message(interaction))


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
        raise SessionaryError(
            f"Discord did not answer: {type(error).__name__}.", committed="unknown"
        ) from error


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


def _is_about_file(error: discord.HTTPException) -> bool:
    """Return whether it is too large for this server, or the bot may not attach files there."""
    return error.status == _TOO_LARGE or error.code in (_FILE_TOO_LARGE, _LACKS_PERMISSIONS)


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


def _message(message: discord.Message) -> DiscordMessage:
    replied = message.reference.resolved if message.reference is not None else None
    named = [each.id for each in message.mentions]
    mentions = [*named, *message.raw_mentions, *message.raw_role_mentions]
    return DiscordMessage(
        message_id=str(message.id),
        text=message.content,
        author_id=str(message.author.id),
        author_name=message.author.display_name,
        author_is_bot=message.author.bot,
        mentions=frozenset(str(each) for each in mentions),
        replies_to=str(replied.author.id) if isinstance(replied, discord.Message) else None,
        files=tuple(_file(each) for each in message.attachments),
        place=_place(message.channel, message.guild),
    )


def _command_message(interaction: discord.Interaction) -> DiscordMessage:
    data = dict(interaction.data or {})
    options = data.get("options")
    given = [str(each.get("value", "")) for each in options] if isinstance(options, list) else []
    return DiscordMessage(
        message_id=str(interaction.id),
        text=" ".join([f"/{data.get('name', '')}", *given]).strip(),
        author_id=str(interaction.user.id),
        author_name=interaction.user.display_name,
        is_command=True,
        place=_place(interaction.channel, interaction.guild, str(interaction.channel_id)),
    )


def _place(channel: object, guild: discord.Guild | None, id: str = "") -> DiscordPlace:
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
