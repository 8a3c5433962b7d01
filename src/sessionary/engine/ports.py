"""The ports to the outside: an agent that answers, a platform that carries, a summarizer."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from sessionary.model.delivery import Delivery
from sessionary.model.entry import Message
from sessionary.model.session import SessionHead
from sessionary.model.source import Channel, Source
from sessionary.model.transcript import Chat
from sessionary.model.usage import Usage


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
    """A piece of what the agent says or thinks; shown as it comes, kept once it is finished."""

    text: str
    thinking: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A finished piece of the turn: an assistant's message, or a tool's answer.

    `files` are bytes that its attachments name by their SHA-256 and that are new to the store.
    """

    message: Message
    usage: Usage | None = None
    files: tuple[bytes, ...] = field(default=(), repr=False)


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


class Titler(Protocol):
    """Names a conversation."""

    async def title(self, first_user_text: str, reply: str) -> tuple[str | None, Usage | None]:
        """A title, or None without words to make one of; and what it cost. Never fails."""


class Agent(Protocol):
    """A named configuration that takes turns: who answers, who summarizes, who finds titles."""

    @property
    def name(self) -> str: ...
    @property
    def prompt(self) -> str | None: ...
    @property
    def runner(self) -> Runner: ...
    @property
    def summarizer(self) -> Summarizer: ...
    @property
    def titler(self) -> Titler: ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a platform can do, and what the agent is told about it."""

    longest_text: int = 4000
    shows_typing: bool = False
    ids_needed_for_mentions: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sent:
    """A delivery that the platform took."""

    platform_message_id: str | None = None


class Receive(Protocol):
    """The house's door, as an adapter sees it."""

    async def __call__(
        self, source: Source, said: Message, /, *, files: Sequence[bytes] = ()
    ) -> str:
        """Take a message in, with the bytes that its attachments name by their SHA-256.

        When this returns the message is durable: its arrival's id, or "" for someone who may
        not enter, of whom nothing is kept.
        """

    async def admits(self, source: Source, /) -> bool:
        """Whether this person may enter: ask before files of theirs are fetched."""


@runtime_checkable
class Shows(Protocol):
    """An adapter that can show an answer while it grows has this method besides its own."""

    async def show(self, channel: Channel, turn_id: str, text: str) -> None:
        """Show what a turn has said so far; its delivery takes the place of this."""


class DeliveryServices(Protocol):
    """What an adapter may ask of the outbox. One that wants to has a method `attach(desk)`."""

    async def blob(self, delivery: Delivery, name: str) -> bytes:
        """The bytes of a file that a delivery names."""

    async def bounced(self, delivery_id: str, reason: str) -> None:
        """Tell that the platform took a delivery and could not deliver it after all."""

    async def moved(self, old: str, new: str) -> None:
        """Tell that a chat has another id from now on."""

    async def place(self) -> str | None:
        """How far this platform was read, as `keep_place` was told last; None at first."""

    async def keep_place(self, place: str) -> None:
        """Tell that everything up to here is durable."""

    async def chats(self, *, most: int) -> Sequence[Channel]:
        """The channels of this platform that have a conversation, those spoken in last first."""


class Adapter(Protocol):
    """A platform's channel. `send` raises `RetryLater` or `Unreachable`; else it is unclear."""

    platform: str
    capabilities: Capabilities

    async def run(self, receive: Receive) -> None:
        """Take messages in until cancelled; acknowledge each after `receive` has returned."""

    async def send(self, delivery: Delivery) -> Sent:
        """Send one delivery."""

    async def typing(self, channel: Channel) -> None:
        """Show that an answer is being written, where the platform can."""

    async def close(self) -> None:
        """Let go of connections."""
