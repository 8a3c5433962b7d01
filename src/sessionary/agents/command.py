"""An agent that is any program: one JSON line in, JSON lines out.

The program gets one line on its standard input, and then the end of it:

    {"sessionary": 1, "turn_id": …, "session": {"id", "title", "profile", "key", "model"},
     "source": {…}, "system_prompt": …, "context": [{"role", "content", …}, …], "settings": {…}}

A turn that is continued after its process ended (only with `resume = true`), or because people have answered its
questions, has in addition "resumed", how often that has happened; "steps", the messages that the program has written so
far in this turn, which are in the context too; "unfinished", the tool calls among them that have no result: unless the
program knows better, it is not known whether they ran; and "questions", all that it has asked in this turn.

It answers with lines on its standard output, each a JSON object with one of

    {"delta": "text"} or {"delta": "text", "thinking": true}    shown as it comes
    {"step": {"role": …, "parts": […]}}     a finished message; or with "content": "text"
    {"reply": "text"}                       the last message; deltas alone are a reply too
    {"usage": {"model": …, "input_tokens": …, …}}    one model call, for the step or reply after it,
                                            or for the reply before it
    {"error": "one line"} or {"error": "…", "retry_after": 30}       the turn failed
    {"ask": {"name": …, "text": …, …}} or {"ask": [{…}, …]}    questions to people, as the last line

After its questions the program ends; it is ended if it does not. The turn waits without it. When people have decided,
the program is started again: its line has "resumed", "steps" and

    "questions": [{"name", "kind", "text", "state", "outcome", "tool", "arguments",
                   "answer": {"decision": "approve" or "deny", "text", "arguments", "values", "by"} or null}, …]

A question has a "name", by which the program recognizes it, and a "text". With "options" it is a choice, with a
"schema" a form, with a "tool" and its "arguments" the approval of a call; "kind" may say so too (`text`, `choice`,
`form`, `approval`). The answer is in "text" or "values"; that of an approval has the "arguments" with which the call
may run, which people can change. Without an answer the "state" is `expired`, and that counts as denied.

Other lines are counted and reported. What the program writes to its standard error is shown, its
last lines, when it fails.

With `keep_input_open = true` the standard input stays open after the request, which then has "keep_input_open": true,
and the program may ask between two steps for the messages that people have sent to the running turn:

    {"new_messages": true}

It is answered with exactly one line on the standard input, which has the messages as the context has them, the oldest
first; the list is empty if there are none:

    {"messages": [{"role": "user", "content": …}, …]}

These messages are then in the log, after the steps that the program has written before, and no other turn answers them.
Text that was streamed and not finished by a step comes after them. After a reply the list is empty: what comes then, or
after the last question, waits for the next turn. Read each answer before the next question; a program that asks on and
on without reading is stopped. The input ends when the turn is over.

With `client_tools = true` the program may be given tools that another program runs, which has sent the message through
OpenAI's interface. The request has them then, and what else was asked of the answer, as far as it was:

    "client_tools": [{"name", "description", "parameters"}, …], "tool_choice": "auto", "required" or [name, …],
    "output": {"schema", "name"}

To call one, the program writes a step of the assistant with a part of type `tool_call`, and ends. The result is in the
context of the next turn.
"""

import asyncio
import base64
import binascii
import contextlib
import hashlib
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

from msgspec import Struct, structs

from sessionary.agents.program import (
    READ_BYTES,
    Program,
    ProgramOptions,
    program_environment,
    start_program,
)
from sessionary.agents.registry import AgentContext, AgentKind
from sessionary.config.setting import Seconds, Setting
from sessionary.engine.ports import Ask, Delta, Event, Step, TurnRequest
from sessionary.errors import AgentFailed, BadInput, RetryLater
from sessionary.model import codec
from sessionary.model.message import Attachment, Message, Role, Text, message
from sessionary.model.question_data import question_data, read_question
from sessionary.model.terminal import one_line
from sessionary.model.transcript import chats_of
from sessionary.model.turn_options import TurnOptions
from sessionary.model.usage import TOKEN_FIELDS, CostStatus, Usage, add_calls

