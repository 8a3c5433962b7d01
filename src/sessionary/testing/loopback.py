"""An adapter whose platform is a list: what was sent can be seen, faults can be ordered."""

import asyncio
from collections.abc import Callable

from sessionary.engine.ports import Capabilities, DeliveryServices, Receive, Sent
from sessionary.model.message import text_of
from sessionary.model.source import Channel
from sessionary.model.turn import Delivery

Fault = Callable[[Delivery], BaseException | None]


class LoopbackAdapter:
    """Takes deliveries and remembers them. `before` and `after` may fail a sending."""

    def __init__(self, platform: str = "loopback") -> None:
        self.platform = platform
        self.capabilities = Capabilities()
        self.sent: list[tuple[str, str]] = []
        self.before: Fault = lambda _: None
        self.after: Fault = lambda _: None

    def attach(self, _: DeliveryServices, /) -> None:
        """Nothing is needed."""

    async def run(self, receive: Receive) -> None:
        """Nothing comes in by itself; tests hand messages to the engine."""
        await asyncio.Event().wait()

    async def send(self, delivery: Delivery) -> Sent:
        """Remember a delivery; a fault `after` is an answer that was lost."""
        _raise(self.before(delivery))
        self.sent.append((str(delivery.channel), text_of(delivery.parts)))
        _raise(self.after(delivery))
        return Sent(f"{self.platform}-{len(self.sent)}")

    async def typing(self, channel: Channel) -> None:
        """Nobody looks."""

    async def close(self) -> None:
        """Nothing is held."""

    def texts(self, channel: str) -> list[str]:
        """What one channel was sent, in order."""
        return [text for to, text in self.sent if to == channel]


def _raise(error: BaseException | None) -> None:
    if error is not None:
        raise error
