"""What was said in a channel, but not to the agent: remembered until someone speaks to it."""

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sessionary.engine import commands
from sessionary.model import transcript
from sessionary.model.message import Message

MOST_LINES = 20
MOST_CHANNELS = 500
MOST_NOTED = 5000

T = TypeVar("T")


class Observed:
    """The last lines of each channel. They become durable with the message that takes them along.

    Until then they are in memory only: nobody was told that they would be kept.
    """

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[str]] = OrderedDict()
        self._noted: OrderedDict[tuple[str, str], None] = OrderedDict()

    def note(self, channel: str, speaker: str, text: str, *, id: str | None = None) -> None:
        """Remember a line; the oldest of the channel makes way, then the quietest channel.

        A message of an id that was noted before is told again by its platform, which did not hear
        that it came, or changed something about it.
        """
        if id is not None and self._is_known(channel, id):
            return
        lines = self._lines.setdefault(channel, deque(maxlen=MOST_LINES))
        lines.append(transcript.line(speaker, text))
        self._lines.move_to_end(channel)
        while len(self._lines) > MOST_CHANNELS:
            self._lines.popitem(last=False)

    def lines(self, channel: str) -> tuple[str, ...]:
        """What was said since the agent was last spoken to."""
        return tuple(self._lines.get(channel, ()))

    async def give(self, channel: str, said: Message, give: Callable[[Message], Awaitable[T]]) -> T:
        """Give a message to the house with the lines before it, which are then forgotten.

        They wait on when a command came, which takes nothing along, and when nothing was taken in:
        of a stranger nothing is kept, and a stranger makes nothing forgotten.
        """
        lines = () if commands.find(said.text) is not None else self.lines(channel)
        taken = await give(with_observed(said, lines))
        if taken and lines:
            self.forget(channel)
        return taken

    def forget(self, channel: str) -> None:
        """The lines went into the record with a message."""
        self._lines.pop(channel, None)

    def _is_known(self, channel: str, id: str) -> bool:
        is_known = (channel, id) in self._noted
        self._noted[channel, id] = None
        while len(self._noted) > MOST_NOTED:
            self._noted.popitem(last=False)
        return is_known


def with_observed(said: Message, lines: tuple[str, ...]) -> Message:
    """The message with what was said before it, marked as not addressed to the agent."""
    if not lines:
        return said
    return Message(
        said.role,
        (*said.parts, transcript.note(lines)),
        person=said.person,
        platform_message_id=said.platform_message_id,
        extra=said.extra,
    )
