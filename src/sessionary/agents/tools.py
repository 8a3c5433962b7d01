"""Runs the tools that a model calls: each result is a step, and a failure is a result."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, Protocol

from msgspec import structs
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import ToolDefinition

from sessionary.agents.model import ModelOptions
from sessionary.agents.provider import Conversation, ModelAnswer, arguments_of, result_content
from sessionary.config.engine import ToolDecision
from sessionary.engine.ports import Ask, NoServices, ProposedCall, Step, TurnRequest, TurnServices
from sessionary.errors import AgentFailed, BadInput
from sessionary.model import codec
from sessionary.model.choice import is_tool_chosen
from sessionary.model.message import Attachment, Message, Role, ToolCall, ToolResult
from sessionary.model.policy import PolicyVerdict
from sessionary.model.question import NewQuestion, Question, QuestionKind, outcome_text
from sessionary.model.question_data import approved_arguments
from sessionary.model.transcript import cut_middle, unfinished_calls
from sessionary.model.turn_options import ClientTool

_MOST_ARGUMENTS = 2_000
# How many characters of an earlier output are read at once.
MOST_READ = 8_000
READ_OUTPUT = ToolDefinition(
    name="read_output",
    description="Read an earlier tool output of this conversation, of which only a part is shown any more.",
    parameters_json_schema={
        "type": "object",
        "properties": {
            "entry": {"type": "integer", "description": "The entry that the note names."},
            "offset": {"type": "integer", "description": "From which character on; default 0."},
        },
        "required": ["entry"],
    },
)


class ToolClass(StrEnum):
    """Whether a tool may be run again if the result of a call was lost."""

    SAFE = "safe"
    ONCE = "once"


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The result of a tool call.

    Malformed: the call was invalid, and nothing was run. Unknown: the call was cut off, and it was not run again.
    """

    content: Any
    is_error: bool = False
    is_malformed: bool = False
    is_unknown: bool = False
    # What is said before the content.
    note: str = ""
    # Files of the session that the model is shown again.
    attachments: tuple[Attachment, ...] = ()


class OpenTools(Protocol):
    """Tools that are connected."""

    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        """Return the definitions that the model is given."""

    def tool_class(self, name: str) -> ToolClass:
        """Return whether a tool may be run again."""

    async def call(self, name: str, arguments: dict[str, Any], *, key: str) -> ToolOutcome:
        """Call a tool. `key` is the same if the same call is run again."""


@dataclass(frozen=True, slots=True)
class DecidedCalls:
    """The tool calls of a response by their numbers in the turn, and what the policy says about the valid ones."""

    answer: ModelAnswer
    calls: Mapping[int, ToolCall]
    verdicts: Mapping[int, PolicyVerdict]

    @property
    def message(self) -> Message:
        """The response as it is recorded: a call that is not run at once has a mark, so that it is known later."""
        message, numbers = self.answer.message, iter(self.calls)
        if all(each.decision is ToolDecision.ALLOW for each in self.verdicts.values()):
            return message
        parts = [
            self._marked(part, next(numbers)) if isinstance(part, ToolCall) else part
            for part in message.parts
        ]
        return structs.replace(message, parts=tuple(parts))

    def asked(self) -> list[int]:
        """Return the numbers of the calls that must be approved first."""
        verdicts = self.verdicts.items()
        return [number for number, each in verdicts if each.decision is ToolDecision.ASK]

    def _marked(self, call: ToolCall, number: int) -> ToolCall:
        verdict = self.verdicts.get(number)
        if verdict is None or verdict.decision is ToolDecision.ALLOW:
            return call
        return structs.replace(call, extra={**call.extra, POLICY: str(verdict.decision)})


# In the `extra` of a recorded call: the decision of the policy, if it was not run at once.
POLICY = "policy"


class NoTools:
    """No tools are configured."""

    definitions: Sequence[ToolDefinition] = ()

    def tool_class(self, name: str) -> ToolClass:
        """Never called: there are no tools."""
        raise KeyError(name)

    async def call(self, name: str, arguments: dict[str, Any], *, key: str) -> ToolOutcome:
        """Never called: there are no tools."""
        raise KeyError(name)


