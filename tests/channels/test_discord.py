"""Discord's library against our fake, then our adapter against the same fake."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yarl

from sessionary.actions.files import read_blob
from sessionary.actions.sessions import read
from sessionary.actions.sessions.lists import SessionFilters, list_sessions
from sessionary.channels import registry
from sessionary.channels.discord.adapter import DiscordAdapter, discord
from sessionary.channels.discord.inbound import DiscordOptions
from sessionary.config.secret import Secret
from sessionary.engine.commands import REGISTRY
from sessionary.errors import BadInput, NotAllowed, RetryLater, Unreachable
from sessionary.model.message import Attachment, Message
from sessionary.model.source import Channel, Source
from sessionary.store.database import Store
from sessionary.testing.adapter_suite import AdapterSuite, StreamingSuite
from sessionary.testing.channel_world import (
    TIMEOUT_SECONDS,
    ChannelWorld,
    RecordingIntake,
    delivery_to,
    run_adapter,
    until,
)
from tests.support.fake_discord import (
    ADA,
    BOT,
    BOT_ROLE,
    GENERAL,
    GUILD,
    THREAD,
    TOKEN,
    FakeDiscord,
)

PLACE = Channel("discord", GENERAL)


class DiscordPlatform(FakeDiscord):
    """The fake as the suite wants to see a platform."""

    name = "discord"
    known = ADA
    chat = Channel("discord", FakeDiscord.direct(ADA))
    acknowledges = False
    largest_file: int | None = 1000
    largest_sent = 1000

    def adapter(self, **rules: Any) -> DiscordAdapter:
        return DiscordAdapter(
            Secret(TOKEN), DiscordOptions(largest_file=1000, largest_sent=1000, **rules)
        )

    async def says(
        self, text: str, *, number: int, person: str | None = None, file: bytes | None = None
    ) -> None:
        files = [] if file is None else [self.attach("file.txt", file)]
        if self.is_online:
            await self.bot_is_connected()
        await self.writes(text, number=number, author=person or ADA, attachments=files)

    async def bot_is_connected(self) -> None:
        """Wait for a connection: a bot that was never connected gets nothing, a former one later."""
        await until(lambda: any(not each.closed for each in self.sockets), "a bot at the gateway")

    def acknowledged(self, number: int) -> bool:
        return False

    def seen(self) -> list[str]:
        return self.texts(self.chat.chat_id)

    def given(self) -> list[tuple[str, bytes]]:
        return [(name, data) for chat, name, data in self.gifts if chat == self.chat.chat_id]

    def fetched(self) -> int:
        return self.downloads


@pytest.fixture
async def platform(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DiscordPlatform]:
    async with DiscordPlatform() as fake:
        point_at(fake, monkeypatch)
        yield fake


def point_at(fake: FakeDiscord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discord.http.Route, "BASE", fake.rest)
    gateway = yarl.URL(fake.gateway)
    monkeypatch.setattr(discord.gateway.DiscordWebSocket, "DEFAULT_GATEWAY", gateway)
    # It waits for seconds before it connects again.
    monkeypatch.setattr(discord.backoff.ExponentialBackoff, "delay", lambda _: 0.01)
    monkeypatch.setattr(discord.Client, "before_identify_hook", _at_once)


async def _at_once(client: discord.Client, shard: int | None, *, initial: bool = False) -> None:
    """Do not wait before a second login."""


class GrowingDiscord(DiscordPlatform):
    """The same, with answers that grow."""

    def adapter(self, **rules: Any) -> DiscordAdapter:
        return super().adapter(stream=True, show_seconds=0.01, **rules)


class TestDiscordGrows(StreamingSuite):
    """Everything that an adapter keeps to that lets answers grow."""

    @pytest.fixture
    async def platform(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GrowingDiscord]:
        async with GrowingDiscord() as fake:
            point_at(fake, monkeypatch)
            yield fake


class Listener:
    """Records what an adapter receives."""

    def __init__(self) -> None:
        self.receive = RecordingIntake()

    @property
    def received(self) -> list[tuple[Source, Message]]:
        return list(zip(self.receive.sources, self.receive.messages, strict=True))

    async def until(self, count: int) -> list[str]:
        await until(lambda: len(self.received) >= count, f"{count} messages")
        return [message.text for _, message in self.received]


@pytest.fixture
def listener() -> Listener:
    return Listener()


class TestTheLibraryAgainstTheFake:
    async def test_it_logs_in_receives_and_answers(self, platform: DiscordPlatform) -> None:
        received: asyncio.Queue[discord.Message] = asyncio.Queue()
        intents = discord.Intents(guilds=True, messages=True, message_content=True)
        client = discord.Client(intents=intents, guild_ready_timeout=0)

        @client.event
        async def on_message(message: discord.Message) -> None:
            if not message.author.bot:
                received.put_nowait(message)
                await message.channel.send(f"re: {message.content}")

        async with client, asyncio.timeout(TIMEOUT_SECONDS):
            running = asyncio.ensure_future(client.start(TOKEN))
            await platform.bot_is_connected()
            await platform.writes("hello", channel=GENERAL)
            found = await received.get()
            await until(lambda: bool(platform.posts), "it")
            await client.close()
            await asyncio.gather(running, return_exceptions=True)

        assert isinstance(found.channel, discord.TextChannel)
        assert (found.channel.name, found.author.name) == ("general", "Ada")
        assert platform.texts(GENERAL) == ["re: hello"]

    async def test_a_wrong_token_is_refused(self, platform: DiscordPlatform) -> None:
        async with discord.Client(intents=discord.Intents.none()) as client:
            with pytest.raises(discord.LoginFailure):
                await client.login("another")


class TestDiscord(AdapterSuite):
    """Everything that every adapter keeps to."""


async def test_in_a_server_only_messages_to_the_agent_are_received(
    platform: DiscordPlatform, listener: Listener
) -> None:
    async with run_adapter(platform.adapter(), listener.receive):
        await platform.bot_is_connected()
        await platform.writes("among ourselves", channel=GENERAL)
        await platform.writes(f"<@{BOT}> hello", channel=GENERAL)
        await platform.writes(f"<@&{BOT_ROLE}> you too", channel=GENERAL)
        await platform.writes("secretly")

        assert await listener.until(3) == ["hello", "you too", "secretly"]
    source = listener.received[0][0]
    assert source.channel == PLACE
    assert source.chat_type == "channel"
    assert (source.chat_name, source.chat_topic) == ("The Server #general", "All sorts")
    assert source.extra == {"guild_id": GUILD}


async def test_a_reply_to_our_message_is_addressed_to_us(
    platform: DiscordPlatform, listener: Listener
) -> None:
    asked = platform._message("5", GENERAL, "earlier", {"id": BOT, "username": "Sessionary"})
    asked["author"] |= {"discriminator": "0", "avatar": None, "bot": True}
    link = {"message_id": "5", "channel_id": GENERAL, "guild_id": GUILD}
    async with run_adapter(platform.adapter(), listener.receive):
        await platform.bot_is_connected()
        more: dict[str, Any] = {"type": 19, "message_reference": link, "referenced_message": asked}
        await platform.writes("and then?", channel=GENERAL, **more)

        assert await listener.until(1) == ["and then?"]


async def test_a_thread_is_a_conversation_within_its_channel(
    platform: DiscordPlatform, listener: Listener
) -> None:
    adapter = platform.adapter()
    async with run_adapter(adapter, listener.receive):
        await platform.bot_is_connected()
        await platform.writes(f"<@{BOT}> hello", channel=THREAD)
        await listener.until(1)
        source = listener.received[0][0]
        assert source.channel is not None
        await adapter.send(delivery_to(source.channel, "in the thread"))

    assert source.channel == Channel("discord", GENERAL, THREAD)
    assert source.chat_type == "thread"
    assert platform.texts(THREAD) == ["in the thread"]


async def test_messages_to_others_are_attached_to_the_next_message_to_the_agent(
    platform: DiscordPlatform, listener: Listener
) -> None:
    async with run_adapter(platform.adapter(observe=True), listener.receive):
        await platform.bot_is_connected()
        await platform.writes("lunch at noon?", channel=GENERAL)
        await platform.writes("yes", channel=GENERAL, author="12")
        await platform.writes(f"<@{BOT}> when is lunch?", channel=GENERAL)
        await platform.writes(f"<@{BOT}> thanks", channel=GENERAL)
        first, second = await listener.until(2)

    assert first.startswith("when is lunch?\n(Said here before, not to you")
    assert "> Ada: lunch at noon?\n> user-12: yes" in first
    assert second == "thanks"


async def test_an_edit_that_first_mentions_the_agent_is_received_once(
    platform: DiscordPlatform, world: ChannelWorld
) -> None:
    async with world.running() as engine:
        await platform.bot_is_connected()
        id = await platform.writes("hello", channel=GENERAL)
        await platform.edits_to(id, f"<@{BOT}> hello")
        await world.until(lambda: platform.texts(GENERAL) == ["hello"], "an answer")
        await platform.edits_to(id, f"<@{BOT}> hello, hello")
        await platform.writes(f"<@{BOT}> bye", channel=GENERAL)
        await world.until(lambda: platform.texts(GENERAL)[-1] == "bye", "another answer")
        await world.settle(engine)

    assert platform.texts(GENERAL) == ["hello", "bye"]


async def test_our_commands_are_offered_and_arrive(
    platform: DiscordPlatform, world: ChannelWorld
) -> None:
    async with world.running() as engine:
        await platform.bot_is_connected()
        await platform.gives_command("new", "holidays")
        await world.until(lambda: bool(platform.texts(GENERAL)), "an answer")
        await until(lambda: bool(platform.confirmed), "it")
        await world.settle(engine)

    assert [each["name"] for each in platform.commands] == list(REGISTRY)
    assert "called holidays" in platform.texts(GENERAL)[0]
    assert platform.confirmed == ["Received; the answer follows here."]


async def test_a_session_of_the_gateway_is_resumed_without_loss(
    platform: DiscordPlatform, listener: Listener
) -> None:
    async with run_adapter(platform.adapter(), listener.receive):
        await platform.bot_is_connected()
        await platform.writes("before")
        await platform.hang_up(4000)
        await platform.writes("meanwhile")
        await platform.bot_is_connected()
        await platform.writes("after")

        assert await listener.until(3) == ["before", "meanwhile", "after"]


async def test_a_store_that_is_busy_gets_the_message_later(platform: DiscordPlatform) -> None:
    async def busy_at_first(count: int) -> None:
        if count == 1:
            raise RetryLater("busy", after=0.001)

    intake = RecordingIntake(busy_at_first)
    async with run_adapter(platform.adapter(), intake):
        await platform.bot_is_connected()
        await platform.writes("first")
        await platform.writes("second")
        await until(lambda: len(intake.texts) == 3, "it")

    assert intake.texts == ["first", "first", "second"]


async def test_a_long_text_that_is_refused_half_way_goes_on_there(
    platform: DiscordPlatform,
) -> None:
    adapter = platform.adapter()
    sending = delivery_to(PLACE, "```python\n" + "x = 1\n" * 700 + "```")
    platform.let_pass(1)
    platform.refuse(429, retry_after=9)

    with pytest.raises(RetryLater) as caught:
        await adapter.send(sending)
    assert caught.value.after == 9
    assert len(platform.posts) == 1
    await adapter.send(sending)
    await adapter.close()

    pieces = platform.texts(GENERAL)
    assert len(pieces) == 3
    assert all(each.startswith("```python\n") and each.endswith("```") for each in pieces)
    assert sum(each.count("x = 1") for each in pieces) == 700


async def test_a_file_comes_in_with_its_message(
    platform: DiscordPlatform, world: ChannelWorld
) -> None:
    async with world.running() as engine:
        await platform.says("look", number=1, file=b"at this")
        await world.until(lambda: bool(platform.seen()), "an answer")
        await world.settle(engine)

    (head,) = (await world.store.read(list_sessions, SessionFilters(), profile="main")).items
    entries = await world.store.read(read.read_transcript, head.id, profile="main")
    body = entries[0].body
    assert isinstance(body, Message)
    (file,) = (part for part in body.parts if isinstance(part, Attachment))
    assert (file.name, file.media_type, file.size) == ("file.txt", "text/plain", 7)
    assert await world.store.read(read_blob, file.blob, session_no=head.no) == b"at this"


@pytest.mark.parametrize(
    ("chat", "says"),
    [("999", "does not know"), ("4444", "Send Messages"), ("not-an-id", "not an id")],
)
async def test_a_place_that_cannot_be_written_to_is_unreachable(
    platform: DiscordPlatform, chat: str, says: str
) -> None:
    adapter = platform.adapter()

    with pytest.raises(Unreachable, match=says):
        await adapter.send(delivery_to(Channel("discord", chat), "hello"))
    await adapter.close()


async def test_a_token_that_is_revoked_while_we_listen_stops_the_channel(
    platform: DiscordPlatform, listener: Listener
) -> None:
    running = asyncio.ensure_future(platform.adapter().run(listener.receive))
    await platform.bot_is_connected()

    platform.revoke()
    await platform.hang_up(4000)

    with pytest.raises(NotAllowed, match="Reset Token"):
        await asyncio.wait_for(running, TIMEOUT_SECONDS)


async def test_a_missing_privilege_is_named(platform: DiscordPlatform, listener: Listener) -> None:
    platform.may_read_everything = False

    with pytest.raises(NotAllowed, match="Message Content Intent"):
        await asyncio.wait_for(platform.adapter(always=True).run(listener.receive), TIMEOUT_SECONDS)


async def test_a_message_can_be_edited_and_typing_shown(platform: DiscordPlatform) -> None:
    adapter = platform.adapter()
    sent = await adapter.send(delivery_to(PLACE, "hel"))
    assert sent.platform_message_id is not None

    await adapter.edit_text(PLACE, sent.platform_message_id, "hello")
    await adapter.typing(PLACE)
    await adapter.close()

    assert platform.edits == [(sent.platform_message_id, "hello")]
    assert platform.typed == [GENERAL]


async def test_nobody_is_notified_who_is_not_mentioned(platform: DiscordPlatform) -> None:
    adapter = platform.adapter()

    await adapter.send(delivery_to(PLACE, "@everyone <@&7> <@11>"))
    await adapter.close()

    assert platform.posts[0].body["allowed_mentions"]["parse"] == ["users"]


async def test_the_configuration_makes_an_adapter_that_says_who_it_is(
    platform: DiscordPlatform,
) -> None:
    values = {"token_env": "T", "answer": "always", "always_in": ["1"], "observe": True}
    adapter = registry.build("discord", values, {"T": TOKEN})

    assert await adapter.check() == f"Discord knows this bot as Sessionary (id {BOT})."
    await adapter.close()


def test_a_bot_without_a_token_is_not_configured() -> None:
    with pytest.raises(BadInput, match="token_env"):
        registry.build("discord", {}, {})


@pytest.fixture
def world(store: Store, platform: DiscordPlatform) -> ChannelWorld:
    return ChannelWorld(store, platform)
