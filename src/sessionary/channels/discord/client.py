"""The wire to Discord: the only module that knows discord.py."""

import asyncio
import contextlib
import io
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import aiohttp
import yarl

with warnings.catch_warnings():
    # Its voice module imports `audioop`, of which Python warns; we never speak.
    warnings.simplefilter("ignore", DeprecationWarning)
    import discord

from sessionary.channels.discord.inbound import Heard, Me, Place
from sessionary.channels.enclosures import Enclosure, FileRefused
from sessionary.channels.files import File
from sessionary.errors import NotAllowed, RetryLater, SessionaryError, Unreachable

__all__ = ("INTENTS_REFUSED", "TOKEN_REFUSED", "Hear", "Wire", "discord", "translated")

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
log = logging.getLogger("sessionary.channels.discord")
# It would say at every start that it cannot speak.
discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False

Hear = Callable[[Heard], None]


@dataclass(frozen=True, slots=True)
class Servers:
    """Where Discord is, when it is not where the library knows it: a proxy, or a fake."""

    rest: str | None = None
    gateway: str | None = None


class Wire:
    """One login. After `close` it is used up."""

    def __init__(
        self, token: str, *, reads_everything: bool, servers: Servers | None = None
    ) -> None:
        self._token = token
        _speak_to(servers or Servers())
        self._client = _Client(_intents(reads_everything=reads_everything))

    @property
    def me(self) -> Me:
        """The bot's own ids; known after `login`."""
        user = self._client.user
        assert user is not None, "not logged in"
        roles = (guild.self_role for guild in self._client.guilds)
        return Me(str(user.id), frozenset(str(role.id) for role in roles if role is not None))

    @property
    def name(self) -> str:
        """What the bot is called; known after `login`."""
        return str(self._client.user)

    @property
    def is_closed(self) -> bool:
        """Whether this wire is used up."""
        return self._client.is_closed()

    async def login(self) -> None:
        """Present the token; from now on messages can be sent."""
        with translated("the bot's account"):
            await self._client.login(self._token)

    async def listen(self, hear: Hear, on_begin: Callable[[], None]) -> None:
        """Tell of every message until the connection is refused; it is made again by itself.

        `on_begin` is called when a connection begins that goes on with none before it.
        """
        self._client.hear, self._client.on_begin = hear, on_begin
        with translated("the gateway"):
            await self._client.connect(reconnect=True)

    async def register(self, commands: Sequence[tuple[str, str]]) -> None:
        """Offer slash commands: their names and what they do."""
        wanted = [_command(name, help) for name, help in commands]
        with translated("the slash commands"):
            http, id = self._client.http, self._client.application_id
            assert id is not None, "not logged in"
            await http.bulk_upsert_global_commands(id, payload=wanted)

    async def confirm(self, heard: Heard, text: str) -> None:
        """Tell whoever gave a slash command that it has come; only they see it."""
        found = self._client.interactions.pop(heard.message_id, None)
        if found is not None:
            with translated("a slash command"):
                await found.response.send_message(text, ephemeral=True)

    async def post(self, channel_id: str, text: str, *, nonce: str | None = None) -> str:
        """Write a message; its id. With a nonce that was used lately it is the earlier message."""
        with translated(channel_id):
            place = self._place(channel_id)
            sent = await (place.send(text) if nonce is None else place.send(text, nonce=nonce))
        return str(sent.id)

    async def post_file(self, channel_id: str, file: Enclosure, *, nonce: str) -> str:
        """Write a message that is a file; its id."""
        given = discord.File(io.BytesIO(file.data), filename=file.name)
        try:
            with translated(channel_id):
                sent = await self._place(channel_id).send(file=given, nonce=nonce)
        except Unreachable as error:
            cause = error.__cause__
            if isinstance(cause, discord.HTTPException) and _is_about_the_file(cause):
                raise FileRefused(cause.text or "Discord does not take it") from error
            raise
        return str(sent.id)

    async def edit(self, channel_id: str, message_id: str, text: str) -> None:
        """Put another text into a message of ours."""
        with translated(channel_id):
            message = self._place(channel_id).get_partial_message(_snowflake(message_id))
            await message.edit(content=text)

    async def typing(self, channel_id: str) -> None:
        """Show for some seconds that something is being written."""
        with translated(channel_id):
            await self._place(channel_id).typing()

    async def missed(self, channel_id: str, *, after: int, most: int) -> list[Heard]:
        """What was said in a channel after an id, in order; of very much the newest."""
        since = max(after, discord.utils.time_snowflake(discord.utils.utcnow() - LONGEST_AWAY))
        with translated(channel_id):
            channel = await self._client.fetch_channel(_snowflake(channel_id))
            # The library does not know it of a direct chat.
            last = getattr(channel, "last_message_id", sys.maxsize) or 0
            if not isinstance(channel, discord.abc.Messageable) or last <= since:
                return []
            await _is_known(getattr(channel, "guild", None))
            found: list[discord.Message] = []
            async for each in channel.history(limit=most):
                if each.id <= since:
                    break
                found.append(each)
        return [_heard(each) for each in reversed(found) if each.type in _SPOKEN]

    async def fetch(self, file: File) -> bytes:
        """The bytes of a file."""
        with translated(f"the file {file.name}"):
            return await self._client.http.get_from_cdn(file.url)

    async def close(self) -> None:
        """Hang up."""
        if not self._client.is_closed():
            await self._client.close()

    def _place(self, channel_id: str) -> discord.PartialMessageable:
        return self._client.get_partial_messageable(_snowflake(channel_id))


