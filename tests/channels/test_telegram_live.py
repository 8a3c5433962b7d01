"""While the agent answers: typing, and a message that grows."""

from collections.abc import AsyncIterator

import pytest

from sessionary.agents.registry import ConfiguredAgent
from sessionary.agents.summaries import ExtractiveSummarizer, ModelTitler
from sessionary.config.engine import AccessPolicy
from sessionary.store.database import Store
from sessionary.testing.adapter_suite import SlowRunner, StreamingSuite
from sessionary.testing.channel_world import ChannelWorld, quick_settings
from tests.support.fake_telegram import FakeTelegram


def quick(store: Store, fake: FakeTelegram, runner: SlowRunner) -> ChannelWorld:
    agent = ConfiguredAgent("slow", None, runner, ExtractiveSummarizer(), ModelTitler())
    access = {"telegram": AccessPolicy(everyone=True)}
    settings = quick_settings(show_seconds=0.01, access=access)
    return ChannelWorld(store, fake, settings=settings, agent_for=lambda _, __: agent)


@pytest.fixture
async def fake() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram(stream=True) as made:
        yield made


class TestTelegramGrows(StreamingSuite):
    """Everything that an adapter keeps to."""

    @pytest.fixture
    async def platform(self) -> AsyncIterator[FakeTelegram]:
        async with FakeTelegram(stream=True) as fake:
            yield fake


async def test_a_growing_answer_is_plain_and_its_delivery_has_markup(
    store: Store, fake: FakeTelegram
) -> None:
    runner = SlowRunner("Once **upon** ", "a time")
    world = quick(store, fake, runner)
    async with world.running() as engine:
        await fake.says("a story", number=1)
        await world.until_seen("Once **upon** …")
        await world.until(lambda: fake.sent("sendChatAction") != [], "typing")

        runner.may_finish.set()
        await world.until_seen("Once upon a time")
        await world.settle(engine)

    assert len(fake.sent()) == 1


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