class TurnTools:
    """The tools of one turn, and the number of invalid calls.

    The calls of a turn are numbered from 1, in the order in which the model made them; the number is part of a call's
    idempotency key. `calls_before` is how many calls the turn had made before it was continued.
    """

    def __init__(
        self,
        tools: OpenTools,
        options: ModelOptions,
        *,
        turn_id: str,
        calls_before: int = 0,
        services: TurnServices | None = None,
        chosen: Sequence[str] | None = None,
        questions: Iterable[Question] = (),
        of_program: Sequence[ToolDefinition] = (),
    ) -> None:
        """`services` decide which calls run, and read an earlier tool output of which the context has only a part.

        `questions` are those that the turn has asked. The tools `of_program` are offered too; it calls them itself.
        """
        self._tools = tools
        self._options = options
        self._turn_id = turn_id
        self._calls = calls_before
        self._services = services
        # The patterns of the tools that the session may use; None: all.
        self._chosen = chosen
        # By their names; that of an approval is the number of its call.
        self._questions = {each.asked.name: each for each in questions}
        self._malformed = 0
        self._of_program = tuple(of_program)
        self._program_names = frozenset(each.name for each in of_program)
        if both := self._program_names.intersection(each.name for each in tools.definitions):
            raise BadInput(
                f"The agent has a tool {min(both)!r} of its own: give the one of your program another name."
            )

    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        """Return the definitions that the model is given; with other tools, one that reads earlier outputs."""
        found = [
            each
            for each in self._tools.definitions
            if is_tool_chosen(each.name, patterns=self._chosen)
        ]
        offered = (*found, *self._of_program)
        is_free = all(each.name != READ_OUTPUT.name for each in offered)
        if found and is_free and self._services:
            found.append(READ_OUTPUT)
        return [*found, *self._of_program] if self._of_program else found

    def has_program_calls(self, calls: Iterable[ToolCall]) -> bool:
        """Return whether there is a call of a tool that the program runs."""
        return any(each.name in self._program_names for each in calls)

    async def decide(self, answer: ModelAnswer) -> DecidedCalls:
        """Return what the policy says about the tool calls of a response."""
        calls = [_recorded(call) for call in answer.calls]
        numbered = dict(enumerate(calls, self._calls + 1))
        self._calls += len(calls)
        return DecidedCalls(answer, numbered, await self._decide(numbered))

    async def steps(
        self, decided: DecidedCalls, conversation: Conversation
    ) -> AsyncGenerator[Step | Ask]:
        """Run the tool calls of a response concurrently, and add their results to the conversation.

        Each result is yielded when it is there; the model reads them in the order of the calls. If some calls must be
        approved first, the others run, and the last event asks for the approvals.
        """
        calls = {
            number: call
            for number, call in decided.calls.items()
            if call.name not in self._program_names
        }
        verdicts, asked = decided.verdicts, decided.asked()
        outcomes: dict[int, ToolOutcome] = {}
        steps: dict[int, Step] = {}
        now = [number for number in calls if number not in asked]
        running = _as_finished(
            [self._decided(calls[number], number, verdicts.get(number)) for number in now]
        )
        async with aclosing(running) as finished:
            async for at, outcome in finished:
                number = now[at]
                outcomes[number] = outcome
                steps[number] = self._step(calls[number], outcome)
                yield steps[number]
        self._count(outcomes.values())
        if asked:
            yield Ask(tuple(_approval(each, calls[each], verdicts[each]) for each in asked))
            return
        if len(calls) == len(decided.calls):  # else the turn ends here
            await conversation.take(decided.answer, [steps[number] for number in calls])

    async def resumed_steps(self, steps: Sequence[Message]) -> AsyncGenerator[Step | Ask]:
        """Give a result to each call of a continued turn that has none; `steps` are its messages.

        A call that was asked about runs if it was approved and not started before; one that was to be asked about is
        asked about now. Of the others, which may have run, a `safe` one is run again, with the key of the first time;
        whether another one ran is not known, and the model is told so. What the policy forbids now is not run.
        """
        unfinished = {
            number: self._with_changes(number, call)
            for number, call in unfinished_calls(steps).items()
            if call.name not in self._program_names
        }
        verdicts = await self._decide(unfinished)
        asked = [
            _approval(number, call, verdicts[number])
            for number, call in unfinished.items()
            if number in verdicts and self._is_to_ask(number, call, verdicts[number])
        ]
        left = {each.name for each in asked}
        now = [number for number in unfinished if str(number) not in left]
        running = [self._resumed(unfinished[each], each, verdicts.get(each)) for each in now]
        async with aclosing(_as_finished(running)) as finished:
            async for at, outcome in finished:
                yield self._step(unfinished[now[at]], outcome)
        if asked:
            yield Ask(tuple(asked))

    def _with_changes(self, number: int, call: ToolCall) -> ToolCall:
        """Return a call with the arguments that whoever approved it has given it."""
        question = self._questions.get(str(number))
        approved = None if question is None else approved_arguments(question)
        return call if approved is None else structs.replace(call, arguments=approved)

    def _is_to_ask(self, number: int, call: ToolCall, verdict: PolicyVerdict) -> bool:
        """Whether a call without a result must be approved, and was not asked about before."""
        if str(number) in self._questions or verdict.decision is ToolDecision.DENY:
            return False
        if POLICY in call.extra:
            return bool(call.extra[POLICY] == ToolDecision.ASK)
        # It was run before, as far as is known: one that may run twice is asked about as any other.
        is_safe = self._tool_class(call.name) is ToolClass.SAFE
        return verdict.decision is ToolDecision.ASK and is_safe

    async def _decide(self, calls: Mapping[int, ToolCall]) -> dict[int, PolicyVerdict]:
        """Return what the policy says about the valid calls of tools that are not our own."""
        known = {each.name: each for each in self._tools.definitions}
        proposed = {
            number: ProposedCall(
                call.name,
                call.arguments,
                is_safe=self._tools.tool_class(call.name) is ToolClass.SAFE,
                needs_approval=known[call.name].kind == "unapproved",
            )
            for number, call in calls.items()
            if call.name in known
            and isinstance(call.arguments, dict)
            and is_tool_chosen(call.name, patterns=self._chosen)
        }
        if not proposed or self._services is None:
            return {}
        verdicts = await self._services.decide(list(proposed.values()))
        return dict(zip(proposed, verdicts, strict=True))

    async def _decided(
        self, call: ToolCall, number: int, verdict: PolicyVerdict | None
    ) -> ToolOutcome:
        if verdict is not None and verdict.decision is ToolDecision.DENY:
            return _forbidden(verdict)
        return await self._outcome(call, number)

    async def _outcome(self, call: ToolCall, number: int) -> ToolOutcome:
        names = [definition.name for definition in self.definitions]
        if call.name not in names:
            known = f"There are: {', '.join(names)}." if names else "There are no tools."
            problem = f"There is no tool {call.name!r}. {known}"
            return ToolOutcome(problem, is_error=True, is_malformed=True)
        if not isinstance(call.arguments, dict):
            problem = "The arguments are not a JSON object. Call the tool again with correct ones."
            return ToolOutcome(problem, is_error=True, is_malformed=True)
        if call.name not in [each.name for each in self._tools.definitions]:
            return await self._read(call.arguments)
        return await self._tools.call(call.name, call.arguments, key=f"{self._turn_id}-{number}")

    async def _read(self, arguments: dict[str, Any]) -> ToolOutcome:
        """Return a part of an earlier tool output."""
        entry, offset = arguments.get("entry"), arguments.get("offset", 0)
        if not isinstance(entry, int) or not isinstance(offset, int) or offset < 0:
            return ToolOutcome("entry and offset are whole numbers.", is_error=True)
        services = self._services
        output = None if services is None else await services.read_output(entry)
        if services is None or output is None:
            return ToolOutcome(f"Entry {entry} is not the output of a tool.", is_error=True)
        end = offset + MOST_READ
        more = (
            f"\n[{len(output) - end:,} more characters: offset {end}]" if len(output) > end else ""
        )
        files = () if offset else await services.read_output_files(entry)
        return ToolOutcome(output[offset:end] + more, attachments=tuple(files))

    async def _resumed(
        self, call: ToolCall, number: int, verdict: PolicyVerdict | None
    ) -> ToolOutcome:
        """Return the result of a call of a continued turn; it has the arguments with which it was approved."""
        question = self._questions.get(str(number))
        is_denied = verdict is not None and verdict.decision is ToolDecision.DENY
        note = "" if question is None else _changes(question)
        if question is None and POLICY in call.extra:  # the policy did not let it run at once
            if is_denied or call.extra[POLICY] == ToolDecision.DENY:
                return _forbidden(verdict)
            problem = f"There is no tool {call.name!r} any more. The call was not run."
            return ToolOutcome(problem, is_error=True)
        if question is not None and not question.is_started:
            if not question.is_approved:
                return ToolOutcome(_refusal(question), is_error=True)
            if is_denied:
                return _forbidden(verdict)
            services = self._services or NoServices()
            if await services.start_approved(str(number)):
                return _noted(await self._outcome(call, number), note)
        # It may have run.
        is_offered = any(each.name == call.name for each in self.definitions)
        is_valid = isinstance(call.arguments, dict)
        if is_valid and not is_offered:
            why = f"There is no tool {call.name!r} any more."
        elif is_valid and (
            is_denied or question is not None or self._tool_class(call.name) is ToolClass.ONCE
        ):
            why = "It was not run again."
        else:
            return _noted(await self._outcome(call, number), note)
        arguments = cut_middle(codec.encode(call.arguments), _MOST_ARGUMENTS)
        text = (
            "It is not known whether this call ran: the process stopped before its result was recorded. "
            f"{why} Arguments: {arguments}. Check before you call it again."
        )
        return ToolOutcome(text, is_error=True, is_unknown=True)

    def _tool_class(self, name: str) -> ToolClass:
        is_ours = all(each.name != name for each in self._tools.definitions)
        return ToolClass.SAFE if is_ours else self._tools.tool_class(name)

    def _step(self, call: ToolCall, outcome: ToolOutcome) -> Step:
        content = result_content(outcome.content, longest=self._options.most_tool_characters)
        is_failure = outcome.is_error and not outcome.is_unknown
        text = f"Error: {content.text}" if is_failure else content.text
        result = ToolResult(
            call.id,
            f"{outcome.note}\n{text}" if outcome.note else text,
            call.name,
            is_error=outcome.is_error,
            extra={"outcome": "unknown"} if outcome.is_unknown else {},
        )
        attachments = (*content.attachments, *outcome.attachments)
        return Step(Message(Role.TOOL, (result, *attachments)), files=content.files)

    def _count(self, outcomes: Iterable[ToolOutcome]) -> None:
        is_wrong = any(outcome.is_malformed for outcome in outcomes)
        self._malformed = self._malformed + 1 if is_wrong else 0
        if self._malformed > self._options.most_malformed:
            raise AgentFailed(
                f"The model called its tools wrongly {self._malformed} times in a row "
                "and was stopped."
            )


