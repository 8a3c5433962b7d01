"""The webhook channel, against a program that posts and is called back on loopback."""

from collections.abc import AsyncIterator

import pytest

from sessionary.testing.adapter_suite import AdapterSuite, SignedSuite
from tests.support.fake_program import FakeProgram


class TestWebhook(AdapterSuite, SignedSuite):
    @pytest.fixture
    async def platform(self) -> AsyncIterator[FakeProgram]:
        async with FakeProgram() as fake:
            yield fake
