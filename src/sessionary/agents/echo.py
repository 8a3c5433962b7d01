"""An agent that says what was said to it: for tests and measurements."""

from collections.abc import AsyncIterator

from sessionary.agents.chats import last_user_text
from sessionary.engine.ports import Delta, Event, Step, TurnRequest
from sessionary.model.message import Message, Role, Text


class EchoRunner:
    """Answers with the last user text."""

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        """One delta, one step; nothing is asked of anyone."""
        text = last_user_text(request.context)
        yield Delta(text)
        yield Step(Message(Role.ASSISTANT, (Text(text),), finish_reason="stop"))

    async def close(self) -> None:
        """There is nothing to let go of."""
