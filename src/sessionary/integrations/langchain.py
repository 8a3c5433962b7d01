"""Chat message histories of LangChain.

    chain = RunnableWithMessageHistory(model, lambda name: SessionaryChatMessageHistory(name, client))

LangChain has deprecated them and will drop them in 2.0; programs that have them can keep them here.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sessionary.actions.sessions.append import NewMessage
from sessionary.clock import Moment
from sessionary.integrations import thread
from sessionary.integrations.base import SessionaryClient, require_extra, wait_for_write
from sessionary.integrations.thread import ExternalThread
from sessionary.model.message import (
    Entry,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from sessionary.model.transcript import chats_of
from sessionary.model.usage import Usage
from sessionary.store.database import Pending

with require_extra("langchain", "The storage for LangChain"):
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.messages import (
        AIMessage,
        BaseMessage,
        HumanMessage,
        SystemMessage,
        ToolMessage,
        message_to_dict,
        messages_from_dict,
    )

PLATFORM = "langchain"
NATIVE = "langchain"
_ROLES = {"human": Role.USER, "ai": Role.ASSISTANT, "tool": Role.TOOL, "function": Role.TOOL}


class SessionaryChatMessageHistory(BaseChatMessageHistory):
    """The messages of one session."""

    def __init__(
        self, session_id: str, client: SessionaryClient, *, profile: str | None = None
    ) -> None:
        # The base's own only warns that it will go.
        self.session_id = session_id
        self._client = client
        self._profile = profile or client.profile
        self._source = thread.source_for(PLATFORM, session_id)

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """The messages that were not retracted."""
        return _natives(self._reading().result())

    async def aget_messages(self) -> list[BaseMessage]:
        return _natives(await self._reading())

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages, all or none; they are durable when this returns."""
        if messages:
            self._adding(messages).result()

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        if messages:
            await wait_for_write(self._adding(messages))

    def clear(self) -> None:
        """Retract all messages; they stay in the log."""
        self._clearing().result()

    async def aclear(self) -> None:
        await wait_for_write(self._clearing())

    def _thread(self, model: str | None = None) -> ExternalThread:
        return ExternalThread(self._profile, self._source, model=model)

    def _reading(self) -> Pending[list[Entry]]:
        return self._client.store.read(thread.visible_entries, self._thread())

    def _adding(self, messages: Sequence[BaseMessage]) -> Pending[Any]:
        moment = self._client.moment()
        new_messages = [self._new_message(each, moment) for each in messages]
        model = next((found for each in messages if (found := model_of(each))), None)
        return self._client.store.write(
            thread.append, self._thread(model), new_messages, moment=moment
        )

    def _clearing(self) -> Pending[None]:
        moment = self._client.moment()
        return self._client.store.write(thread.clear, self._thread(), moment=moment)

    def _new_message(self, native: BaseMessage, moment: Moment) -> NewMessage:
        call_id = f"{PLATFORM}/{self.session_id}/{native.id or moment.new_id()}"
        used = self._client.priced(usage_of(native, call_id=call_id), at=None)
        return NewMessage(message_of(native), usage=used)


def _natives(found: Sequence[Entry]) -> list[BaseMessage]:
    return [native for entry in found for native in natives_of(thread.entry_message(entry))]


def message_of(native: BaseMessage) -> Message:
    """A message that people read, with LangChain's own beside it."""
    kind = native.type.removesuffix("MessageChunk").lower()
    role = _ROLES.get(kind, Role.SYSTEM)
    return Message(
        role,
        _parts(native),
        model=model_of(native),
        extra={NATIVE: json.dumps(message_to_dict(native), default=str)},
    )


def natives_of(message: Message) -> list[BaseMessage]:
    """The message as it came; of one that came another way, messages that say the same."""
    text = message.extra.get(NATIVE)
    if isinstance(text, str):
        found: list[BaseMessage] = messages_from_dict([json.loads(text)])
        return found
    return [_from_chat(chat) for chat in chats_of(message)]


def model_of(native: BaseMessage) -> str | None:
    """The model that said it, where the message tells."""
    told = native.response_metadata
    found = told.get("model_name") or told.get("model") if native.type.startswith("ai") else None
    return found if isinstance(found, str) else None


def usage_of(native: BaseMessage, *, call_id: str) -> Usage | None:
    """The model call that a message is the answer of, in our way of counting."""
    used = getattr(native, "usage_metadata", None)
    if not used:
        return None
    given, made = used.get("input_token_details") or {}, used.get("output_token_details") or {}
    cached, written = given.get("cache_read") or 0, given.get("cache_creation") or 0
    # Where writes are told by how long they are kept, their sum may be left out.
    for_an_hour = given.get("ephemeral_1h_input_tokens") or 0
    written = max(written, for_an_hour + (given.get("ephemeral_5m_input_tokens") or 0))
    return Usage(
        model=model_of(native),
        input_tokens=max(0, used["input_tokens"] - cached - written),
        output_tokens=used["output_tokens"],
        cache_read_tokens=cached,
        cache_write_tokens=written,
        cache_write_1h_tokens=for_an_hour,
        reasoning_tokens=made.get("reasoning") or 0,
        call_id=call_id,
    )


def _parts(native: BaseMessage) -> tuple[Part, ...]:
    if isinstance(native, ToolMessage):
        text = native.content if isinstance(native.content, str) else str(native.text)
        is_error = native.status == "error"
        return (ToolResult(native.tool_call_id, text, native.name, is_error=is_error),)
    pieces = [native.content] if isinstance(native.content, str) else native.content
    parts = [part for piece in pieces if piece and (part := _piece(piece)) is not None]
    calls = native.tool_calls if isinstance(native, AIMessage) else []
    return (*parts, *(ToolCall(call["id"] or "", call["name"], call["args"]) for call in calls))


def _piece(piece: str | Mapping[str, Any]) -> Part | None:
    if isinstance(piece, str):
        return Text(piece)
    match piece:
        case {"type": "text", "text": str(text)}:
            return Text(text)
        case {"type": "reasoning" | "thinking"}:
            words = piece.get("reasoning", piece.get("thinking"))
            return Reasoning(words if isinstance(words, str) else "")
        case {"type": "tool_use" | "tool_call" | "function_call"}:
            return None  # the message lists its calls itself
    return Unknown({"type": f"{NATIVE}:{piece.get('type', 'block')}"})


def _from_chat(chat: Mapping[str, Any]) -> BaseMessage:
    content = chat["content"] if isinstance(chat["content"], str) else json.dumps(chat["content"])
    match chat["role"]:
        case "tool":
            return ToolMessage(content, tool_call_id=chat["tool_call_id"])
        case "assistant":
            return AIMessage(
                content, tool_calls=[_call(each) for each in chat.get("tool_calls", ())]
            )
        case "system":
            return SystemMessage(content)
    return HumanMessage(content)


def _call(call: Mapping[str, Any]) -> Any:
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        arguments = None
    given = arguments if isinstance(arguments, dict) else {"arguments": function["arguments"]}
    return {"name": function["name"], "args": given, "id": call["id"], "type": "tool_call"}