class Tools:
    """The tools in an agent's settings."""

    def __init__(self, options: ModelOptions) -> None:
        self._options = options
        self._servers = None
        # The names of all tools; None before a turn has connected to their servers.
        self.names: tuple[str, ...] | None = None if options.tools else ()
        if options.tools:
            from sessionary.agents.mcp_tools import ToolServers

            self._servers = ToolServers(
                options.tools,
                timeout_seconds=options.tool_timeout_seconds,
                question_seconds=options.question_seconds,
            )

    @asynccontextmanager
    async def opened(self, request: TurnRequest) -> AsyncIterator[TurnTools]:
        """Yield the tools for one turn: all, or those whose names match what the session chose."""
        turn_id, chosen = request.turn_id, request.settings.get("tools")
        of_program = [_definition(each) for each in request.options.tools]
        if self._servers is None or chosen == []:
            yield TurnTools(
                NoTools(),
                self._options,
                turn_id=turn_id,
                questions=request.questions,
                of_program=of_program,
            )
            return
        ask = partial(request.services.ask_now, seconds=self._options.question_seconds)
        async with self._servers.opened(ask) as tools:
            self.names = tuple(each.name for each in tools.definitions)
            yield TurnTools(
                tools,
                self._options,
                turn_id=turn_id,
                calls_before=sum(step.tool_calls for step in request.steps),
                services=request.services,
                chosen=chosen,
                questions=request.questions,
                of_program=of_program,
            )

    async def close(self) -> None:
        """Stop the servers that we started."""
        if self._servers is not None:
            await self._servers.close()


