"""The Telegram adapter, against a fake of the Bot API on loopback."""

from collections.abc import AsyncIterator

import pytest

from sessionary.testing.adapter_suite import AdapterSuite, SignedSuite
from tests.support.fake_telegram import FakeTelegram, PostingTelegram


class TestTelegram(AdapterSuite):
    @pytest.fixture
    async def platform(self) -> AsyncIterator[FakeTelegram]:
        async with FakeTelegram() as fake:
            yield fake


class TestPostingTelegram(AdapterSuite, SignedSuite):
    @pytest.fixture
    async def platform(self) -> AsyncIterator[PostingTelegram]:
        async with PostingTelegram() as fake:
            yield fake
