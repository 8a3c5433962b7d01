"""The ports to the outside: an agent that answers, a platform that carries, a summarizer."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hansard.model.delivery import Delivery
from hansard.model.entry import Message
from hansard.model.place import Channel, Source
from hansard.model.session import SessionHead
from hansard.model.transcript import Chat
from hansard.model.usage import Usage


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """All a runner needs for one turn; it holds a lease for this session and for nothing else."""

    turn_id: str
    session: SessionHead
    source: Source
    system_prompt: str
    context: Sequence[Chat]
    blob: Callable[[str], Awaitable[bytes]]
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of what the agent is saying or thinking; shown as it comes, kept once it is finished."""

    text: str
    thinking: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A finished piece of the turn: an assistant's message, or a tool's answer. Durable before the next."""

    message: Message
    usage: Usage | None = None


Event = Delta | Step


class Runner(Protocol):
    """An agent that takes turns. Cancelling the iteration stops it; an exception fails the turn."""

    def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        """Answer what stands at the end of the context."""

    async def close(self) -> None:
        """Let go of connections and processes."""


class Summarizer(Protocol):
    """Shortens a conversation for the model."""

    async def summarize(
        self, context: Sequence[Chat], *, focus: str | None
    ) -> tuple[str, Usage | None]:
        """A summary that can stand for the context, and what it cost."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a platform can do, and what the agent is told about it."""

    longest_text: int = 4000
    can_edit: bool = False
    shows_typing: bool = False
    ids_needed_for_mentions: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sent:
    """A delivery that the platform took."""

    platform_message_id: str | None = None


Receive = Callable[[Source, Message], Awaitable[str]]


class Adapter(Protocol):
    """A platform's channel. Sending raises `RetryLater` or `Unreachable`; another error means «unclear»."""

    platform: str
    capabilities: Capabilities

    async def run(self, receive: Receive) -> None:
        """Take messages in until cancelled; acknowledge each one only after `receive` has returned."""

    async def send(self, delivery: Delivery) -> Sent:
        """Send one delivery."""

    async def typing(self, channel: Channel) -> None:
        """Show that an answer is being written, where the platform can."""

    async def close(self) -> None:
        """Let go of connections."""
