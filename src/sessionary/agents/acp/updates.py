"""What an agent tells during a turn, as steps of ours: words, thoughts, tool calls with their results, plans, usage."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from acp.schema import PromptResponse

from sessionary.engine.ports import Delta, Event, Step
from sessionary.formats import acp as formats
from sessionary.formats.acp import EXTRA, UPDATE, ToolCallState
from sessionary.model import codec
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
from sessionary.model.usage import Usage

log = logging.getLogger(__name__)
# How many updates of kinds that we do not know are kept in one turn.
_MOST_UNKNOWN = 200
_PLAN = "plan"
_STOPPED = {
    "max_tokens": "[The answer was cut off: it has reached its longest length.]",
    "max_turn_requests": "[The agent has called its model as often as it may in one turn. Write «continue» to go on.]",
    "refusal": "[The agent has refused to go on.]",
    "cancelled": "[The agent has stopped.]",
}
_FINISH = {"end_turn": "stop", "max_tokens": "length"}


class UpdateReader:
    """Makes steps of what an agent tells in one turn.

    A tool call becomes a step when it is known what the tool is called with, or when it begins; its result when it has
    ended. A plan becomes one when it is first told, and at the end of the answer if it has changed since.
    """

    def __init__(
        self, turn_id: str, shown: Callable[[], Mapping[str, str]], *, cost: float, answers: int
    ) -> None:
        """`shown` says what each terminal shows; `cost` is what the session has cost so far.

        `answers` is how many answers the turn has given in another process.
        """
        self._turn_id = turn_id
        self._shown = shown
        self.session = ""
        self.mode: str | None = None
        self.model: str | None = None
        self._title: str | None = None
        # What the session has cost so far, and how much of that is in the ledger.
        self.cost = self._cost_told = cost
        # The number of the answer: a turn has several if people write meanwhile.
        self._answers = answers
        self._calls: dict[str, ToolCallState] = {}
        # The calls that are in the log, those that wait until more is known of them, and those that have a result.
        self._told: dict[str, ToolCall] = {}
        self._waiting: list[str] = []
        self._over: set[str] = set()
        self._text: list[str] = []
        self._thought: list[str] = []
        self._parts: list[tuple[Part, bytes | None]] = []
        self._unknown = 0
        self._plans: dict[str, str] = {}
        self._told_plans: dict[str, str] = {}
        self._plan_steps = 0
        self._has_said = False

    def begin(self, session: str, *, is_new: bool) -> None:
        """Read what is told in this session of the agent."""
        self.session = session
        if is_new:
            self.cost = self._cost_told = 0.0

    def begin_answer(self) -> None:
        """Read the answer to the next prompt."""
        self._answers += 1

    def skip(self, call: str) -> None:
        """Take no result of this call: it has one."""
        self._over.add(call)

    def call(self, given: Mapping[str, Any]) -> ToolCallState:
        """Return the tool call that something is told of."""
        return self._calls[call_id(given)]

    def read(self, item: Any) -> list[Event]:
        """Return the events of one notification of the agent."""
        update = item.get("update") if isinstance(item, Mapping) else None
        session = item.get("sessionId", self.session) if isinstance(item, Mapping) else None
        if not isinstance(update, Mapping) or session != self.session:
            return self._keep_unknown(item)
        match update:
            case {"sessionUpdate": "agent_message_chunk", "content": content}:
                return self._on_words(content)
            case {"sessionUpdate": "agent_thought_chunk", "content": content}:
                text = formats.block_text(content)
                self._thought.append(text)
                return [Delta(text, thinking=True)]
            case {"sessionUpdate": "user_message_chunk"}:
                return []  # what it was sent
            case {"sessionUpdate": "tool_call" | "tool_call_update", "toolCallId": str()}:
                return self.read_call(update)
            case {"sessionUpdate": "plan", "entries": entries}:
                return self._on_plan("", formats.plan_text(entries))
            case {"sessionUpdate": "plan_update", "plan": {"planId": str(id), **plan}}:
                return self._on_plan(id, _plan_of({str(key): value for key, value in plan.items()}))
            case {"sessionUpdate": "plan_removed", "planId": str(id)}:
                self._plans.pop(id, None)
                return []
            case {"sessionUpdate": "usage_update"}:
                self._on_cost(update.get("cost"))
                return []
            case {"sessionUpdate": "current_mode_update", "currentModeId": str(mode)}:
                self.mode = mode
                return []
            case {"sessionUpdate": "config_option_update", "configOptions": list(options)}:
                self._on_options(options)
                return []
            case {"sessionUpdate": "session_info_update"}:
                title = update.get("title")
                self._title = title if isinstance(title, str) else self._title
                return []
            case {"sessionUpdate": "available_commands_update"}:
                return []  # what people can type in an editor: nothing of the conversation
        return self._keep_unknown(dict(update))

    def _on_words(self, content: Any) -> list[Event]:
        part, data = formats.part_of_block(content)
        events = self._tell_calls(self._waiting)
        if isinstance(part, Text):
            self._text.append(part.text)
            return [*events, Delta(part.text)]
        self._parts.append((part, data))
        return events

    def _keep_unknown(self, item: Any) -> list[Event]:
        """Keep what we do not know with the next message, up to a limit."""
        self._unknown += 1
        if self._unknown <= _MOST_UNKNOWN:
            self._parts.append((Unknown({"type": UPDATE, "update": item}), None))
        elif self._unknown == _MOST_UNKNOWN + 1:
            log.warning(
                "more than %s unknown updates of an agent: the rest is left out", _MOST_UNKNOWN
            )
        return []

    def read_call(self, given: Mapping[str, Any], *, must_tell: bool = False) -> list[Event]:
        """Take what is told of a tool call; with `must_tell`, its step is among the events at the latest now."""
        id = call_id(given)
        if id in self._over:
            return []
        state = self._calls.get(id)
        if state is None:
            state = self._calls[id] = ToolCallState(id)
            self._waiting.append(id)
        state.update(given)
        events: list[Event] = []
        if must_tell or state.has_input or not state.is_pending:
            events += self._tell_calls([id])
        if state.is_over:
            events.append(self._result(state))
        return events

    def _tell_calls(self, ids: Sequence[str]) -> list[Event]:
        """Return the steps with calls that are not in the log yet."""
        events: list[Event] = []
        for id in list(ids):
            if id in self._waiting:
                self._waiting.remove(id)
                call = self._told[id] = self._calls[id].call()
                events.append(self._step((call,)))
        return events

    def _result(self, state: ToolCallState) -> Step:
        self._over.add(state.id)
        called_with = self._told[state.id].arguments
        parts, files = state.result(
            shown=self._shown(),
            called_with=called_with if isinstance(called_with, Mapping) else {},
        )
        return Step(Message(Role.TOOL, parts), files=files)

    def _on_plan(self, id: str, text: str) -> list[Event]:
        """A plan is told when it is first known, and again in its last version at the end of the answer."""
        is_first = id not in self._plans
        self._plans[id] = text
        return self._tell_plan(id) if is_first else []

    def _tell_plan(self, id: str) -> list[Event]:
        text = self._plans[id]
        self._told_plans[id] = text
        self._plan_steps += 1
        name = f"{_PLAN}-{self._turn_id}-{self._plan_steps}"
        call = ToolCall(name, _PLAN, {_PLAN: text}, extra={EXTRA: {"kind": _PLAN}})
        result = ToolResult(name, text, _PLAN, extra={EXTRA: {"kind": _PLAN}})
        # Without what was said before it: that may be the answer.
        told = Step(Message(Role.ASSISTANT, (call,), model=self.model))
        return [told, Step(Message(Role.TOOL, (result,)))]

    def _on_cost(self, cost: Any) -> None:
        """Note what the session has cost so far, if that is told in a currency that the ledger has."""
        if isinstance(cost, Mapping) and str(cost.get("currency", "")).upper() == "USD":
            self.cost = number(cost.get("amount"))

    def _on_options(self, options: Sequence[Any]) -> None:
        for each in options:
            if isinstance(each, Mapping) and "model" in (each.get("category"), each.get("id")):
                value = each.get("currentValue")
                self.model = value if isinstance(value, str) else self.model

    def _step(self, parts: tuple[Part, ...], **fields: Any) -> Step:
        """Return an assistant's message with what was said before these parts."""
        made: list[Part] = []
        if self._thought:
            made.append(Reasoning("".join(self._thought)))
        if self._text:
            made.append(Text("".join(self._text)))
            self._has_said = True
        files = [data for _, data in self._parts if data is not None]
        made += [part for part, _ in self._parts]
        self._text, self._thought, self._parts = [], [], []
        usage = fields.pop("usage", None)
        message = Message(Role.ASSISTANT, (*made, *parts), model=self.model, **fields)
        return Step(message, usage, tuple(files))

    def finish(self, response: PromptResponse) -> list[Event]:
        """Return the last steps of an answer: open calls, the plan as it is now, and the last words with the usage."""
        events: list[Event] = self._tell_calls(self._waiting)
        for id, state in self._calls.items():
            if id not in self._over:
                events.append(self._result(state))
        for id, text in self._plans.items():
            if self._told_plans.get(id) != text:
                events += self._tell_plan(id)
        reason = response.stop_reason
        note: tuple[Part, ...] = ()
        if reason != "end_turn" and (reason != "cancelled" or not (self._text or self._has_said)):
            note = (Text(_STOPPED[reason]),)
        extra: dict[str, Any] = {"session": self.session, "stop": reason}
        facts = {"mode": self.mode, "title": self._title}
        extra |= {name: value for name, value in facts.items() if value is not None}
        usage = self._usage(response)
        if self._text or self._thought or self._parts or note or usage is not None:
            finish = _FINISH.get(reason, reason)
            events.append(self._step(note, finish_reason=finish, extra={EXTRA: extra}, usage=usage))
        return events

    def _usage(self, response: PromptResponse) -> Usage | None:
        given = None
        if response.usage is not None:
            given = response.usage.model_dump(mode="json", by_alias=True)
        elif response.field_meta is not None:
            given = formats.usage_of_meta(response.field_meta)
        cost = self.cost - self._cost_told
        if cost < 0:  # the agent counts from zero since its process was started
            cost = self.cost
        self._cost_told = self.cost
        return formats.usage_of(
            given,
            cost_microusd=round(cost * 1_000_000) if cost > 0 else None,
            model=self.model,
            # It stands for all calls of an answer: no context was as large as their sum.
            task="turn",
            call_id=f"acp/{self.session}/{self._turn_id}/{self._answers}",
        )


def call_id(given: Mapping[str, Any]) -> str:
    """Return the id of the tool call that an update is about."""
    id = given.get("toolCallId")
    return id if isinstance(id, str) else "call"


def _plan_of(plan: Mapping[str, Any]) -> str:
    match plan:
        case {"type": "items", "entries": entries}:
            return formats.plan_text(entries)
        case {"type": "markdown", "content": str(text)}:
            return text
        case {"type": "file", "uri": str(uri)}:
            return uri
    return codec.encode(dict(plan))


def number(value: Any) -> float:
    """Return an amount; 0 for what is none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < 1e9 else 0.0
