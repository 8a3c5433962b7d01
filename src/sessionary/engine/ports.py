"""The ports of the engine: agents and their parts, platform adapters, and what those may call."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Protocol, overload

import msgspec
from msgspec import Struct

from sessionary.config.engine import ToolDecision
from sessionary.errors import AgentFailed, Conflict, NotAllowed
from sessionary.model.compaction import CompactionLimits
from sessionary.model.message import Attachment, Message, ToolCall
from sessionary.model.policy import PolicyVerdict
from sessionary.model.question import NewQuestion, Question, outcome_text
from sessionary.model.question_data import QuestionData, approved_arguments, read_question
from sessionary.model.session import SessionHead
from sessionary.model.source import Channel, Source
from sessionary.model.transcript import Chat
from sessionary.model.turn import Delivery
from sessionary.model.turn_options import TurnOptions
from sessionary.model.usage import Usage


class ProposedCall(Struct, frozen=True):
    """A tool call that a model wants to make.

    `is_safe`: it may be repeated without harm. `needs_approval`: it must be approved unless a rule allows it.
    """

    tool: str
    arguments: Mapping[str, Any]
    is_safe: bool
    needs_approval: bool = False


class NativeSession(Struct, frozen=True):
    """A session as another tool names it, which writes records of its own that can be imported."""

    tool: str
    id: str


class KeptState(Struct, frozen=True):
    """What an agent has kept with a session, and what has happened in the session since."""

    data: Mapping[str, Any]
    # The turn in which it was kept: this one, if it is continued.
    turn_id: str
    # What the agent does not know: the messages of the context that were said after that turn.
    since: Sequence[Chat] = ()
    # Whether that turn has ended as it should.
    is_finished: bool = True
    # Whether something that the agent knows was taken back, or is not in this session, which was forked before it.
    is_rewound: bool = False
    # Whether it was kept with the session that this one was forked from.
    is_inherited: bool = False


class TurnServices(Protocol):
    """What a runner may call during its turn. All of it is optional."""

    async def record_request(
        self,
        *,
        model: str | None,
        tools: Sequence[Mapping[str, Any]],
        settings: Mapping[str, Any],
        window: int | None = None,
    ) -> None:
        """Record what the model is sent besides the messages, and its window, so that people can see it later."""

    async def fit(
        self, *, window: int | None, overhead: int = 0, is_too_long: bool = False
    ) -> Sequence[Chat] | None:
        """Compact the conversation if it nears the model's window; return the new context, or None if it stays.

        Call it before each model call. `overhead` is the estimated size of the system prompt and the tools.
        `is_too_long`: the provider has refused the context.
        """

    async def new_messages(self) -> Sequence[Chat]:
        """Return messages that people sent during the turn, if they are to steer it; the others wait for the next turn.

        They are in the log when this returns. Call it between steps.
        """

    async def read_output(self, seq: int) -> str | None:
        """Return the tool output in an entry of the session, whole; None if there is none."""

    async def read_output_files(self, seq: int) -> Sequence[Attachment]:
        """Return the files that belong to the tool output in an entry of the session."""

    async def decide(self, calls: Sequence[ProposedCall]) -> Sequence[PolicyVerdict]:
        """Return for each call of a tool whether it may run, must be approved first, or is refused."""

    async def start_approved(self, name: str) -> bool:
        """Note that the call which this question approved is started now; return False if it was started before.

        Call it right before the tool: after a crash, nobody can tell whether a call ran that was started.
        """

    async def ask_now(self, question: NewQuestion, *, seconds: float) -> Question:
        """Ask people something while the turn keeps running, because a tool waits; return the question, decided.

        After `seconds` it has expired. If the turn is stopped, it is withdrawn. Its name gets a number if the turn has
        asked a question of this name before. An agent that can end its run and be called again yields `Ask` instead.
        Raise `NotAllowed` if there is nobody to ask.
        """

    async def directory(self) -> str | None:
        """Return the directory that an editor has opened the session for; None for a session of no editor."""

    async def kept_state(self) -> KeptState | None:
        """Return what this agent has kept with the session, or with the one that it was forked from."""

    async def keep_state(
        self, data: Mapping[str, Any], *, native: NativeSession | None = None
    ) -> None:
        """Keep data with the session for later turns of this agent, in the place of what was kept before.

        Call it before the agent learns of the messages of the turn. With `native`, an import of that tool's own records
        leaves this session out from now on: it is here already.
        """


class NoServices:
    """The services of a request that belongs to no running turn."""

    def __repr__(self) -> str:
        return "NoServices()"

    async def record_request(
        self,
        *,
        model: str | None,
        tools: Sequence[Mapping[str, Any]],
        settings: Mapping[str, Any],
        window: int | None = None,
    ) -> None:
        """Record nothing."""

    async def fit(
        self, *, window: int | None, overhead: int = 0, is_too_long: bool = False
    ) -> Sequence[Chat] | None:
        """Leave the context as it is."""
        return None

    async def new_messages(self) -> Sequence[Chat]:
        """Return nothing."""
        return ()

    async def read_output(self, seq: int) -> str | None:
        """Return nothing."""
        return None

    async def read_output_files(self, seq: int) -> Sequence[Attachment]:
        """Return nothing."""
        return ()

    async def decide(self, calls: Sequence[ProposedCall]) -> Sequence[PolicyVerdict]:
        """Allow every call: whoever runs an agent outside a turn decides themselves."""
        return [PolicyVerdict(ToolDecision.ALLOW, "no policy applies") for _ in calls]

    async def start_approved(self, name: str) -> bool:
        """Return that the call was not started before."""
        return True

    async def ask_now(self, question: NewQuestion, *, seconds: float) -> Question:
        """Raise `NotAllowed`."""
        raise NotAllowed("There is nobody to ask outside a turn.")

    async def directory(self) -> str | None:
        """Return that no editor has opened the session."""
        return None

    async def kept_state(self) -> KeptState | None:
        """Return that nothing was kept."""
        return None

    async def keep_state(
        self, data: Mapping[str, Any], *, native: NativeSession | None = None
    ) -> None:
        """Keep nothing."""


class QuestionsAsked(BaseException):
    """Raised in an agent that is a function when it asks people something: the function ends, and is called again.

    Not an `Exception`, so that a function which catches those does not catch this.
    """

    def __init__(self, questions: tuple[NewQuestion, ...]) -> None:
        super().__init__(", ".join(each.name for each in questions))
        self.questions = questions


class TurnRequest(Struct, frozen=True):
    """What a runner is given for one turn.

    A turn whose process has ended is continued in another: then `resumed` says how often that has happened, `steps` are
    the messages that the turn has written so far, which are in the context too, and `unfinished` are the tool calls
    among them whose result was not recorded. It is not known whether those ran.

    A turn that has asked people something is continued too: `questions` are all that it has asked, with their answers.

    `options` are what a program asks of this turn. Its instructions are in the system prompt and its settings in the
    `settings` already; its tools, and the form of its output, are only for agents that say they take them.
    """

    turn_id: str
    session: SessionHead
    source: Source
    system_prompt: str
    context: Sequence[Chat]
    blob: Callable[[str], Awaitable[bytes]]
    settings: Mapping[str, Any] = {}
    resumed: int = 0
    steps: tuple[Message, ...] = ()
    unfinished: tuple[ToolCall, ...] = ()
    questions: tuple[Question, ...] = ()
    services: TurnServices = NoServices()
    options: TurnOptions = TurnOptions()
    # The numbers of questions without a name.
    _numbers: Iterator[int] = msgspec.field(default_factory=partial(count, 1))

    def question(self, name: str) -> Question | None:
        """Return the question with this name that the turn has asked before it was continued."""
        return next((each for each in self.questions if each.asked.name == name), None)

    @overload
    async def ask(
        self, text: str, *, options: Sequence[str] = (), name: str | None = None
    ) -> str: ...
    @overload
    async def ask(
        self, text: str, *, schema: Mapping[str, Any], name: str | None = None
    ) -> dict[str, Any]: ...
    async def ask(
        self,
        text: str,
        *,
        options: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> str | dict[str, Any]:
        """Ask the person something, in an agent that is an asynchronous function; return the answer.

        That is a text, one of the `options`, or the values of a form with this JSON `schema`. The first time, the
        function ends here, and the turn waits without it. When the answer has come, the function is called again from
        its beginning, and this call returns the answer at once: what is before it runs again. Questions are told apart
        by their `name`; without one, by their number in the order of calls.

        Raise `NotAllowed` if the person declined, or nobody answered in time.
        """
        data: QuestionData = {"text": text, "options": list(options)}
        if schema is not None:
            data["schema"] = schema
        (question,) = self._decided([self._named(data, name)])
        answered = question.answered
        if answered is None or not question.is_approved:
            raise NotAllowed(outcome_text(question))
        values = answered.answer.values
        return answered.answer.text if schema is None else dict(values or {})

    async def approve(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        text: str = "",
        name: str | None = None,
        is_safe: bool = False,
    ) -> dict[str, Any]:
        """Ask whether something may be done, as `ask` does; return the arguments to do it with, which may be changed.

        It is asked unless a rule of the policy decides. Raise `NotAllowed` if it was denied.

        An approval is returned once. If the function is called again after that, because the process died or because it
        has asked something else since, it is not known what it did with it, and `Conflict` is raised. So ask everything
        else before. `is_safe`: it may be done twice without harm, and the approval is returned each time.
        """
        data: QuestionData = {"tool": tool, "arguments": dict(arguments or {}), "text": text}
        (question,) = self._decided([self._named(data, name)])
        approved = approved_arguments(question)
        if approved is None:
            raise NotAllowed(outcome_text(question))
        if not await self.services.start_approved(question.asked.name) and not is_safe:
            raise Conflict(
                f"The call of {tool} was approved and begun before this turn went on; it is not known whether it ran. "
                "It was not run again."
            )
        return approved

    async def ask_all(self, questions: Sequence[QuestionData]) -> list[Question]:
        """Ask several questions at once, as `ask` does; return them, each answered, expired or withdrawn.

        One with a `tool` asks for an approval; call `approve` with its name before you do it.
        """
        return self._decided([self._named(each, each.get("name")) for each in questions])

    def _named(self, data: QuestionData, name: str | None) -> NewQuestion:
        number = str(next(self._numbers))
        return read_question({**data, "name": number if name is None else name})

    def _decided(self, asked: Sequence[NewQuestion]) -> list[Question]:
        """Return what became of questions; raise `QuestionsAsked` for those that were not asked before."""
        new = tuple(each for each in asked if self.question(each.name) is None)
        if new:
            raise QuestionsAsked(new)
        found = [question for each in asked if (question := self.question(each.name))]
        for each, question in zip(asked, found, strict=True):
            if _substance(each) != _substance(question.asked):
                raise AgentFailed(
                    f"The agent has asked something else as question {each.name!r} when it was called before: "
                    "give each question a name of its own, and ask it in the same way each time."
                )
        return found


def _substance(asked: NewQuestion) -> tuple[object, ...]:
    """Return what must be the same if a question is asked again; its text may have changed."""
    return asked.kind, asked.tool, asked.arguments, asked.options, asked.schema


class Delta(Struct, frozen=True):
    """Streamed text or reasoning; shown at once, stored when its step is finished."""

    text: str
    thinking: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A finished message of the turn: the assistant's, or a tool result.

    `files` are bytes that its attachments name by their SHA-256 and that are new to the store.
    """

    message: Message
    usage: Usage | None = None
    files: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Ask:
    """The last event of a run: the turn waits until people have answered these questions.

    No process holds it meanwhile. When they have answered, or the time for it is over, the runner is called again with
    a request that has the `questions`.
    """

    questions: tuple[NewQuestion, ...]