PROTOCOL = 1
_LONGEST_EXAMPLE = 80
_LONGEST_ERROR = 500
_MESSAGE_FIELDS = ("model", "finish_reason", "token_count", "extra")
_TOKENS = (*TOKEN_FIELDS, "cache_write_1h_tokens")
_USAGE_FIELDS = (*_TOKENS, "model", "provider", "base_url", "billing_mode", "task", "call_id")
_ROLES = {Role.ASSISTANT, Role.TOOL}


def request_line(
    request: TurnRequest, *, keep_input_open: bool = False, client_tools: bool = False
) -> bytes:
    """Return the request that the program reads from its standard input, as one line."""
    session = request.session
    told = {
        "sessionary": PROTOCOL,
        "turn_id": request.turn_id,
        "session": {
            "id": session.id,
            "title": session.title,
            "profile": session.profile,
            "key": session.key,
            "model": session.model,
        },
        "source": request.source.to_json(),
        "system_prompt": request.system_prompt,
        "context": list(request.context),
        "settings": dict(request.settings),
    }
    if request.resumed:
        told |= {
            "resumed": request.resumed,
            "steps": [chat for step in request.steps for chat in chats_of(step)],
            "unfinished": [
                {"id": call.id, "name": call.name, "arguments": call.arguments}
                for call in request.unfinished
            ],
        }
    if request.questions:
        told["questions"] = [question_data(each) for each in request.questions]
    if keep_input_open:
        told["keep_input_open"] = True
    if client_tools:
        told |= _asked_of_turn(request.options)
    return _line(told)


def _asked_of_turn(options: TurnOptions) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if options.tools:
        told["client_tools"] = [
            {"name": each.name, "description": each.description, "parameters": each.parameters}
            for each in options.tools
        ]
        told["tool_choice"] = options.tool_choice
    if options.output is not None:
        told["output"] = {"schema": options.output.schema, "name": options.output.name}
    return told


def _line(data: Mapping[str, Any]) -> bytes:
    return codec.encode(data).encode() + b"\n"


def too_much(program: str, total: int) -> AgentFailed:
    """Return the error for a program whose output exceeds the limit."""
    return AgentFailed(f"The program {program} wrote too much ({total} bytes) and was stopped.")


class MessagesQuestion(Struct, frozen=True):
    """The program asks for the messages that people have sent to the running turn."""


