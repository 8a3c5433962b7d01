"""Fakes for tests: a clock and ids that can be foreseen, an adapter without a platform, a runner with a script."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from zlib import crc32

from sessionary.agents.registry import ConfiguredAgent
from sessionary.agents.summaries import ExtractiveSummarizer, ModelTitler
from sessionary.channels.base import ChannelAdapter, ChannelOptions
from sessionary.clock import Moment, encode_id, to_micros
from sessionary.engine.ports import (
    Capabilities,
    Delta,
    Event,
    Receive,
    Runner,
    Sent,
    Step,
    TurnRequest,
)
from sessionary.model.message import message, text_of
from sessionary.model.turn import Delivery
from sessionary.model.usage import Usage

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


class FakeClock:
    """A clock that moves only when it is told to."""

    def __init__(self, at: datetime = START) -> None:
        self._now = at

    def now(self) -> datetime:
        return self._now

    def tick(self, seconds: float = 1.0, *, days: float = 0, hours: float = 0) -> datetime:
        """Move on, or back with negative numbers; return the new time."""
        self._now += timedelta(seconds=seconds, days=days, hours=hours)
        return self._now

    def set(self, at: datetime) -> None:
        """Set the time."""
        self._now = at


class SequentialIds:
    """Ids in the form of real ones that count 1, 2, 3 … instead of being random; each `maker` has its own."""

    def __init__(self, maker: str = "") -> None:
        self._count = crc32(maker.encode()) << 40

    def new(self, at: datetime) -> str:
        self._count += 1
        return encode_id(to_micros(at) // 1000, self._count)


def moment_of(clock: FakeClock, ids: SequentialIds) -> Moment:
    """Return the present moment of a fake clock."""
    return Moment(clock.now(), ids)


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


Answer = Callable[[TurnRequest], Sequence[Event]]


class ScriptedRunner:
    """Yields the events that a function returns for the request; keeps every request."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer: Answer = answer or reply_to
        self.requests: list[TurnRequest] = []
        self.between: Callable[[], None] = lambda: None

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        """Yield the scripted events."""
        self.requests.append(request)
        for event in self.answer(request):
            self.between()
            yield event
        self.between()

    async def close(self) -> None:
        """Do nothing."""


def reply_to(request: TurnRequest) -> Sequence[Event]:
    """Return a turn with everything in it: streamed text, a tool call, its result, the reply."""
    asked = str(request.context[-1]["content"])
    call = {"type": "tool_call", "id": f"call-{request.turn_id}", "name": "look", "arguments": {}}
    found = {
        "type": "tool_result",
        "call_id": f"call-{request.turn_id}",
        "name": "look",
        "content": "42",
    }
    return [
        Delta("looking"),
        Step(
            message("assistant", [call]), Usage(model="scripted", input_tokens=3, output_tokens=1)
        ),
        Step(message("tool", [found])),
        Delta("re: "),
        Delta(asked),
        Step(
            message("assistant", f"re: {asked}"),
            Usage(model="scripted", input_tokens=5, output_tokens=2),
        ),
    ]


def scripted_agent(runner: Runner) -> ConfiguredAgent:
    """Return an agent with this runner that needs nothing from outside."""
    return ConfiguredAgent("scripted", None, runner, ExtractiveSummarizer(), ModelTitler())