Event = Delta | Step | Ask
# An agent that is a function: it returns a message, or yields pieces of text and finished steps.
AgentOutput = str | Message | Delta | Step
AgentFunction = Callable[
    [TurnRequest],
    AgentOutput
    | Awaitable[AgentOutput | None]
    | Iterator[AgentOutput]
    | AsyncIterator[AgentOutput]
    | None,
]


class Runner(Protocol):
    """An agent that takes turns. Cancelling the iteration stops it; an exception fails the turn."""

    def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        """Answer the last message of the context."""

    async def close(self) -> None:
        """Close connections and processes."""


class Summarizer(Protocol):
    """Summarizes a conversation for the model."""

    async def summarize(
        self,
        context: Sequence[Chat],
        *,
        focus: str | None,
        limits: CompactionLimits | None = None,
    ) -> tuple[str, Usage | None]:
        """Return a summary that replaces the context, no longer than the limits allow, and what it cost."""


class Titler(Protocol):
    """Finds a title for a conversation."""

    async def title(self, first_user_text: str, reply: str) -> tuple[str | None, Usage | None]:
        """Return a title, or None if the texts give none; and what it cost. Never fails."""


class Agent(Protocol):
    """A named configuration: who answers, who summarizes, who finds titles."""

    @property
    def name(self) -> str: ...
    @property
    def prompt(self) -> str | None: ...
    @property
    def model(self) -> str | None:
        """The model that it asks, if it is known before a turn."""

    @property
    def runner(self) -> Runner: ...
    @property
    def summarizer(self) -> Summarizer: ...
    @property
    def titler(self) -> Titler: ...
    @property
    def resumes(self) -> bool:
        """Whether a turn whose process has ended is continued in another."""

    @property
    def reports_unknown_calls(self) -> bool:
        """Whether the person is told when it is not known whether a tool ran."""

    @property
    def takes_turn_options(self) -> bool:
        """Whether a program may give it tools of its own for a turn, and ask for a form of the answer."""

    def window(self, model: str | None) -> int | None:
        """Return how many tokens the agent's model reads, or another one that it may use; None if unknown."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a platform can do, and notes on it for the agent's system prompt."""

    longest_text: int = 4000
    shows_typing: bool = False
    # Whether `show` is called with the partial reply.
    streams: bool = False
    ids_needed_for_mentions: bool = False
    # Whether `send` shows the options of a question as buttons, and can edit a message that was sent.
    buttons: bool = False
    edits: bool = False
    notes: tuple[str, ...] = ()


