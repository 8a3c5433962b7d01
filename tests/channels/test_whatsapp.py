"""WhatsApp keeps to what every adapter keeps to."""

from collections.abc import AsyncIterator

import pytest

from sessionary.testing.adapter_suite import AdapterSuite, SignedSuite
from tests.support.fake_whatsapp import FakeWhatsApp


@pytest.fixture
async def platform() -> AsyncIterator[FakeWhatsApp]:
    async with FakeWhatsApp() as fake:
        yield fake


class TestWhatsApp(AdapterSuite):
    """The Cloud API as it is faked."""


class TestWhatsAppPosts(SignedSuite):
    """What is posted to us is signed."""
