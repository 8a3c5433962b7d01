"""Signal keeps to what every adapter keeps to, at a socket and over HTTP."""

from collections.abc import AsyncIterator

import pytest

from sessionary.testing.adapter_suite import AdapterSuite
from tests.support.fake_signal import FakeSignal


class TestSignalOverTcp(AdapterSuite):
    """The daemon was started with `--tcp`."""

    @pytest.fixture
    async def platform(self) -> AsyncIterator[FakeSignal]:
        async with FakeSignal("tcp") as fake:
            yield fake


class TestSignalOverHttp(AdapterSuite):
    """The daemon was started with `--http`."""

    @pytest.fixture
    async def platform(self) -> AsyncIterator[FakeSignal]:
        async with FakeSignal("http") as fake:
            yield fake
