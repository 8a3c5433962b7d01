"""History providers of Microsoft's Agent Framework.

    agent = Agent(client, context_providers=[SessionaryHistoryProvider(client)])

With `load_messages=False` it only records: the agent's history is kept by someone else.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sessionary.actions.sessions.append import NewMessage
from sessionary.clock import Moment
from sessionary.errors import BadInput
from sessionary.integrations import thread
from sessionary.integrations.base import (
    SessionaryClient,
    read_nothing,
    require_extra,
    wait_for_write,
)
from sessionary.integrations.thread import ExternalThread
from sessionary.model.message import (
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
from sessionary.store.database import Tx

with require_extra("agent-framework", "The storage for Microsoft's Agent Framework"):
    from agent_framework import Content, HistoryProvider
    from agent_framework import Message as Native

PLATFORM = "agent-framework"
# How the framework's compaction marks a message that is kept but no longer read.
EXCLUDED = "_excluded"
_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "tool": Role.TOOL}


class SessionaryHistoryProvider(HistoryProvider):
    """Keeps what agents hear and say; every session of the framework is a session."""

    def __init__(
        self,
        client: SessionaryClient,
        source_id: str = "sessionary",
        *,
        profile: str | None = None,
        model: str | None = None,
        skip_excluded: bool = False,
        max_messages: int | None = None,
        **options: Any,
    ) -> None:
        """Keep histories in a Sessionary store.

        `skip_excluded` leaves out what a compaction of the framework marked as excluded before it
        was saved. `max_messages` gives an agent only that many of the latest; all of them are kept.
        """
        super().__init__(source_id, **options)
        if max_messages is not None and max_messages < 1:
            raise BadInput(f"max_messages is 1 or more, not {max_messages}.")
        self.skip_excluded = skip_excluded
        self.max_messages = max_messages
        self._client = client
        self._profile = profile or client.profile
        self._model = model

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Native]:
        """The messages that were not retracted."""
        where = self._thread(session_id)
        # One more than is given: it shows whether the first result of a tool has lost its call.
        wants_all = self.skip_excluded or self.max_messages is None
        limit = None if wants_all else (self.max_messages or 0) + 1
        found = await self._client.store.read(thread.visible_entries, where, limit=limit)
        natives = [native for entry in found for native in _natives_of(thread.entry_message(entry))]
        if self.skip_excluded:
            natives = [each for each in natives if not each.additional_properties.get(EXCLUDED)]
        return natives if self.max_messages is None else _latest(natives, self.max_messages)

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Native],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Append messages, all or none; they are durable when this returns."""
        if not messages:
            await self._client.store.read(read_nothing)
            return
        new_messages = [NewMessage(_message_of(each, model=self._model)) for each in messages]
        moment = self._client.moment()
        where = self._thread(session_id)
        await wait_for_write(
            self._client.store.write(thread.append, where, new_messages, moment=moment)
        )

    async def clear(self, session_id: str | None) -> None:
        """Retract all messages of a session; they stay in the log, and people can find them."""
        where = self._thread(session_id)
        await wait_for_write(
            self._client.store.write(thread.clear, where, moment=self._client.moment())
        )

    async def list_sessions(self) -> list[str]:
        """The ids of the sessions that are open here, in alphabetical order."""
        return await self._client.store.read(_names, self._profile)

    async def after_run(
        self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]
    ) -> None:
        """Store the messages and the usage of a run."""
        await super().after_run(agent=agent, session=session, context=context, state=state)
        moment = self._client.moment()
        used = self._client.priced(self._usage(context.response, moment), at=None)
        if used is not None:
            where = self._thread(context.session_id)
            write = self._client.store.write
            await wait_for_write(write(_count, where, used, moment=moment))

    def _thread(self, session_id: str | None) -> ExternalThread:
        if session_id is None:
            raise BadInput("A run needs a session: give it one, as in agent.run(…, session=…).")
        return ExternalThread(
            self._profile, thread.source_for(PLATFORM, session_id), model=self._model
        )

    def _usage(self, response: Any, moment: Moment) -> Usage | None:
        used = getattr(response, "usage_details", None)
        if not used:
            return None
        cached = used.get("cache_read_input_token_count") or 0
        written = used.get("cache_creation_input_token_count") or 0
        raw = getattr(response, "raw_representation", None)
        name = response.response_id or moment.new_id()
        return Usage(
            model=self._model or getattr(raw, "model", None),
            input_tokens=max(0, (used.get("input_token_count") or 0) - cached - written),
            output_tokens=used.get("output_token_count") or 0,
            cache_read_tokens=cached,
            cache_write_tokens=written,
            reasoning_tokens=used.get("reasoning_output_token_count") or 0,
            call_id=f"{PLATFORM}/{name}",
        )


def _names(tx: Tx, profile: str) -> list[str]:
    beginning = thread.platform_prefix(PLATFORM, profile=profile)
    found = thread.sessions_with_prefix(tx, beginning, profile=profile)
    return sorted(head.source.chat_id for _, head in found if head.source.chat_id is not None)


def _latest(natives: list[Native], limit: int) -> list[Native]:
    """The latest messages; results whose call is left out would be refused by a model."""
    latest = natives[-limit:]
    while latest and len(latest) < len(natives) and str(latest[0].role) == "tool":
        latest = latest[1:]
    return latest


def _count(tx: Tx, where: ExternalThread, used: Usage, *, moment: Moment) -> None:
    thread.record_usage(tx, where, [used], moment=moment)


def _message_of(native: Native, *, model: str | None) -> Message:
    """A message that people read, with the framework's own beside it."""
    role = _ROLES.get(str(native.role), Role.SYSTEM)
    return Message(
        role,
        tuple(_part(content) for content in native.contents if content.type != "usage"),
        model=model if role is Role.ASSISTANT else None,
        extra={PLATFORM: json.dumps(native.to_dict(), default=str)},
    )


def _natives_of(message: Message) -> list[Native]:
    """The message as it came; of one that came another way, messages that say the same."""
    text = message.extra.get(PLATFORM)
    if isinstance(text, str):
        return [Native.from_dict(json.loads(text))]
    return [_from_chat(chat) for chat in chats_of(message)]


def _part(content: Content) -> Part:
    match content.type:
        case "text":
            return Text(content.text or "")
        case "text_reasoning":
            return Reasoning(content.text or "")
        case "function_call":
            return ToolCall(content.call_id or "", content.name or "", content.arguments)
        case "function_result":
            result = content.result
            shown = result if isinstance(result, str) else json.dumps(result, default=str)
            return ToolResult(content.call_id or "", shown, is_error=content.exception is not None)
    return Unknown({"type": f"{PLATFORM}:{content.type}"})


def _from_chat(chat: Mapping[str, Any]) -> Native:
    if chat["role"] == "tool":
        result = Content.from_function_result(chat["tool_call_id"], result=chat["content"])
        return Native("tool", [result])
    words = chat["content"] if isinstance(chat["content"], str) else json.dumps(chat["content"])
    contents: list[Any] = [words] if words else []
    for call in chat.get("tool_calls", ()):
        function = call["function"]
        contents.append(
            Content.from_function_call(
                call["id"], function["name"], arguments=function["arguments"]
            )
        )
    return Native(chat["role"], contents)
