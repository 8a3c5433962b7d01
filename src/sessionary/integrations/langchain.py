"""Chat message histories of LangChain.

    chain = RunnableWithMessageHistory(model, lambda name: SessionaryChatMessageHistory(name, house))

LangChain has deprecated them and will drop them in 2.0; programs that have them can keep them here.
"""

from collections.abc import Sequence
from typing import Any

from sessionary.actions.sessions.append import NewMessage
from sessionary.clock import Moment
from sessionary.integrations import thread
from sessionary.integrations.client import SessionaryClient, settled
from sessionary.integrations.extra import wanted
from sessionary.integrations.langchain_messages import message_of, model_of, natives_of, usage_of
from sessionary.integrations.thread import Thread
from sessionary.model.message import Entry
from sessionary.store.database import Pending

with wanted("langchain", "The storage for LangChain"):
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.messages import BaseMessage

PLATFORM = "langchain"


class SessionaryChatMessageHistory(BaseChatMessageHistory):
    """The messages of one session."""

    def __init__(
        self, session_id: str, client: SessionaryClient, *, profile: str | None = None
    ) -> None:
        # The base's own only warns that it will go.
        self.session_id = session_id
        self._client = client
        self._profile = profile or client.profile
        self._source = thread.named(PLATFORM, session_id)

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """What was said and not taken back."""
        return _natives(self._reading().result())

    async def aget_messages(self) -> list[BaseMessage]:
        """The same, awaited."""
        return _natives(await self._reading())

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Add messages, all or none, durable when this returns."""
        if messages:
            self._adding(messages).result()

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """The same, awaited."""
        if messages:
            await settled(self._adding(messages))

    def clear(self) -> None:
        """Take back everything; what was said stays in the log."""
        self._clearing().result()

    async def aclear(self) -> None:
        """The same, awaited."""
        await settled(self._clearing())

    def _thread(self, model: str | None = None) -> Thread:
        return Thread(self._profile, self._source, model=model)

    def _reading(self) -> Pending[list[Entry]]:
        return self._client.store.read(thread.visible, self._thread())

    def _adding(self, messages: Sequence[BaseMessage]) -> Pending[Any]:
        moment = self._client.moment()
        said = [self._saying(each, moment) for each in messages]
        model = next((found for each in messages if (found := model_of(each))), None)
        return self._client.store.write(thread.append, self._thread(model), said, moment=moment)

    def _clearing(self) -> Pending[None]:
        moment = self._client.moment()
        return self._client.store.write(thread.clear, self._thread(), moment=moment)

    def _saying(self, native: BaseMessage, moment: Moment) -> NewMessage:
        call_id = f"{PLATFORM}/{self.session_id}/{native.id or moment.new_id()}"
        used = self._client.priced(usage_of(native, call_id=call_id), at=None)
        return NewMessage(message_of(native), usage=used)


def _natives(found: Sequence[Entry]) -> list[BaseMessage]:
    return [native for entry in found for native in natives_of(thread.message(entry))]