class Sent(Struct, frozen=True):
    """A delivery that the platform accepted."""

    platform_message_id: str | None = None


class PressResult(Struct, frozen=True):
    """What to tell whoever pressed a button, and whether it has answered its question."""

    text: str
    is_changed: bool = False


class Receive(Protocol):
    """Where an adapter gives the messages of its platform."""

    async def __call__(
        self, source: Source, message: Message, /, *, files: Sequence[bytes] = ()
    ) -> str:
        """Store a message, with the bytes that its attachments name by their SHA-256.

        When this returns the message is durable. Return its arrival's id, or "" if the sender may not write to the
        agent; then nothing is stored.
        """

    async def admits(self, source: Source, /) -> bool:
        """Return whether this person may write to the agent; call it before fetching their files."""

    async def press(self, source: Source, data: str, /) -> PressResult:
        """Answer a question with a button of its message; `source` is who pressed it and where.

        When this returns, the answer is durable.
        """


# Handles a post of the platform: headers and the raw body in, an HTTP status out. It checks the signature before it
# reads the body, and answers when the message is durable. A text is what the platform wants to read back.
Webhook = Callable[[Mapping[str, str], bytes], Awaitable[int | str]]

# Proves to the platform that the webhook's address is ours: the query in, the text to answer with out; None refuses.
Challenge = Callable[[Mapping[str, str]], str | None]