async def _as_finished(
    calls: Sequence[Coroutine[Any, Any, ToolOutcome]],
) -> AsyncGenerator[tuple[int, ToolOutcome]]:
    """Run all calls, and yield each one's position and outcome when it has finished; cancel the rest if closed."""
    tasks = {asyncio.create_task(call): at for at, call in enumerate(calls)}
    running = set(tasks)
    try:
        while running:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=tasks.__getitem__):
                yield tasks[task], await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _definition(tool: ClientTool) -> ToolDefinition:
    return ToolDefinition(
        name=tool.name,
        description=tool.description or None,
        parameters_json_schema=dict(tool.parameters) or {"type": "object", "properties": {}},
        strict=tool.strict,
    )


def _approval(number: int, call: ToolCall, verdict: PolicyVerdict) -> NewQuestion:
    return NewQuestion(
        name=str(number),
        kind=QuestionKind.APPROVAL,
        text="",
        tool=call.name,
        arguments=call.arguments,
        # Without the rule that wants it asked, the rules that hold when it is asked decide.
        rule=verdict.rule if verdict.decision is ToolDecision.ASK else "",
    )


def _refusal(question: Question) -> str:
    """Return what the model reads of a call that nobody approved."""
    outcome = outcome_text(question)
    return f"{outcome} The call was not run. Do not make it again unless you are asked to."


def _forbidden(verdict: PolicyVerdict | None) -> ToolOutcome:
    is_denied = verdict is not None and verdict.decision is ToolDecision.DENY
    why = f": {verdict.rule}" if verdict is not None and is_denied else ""
    return ToolOutcome(f"This call is not allowed{why}. It was not run.", is_error=True)


def _changes(question: Question) -> str:
    """Return a note with which arguments the call was run, if somebody has changed them."""
    answered = question.answered
    if answered is None or answered.answer.arguments is None:
        return ""
    arguments = cut_middle(codec.encode(answered.answer.arguments), _MOST_ARGUMENTS)
    return f"[{answered.who} changed the arguments of this call to: {arguments}]"


def _noted(outcome: ToolOutcome, note: str) -> ToolOutcome:
    return replace(outcome, note="\n".join(filter(None, (note, outcome.note))))


def _recorded(call: ToolCallPart) -> ToolCall:
    return ToolCall(call.tool_call_id, call.tool_name, arguments_of(call))
