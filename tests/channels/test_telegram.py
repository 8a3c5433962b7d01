"""The Telegram adapter, against a fake of the Bot API on loopback."""

from collections.abc import AsyncIterator

import pytest

from hansard.testing.adapter_suite import AdapterSuite
from hansard.testing.fake_telegram import FakeTelegram


class TestTelegram(AdapterSuite):
    @pytest.fixture
    async def platform(self) -> AsyncIterator[FakeTelegram]:
        async with FakeTelegram() as fake:
            yield fake