class DeliveryServices(Protocol):
    """What an adapter may call, given to it by `attach`."""

    async def blob(self, delivery: Delivery, name: str) -> bytes:
        """Return the bytes of a file that a delivery names."""

    async def message_id(self, delivery_id: str) -> str | None:
        """Return the id on the platform of the message that an earlier delivery was sent as; None if it has none."""

    async def bounced(self, delivery_id: str, reason: str) -> None:
        """Report that the platform accepted a delivery and could not deliver it after all."""

    async def moved(self, old: str, new: str) -> None:
        """Report that a chat has another id from now on."""

    async def place(self) -> str | None:
        """Return the last value given to `keep_place`: how far this platform was read; None at first."""

    async def keep_place(self, place: str) -> None:
        """Report that everything up to this place is durable."""

    async def chats(self, *, most: int) -> Sequence[Channel]:
        """Return the channels of this platform that have a conversation, the most recently active first."""


class Sender(Protocol):
    """Sends the deliveries of a platform.

    `send` raises `RetryLater` or `Unreachable`; after any other error it is unclear whether the message was sent.
    """

    platform: str

    async def send(self, delivery: Delivery) -> Sent:
        """Send one delivery."""

    async def close(self) -> None:
        """Close connections."""


class Adapter(Sender, Protocol):
    """The connection to a platform where people write to the agent.

    `sessionary.channels.base.ChannelAdapter` implements what is the same on every platform.
    """

    capabilities: Capabilities
    # None where the platform posts nothing to us.
    webhook: Webhook | None
    challenge: Challenge | None
    # The most that the platform posts in one request; a larger body is refused before its signature is checked.
    webhook_bytes: int

    def attach(self, services: DeliveryServices, /) -> None:
        """Take what this adapter may call; called once before `run`."""

    async def run(self, receive: Receive) -> None:
        """Receive messages until cancelled; acknowledge each after `receive` has returned."""

    async def typing(self, channel: Channel) -> None:
        """Show the typing indicator, where the platform has one."""

    async def show(self, channel: Channel, turn_id: str, text: str) -> None:
        """Show the partial reply of a turn; its delivery replaces it."""

    async def check(self) -> str:
        """Connect, and return who the bot is; an error says what is missing and how to get it."""
