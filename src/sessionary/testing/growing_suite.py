"""What every adapter keeps to that lets answers grow, as a suite; `platform` lets them grow.

class TestTelegramGrows(GrowingSuite):
    @pytest.fixture
    async def platform(self) -> AsyncIterator[FakeTelegram]:
        async with FakeTelegram(stream=True) as fake:
            yield fake
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Protocol

import pytest

from sessionary.engine.context import AccessPolicy
from sessionary.engine.ports import Delta, Event, Step, TurnRequest
from sessionary.model.message import message
from sessionary.store.database import Store
from sessionary.testing.channel_world import ChannelWorld, Platform, delivery_to, quick_settings
from sessionary.testing.scripted import scripted_agent


class ForgettingPlatform(Platform, Protocol):
    """A platform on which messages can be deleted."""

    @property
    def pending_refusals(self) -> int:
        """How many of the refusals that were ordered nobody has got yet."""

    def forget(self) -> None:
        """Delete everything that the bot has written."""


class SlowRunner:
    """Says half a sentence, waits to be told to go on, and finishes."""

    def __init__(self, first: str = "Once upon ", rest: str = "a time") -> None:
        self._first, self._rest = first, rest
        self.may_finish = asyncio.Event()

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        """Say something, and the rest of it later."""
        yield Delta(self._first)
        await self.may_finish.wait()
        yield Delta(self._rest)
        yield Step(message("assistant", self._first + self._rest))

    async def close(self) -> None:
        """Nothing is held."""


class GrowingSuite:
    """Whoever runs it gives the fixtures `platform` and `store`."""

    @pytest.fixture
    def runner(self) -> SlowRunner:
        return SlowRunner()

    @pytest.fixture
    def growing(
        self, store: Store, platform: ForgettingPlatform, runner: SlowRunner
    ) -> ChannelWorld:
        agent = scripted_agent(runner)
        access = {platform.name: AccessPolicy(everyone=True)}
        settings = quick_settings(show_seconds=0.01, access=access)
        return ChannelWorld(store, platform, settings=settings, agent_for=lambda _, __: agent)

    async def test_an_answer_grows_and_its_delivery_is_the_last_edit(
        self, growing: ChannelWorld, runner: SlowRunner
    ) -> None:
        async with growing.running() as engine:
            await growing.platform.says("a story", number=1)
            await growing.until_seen("Once upon …")
            runner.may_finish.set()
            await growing.until_seen("Once upon a time")
            await growing.settle(engine)

        assert growing.platform.seen() == ["Once upon a time"]

    async def test_an_answer_whose_growth_cannot_be_shown_comes_all_the_same(
        self, growing: ChannelWorld, platform: ForgettingPlatform, runner: SlowRunner
    ) -> None:
        async with growing.running():
            platform.refuse(429, retry_after=1000)
            await platform.says("a story", number=1)
            await growing.until(lambda: platform.pending_refusals == 0, "an attempt to show it")
            runner.may_finish.set()
            await growing.until_seen("Once upon a time")

    async def test_a_message_that_grew_and_was_deleted_comes_anew(
        self, growing: ChannelWorld, platform: ForgettingPlatform, runner: SlowRunner
    ) -> None:
        async with growing.running():
            await platform.says("a story", number=1)
            await growing.until_seen("Once upon …")
            platform.forget()
            runner.may_finish.set()
            await growing.until_seen("Once upon a time")

    async def test_a_last_edit_that_is_refused_for_now_is_tried_again(
        self, growing: ChannelWorld, runner: SlowRunner
    ) -> None:
        async with growing.running() as engine:
            await growing.platform.says("a story", number=1)
            await growing.until_seen("Once upon …")
            growing.platform.refuse(429, retry_after=1, times=2)
            runner.may_finish.set()
            await growing.until_seen("Once upon a time")
            await growing.settle(engine)

        assert growing.platform.seen() == ["Once upon a time"]

    async def test_a_last_edit_whose_answer_is_lost_comes_once(
        self, platform: ForgettingPlatform
    ) -> None:
        adapter = platform.adapter()
        await adapter.show(platform.chat, "turn-1", "Once upon")
        platform.lose_answers()
        last = replace(delivery_to(platform.chat, "Once upon a time"), turn_id="turn-1")

        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever says «unclear»
            await adapter.send(last)
        await adapter.send(replace(last, attempts=2))

        assert platform.seen() == ["Once upon a time"]
        await adapter.close()

    async def test_two_answers_that_begin_alike_are_two_messages(
        self, growing: ChannelWorld, runner: SlowRunner
    ) -> None:
        async with growing.running() as engine:
            for number in (1, 2):
                runner.may_finish.clear()
                await growing.platform.says("a story", number=number)
                grown = ["Once upon a time"] * (number - 1)
                await growing.until_seen(*grown, "Once upon …")
                runner.may_finish.set()
                await growing.until_seen(*grown, "Once upon a time")
                await growing.settle(engine)