class Answers:
    """Turns the program's output lines into events; collects what is recorded at the end of the turn."""

    def __init__(self, program: str, *, most_rubbish: int, may_ask: bool = False) -> None:
        self.rubbish = 0
        self._program = program
        self._most_rubbish = most_rubbish
        self._may_ask = may_ask
        self._example = ""
        self._said: list[str] = []
        self._reply: str | None = None
        self._asked: Ask | None = None
        self._usage: Usage | None = None
        self._files: list[tuple[Attachment, bytes]] = []
        self._is_silent = True

    @property
    def has_reply(self) -> bool:
        """Whether the program has written its last message."""
        return self._reply is not None

    @property
    def has_asked(self) -> bool:
        """Whether the program has asked people something."""
        return self._asked is not None

    def read(self, line: bytes) -> Iterator[Event | MessagesQuestion]:
        """Yield the events of one line, or its question for messages."""
        if not line.strip():
            return
        if self._asked is not None:
            raise AgentFailed(
                f"The program {self._program} wrote more after its question, which must be its last line: "
                f"{_example(line)!r}."
            )
        try:
            given = codec.decode(line)
            yield from self._understood(given)
        except (ValueError, RecursionError, BadInput):
            self._count_rubbish(line)

    def end(self, last_words: str) -> Iterator[Event]:
        """Yield the last events, after the program has exited successfully, or has asked people something."""
        text = "".join(self._said) if self._reply is None else self._reply
        # What a question has cost is recorded, too.
        is_paid = self._asked is not None and self._usage is not None
        if text or self._reply is not None or self._files or is_paid:
            words = (Text(text),) if text or not self._files else ()
            message = Message(
                Role.ASSISTANT, words, finish_reason="stop", extra=self._rubbish_mark()
            )
            yield self._step(message)
        elif self._is_silent and self._asked is None:
            raise AgentFailed(
                f"The program {self._program} ended without an answer."
                f"{self.rubbish_note()}{last_words}"
            )
        if self._asked is not None:
            yield self._asked

    def rubbish_note(self) -> str:
        """Return a sentence about the lines that could not be parsed, or an empty string."""
        if not self.rubbish:
            return ""
        return f" {self.rubbish} of its lines were not understood, the first: {self._example!r}."

    def _understood(self, given: Any) -> Iterator[Event | MessagesQuestion]:
        match given:
            case {"delta": str(text)}:
                yield self._delta(text, thinking=given.get("thinking") is True)
            case {"delta": {"text": str(text), **rest}}:
                yield self._delta(text, thinking=rest.get("thinking") is True)
            case {"step": dict(message)}:
                step = _message(message)
                self._take_usage(given.get("usage"))
                yield self._step(step)
            case {"reply": str(text)}:
                self._take_usage(given.get("usage"))
                self._reply = text
            case {"file": dict(file)}:
                self._files.append(_file(file))
            case {"usage": dict(used)}:
                self._take_usage(used)
            case {"ask": asked}:
                self._asked = self._questions(asked)
            case {"new_messages": True} if self._may_ask:
                yield MessagesQuestion()
            case {"error": str(text)}:
                raise _failure(text, given.get("retry_after"))
            case {"error": {"message": str(text), **rest}}:
                raise _failure(text, rest.get("retry_after"))
            case _:
                raise BadInput("not a line of ours")

    def _questions(self, asked: Any) -> Ask:
        """Return the questions of a line; a question that nobody can answer fails the turn, unlike other rubbish."""
        if self._reply is not None:
            raise AgentFailed(
                f"The program {self._program} asked something after its reply, which is the end of a turn."
            )
        try:
            found = tuple(
                read_question(each) for each in (asked if isinstance(asked, list) else [asked])
            )
        except BadInput as error:
            raise AgentFailed(
                f"The program {self._program} asked what cannot be asked: {error}"
            ) from error
        if not found:
            raise AgentFailed(f"The program {self._program} asked nothing: its list is empty.")
        return Ask(found)

    def _delta(self, text: str, *, thinking: bool) -> Delta:
        if not thinking:
            self._said.append(text)
        return Delta(text, thinking=thinking)

    def _step(self, message: Message) -> Step:
        usage, self._usage = self._usage, None
        self._said.clear()
        self._is_silent = False
        files, self._files = self._files, []
        attached = tuple(attachment for attachment, _ in files)
        with_files = (
            structs.replace(message, parts=(*message.parts, *attached)) if files else message
        )
        return Step(with_files, usage, tuple(data for _, data in files))

    def _take_usage(self, given: Any) -> None:
        if isinstance(given, Mapping):
            new = _usage(given)
            self._usage = new if self._usage is None else add_calls(self._usage, new)

    def _count_rubbish(self, line: bytes) -> None:
        self.rubbish += 1
        if self.rubbish == 1:
            self._example = _example(line)
        if self.rubbish > self._most_rubbish:
            raise AgentFailed(
                f"The program {self._program} wrote rubbish and was stopped.{self.rubbish_note()}"
            )

    def _rubbish_mark(self) -> dict[str, Any]:
        return {"rubbish_lines": self.rubbish} if self.rubbish else {}


_CUT = 4 * _LONGEST_EXAMPLE


def _example(line: bytes) -> str:
    return one_line(line[:_CUT].decode(errors="replace"), _LONGEST_EXAMPLE)