class _Client(discord.Client):
    def __init__(self, intents: discord.Intents) -> None:
        super().__init__(
            intents=intents,
            # Nobody but who is named is rung, and nobody by being answered.
            allowed_mentions=discord.AllowedMentions(
                everyone=False, roles=False, users=True, replied_user=False
            ),
            max_messages=None,
            member_cache_flags=discord.MemberCacheFlags.none(),
            chunk_guilds_at_startup=False,
            guild_ready_timeout=0,
        )
        self.hear: Hear = lambda _: None
        self.on_begin: Callable[[], None] = lambda: None
        self.interactions: dict[str, discord.Interaction] = {}
        _leave_waiting_to_the_outbox(self.http)

    async def on_connect(self) -> None:
        # Not after a resumed connection: there the gateway says by itself what was missed. And not
        # when the library is ready: messages may come before that, and what was missed before them.
        self.on_begin()

    async def on_message(self, message: discord.Message) -> None:
        if message.type in _SPOKEN:
            self.hear(_heard(message))

    async def on_raw_message_edit(self, payload: discord.RawMessageUpdateEvent) -> None:
        # The same message under the same id: new only if it was not heard before.
        await self.on_message(payload.message)

    async def on_interaction(self, interaction: discord.Interaction) -> None:
        if interaction.type is discord.InteractionType.application_command:
            self.interactions[str(interaction.id)] = interaction
            self.hear(_heard_command(interaction))


@contextlib.contextmanager
def translated(where: str) -> Iterator[None]:
    """Errors of the library in the words of the port."""
    try:
        yield
    except discord.RateLimited as error:
        raise RetryLater("Discord asks us to wait.", after=error.retry_after) from error
    except discord.LoginFailure as error:
        raise NotAllowed(TOKEN_REFUSED) from error
    except discord.PrivilegedIntentsRequired as error:
        raise NotAllowed(INTENTS_REFUSED) from error
    except discord.ConnectionClosed as error:
        raise _hung_up(error.code) from error
    except discord.HTTPException as error:
        raise _refused(error, where) from error
    except aiohttp.ClientConnectorError as error:
        raise RetryLater("Discord cannot be reached.", after=AGAIN_SECONDS) from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise SessionaryError(
            f"Discord did not answer: {type(error).__name__}.", committed="unknown"
        ) from error


def _speak_to(servers: Servers) -> None:
    """The library keeps its addresses in classes: they hold for the whole process."""
    if servers.rest is not None:
        discord.http.Route.BASE = servers.rest
    if servers.gateway is not None:
        discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(servers.gateway)


def _hung_up(code: int) -> SessionaryError:
    if code == _WRONG_TOKEN:
        return NotAllowed(TOKEN_REFUSED)
    if code == _WRONG_INTENTS:
        return NotAllowed(INTENTS_REFUSED)
    return RetryLater(f"Discord closed the connection ({code}).", after=AGAIN_SECONDS)


def _refused(error: discord.HTTPException, where: str) -> SessionaryError:
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


def _is_about_the_file(error: discord.HTTPException) -> bool:
    """It is too large for this server, or the bot may write there but attach nothing."""
    return error.status == _TOO_LARGE or error.code in (_FILE_TOO_LARGE, _LACKS_PERMISSIONS)


def _leave_waiting_to_the_outbox(http: discord.http.HTTPClient) -> None:
    """A 429 is handed on: the outbox notes the time in the store, and other channels go on.

    What the library foresees from the headers of earlier answers is seconds: it may wait for that.
    """
    find = http.get_ratelimit

    def patient(key: str) -> discord.http.Ratelimit:
        found = find(key)
        found._max_ratelimit_timeout = _BUCKET_SECONDS
        return found

    http.max_ratelimit_timeout = 0.001
    http.get_ratelimit = patient  # type: ignore[method-assign]


def _intents(*, reads_everything: bool) -> discord.Intents:
    intents = discord.Intents.none()
    intents.guilds = intents.guild_messages = intents.dm_messages = True
    # A privilege: without it we read direct messages, and what mentions us.
    intents.message_content = reads_everything
    return intents


async def _is_known(guild: discord.Guild | None) -> None:
    """Wait until the gateway has told the names and roles of a server, but not for ever."""
    until = time.monotonic() + GUILD_SECONDS
    while guild is not None and guild.unavailable and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


def _heard(message: discord.Message) -> Heard:
    replied = message.reference.resolved if message.reference is not None else None
    named = [each.id for each in message.mentions]
    mentions = [*named, *message.raw_mentions, *message.raw_role_mentions]
    return Heard(
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


def _heard_command(interaction: discord.Interaction) -> Heard:
    data = dict(interaction.data or {})
    options = data.get("options")
    given = [str(each.get("value", "")) for each in options] if isinstance(options, list) else []
    return Heard(
        message_id=str(interaction.id),
        text=" ".join([f"/{data.get('name', '')}", *given]).strip(),
        author_id=str(interaction.user.id),
        author_name=interaction.user.display_name,
        is_command=True,
        place=_place(interaction.channel, interaction.guild, str(interaction.channel_id)),
    )


def _place(channel: object, guild: discord.Guild | None, id: str = "") -> Place:
    parent = channel.parent_id if isinstance(channel, discord.Thread) else None
    return Place(
        channel_id=str(getattr(channel, "id", id)),
        channel_name=getattr(channel, "name", None),
        topic=getattr(channel, "topic", None),
        parent_id=None if parent is None else str(parent),
        guild_id=None if guild is None else str(guild.id),
        guild_name=None if guild is None else guild.name,
    )


def _file(found: discord.Attachment) -> File:
    kind = found.content_type or "application/octet-stream"
    return File(found.filename, found.size, found.url, kind)


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
