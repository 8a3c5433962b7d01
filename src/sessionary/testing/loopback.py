"""An adapter without a platform: what is sent can be read, and made to fail."""

import asyncio
from collections.abc import Callable

from sessionary.channels.base import ChannelAdapter, ChannelOptions
from sessionary.engine.ports import Capabilities, Receive, Sent
from sessionary.model.message import text_of
from sessionary.model.turn import Delivery

Fault = Callable[[Delivery], BaseException | None]


class LoopbackAdapter(ChannelAdapter):
    """Keeps what is sent in a list. `before` and `after` can make a sending fail."""

    def __init__(self, platform: str = "loopback") -> None:
        super().__init__(ChannelOptions())
        self.platform = platform
        self.capabilities = Capabilities()
        self.sent: list[tuple[str, str]] = []
        self.before: Fault = lambda _: None
        self.after: Fault = lambda _: None

    async def run(self, receive: Receive) -> None:
        """Wait until cancelled; tests give messages to the engine."""
        await asyncio.Event().wait()

    async def send(self, delivery: Delivery) -> Sent:
        """Keep a delivery; a failure `after` is an answer that was lost."""
        _raise(self.before(delivery))
        self.sent.append((str(delivery.channel), text_of(delivery.parts)))
        _raise(self.after(delivery))
        return Sent(f"{self.platform}-{len(self.sent)}")

    def texts(self, channel: str) -> list[str]:
        """Return what was sent to one channel, in order."""
        return [text for to, text in self.sent if to == channel]


def _raise(error: BaseException | None) -> None:
    if error is not None:
        raise error