def _message(data: dict[str, Any]) -> Message:
    content = data.get("parts", data.get("content"))
    fields = {name: data[name] for name in _MESSAGE_FIELDS if data.get(name) is not None}
    made = message(data.get("role", "assistant"), content, **fields)
    if made.role not in _ROLES:
        raise BadInput("an agent speaks as assistant or tool")
    return made


def _file(given: Mapping[str, Any]) -> tuple[Attachment, bytes]:
    name, kind = given.get("name"), given.get("media_type", "application/octet-stream")
    if not isinstance(kind, str) or not isinstance(name, str | None):
        raise BadInput("a file's name and media_type are texts")
    try:
        data = base64.b64decode(given.get("data", ""), validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise BadInput("the data of a file is base64") from error
    return Attachment(hashlib.sha256(data).hexdigest(), kind, name, len(data)), data


def _usage(given: Mapping[str, Any]) -> Usage:
    known = {name: given[name] for name in _USAGE_FIELDS if given.get(name) is not None}
    cost = given.get("cost_microusd")
    status = CostStatus.UNKNOWN if cost is None else CostStatus.REPORTED
    return Usage(**known, cost_microusd=cost, cost_status=status)


def _failure(text: str, retry_after: Any) -> AgentFailed | RetryLater:
    line = one_line(re.sub(r"\s+", " ", text), _LONGEST_ERROR) or "The program failed."
    if isinstance(retry_after, int | float) and not isinstance(retry_after, bool):
        return RetryLater(line, max(0.0, float(retry_after)))
    return AgentFailed(line)


_log = logging.getLogger(__name__)
# How much of the answers to its questions a program may leave unread. One that reads each answer leaves nothing.
_MOST_UNREAD_BYTES = 256 * 1024

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOptions(ProgramOptions):
    """The program, its working directory, and its limits."""

    timeout_seconds: Annotated[Seconds, Setting("how long it may take")] = 600.0
    most_bytes: Annotated[int, Setting("how much it may write", ge=1)] = 32 * 1024 * 1024
    keep_input_open: Annotated[
        bool,
        Setting("leave its standard input open, so that it can ask for messages sent meanwhile"),
    ] = False
    client_tools: Annotated[
        bool,
        Setting("give it the tools, and the form of the answer, that a program asks for over HTTP"),
    ] = False
    most_line_bytes: int = 8 * 1024 * 1024
    most_rubbish_lines: int = 1000


class CommandRunner:
    """Runs the program once per turn; the program and its children are ended with the turn."""

    def __init__(self, options: CommandOptions) -> None:
        if not options.command:
            raise BadInput("A command agent needs a program to run.")
        self._options = options

    @property
    def takes_turn_options(self) -> bool:
        """Whether the program knows what to do with the tools of another program."""
        return self._options.client_tools

    def check(self) -> None:
        """Refuse a program that cannot be started, without starting it."""
        self._options.check_program()

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        """Yield the events of the program."""
        options = self._options
        unfinished = {each.name for each in request.unfinished}
        if unfinished and unfinished <= request.options.tool_names:
            return  # only its end was not recorded: the other program makes these calls
        answers = Answers(
            options.command[0],
            most_rubbish=options.most_rubbish_lines,
            may_ask=options.keep_input_open,
        )
        told = request_line(
            request,
            keep_input_open=options.keep_input_open,
            client_tools=options.client_tools,
        )
        async with await start_program(options) as program:
            child = _ProgramTurn(program, options)
            async with contextlib.aclosing(child.lines(told)) as lines:
                async for line in lines:
                    for event in answers.read(line):
                        if not isinstance(event, MessagesQuestion):
                            yield event
                            continue
                        child.check_that_it_reads()
                        # What nobody would answer stays for the next turn.
                        is_over = answers.has_reply or not program.is_listening
                        new = () if is_over else await request.services.new_messages()
                        child.tell({"messages": list(new)})
                    if answers.has_asked:
                        child.end_soon()
            code = await child.ended()
            if code != 0:
                raise AgentFailed(
                    f"The program {options.command[0]} ended with code {code}."
                    f"{answers.rubbish_note()}{program.last_words()}"
                )
            for event in answers.end(program.last_words()):
                yield event
        if answers.rubbish:
            _log.warning("%s:%s", options.command[0], answers.rubbish_note())

    async def close(self) -> None:
        """Do nothing: a program ends with its turn."""


class _ProgramTurn:
    """What is written to a program and read from it in one turn, within the limits."""

    def __init__(self, program: Program, options: CommandOptions) -> None:
        self._program = program
        self._options = options
        self._deadline = asyncio.get_running_loop().time() + options.timeout_seconds
        self._answered_bytes = 0
        self._is_ending = False

    async def lines(self, request: bytes) -> AsyncGenerator[bytes]:
        """Give the program its request; yield its output by lines, up to the limit."""
        program, options = self._program, self._options
        # Neither waits: a program may end without reading its input.
        program.stdin.write(request)
        if not options.keep_input_open:
            program.stdin.close()
        kept, total = b"", 0
        while chunk := await self._in_time(program.stdout.read(READ_BYTES), after_all=b""):
            total += len(chunk)
            *finished, kept = (kept + chunk).split(b"\n")
            longest = max(map(len, (kept, *finished)))
            if total > options.most_bytes or longest > options.most_line_bytes:
                raise too_much(program.name, total)
            for line in finished:
                yield line
        if kept:
            yield kept
        # It can ask nothing any more.
        program.stdin.close()

    def check_that_it_reads(self) -> None:
        """Refuse a program that asks and does not read what it was answered."""
        # What waits may also be the request, which is written first.
        if min(self._program.unread_bytes, self._answered_bytes) > _MOST_UNREAD_BYTES:
            raise AgentFailed(
                f"The program {self._program.name} asked for new messages, did not read the "
                f"answers, and was stopped.{self._program.last_words()}"
            )

    def tell(self, answer: Mapping[str, Any]) -> None:
        """Write an answer to the program's input, without waiting until it is read."""
        # A program may end, or close its input, before it is answered.
        if self._program.is_listening:
            line = _line(answer)
            self._answered_bytes += len(line)
            self._program.stdin.write(line)

    def end_soon(self) -> None:
        """Give the program a moment to end by itself, because it has written its last line; then it is ended."""
        self._program.stdin.close()
        if not self._is_ending:
            self._is_ending = True
            moment = asyncio.get_running_loop().time() + self._options.kill_after_seconds
            self._deadline = min(self._deadline, moment)

    async def ended(self) -> int:
        """Return the exit code of the program; 0 if it was to end soon and did not."""
        program = self._program
        await self._in_time(program.gone(), after_all=None)
        if program.returncode is None:
            return 0
        await program.errors_read()
        return program.returncode

    async def _in_time(self, work: Awaitable[T], *, after_all: T) -> T:
        """Return the result of one wait; when its time is over, `after_all` if the program was to end soon."""
        # Around one wait, never around a `yield`: there the time-out would cancel the caller.
        try:
            async with asyncio.timeout_at(self._deadline):
                return await work
        except TimeoutError as error:
            if self._is_ending:
                return after_all
            raise AgentFailed(
                f"The program {self._program.name} did not finish in "
                f"{self._options.timeout_seconds:g} seconds and was stopped."
                f"{self._program.last_words()}"
            ) from error


def create(options: CommandOptions, context: AgentContext) -> CommandRunner:
    """Return the runner for a program, with the environment that it may see."""
    passed = program_environment(context.environ, names=options.pass_env, added=options.env)
    return CommandRunner(replace(options, environ=passed))


AGENT = AgentKind(
    name="command",
    title="A program",
    settings=CommandOptions,
    create=create,
    documentation="docs/agents.md",
)
