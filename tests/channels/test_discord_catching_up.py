"""Discord sends nothing twice: messages written while no process was connected are fetched."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from sessionary.actions import inbox
from sessionary.actions.sessions.lists import SessionFilters, list_sessions
from sessionary.channels.discord import adapter
from sessionary.channels.discord.adapter import LONGEST_AWAY, discord
from sessionary.model.message import Role
from sessionary.store.database import Store
from sessionary.testing.channel_world import ChannelWorld
from tests.channels.test_discord import DiscordPlatform, point_at
from tests.support.fake_discord import BOT, BOT_ROLE, GENERAL, THREAD


@pytest.fixture
async def platform(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DiscordPlatform]:
    async with DiscordPlatform() as fake:
        point_at(fake, monkeypatch)
        yield fake


async def everywhere(platform: DiscordPlatform, text: str) -> None:
    """Someone writes to the bot in a direct chat, a channel and a thread."""
    await platform.writes(text)
    await platform.writes(f"<@&{BOT_ROLE}> {text}", channel=GENERAL)
    await platform.writes(f"<@{BOT}> {text}", channel=THREAD)


async def received_texts(world: ChannelWorld, count: int) -> list[list[str]]:
    """The texts of each conversation, once there are so many and all of them are answered."""
    await world.until_heard(count)
    return await world.transcripts(Role.USER)


@asynccontextmanager
async def listening(platform: DiscordPlatform, store: Store) -> AsyncIterator[ChannelWorld]:
    """Another process on the same store; it stops when everything is answered."""
    world = ChannelWorld(store, platform)
    async with world.running() as engine:
        await platform.bot_is_connected()
        yield world
        await world.settle(engine)


async def conversed(platform: DiscordPlatform, store: Store) -> None:
    """Make three conversations, with no process connected afterwards."""
    async with listening(platform, store) as world:
        await everywhere(platform, "one")
        await received_texts(world, 3)


async def test_messages_written_while_the_process_was_down_are_received_once_and_in_order(
    platform: DiscordPlatform, store: Store
) -> None:
    await conversed(platform, store)
    await everywhere(platform, "two")
    await platform.writes("not to you", channel=GENERAL)
    await everywhere(platform, "three")
    async with listening(platform, store) as world:
        await received_texts(world, 9)
        await everywhere(platform, "four")
        await received_texts(world, 12)
    async with listening(platform, store) as world:
        await everywhere(platform, "five")
        found = await received_texts(world, 15)

    heads = (await store.read(list_sessions, SessionFilters(), profile="main")).items
    assert found == [["one", "two", "three", "four", "five"]] * 3
    assert {head.source.chat_name for head in heads} == {
        None,
        "The Server #general",
        "The Server #a thread",
    }
    assert platform.seen()[-1] == "five"


async def test_after_a_lost_gateway_session_missed_messages_are_fetched(
    platform: DiscordPlatform, store: Store
) -> None:
    async with listening(platform, store) as world:
        await platform.writes("before")
        await received_texts(world, 1)
        platform.forgets_sessions = True
        await platform.hang_up(4000)
        await platform.writes("meanwhile")
        await platform.bot_is_connected()
        await platform.writes("after")

        assert await received_texts(world, 3) == [["before", "meanwhile", "after"]]


async def test_messages_written_while_we_reconnect_come_after_missed_ones(
    platform: DiscordPlatform, store: Store
) -> None:
    """Nor does it move our position past messages from long before it."""
    now = discord.utils.utcnow()
    ids = [discord.utils.time_snowflake(now - timedelta(minutes=ago)) for ago in (10, 5)]
    await conversed(platform, store)
    await store.write(inbox.set_position, "discord", str(ids[0]), profile="main")
    await platform.writes("missed", number=ids[1])
    platform.written_at_once = ["at once"]
    async with listening(platform, store) as world:
        found = await received_texts(world, 5)

    assert ["one", "missed", "at once"] in found


async def test_messages_older_than_a_day_are_not_fetched(
    platform: DiscordPlatform, store: Store
) -> None:
    long_ago = discord.utils.time_snowflake(discord.utils.utcnow() - 2 * LONGEST_AWAY)
    await conversed(platform, store)
    await store.write(inbox.set_position, "discord", str(long_ago - 1), profile="main")
    await platform.writes("old", number=long_ago)
    await platform.writes("new")
    async with listening(platform, store) as world:
        found = await received_texts(world, 4)

    assert ["one", "new"] in found


async def test_of_very_many_missed_messages_only_the_newest_are_fetched(
    platform: DiscordPlatform, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "MAX_MESSAGES", 3)
    await conversed(platform, store)
    for text in ("a", "b", "c", "d", "e"):
        await platform.writes(text)
    async with listening(platform, store) as world:
        found = await received_texts(world, 6)

    assert ["one", "c", "d", "e"] in found


async def test_a_channel_that_is_no_longer_readable_does_not_block_the_others(
    platform: DiscordPlatform, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    await conversed(platform, store)
    await everywhere(platform, "two")
    platform.channels.clear()
    async with listening(platform, store) as world:
        found = await received_texts(world, 4)

    assert sorted(found) == [["one"], ["one"], ["one", "two"]]
    assert f"missed messages in discord:{GENERAL} cannot be read" in caplog.text
