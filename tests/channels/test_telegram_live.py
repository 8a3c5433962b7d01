"""While the agent answers: typing, and a message that grows."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from hansard.agents.registry import Agent
from hansard.agents.summarize import ExtractiveSummarizer
from hansard.agents.titles import Titler
from hansard.engine.ports import Delta, Event, Step, TurnRequest
from hansard.engine.settings import Door, Settings
from hansard.model.entry import message
from hansard.store.database import Store
from hansard.testing.channel_world import ChannelWorld
from hansard.testing.fake_telegram import FakeTelegram


class SlowRunner:
    """Says half a sentence, waits to be told to go on, and finishes."""

    def __init__(self) -> None:
        self.may_finish = asyncio.Event()

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        yield Delta("Once **upon** ")
        await self.may_finish.wait()
        yield Delta("a time")
        yield Step(message("assistant", "Once **upon** a time"))

    async def close(self) -> None:
        """Nothing is held."""


def quick(store: Store, fake: FakeTelegram, runner: SlowRunner) -> ChannelWorld:
    agent = Agent("slow", None, runner, ExtractiveSummarizer(), Titler())
    doors = {"telegram": Door(everyone=True)}
    settings = Settings(poll_seconds=0.02, sweep_seconds=0.02, show_seconds=0.01, doors=doors)
    return ChannelWorld(store, fake, settings=settings, agent_for=lambda _, __: agent)


@pytest.fixture
async def fake() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram(stream=True) as made:
        yield made


async def test_an_answer_grows_and_its_delivery_is_the_last_edit(
    store: Store, fake: FakeTelegram
) -> None:
    runner = SlowRunner()
    world = quick(store, fake, runner)
    async with world.running() as engine:
        await fake.says("a story", number=1)
        await world.until_seen("Once **upon** …")
        assert len(fake.sent("sendChatAction")) == 1

        runner.may_finish.set()
        await world.until_seen("Once upon a time")
        await world.settle(engine)

    assert len(fake.sent()) == 1


async def test_an_answer_whose_growth_cannot_be_shown_comes_all_the_same(
    store: Store, fake: FakeTelegram
) -> None:
    runner = SlowRunner()
    world = quick(store, fake, runner)
    async with world.running():
        fake.refuse(429, retry_after=1000)
        await fake.says("a story", number=1)
        await world.until(lambda: len(fake.sent()) == 1, "a try to show it")
        runner.may_finish.set()
        await world.until_seen("Once upon a time")


async def test_a_message_that_grew_and_was_deleted_comes_anew(
    store: Store, fake: FakeTelegram
) -> None:
    runner = SlowRunner()
    world = quick(store, fake, runner)
    async with world.running():
        await fake.says("a story", number=1)
        await world.until_seen("Once **upon** …")
        fake.messages.clear()
        runner.may_finish.set()
        await world.until_seen("Once upon a time")


async def test_without_streaming_only_typing_is_shown(store: Store) -> None:
    async with FakeTelegram() as fake:
        runner = SlowRunner()
        world = quick(store, fake, runner)
        async with world.running():
            await fake.says("a story", number=1)
            await world.until(lambda: fake.sent("sendChatAction") != [], "typing")
            assert fake.seen() == []
            runner.may_finish.set()
            await world.until_seen("Once upon a time")
